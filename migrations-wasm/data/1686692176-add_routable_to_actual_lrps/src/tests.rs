//! The laws, the golden cases, and the return of residue.

use bbs_sdk::testing::{Datum, Laws, Layout, Stepped, UnitData, check_golden, run, step};
use bbs_sdk::{Column, Direction, Table};

use super::AddRoutable;

fn actual_lrps() -> Layout {
    let table = Table::new("actual_lrps").column(Column::varchar("process_guid", 255));
    let table = table
        .column(Column::integer("instance_index"))
        .column(Column::integer("presence"))
        .column(Column::varchar("instance_guid", 255).default(""));
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

#[test]
fn exception_returns_to_the_same_container_alone() {
    let row = |unit: UnitData, index: i64| {
        unit.row(
            "actual_lrps",
            [
                ("process_guid", "app".into()),
                ("instance_index", index.into()),
                ("presence", 0.into()),
                (
                    "instance_guid",
                    format!("container-{index}").as_str().into(),
                ),
                ("state", "RUNNING".into()),
                ("routable", false.into()),
            ],
        )
    };
    let unit = row(row(UnitData::default(), 0), 1);
    let stepped = |direction, unit: UnitData, left: &[Stepped]| {
        step::<AddRoutable>(&actual_lrps(), direction, &run(), &[unit], left)
            .remove(0)
            .expect("a step")
    };
    let left = stepped(Direction::Down, unit, &[]);
    let mut unit = left.unit.clone();
    let rows = unit.tables.get_mut("actual_lrps").expect("the table");
    rows[0].insert("instance_guid".to_owned(), "another".into());
    let up = stepped(Direction::Up, unit, &[left]);
    let rows = up.unit.tables["actual_lrps"].iter();
    let routable: Vec<_> = rows.map(|row| row["routable"].clone()).collect();
    assert_eq!(routable, [true.into(), false.into()]);
}
