//! Adds to each record the version of the last row-transforming migration that it went through.
//! NULL is a record written before the column existed, or by a BBS that does not know it.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct RecordVersion;

impl Migration for RecordVersion {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_000, "record-version")
            .summary("Adds record_version to desired_lrps, actual_lrps and tasks")
            .add_column(
                "desired_lrps",
                Column::big_integer("record_version").nullable(),
            )
            .add_column(
                "actual_lrps",
                Column::big_integer("record_version").nullable(),
            )
            .add_column("tasks", Column::big_integer("record_version").nullable())
    }
}

export_migration!(RecordVersion);
