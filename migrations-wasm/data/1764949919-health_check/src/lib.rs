//! Adds a table of one row, which Diego writes to check that the database works.

use bbs_sdk::{Column, Manifest, Migration, Table, export_migration};

#[derive(Debug)]
pub struct HealthCheck;

impl Migration for HealthCheck {
    fn manifest() -> Manifest {
        Manifest::new(1_764_949_919, "health-check")
            .summary("Creates bbs_health_check")
            .create_table(
                Table::new("bbs_health_check")
                    .column(Column::integer("id"))
                    .column(Column::big_integer("time"))
                    .primary_key(["id"]),
            )
    }
}

export_migration!(HealthCheck);
