//! The migration of the SDK's README: a column whose values follow from those of another one.

mod relabel;
mod residue;
#[cfg(test)]
mod tests;

pub use relabel::relabel;
pub use residue::Residue;

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct AddColour;

impl Migration for AddColour {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_100, "add-colour")
            .summary("Adds desired_lrps.colour, from the domain")
            .add_column("desired_lrps", Column::varchar("colour", 16).nullable())
            .up(Access::to("desired_lrps")
                .reads(["domain"])
                .writes(["colour"]))
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            let colour = if row.text("domain")? == "cf-apps" {
                "green"
            } else {
                "grey"
            };
            row.set_text("colour", colour)?;
        }
        Ok(())
    }
}

export_migration!(AddColour);
