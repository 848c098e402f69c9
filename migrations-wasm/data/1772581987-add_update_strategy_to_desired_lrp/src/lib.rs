//! Adds the update strategy of desired LRPs: 0 rolling, 1 recreate.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddUpdateStrategy;

impl Migration for AddUpdateStrategy {
    fn manifest() -> Manifest {
        Manifest::new(1_772_581_987, "add-update-strategy-to-desired-lrp")
            .summary("Adds desired_lrps.update_strategy")
            .add_column(
                "desired_lrps",
                Column::integer("update_strategy").default(0),
            )
    }
}

export_migration!(AddUpdateStrategy);
