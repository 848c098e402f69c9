//! The laws and the manifest. `tests/suite/documented_schema.rs` has the layout with the migration
//! inserted at its place.

use bbs_sdk::schema::{ColumnType, Literal, Sealing};
use bbs_sdk::testing::{Laws, Layout};
use bbs_sdk::{Column, Migration, Table};

use super::AddGpuToDesiredLrps;

const TABLE: &str = "desired_lrps";
const COLUMNS: [&str; 2] = ["gpu_limit", "gpu_type"];

fn desired_lrps() -> Layout {
    let table = Table::new(TABLE)
        .column(Column::varchar("process_guid", 255))
        .column(Column::integer("update_strategy").default(0))
        .column(Column::varchar("modification_tag_epoch", 255));
    Layout::of([table
        .primary_key(["process_guid"])
        .partition_key("process_guid")])
}

fn column_names(layout: &Layout) -> Vec<&str> {
    layout.tables[TABLE]
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect()
}

#[test]
fn laws() {
    Laws::<AddGpuToDesiredLrps>::over(desired_lrps())
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn manifest_adds_two_columns_with_defaults_and_transforms_no_row() {
    let manifest = AddGpuToDesiredLrps::manifest();
    assert_eq!(manifest.version, 1_789_335_377);
    assert!(manifest.reversible);
    assert!(manifest.up.is_empty() && manifest.down.is_empty());
    let before = desired_lrps();
    let layout = before
        .apply(&manifest)
        .expect("the manifest fits the layout");
    let before = column_names(&before).len();
    let added = &layout.tables[TABLE].columns[before..];
    assert_eq!(
        added
            .iter()
            .map(|column| column.name.as_str())
            .collect::<Vec<_>>(),
        COLUMNS
    );
    assert_eq!(added[0].kind, ColumnType::Integer);
    assert_eq!(added[0].default, Some(Literal::Integer(0)));
    assert_eq!(added[1].kind, ColumnType::Varchar(255));
    assert_eq!(added[1].default, Some(Literal::Text(String::new())));
    assert!(
        added
            .iter()
            .all(|column| !column.nullable && column.sealing == Sealing::Plain)
    );
}
