//! Actual LRPs get a column that says whether they take traffic; the ones that run already do.
//! On the way back the column goes, and the host keeps its values for a later `up`.

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct AddRoutable;

impl Migration for AddRoutable {
    fn manifest() -> Manifest {
        Manifest::new(1_686_692_176, "add-routable-to-actual-lrps")
            .summary("Adds actual_lrps.routable, true where the instance is running")
            .add_column("actual_lrps", Column::boolean("routable").nullable().default(false))
            .up(Access::to("actual_lrps").reads(["state"]).writes(["routable"]))
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("actual_lrps")? {
            row.set_boolean("routable", row.bytes("state")? == b"RUNNING")?;
        }
        Ok(())
    }
}

export_migration!(AddRoutable);
