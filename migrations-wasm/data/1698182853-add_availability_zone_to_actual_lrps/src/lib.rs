//! Adds the availability zone of actual LRPs.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddAvailabilityZone;

impl Migration for AddAvailabilityZone {
    fn manifest() -> Manifest {
        Manifest::new(1_698_182_853, "add-availability-zone-to-actual-lrps")
            .summary("Adds actual_lrps.availability_zone")
            .add_column(
                "actual_lrps",
                Column::varchar("availability_zone", 255).default(""),
            )
    }
}

export_migration!(AddAvailabilityZone);
