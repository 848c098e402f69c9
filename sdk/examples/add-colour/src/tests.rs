//! The tests of the README.

use bbs_sdk::testing::{Datum, Laws, Layout, check_golden};
use bbs_sdk::{Column, Table};

use crate::AddColour;

/// The layout before, reduced to the tables used.
fn before() -> Layout {
    let table = Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("domain", 255))
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    Layout::of([table])
}

#[test]
fn laws() {
    Laws::<AddColour>::over(before())
        .fill("desired_lrps", "domain", |generator| {
            Datum::from(generator.pick(&["cf-apps", "cf-tasks", ""]))
        })
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    check_golden::<AddColour>(&before(), folder).unwrap_or_else(|error| panic!("{error}"));
}
