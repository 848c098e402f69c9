//! Adds the reason of the last rejection by a cell to tasks.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddRejectionReasonToTask;

impl Migration for AddRejectionReasonToTask {
    fn manifest() -> Manifest {
        Manifest::new(1_523_050_077, "add-rejection-reason-to-task")
            .summary("Adds tasks.rejection_reason")
            .add_column(
                "tasks",
                Column::varchar("rejection_reason", 255).default(""),
            )
    }
}

export_migration!(AddRejectionReasonToTask);
