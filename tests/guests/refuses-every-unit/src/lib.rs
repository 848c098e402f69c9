//! A migration after the default ones that refuses every unit.

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct RefusesEveryUnit;

impl Migration for RefusesEveryUnit {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_055, "refuses-every-unit")
            .summary("Adds a colour that no unit has")
            .add_column("desired_lrps", Column::integer("colour").nullable())
            .up(Access::to("desired_lrps")
                .reads(["domain"])
                .writes(["colour"]))
    }

    fn up(_run: &Run, _unit: &mut Unit<'_>) -> Result<(), Refused> {
        Err(Refused::new("no colour is known"))
    }
}

export_migration!(RefusesEveryUnit);
