//! The tests of the README.

use bbs_sdk::layout::Layout;
use bbs_sdk::testing::{Datum, Laws};
use bbs_sdk::{Column, Table};

use crate::AddColour;

#[test]
fn laws() {
    let table = Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("domain", 255))
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    // The layout before, reduced to the tables used.
    Laws::<AddColour>::over(Layout::of([table]))
        .fill("desired_lrps", "domain", |generator| {
            Datum::from(generator.pick(&["cf-apps", "cf-tasks", ""]))
        })
        // A declared loss; omit it if there is none.
        .loses("desired_lrps", "colour")
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    bbs_sdk::testing::check_golden::<AddColour>(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"))
        .unwrap_or_else(|error| panic!("{error}"));
}
