//! Benchmark: rewrites the encrypted message of every row, up and down: decrypt, decode, encode,
//! encrypt.

use bbs_sdk::{Access, Manifest, Migration, Refused, Run, Unit, export_migration, wire};

#[derive(Debug)]
pub struct RewriteRunInfo;

/// A field that Diego does not use.
const FIELD: u32 = 4000;

impl Migration for RewriteRunInfo {
    fn manifest() -> Manifest {
        let run_info = || {
            Access::to("desired_lrps")
                .reads(["run_info"])
                .writes(["run_info"])
        };
        Manifest::new(1_900_000_003, "rewrite-run-info")
            .summary("Puts a field into desired_lrps.run_info")
            .up(run_info())
            .down(run_info())
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            let mut message = wire::remove(row.bytes("run_info")?, FIELD)?;
            wire::append(&mut message, FIELD, wire::Value::Varint(1));
            row.set_bytes("run_info", &message)?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            row.set_bytes("run_info", &wire::remove(row.bytes("run_info")?, FIELD)?)?;
        }
        Ok(())
    }
}

export_migration!(RewriteRunInfo);
