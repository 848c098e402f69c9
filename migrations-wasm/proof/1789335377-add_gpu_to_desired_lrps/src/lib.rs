//! Adds the number and the type of the GPUs of desired LRPs, as the migration of this version in
//! Diego's public proof of concept for GPUs does. Not in the default catalog, as Diego has not
//! released it: its version is below those of this project's own migrations, so it is the example
//! of one that has to be inserted below migrations that ran.

use bbs_sdk::{Column, Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AddGpuToDesiredLrps;

impl Migration for AddGpuToDesiredLrps {
    fn manifest() -> Manifest {
        Manifest::new(1_789_335_377, "add-gpu-to-desired-lrps")
            .summary("Adds desired_lrps.gpu_limit and gpu_type")
            .add_column("desired_lrps", Column::integer("gpu_limit").default(0))
            .add_column("desired_lrps", Column::varchar("gpu_type", 255).default(""))
    }
}

export_migration!(AddGpuToDesiredLrps);

#[cfg(test)]
mod tests;
