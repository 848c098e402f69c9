//! Rejection and failure reasons of tasks get room for 1024 characters.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct IncreaseTaskErrorColumns;

impl Migration for IncreaseTaskErrorColumns {
    fn manifest() -> Manifest {
        Manifest::new(1_528_928_964, "increase-task-error-columns")
            .summary("Widens the error texts of tasks to 1024 characters")
            .alter_column(
                "tasks",
                Column::varchar("rejection_reason", 1024).default(""),
            )
            .alter_column("tasks", Column::varchar("failure_reason", 1024).default(""))
    }
}

export_migration!(IncreaseTaskErrorColumns);
