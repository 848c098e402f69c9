//! The laws and the golden cases.

use bbs_sdk::testing::{Datum, Laws, Layout, check_golden};
use bbs_sdk::{Column, Table};

use super::AddRoutable;

fn actual_lrps() -> Layout {
    let table = Table::new("actual_lrps").column(Column::varchar("process_guid", 255));
    let table = table
        .column(Column::integer("instance_index"))
        .column(Column::integer("presence"));
    let table = table
        .column(Column::varchar("state", 255))
        .column(Column::varchar("cell_id", 255));
    let table = table.column(Column::varchar("modification_tag_epoch", 255));
    let table = table.primary_key(["process_guid", "instance_index", "presence"]);
    Layout::of([table.partition_key("process_guid")])
}

#[test]
fn laws() {
    let laws = Laws::<AddRoutable>::over(actual_lrps()).fill("actual_lrps", "state", |generator| {
        Datum::from(generator.pick(&[
            "UNCLAIMED",
            "CLAIMED",
            "RUNNING",
            "RUNNING",
            "CRASHED",
            "running",
            "",
        ]))
    });
    laws.units(1000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    check_golden::<AddRoutable>(
        &actual_lrps(),
        concat!(env!("CARGO_MANIFEST_DIR"), "/golden"),
    )
    .unwrap_or_else(|error| panic!("{error}"));
}
