//! The laws, and that the two tables together have the columns of the original one.

use bbs_sdk::testing::{Laws, Layout};
use bbs_sdk::{Column, Migration, Table};

use super::{CHANGING, IMMUTABLE, MUTABLE, SplitDesiredLrps};

fn desired_lrps() -> Layout {
    let table = Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("domain", 255))
        .column(Column::long_text("annotation").nullable())
        .column(Column::integer("instances"))
        .column(Column::long_text("routes").sealed())
        .column(Column::varchar("modification_tag_epoch", 255))
        .column(Column::integer("modification_tag_index").nullable())
        .column(Column::long_text("run_info").enveloped())
        .column(Column::medium_text("metric_tags").nullable().sealed())
        .primary_key(["process_guid"])
        .partition_key("process_guid")
        .index("desired_lrps_domain_idx", ["domain"]);
    Layout::of([table])
}

#[test]
fn laws() {
    // Generated units may have a row in only one of the tables.
    Laws::<SplitDesiredLrps>::over(desired_lrps())
        .may_refuse()
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn each_column_is_in_one_table_and_the_key_in_both() {
    let before = desired_lrps();
    let after = before
        .apply(&SplitDesiredLrps::manifest())
        .expect("the manifest fits the layout");
    assert_eq!(
        after.tables.keys().collect::<Vec<_>>(),
        [IMMUTABLE, MUTABLE]
    );
    let names = |table: &str| -> Vec<_> {
        after.tables[table]
            .columns
            .iter()
            .map(|c| c.name.clone())
            .collect()
    };
    assert_eq!(names(MUTABLE)[1..], CHANGING);
    let mut all: Vec<_> = names(IMMUTABLE)
        .into_iter()
        .chain(names(MUTABLE).into_iter().skip(1))
        .collect();
    let mut known: Vec<_> = before.tables["desired_lrps"]
        .columns
        .iter()
        .map(|c| c.name.clone())
        .collect();
    all.sort();
    known.sort();
    assert_eq!(all, known);
}
