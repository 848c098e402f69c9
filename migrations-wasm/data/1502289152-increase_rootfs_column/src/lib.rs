//! The root file system of a desired LRP may be a URL of up to 1024 characters.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct IncreaseRootfsColumn;

impl Migration for IncreaseRootfsColumn {
    fn manifest() -> Manifest {
        Manifest::new(1_502_289_152, "increase-rootfs-column")
            .summary("Widens desired_lrps.rootfs to 1024 characters")
            .alter_column("desired_lrps", Column::varchar("rootfs", 1024).default(""))
    }
}

export_migration!(IncreaseRootfsColumn);
