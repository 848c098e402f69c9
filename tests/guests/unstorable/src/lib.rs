//! A migration after the default ones whose results a database cannot store, for tasks of the domains `nul` and
//! `long`.

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct Unstorable;

impl Migration for Unstorable {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_060, "unstorable")
            .summary("Labels tasks")
            .add_column("tasks", Column::varchar("label", 10).nullable())
            .up(Access::to("tasks").reads(["domain"]).writes(["label"]))
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("tasks")? {
            let label = match row.text("domain")? {
                "nul" => "a\0b",
                "long" => "12345678901",
                _ => "äöüäöüäöüä",
            };
            row.set_text("label", label)?;
        }
        Ok(())
    }
}

export_migration!(Unstorable);
