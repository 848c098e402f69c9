//! Adds the number of rejections by cells to tasks.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddTaskRejectionCount;

impl Migration for AddTaskRejectionCount {
    fn manifest() -> Manifest {
        Manifest::new(1_522_700_600, "add-task-rejection-count")
            .summary("Adds tasks.rejection_count")
            .add_column("tasks", Column::integer("rejection_count").default(0))
    }
}

export_migration!(AddTaskRejectionCount);
