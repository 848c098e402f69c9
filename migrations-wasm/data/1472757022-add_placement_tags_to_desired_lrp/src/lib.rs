//! Desired LRPs name the placement tags that a cell must have, as a JSON list in plain text.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddPlacementTags;

impl Migration for AddPlacementTags {
    fn manifest() -> Manifest {
        Manifest::new(1_472_757_022, "add-placement-tags-to-desired-lrp")
            .summary("Adds desired_lrps.placement_tags")
            .add_column("desired_lrps", Column::text("placement_tags").nullable())
    }
}

export_migration!(AddPlacementTags);
