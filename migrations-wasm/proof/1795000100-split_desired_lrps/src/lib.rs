//! The data side of the worked example: the fields that an update may change move to one table, the
//! others stay in another. Columns move as they are: nothing is decrypted or computed, and the host
//! derives `down`. Not in the default catalog: tests add it to the modules folder of an unchanged
//! host.

use bbs_sdk::{Column, Manifest, Migration, Table, export_migration};

#[derive(Debug)]
pub struct SplitDesiredLrps;

const IMMUTABLE: &str = "immutable_desired_lrps";
const MUTABLE: &str = "mutable_desired_lrps";

/// The columns that Diego's `UpdateDesiredLRP` writes: the fields of the worked example's
/// `MutableDesiredLRP`, those that became changeable later, and the modification tag.
const CHANGING: [&str; 6] = [
    "instances",
    "annotation",
    "routes",
    "metric_tags",
    "modification_tag_epoch",
    "modification_tag_index",
];

impl Migration for SplitDesiredLrps {
    fn manifest() -> Manifest {
        let mutable = Table::new(MUTABLE)
            .column(Column::varchar("process_guid", 255))
            .primary_key(["process_guid"])
            .partition_key("process_guid");
        let split = Manifest::new(1_795_000_100, "split-desired-lrps")
            .summary("Splits desired_lrps into a mutable and an immutable table")
            .drop_index("desired_lrps", "desired_lrps_domain_idx")
            .rename_table("desired_lrps", IMMUTABLE)
            .create_index(IMMUTABLE, "immutable_desired_lrps_domain_idx", ["domain"])
            .create_table(mutable);
        CHANGING.into_iter().fold(split, |split, column| {
            split.move_column(column, IMMUTABLE, MUTABLE)
        })
    }
}

export_migration!(SplitDesiredLrps);

#[cfg(test)]
mod tests;
