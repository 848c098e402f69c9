//! Adds the column `size` to `things`: `up` writes the length of `text`, `down` declares no access.
//! Written against the WIT contract without the SDK, to test the contract itself.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

#[path = "../../adds_size.rs"]
mod adds_size;

struct WellBehaved;

impl Guest for WellBehaved {
    fn describe() -> Manifest {
        adds_size::manifest("well-behaved", "Writes the length of each text.")
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let text = &batch.tables[0].columns[0];
        let values = text
            .offsets
            .windows(2)
            .flat_map(|ends| u64::from(ends[1] - ends[0]).to_le_bytes())
            .collect();
        Ok(adds_size::outcome(values))
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

export!(WellBehaved);
