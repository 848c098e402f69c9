//! Adds the metric tags that an actual LRP was started with, as encrypted JSON.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddMetricTagsToActualLrp;

impl Migration for AddMetricTagsToActualLrp {
    fn manifest() -> Manifest {
        Manifest::new(1_676_360_874, "add-metric-tags-to-actual-lrp")
            .summary("Adds actual_lrps.metric_tags")
            .add_column(
                "actual_lrps",
                Column::medium_text("metric_tags").nullable().sealed(),
            )
    }
}

export_migration!(AddMetricTagsToActualLrp);
