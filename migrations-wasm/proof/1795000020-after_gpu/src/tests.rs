//! The laws. `tests/suite/documented_schema.rs` compares its layout with the one before.

use bbs_sdk::testing::{Laws, Layout};
use bbs_sdk::{Column, Table};

use super::AfterGpu;

#[test]
fn laws() {
    let table = Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    Laws::<AfterGpu>::over(Layout::of([table]))
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}
