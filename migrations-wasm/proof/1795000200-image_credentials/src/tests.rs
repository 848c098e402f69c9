//! The laws, the golden cases, and every kind of message that the two functions may receive.

use bbs_sdk::testing::{
    Datum, Generator, Laws, Layout, Stepped, UnitData, check_golden, run, step,
};
use bbs_sdk::wire::{self, Value};
use bbs_sdk::{Column, Direction, Refused, Table};

use super::credentials::{Parts, merge, split};
use super::{IMMUTABLE, ImageCredentials, MUTABLE};

fn desired_lrps() -> Layout {
    let table = |name| {
        let table = Table::new(name).column(Column::varchar("process_guid", 255));
        table
            .primary_key(["process_guid"])
            .partition_key("process_guid")
    };
    let mutable = table(MUTABLE).column(Column::varchar("modification_tag_epoch", 255));
    Layout::of([
        table(IMMUTABLE).column(Column::long_text("run_info").enveloped()),
        mutable,
    ])
}

/// Any fields in any order; credentials at their position, elsewhere, twice, empty, or absent.
fn run_info(generator: &mut Generator) -> Datum {
    let mut message = Vec::new();
    for _ in 0..generator.below(6) {
        let number = generator.pick(&[1, 7, 20, 21, 21, 22, 22, 23, 25, 900]);
        let text = generator.text(20);
        wire::append(&mut message, number, Value::Bytes(text.as_bytes()));
    }
    message.into()
}

fn image_credentials(generator: &mut Generator) -> Datum {
    let mut message = Vec::new();
    for _ in 0..generator.below(4) {
        let number = generator.pick(&[1, 1, 2, 2, 3]);
        let text = generator.text(20);
        wire::append(&mut message, number, Value::Bytes(text.as_bytes()));
    }
    if generator.once_in(3) {
        Datum::Null
    } else {
        message.into()
    }
}

#[test]
fn laws() {
    let laws = Laws::<ImageCredentials>::over(desired_lrps())
        .fill(IMMUTABLE, "run_info", run_info)
        .fill(IMMUTABLE, "immutable_run_info", run_info)
        .fill(MUTABLE, "image_credentials", image_credentials)
        // Generated units may have a row in only one of the tables.
        .may_refuse();
    laws.units(2000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    check_golden::<ImageCredentials>(&desired_lrps(), folder)
        .unwrap_or_else(|error| panic!("{error}"));
}

fn message(fields: &[(u32, &str)]) -> Vec<u8> {
    let mut message = Vec::new();
    fields.iter().for_each(|(number, text)| {
        wire::append(&mut message, *number, Value::Bytes(text.as_bytes()))
    });
    message
}

#[test]
fn split_and_merge_round_trip() {
    let whole = message(&[(6, "a"), (21, "user"), (22, "secret"), (25, "tag")]);
    let parts = split(&whole).expect("two parts");
    assert_eq!(parts.run_info, message(&[(6, "a"), (25, "tag")]));
    assert_eq!(
        parts.credentials,
        Some(message(&[(1, "user"), (2, "secret")]))
    );
    assert_eq!(merge(&parts), Ok(whole));
}

#[test]
fn no_credentials_and_empty_ones_differ() {
    let none = Parts {
        run_info: message(&[(6, "a")]),
        credentials: None,
    };
    assert_eq!(split(&none.run_info), Ok(none.clone()));
    let empty = message(&[(21, ""), (22, "")]);
    let parts = split(&empty).expect("two parts");
    assert_eq!(
        parts,
        Parts {
            run_info: Vec::new(),
            credentials: Some(message(&[(1, ""), (2, "")]))
        }
    );
    assert_eq!(merge(&parts), Ok(empty));
}

fn stepped(direction: Direction, unit: UnitData) -> Result<Stepped, Refused> {
    step::<ImageCredentials>(&desired_lrps(), direction, &run(), &[unit], &[]).remove(0)
}

fn source_unit(run_info: &[u8]) -> UnitData {
    let unit = UnitData::default().row(IMMUTABLE, [("run_info", run_info.to_vec().into())]);
    unit.row(MUTABLE, [("process_guid", "app".into())])
}

fn target_unit(run_info: &[u8], credentials: &[u8]) -> UnitData {
    let unit = UnitData::default().row(
        IMMUTABLE,
        [("immutable_run_info", run_info.to_vec().into())],
    );
    unit.row(
        MUTABLE,
        [("image_credentials", credentials.to_vec().into())],
    )
}

#[test]
fn residue_is_left_only_where_the_inverse_differs() {
    let residue = |direction, unit| stepped(direction, unit).expect("a step").residue;
    let ordinary = message(&[(6, "a"), (21, "user"), (22, "secret"), (25, "tag")]);
    assert_eq!(residue(Direction::Up, source_unit(&ordinary)), None);
    let out_of_place = message(&[(22, "secret"), (21, "user"), (6, "a")]);
    assert_eq!(
        residue(Direction::Up, source_unit(&out_of_place)),
        Some(out_of_place)
    );
    assert_eq!(
        residue(
            Direction::Down,
            target_unit(&message(&[(6, "a")]), &message(&[(1, "user")]))
        ),
        None
    );
    assert!(
        residue(
            Direction::Down,
            target_unit(b"", &message(&[(1, "first"), (1, "last")]))
        )
        .is_some()
    );
}

#[test]
fn unreadable_values_are_refused_with_the_column() {
    let refused = |direction, unit| stepped(direction, unit).expect_err("a refusal").reason;
    let truncated = "cannot be read: the protobuf message ends inside a field, at byte 1";
    assert_eq!(
        refused(Direction::Up, source_unit(b"\x08")),
        format!("`run_info` {truncated}")
    );
    assert_eq!(
        refused(Direction::Down, target_unit(b"", b"\x08")),
        format!("`image_credentials` {truncated}")
    );
    assert_eq!(
        refused(Direction::Down, target_unit(b"\x08", b"\x0a\x00")),
        format!("`immutable_run_info` {truncated}")
    );
    assert_eq!(
        refused(Direction::Up, source_unit(b"\xa8\x01\x05")),
        "`run_info` cannot be read: field 21 is a varint on the wire, not length-delimited"
    );
    let left = |residue: &[u8]| Stepped::of(UnitData::default(), Some(residue.to_vec()));
    let up = |residue| {
        step::<ImageCredentials>(
            &desired_lrps(),
            Direction::Up,
            &run(),
            &[source_unit(b"")],
            &[left(residue)],
        )
        .remove(0)
    };
    assert_eq!(
        up(b"\x08").expect_err("a refusal").reason,
        format!("the residue {truncated}")
    );
    assert_eq!(
        up(b"").expect_err("a refusal").reason,
        "the residue holds no `run_info`"
    );
}

#[test]
fn lrp_in_only_one_table_is_refused_and_an_absent_one_is_not() {
    let half = UnitData::default().row(IMMUTABLE, [("run_info", Datum::from(Vec::new()))]);
    let refused = stepped(Direction::Up, half).expect_err("a refusal");
    assert_eq!(
        refused.reason,
        "`mutable_desired_lrps` has no row for this key, one was expected"
    );
    assert!(stepped(Direction::Up, UnitData::default()).is_ok());
}
