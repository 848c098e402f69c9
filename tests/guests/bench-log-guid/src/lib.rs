//! Benchmark: rewrites another short column of every row, up and down.

use bbs_sdk::{Access, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct TouchLogGuid;

impl Migration for TouchLogGuid {
    fn manifest() -> Manifest {
        let log_guid = || {
            Access::to("desired_lrps")
                .reads(["log_guid"])
                .writes(["log_guid"])
        };
        Manifest::new(1_900_000_002, "touch-log-guid")
            .summary("Appends a dot to desired_lrps.log_guid")
            .up(log_guid())
            .down(log_guid())
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            row.set_bytes("log_guid", &[row.bytes("log_guid")?, b"."].concat())?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            let text = row.bytes("log_guid")?;
            row.set_bytes("log_guid", text.strip_suffix(b".").unwrap_or(text))?;
        }
        Ok(())
    }
}

export_migration!(TouchLogGuid);
