//! Traps on every batch with a row whose text is `trap`; otherwise writes the length of each text.
//! Tests the bisection of failing batches.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

#[path = "../../adds_size.rs"]
mod adds_size;

struct TrapsOnMarkedUnit;

impl Guest for TrapsOnMarkedUnit {
    fn describe() -> Manifest {
        adds_size::manifest(
            "traps-on-marked-unit",
            "Writes the length of each text, and traps on the text trap.",
        )
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let text = &batch.tables[0].columns[0];
        let mut values = Vec::new();
        for ends in text.offsets.windows(2) {
            let value = &text.values[ends[0] as usize..ends[1] as usize];
            assert_ne!(value, b"trap", "a marked unit");
            values.extend((value.len() as u64).to_le_bytes());
        }
        Ok(adds_size::outcome(values))
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

export!(TrapsOnMarkedUnit);
