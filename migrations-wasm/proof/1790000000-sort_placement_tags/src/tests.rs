//! The laws, the golden cases, and each form of a column value.

use bbs_sdk::testing::{
    Datum, Generator, Laws, Layout, Stepped, UnitData, check_golden, run, step,
};
use bbs_sdk::{Column, Direction, Refused, Table};

use super::{COLUMN, SortPlacementTags, TABLE, sorted};

/// A column as Diego's BBS or an operator may have written it.
fn placement_tags(generator: &mut Generator) -> Datum {
    let texts = [
        "null",
        "[]",
        " [ ] ",
        r#"["isolated"]"#,
        r#"["isolated","red"]"#,
        r#"["red","isolated"]"#,
        r#"["red", "red","é","<&>"]"#,
        r#"["\u00e9","\u003c\u0026\u003e",""]"#,
    ];
    if generator.once_in(6) {
        Datum::Null
    } else {
        generator.pick(&texts).into()
    }
}

fn layout() -> Layout {
    let table = Table::new(TABLE)
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("modification_tag_epoch", 255))
        .column(Column::text(COLUMN).nullable());
    Layout::of([table
        .primary_key(["process_guid"])
        .partition_key("process_guid")])
}

#[test]
fn laws() {
    let laws = Laws::<SortPlacementTags>::over(layout()).fill(TABLE, COLUMN, placement_tags);
    laws.units(1000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    check_golden::<SortPlacementTags>(&layout(), folder).unwrap_or_else(|error| panic!("{error}"));
}

fn sorted_text(value: &str) -> String {
    String::from_utf8(sorted(value.as_bytes()).expect("a list")).expect("UTF-8")
}

#[test]
fn tags_are_sorted_and_listed_once() {
    assert_eq!(
        sorted_text(r#"["isolated","red"]"#),
        r#"["isolated","red"]"#
    );
    assert_eq!(
        sorted_text(r#"["red", "isolated","red"]"#),
        r#"["isolated","red"]"#
    );
    assert_eq!(sorted_text("null"), "[]");
    assert_eq!(sorted_text(r#"["<",""]"#), r#"["","\u003c"]"#);
}

fn stepped(direction: Direction, value: Datum, residue: Option<&str>) -> Result<Stepped, Refused> {
    let unit = UnitData::default().row(TABLE, [(COLUMN, value)]);
    let before = Stepped::of(
        UnitData::default(),
        residue.map(|text| text.as_bytes().to_vec()),
    );
    step::<SortPlacementTags>(&layout(), direction, &run(), &[unit], &[before]).remove(0)
}

#[test]
fn null_stays_null_and_leaves_no_residue() {
    for direction in [Direction::Up, Direction::Down] {
        let stepped = stepped(direction, Datum::Null, None).expect("a step");
        assert_eq!(stepped.unit.tables[TABLE][0][COLUMN], Datum::Null);
        assert_eq!(stepped.residue, None);
    }
}

#[test]
fn residue_is_left_only_where_the_inverse_differs() {
    let residue = |direction, value: &str, residue| {
        stepped(direction, value.into(), residue)
            .expect("a step")
            .residue
            .map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(residue(Direction::Up, r#"["a","b"]"#, None), None);
    assert_eq!(
        residue(Direction::Up, r#"["b","a"]"#, None).as_deref(),
        Some(r#"["b","a"]"#)
    );
    assert_eq!(
        residue(Direction::Down, r#"["a","b"]"#, Some(r#"["b","a"]"#)),
        None
    );
    assert_eq!(
        residue(Direction::Down, r#"["b","a"]"#, None).as_deref(),
        Some(r#"["b","a"]"#)
    );
}

#[test]
fn other_values_are_refused_with_the_column() {
    for (value, reason) in [
        ("{}", "not a list of texts"),
        ("[1]", "not a list of texts"),
        ("[null]", "not a list of texts"),
        ("[", "not JSON: the error is at line 1, column 2"),
    ] {
        let refused = stepped(Direction::Up, value.into(), None).expect_err("a refusal");
        assert_eq!(
            refused.reason,
            format!("`placement_tags` cannot be read: {reason}"),
            "{value}"
        );
    }
}
