//! Adds the limit on the processes of an instance to desired LRPs; 0 is no limit.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddMaxPidLimit;

impl Migration for AddMaxPidLimit {
    fn manifest() -> Manifest {
        Manifest::new(1_481_761_088, "add-max-pid-limit")
            .summary("Adds desired_lrps.max_pids")
            .add_column(
                "desired_lrps",
                Column::integer("max_pids").nullable().default(0),
            )
    }
}

export_migration!(AddMaxPidLimit);
