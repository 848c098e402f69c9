//! Adds the internal routes that an actual LRP was started with, as encrypted JSON.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddInternalRoutes;

impl Migration for AddInternalRoutes {
    fn manifest() -> Manifest {
        Manifest::new(1_643_660_541, "add-internal-routes-to-actual-lrp")
            .summary("Adds actual_lrps.internal_routes")
            .add_column(
                "actual_lrps",
                Column::medium_text("internal_routes").nullable().sealed(),
            )
    }
}

export_migration!(AddInternalRoutes);
