//! The columns that hold whole messages get room for 16 MiB.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct IncreaseRunInfoColumn;

impl Migration for IncreaseRunInfoColumn {
    fn manifest() -> Manifest {
        Manifest::new(1_471_030_898, "increase-run-info-column")
            .summary("Widens the columns that hold whole messages to 16 MiB")
            .alter_column("desired_lrps", Column::medium_text("annotation").nullable())
            .alter_column("desired_lrps", Column::medium_text("routes"))
            .alter_column(
                "desired_lrps",
                Column::medium_text("volume_placement").enveloped(),
            )
            .alter_column("desired_lrps", Column::medium_text("run_info").enveloped())
            .alter_column("actual_lrps", Column::medium_text("net_info").enveloped())
            .alter_column("tasks", Column::medium_text("result").nullable())
            .alter_column("tasks", Column::medium_text("task_definition").enveloped())
    }
}

export_migration!(IncreaseRunInfoColumn);
