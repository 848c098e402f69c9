//! A migration after `unstorable` that loosens the layout, without row functions: its table
//! `task_marks` holds rows that the version before cannot hold. It also indexes rows where they
//! are.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct Loosened;

const MARKS: &str = "task_marks";

impl Migration for Loosened {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_061, "loosened")
            .summary("Lets tasks share marks, and finds tasks by cell and domain")
            .set_primary_key(MARKS, ["guid"])
            .drop_index(MARKS, "task_marks_note_idx")
            .alter_column(MARKS, Column::varchar("note", 1000).nullable())
            // At most 3,060 bytes, which MySQL holds in an index; PostgreSQL holds about 2,700.
            .create_index("tasks", "tasks_places_idx", ["domain", "cell_id", "guid"])
    }
}

export_migration!(Loosened);
