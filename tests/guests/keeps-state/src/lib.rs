//! Writes a counter of its calls, so that two calls with the same input have different output.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

#[path = "../../adds_size.rs"]
mod adds_size;

use std::sync::atomic::{AtomicU64, Ordering};

struct KeepsState;

static CALLS: AtomicU64 = AtomicU64::new(0);

impl Guest for KeepsState {
    fn describe() -> Manifest {
        Manifest {
            leaves_residue: true,
            ..adds_size::manifest("keeps-state", "Writes a counter of its calls.")
        }
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let rows = batch.tables[0].columns[0].offsets.len() - 1;
        let values = (0..rows)
            .flat_map(|_| CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes())
            .collect();
        Ok(adds_size::outcome(values))
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

export!(KeepsState);
