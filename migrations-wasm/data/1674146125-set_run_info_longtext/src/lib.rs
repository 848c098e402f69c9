//! The columns that hold whole messages get room for 4 GiB.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct SetRunInfoLongtext;

impl Migration for SetRunInfoLongtext {
    fn manifest() -> Manifest {
        Manifest::new(1_674_146_125, "set-run-info-longtext")
            .summary("Widens the columns that hold whole messages to 4 GiB")
            .alter_column("desired_lrps", Column::long_text("annotation").nullable())
            .alter_column("desired_lrps", Column::long_text("routes").sealed())
            .alter_column(
                "desired_lrps",
                Column::long_text("volume_placement").enveloped(),
            )
            .alter_column("desired_lrps", Column::long_text("run_info").enveloped())
            .alter_column("actual_lrps", Column::long_text("net_info").enveloped())
            .alter_column("tasks", Column::long_text("result").nullable())
            .alter_column("tasks", Column::long_text("task_definition").enveloped())
    }
}

export_migration!(SetRunInfoLongtext);
