//! A migration after the default ones that is not reversible.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct OneWay;

impl Migration for OneWay {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_050, "one-way")
            .summary("Adds a column, for good")
            .add_column("domains", Column::varchar("note", 255).nullable())
            .irreversible()
    }
}

export_migration!(OneWay);
