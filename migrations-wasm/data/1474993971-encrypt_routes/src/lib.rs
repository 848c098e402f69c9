//! Encrypts routes at rest. The host opens and seals values, so there is no row function, and no
//! module sees the routes.

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
