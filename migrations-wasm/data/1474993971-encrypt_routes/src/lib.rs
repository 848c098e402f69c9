//! Routes are encrypted at rest. The host seals and opens values, so no row function runs and no routes
//! are shown to anyone.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct EncryptRoutes;

impl Migration for EncryptRoutes {
    fn manifest() -> Manifest {
        Manifest::new(1_474_993_971, "encrypt-routes")
            .summary("Encrypts desired_lrps.routes")
            .alter_column("desired_lrps", Column::medium_text("routes").sealed())
    }
}

export_migration!(EncryptRoutes);
