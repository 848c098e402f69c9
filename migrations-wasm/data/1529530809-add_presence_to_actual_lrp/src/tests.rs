//! The laws, the golden cases, and the content of the residue.

use bbs_sdk::testing::{Datum, Laws, Layout, RowData, Stepped, UnitData, check_golden, run, step};
use bbs_sdk::{Column, Direction, Table};
use prost::Message;

use super::residue::{ReducedRow, Residue, SavedInteger, SavedText, Suspect};
use super::{AddPresence, INTEGERS, TEXTS};

fn actual_lrps() -> Layout {
    let table = Table::new("actual_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::integer("instance_index"))
        .column(Column::boolean("evacuating").default(false))
        .column(Column::varchar("domain", 255))
        .column(Column::varchar("state", 255))
        .column(Column::varchar("instance_guid", 255).default(""))
        .column(Column::varchar("cell_id", 255).default(""))
        .column(Column::varchar("placement_error", 1024).default(""))
        .column(Column::big_integer("since").nullable().default(0))
        .column(Column::medium_text("net_info").enveloped())
        .column(Column::varchar("modification_tag_epoch", 255))
        .column(Column::integer("modification_tag_index").nullable())
        .column(Column::integer("crash_count").default(0))
        .column(Column::varchar("crash_reason", 1024).default(""))
        .column(Column::big_integer("expire_time").nullable().default(0))
        .primary_key(["process_guid", "instance_index", "evacuating"])
        .partition_key("process_guid");
    Layout::of([table])
}

#[test]
fn laws() {
    let laws = Laws::<AddPresence>::over(actual_lrps())
        .fill("actual_lrps", "instance_index", |generator| {
            Datum::Integer(generator.below(2) as i64)
        })
        .fill("actual_lrps", "presence", |generator| {
            Datum::Integer(generator.below(4) as i64)
        });
    laws.units(1000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    check_golden::<AddPresence>(
        &actual_lrps(),
        concat!(env!("CARGO_MANIFEST_DIR"), "/golden"),
    )
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn residue_of_a_removed_row_has_every_column() {
    let layout = actual_lrps();
    let columns = layout.tables["actual_lrps"]
        .columns
        .iter()
        .map(|column| column.name.as_str());
    let mut columns: Vec<_> = columns
        .filter(|name| !["instance_index", "evacuating"].contains(name))
        .collect();
    let mut carried: Vec<_> = TEXTS.into_iter().chain(INTEGERS).collect();
    columns.sort_unstable();
    carried.sort_unstable();
    assert_eq!(carried, columns);
}

fn row(presence: i64, cell_id: &str) -> RowData {
    let texts = TEXTS
        .iter()
        .map(|name| ((*name).to_owned(), Datum::from("t")));
    let integers = INTEGERS
        .iter()
        .map(|name| ((*name).to_owned(), Datum::Integer(1)));
    let mut row: RowData = texts.chain(integers).collect();
    row.insert("cell_id".to_owned(), cell_id.into());
    row.insert("instance_index".to_owned(), 0.into());
    row.insert("evacuating".to_owned(), false.into());
    row.insert("presence".to_owned(), presence.into());
    row
}

fn unit(rows: impl IntoIterator<Item = RowData>) -> UnitData {
    UnitData {
        tables: [("actual_lrps".to_owned(), rows.into_iter().collect())].into(),
    }
}

fn down(unit: UnitData) -> Stepped {
    step::<AddPresence>(&actual_lrps(), Direction::Down, &run(), &[unit], &[])
        .remove(0)
        .expect("a step")
}

fn residue(stepped: Stepped) -> Residue {
    Residue::decode(&stepped.residue.expect("residue")[..]).expect("residue of this migration")
}

#[test]
fn slot_of_three_rows_keeps_the_two_with_distinct_old_keys() {
    // In an order that the database may return.
    let stepped = down(unit([
        row(2, "suspect"),
        row(1, "evacuating"),
        row(0, "ordinary"),
    ]));
    let left: Vec<_> = stepped.unit.tables["actual_lrps"]
        .iter()
        .map(|row| (row["cell_id"].clone(), row["evacuating"].clone()))
        .collect();
    assert_eq!(
        left,
        [
            ("evacuating".into(), Datum::from(true)),
            ("ordinary".into(), Datum::from(false))
        ]
    );
    let residue = residue(stepped);
    assert_eq!(residue.suspects.len(), 1);
    // The newer BBS never writes the old flag, so the evacuating row's flag differed from its
    // presence.
    assert_eq!(
        residue.reduced,
        [ReducedRow {
            index: 0,
            key: true,
            presence: 1,
            evacuating: Some(false),
            instance_guid: Some(b"t".to_vec()),
        }]
    );
}

#[test]
fn lone_suspect_remains_and_its_presence_is_residue() {
    let stepped = down(unit([row(2, "suspect")]));
    assert_eq!(stepped.unit.tables["actual_lrps"].len(), 1);
    let residue = residue(stepped);
    assert_eq!(residue.suspects, []);
    assert_eq!(
        residue.reduced,
        [ReducedRow {
            index: 0,
            key: false,
            presence: 2,
            evacuating: Some(false),
            instance_guid: Some(b"t".to_vec()),
        }]
    );
}

#[test]
fn presence_returns_to_the_same_container_alone() {
    let mut other = row(2, "suspect");
    other.insert("instance_index".to_owned(), 1.into());
    let left = down(unit([row(2, "suspect"), other]));
    let mut unit = left.unit.clone();
    let rows = unit.tables.get_mut("actual_lrps").expect("the table");
    rows[0].insert("instance_guid".to_owned(), "another".into());
    let left = std::slice::from_ref(&left);
    let up = step::<AddPresence>(&actual_lrps(), Direction::Up, &run(), &[unit], left)
        .remove(0)
        .expect("a step");
    let rows = up.unit.tables["actual_lrps"].iter();
    let presences: Vec<_> = rows.map(|row| row["presence"].clone()).collect();
    assert_eq!(presences, [0.into(), 2.into()]);
}

/// Goal: databases hold residue of earlier builds of this migration, so its wire form is fixed:
/// numbers are written if they are 0, and a NULL is an empty message.
#[test]
fn residue_has_its_wire_form() {
    let text = |value: Option<&[u8]>| SavedText {
        value: value.map(<[u8]>::to_vec),
    };
    let suspect = Suspect {
        index: 0,
        presence: 2,
        evacuating: None,
        texts: vec![text(None), text(Some(b"")), text(Some(b"\xff"))],
        integers: [None, Some(0), Some(-1)]
            .map(|value| SavedInteger { value })
            .to_vec(),
    };
    let reduced = |index, key, presence, evacuating| ReducedRow {
        index,
        key,
        presence,
        evacuating,
        instance_guid: None,
    };
    let residue = Residue {
        reduced: vec![reduced(3, false, 0, None), reduced(0, true, 1, Some(false))],
        suspects: vec![suspect],
    };
    let encoded = [
        &b"\x0a\x06\x08\x03\x10\x00\x20\x00"[..],
        b"\x0a\x08\x08\x00\x10\x01\x18\x00\x20\x01",
        b"\x12\x22\x08\x00\x10\x02",
        b"\x2a\x00\x2a\x02\x0a\x00\x2a\x03\x0a\x01\xff",
        b"\x32\x00\x32\x02\x08\x00\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ]
    .concat();
    assert_eq!(residue.encode_to_vec(), encoded);
    assert_eq!(Residue::decode(&encoded[..]), Ok(residue));
}

#[test]
fn damaged_residue_is_refused() {
    let mut row = row(0, "c");
    row.remove("presence");
    let left = Stepped::of(UnitData::default(), Some(vec![0x0a]));
    let refused = step::<AddPresence>(
        &actual_lrps(),
        Direction::Up,
        &run(),
        &[unit([row])],
        &[left],
    )
    .remove(0)
    .expect_err("a refusal");
    assert_eq!(
        refused.reason,
        "the residue cannot be read: the protobuf message ends inside a field, at byte 1"
    );
}
