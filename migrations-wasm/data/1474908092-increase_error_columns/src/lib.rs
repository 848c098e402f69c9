//! Crash reasons and placement errors of actual LRPs get room for 1024 characters.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct IncreaseErrorColumns;

impl Migration for IncreaseErrorColumns {
    fn manifest() -> Manifest {
        Manifest::new(1_474_908_092, "increase-error-columns")
            .summary("Widens the error texts of actual_lrps to 1024 characters")
            .alter_column(
                "actual_lrps",
                Column::varchar("crash_reason", 1024).default(""),
            )
            .alter_column(
                "actual_lrps",
                Column::varchar("placement_error", 1024).default(""),
            )
    }
}

export_migration!(IncreaseErrorColumns);
