//! The laws, the golden cases, and comparisons with Go's output.

use bbs_sdk::testing::{
    Datum, Generator, Laws, Layout, Stepped, UnitData, check_golden, run, step,
};
use bbs_sdk::wire::{self, Value};
use bbs_sdk::{Column, Direction, Refused, Table};
use prost::Message;

use super::residue::{Residue, restore_tag_fields, tag_fields};
use super::tags::Tags;
use super::{METRIC_TAGS, SplitMetricTags};

fn desired_lrps() -> Layout {
    let table = Table::new("desired_lrps").column(Column::varchar("process_guid", 255));
    let table = table.column(Column::long_text("run_info").enveloped());
    let table = table.column(Column::varchar("modification_tag_epoch", 255));
    Layout::of([table
        .primary_key(["process_guid"])
        .partition_key("process_guid")])
}

/// A run info as an old BBS wrote it: unknown fields with fields of metric tags in between.
fn run_info(generator: &mut Generator) -> Datum {
    let mut message = Vec::new();
    for _ in 0..generator.below(6) {
        if generator.once_in(2) {
            let entry = entry(generator);
            wire::append(&mut message, METRIC_TAGS, Value::Bytes(&entry));
        } else {
            let number = generator.pick(&[1, 2, 7, 13, 24, 26, 1000]);
            generator.append_field(&mut message, number);
        }
    }
    message.into()
}

fn entry(generator: &mut Generator) -> Vec<u8> {
    let mut value = Vec::new();
    if generator.once_in(2) {
        let text = if generator.once_in(6) {
            b"\xff<".to_vec()
        } else {
            generator.text(12).into_bytes()
        };
        wire::append(&mut value, 1, Value::Bytes(&text));
    }
    if generator.once_in(3) {
        wire::append(
            &mut value,
            2,
            Value::Varint(generator.pick(&[0, 1, 2, 3, u64::MAX])),
        );
    }
    let mut entry = Vec::new();
    let name = generator.pick(&["source_id", "instance_id", "<&>", "é", "", "\u{2028}"]);
    wire::append(&mut entry, 1, Value::Bytes(name.as_bytes()));
    if !generator.once_in(10) {
        wire::append(&mut entry, 2, Value::Bytes(&value));
    }
    if generator.once_in(10) {
        generator.append_field(&mut entry, 9);
    }
    entry
}

/// A column as Diego or an operator may have written it.
fn metric_tags(generator: &mut Generator) -> Datum {
    let texts = [
        "null",
        "{}",
        " { } ",
        r#"{"source_id":{"static":"app"}}"#,
        r#"{"source_id":{"static":"a\u003cb"},"instance_id":{"dynamic":"INDEX"}}"#,
        r#"{"z":{"dynamic":"INSTANCE_GUID"},"a":{"dynamic":""}}"#,
        r#"{"a":{"dynamic":"UNKNOWN_NAME"},"b":null,"c":{"static":"","other":1}}"#,
        r#"{"source_id":{"static":"1","STATIC":"2"},"é":{"static":"\ufffd\u003c"}}"#,
    ];
    if generator.once_in(6) {
        Datum::Null
    } else {
        generator.pick(&texts).into()
    }
}

#[test]
fn laws() {
    let laws = Laws::<SplitMetricTags>::over(desired_lrps());
    let laws = laws.fill("desired_lrps", "run_info", run_info).fill(
        "desired_lrps",
        "metric_tags",
        metric_tags,
    );
    laws.units(1000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    check_golden::<SplitMetricTags>(&desired_lrps(), folder)
        .unwrap_or_else(|error| panic!("{error}"));
}

fn unit(run_info: &[u8], metric_tags: impl Into<Datum>) -> UnitData {
    UnitData::default().row(
        "desired_lrps",
        [
            ("run_info", run_info.to_vec().into()),
            ("metric_tags", metric_tags.into()),
        ],
    )
}

fn down(unit: UnitData) -> Result<Stepped, Refused> {
    step::<SplitMetricTags>(&desired_lrps(), Direction::Down, &run(), &[unit], &[]).remove(0)
}

fn run_info_of(unit: &UnitData) -> &Datum {
    &unit.tables["desired_lrps"][0]["run_info"]
}

#[test]
fn run_info_that_has_the_tags_is_unchanged() {
    // Fields in an order that this migration does not write, with a duplicate.
    let mut message = b"\x38\x01".to_vec();
    for (name, text) in [("b", "1"), ("a", "0"), ("a", "2")] {
        let value = [b"\x0a\x01", text.as_bytes()].concat();
        let entry = [b"\x0a\x01", name.as_bytes(), b"\x12\x03", &value].concat();
        wire::append(&mut message, METRIC_TAGS, Value::Bytes(&entry));
    }
    let stepped =
        down(unit(&message, r#"{"a":{"static":"2"},"b":{"static":"1"}}"#)).expect("a step");
    assert_eq!(run_info_of(&stepped.unit), &Datum::from(message));
    assert_eq!(stepped.residue, None);
}

#[test]
fn down_replaces_the_tags_and_no_other_field() {
    let message = b"\x3a\x02hi\xca\x01\x00\xf8\x3f\x05";
    let stepped = down(unit(message, r#"{"a":{"dynamic":"INDEX"}}"#)).expect("a step");
    let edited = [
        &b"\x3a\x02hi\xf8\x3f\x05"[..],
        b"\xca\x01\x07\x0a\x01a\x12\x02\x10\x01",
    ]
    .concat();
    assert_eq!(run_info_of(&stepped.unit), &Datum::from(edited));
    let residue = Residue::decode(&stepped.residue.expect("residue")[..]).expect("residue");
    assert_eq!((residue.edited, residue.entries.len()), (true, 1));
}

#[test]
fn null_column_leaves_the_message_unchanged() {
    let message = b"\xca\x01\x09\x0a\x01a\x12\x04\x0a\x02hi";
    let stepped = down(unit(message, Datum::Null)).expect("a step");
    assert_eq!(run_info_of(&stepped.unit), &Datum::from(message.to_vec()));
    assert_eq!(stepped.residue, Some(Residue::default().encode_to_vec()));
}

#[test]
fn unreadable_values_are_refused_with_the_column() {
    let refused = |unit| down(unit).expect_err("a refusal").reason;
    let refused_json = |json: &str| refused(unit(b"", json));
    for (json, at) in [("[]", 0), ("{", 1), (r#"{"a":1,}"#, 7)] {
        assert_eq!(
            refused_json(json),
            format!(
                "`metric_tags` cannot be read: not the expected JSON: the error is at byte {at}"
            )
        );
    }
    for json in [
        r#"{"a":1}"#,
        r#"{"a":{"static":1}}"#,
        r#"{"a":{"dynamic":1}}"#,
        r#"{"a":[]}"#,
        // Go checks each of several members for one field, and each of several tags of one name.
        r#"{"a":{"static":1,"static":"s"}}"#,
        r#"{"a":1,"a":{}}"#,
    ] {
        assert_eq!(
            refused_json(json),
            "`metric_tags` cannot be read: tag `a` is not a metric tag",
            "{json}"
        );
    }
    let message = "`run_info` cannot be read: the protobuf message ends inside a field, at byte 1";
    assert_eq!(refused(unit(b"\x08", "{}")), message);
    let up = |run_info: &[u8], residue: Option<&[u8]>| {
        let unit =
            UnitData::default().row("desired_lrps", [("run_info", run_info.to_vec().into())]);
        let left = Stepped::of(UnitData::default(), residue.map(<[u8]>::to_vec));
        step::<SplitMetricTags>(&desired_lrps(), Direction::Up, &run(), &[unit], &[left])
            .remove(0)
            .expect_err("a refusal")
            .reason
    };
    assert_eq!(up(b"\x08", None), message);
    assert_eq!(
        up(b"\xc8\x01\x00", None),
        "`run_info` cannot be read: field 25 is a varint on the wire, not length-delimited"
    );
    assert_eq!(
        up(b"\xca\x01\x02\x12\x05", None),
        "`run_info` cannot be read: the protobuf message ends inside a field, at byte 0"
    );
    assert_eq!(
        up(b"\xca\x01\x02\x08\x05", None),
        "`run_info` cannot be read: field 1 is a varint on the wire, not length-delimited"
    );
    assert_eq!(
        up(b"", Some(b"\x08")),
        "the residue cannot be read: the protobuf message ends inside a field, at byte 1"
    );
    let of_a_longer_one = Residue {
        metric_tags: None,
        edited: true,
        entries: tag_fields(b"\x08\x01\xca\x01\x00").expect("entries"),
    };
    assert_eq!(
        up(b"", Some(&of_a_longer_one.encode_to_vec())),
        "the residue is of another `run_info`"
    );
    let null = UnitData::default().row("desired_lrps", [("run_info", Datum::Null)]);
    let null = step::<SplitMetricTags>(&desired_lrps(), Direction::Up, &run(), &[null], &[])
        .remove(0)
        .expect_err("a refusal");
    assert_eq!(null.reason, "`run_info` of `desired_lrps` is NULL");
}

#[test]
fn fields_are_restored_at_their_positions() {
    let message =
        b"\xca\x01\x00\x08\x01\xca\x01\x02\x10\x01\xca\x01\x00\x10\x02\x18\x03\xca\x01\x00";
    let entries = tag_fields(message).expect("entries");
    assert_eq!(entries.len(), 4);
    let mut edited = wire::remove(message, METRIC_TAGS).expect("a message");
    Tags::of_json(br#"{"x":{"static":"y"}}"#)
        .expect("tags")
        .append_to(&mut edited);
    assert_eq!(
        restore_tag_fields(&edited, &entries).expect("the message"),
        message
    );
}

#[test]
fn names_of_members_are_read_in_any_case_as_in_go() {
    let json = |text: &str| go_json(&Tags::of_json(text.as_bytes()).expect("tags"));
    for name in ["static", "Static", "STATIC", "\u{17f}tatic"] {
        assert_eq!(
            json(&format!(
                r#"{{"a":{{"{name}":"s","DYNAMIC":"INDEX","other":1}}}}"#
            )),
            r#"{"a":{"static":"s","dynamic":"INDEX"}}"#
        );
    }
    // The name of a tag is no name of a member.
    assert_eq!(
        json(r#"{"A":{"static":null},"a":{"STATIC":"s"}}"#),
        r#"{"A":{},"a":{"static":"s"}}"#
    );
}

#[test]
fn last_of_several_spellings_counts_as_in_go() {
    let json = |tag: &str| {
        let text = format!(r#"{{"a":{tag}}}"#);
        go_json(&Tags::of_json(text.as_bytes()).expect("tags"))
    };
    for tag in [
        r#"{"static":"1","STATIC":"2"}"#,
        r#"{"STATIC":"1","static":"2"}"#,
        r#"{"static":"1","Static":"2","STATIC":null}"#,
        // The last tag of a name replaces the others.
        r#"{"static":"1","dynamic":"INDEX"},"a":{"static":"2"}"#,
    ] {
        assert_eq!(json(tag), r#"{"a":{"static":"2"}}"#, "{tag}");
    }
    // Diego decodes the type of dynamic values itself, `null` too.
    for tag in [
        r#"{"dynamic":"INDEX","DYNAMIC":null}"#,
        r#"{"dynamic":"INDEX","DYNAMIC":"UNKNOWN_NAME"}"#,
    ] {
        assert_eq!(json(tag), r#"{"a":{}}"#, "{tag}");
    }
}

/// A message with one tag.
fn message_with(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut entry = Vec::new();
    wire::append(&mut entry, 1, Value::Bytes(name));
    wire::append(&mut entry, 2, Value::Bytes(value));
    let mut message = Vec::new();
    wire::append(&mut message, METRIC_TAGS, Value::Bytes(&entry));
    message
}

fn go_json(tags: &Tags) -> String {
    String::from_utf8(tags.to_json()).expect("UTF-8")
}

#[test]
fn invalid_utf8_is_replaced_byte_by_byte_as_in_go() {
    let json = |message: &[u8]| go_json(&Tags::of_message(message).expect("tags"));
    assert_eq!(
        json(&message_with(b"a\xe2\x80", b"\x0a\x04\xff\xf0\x9f<")),
        r#"{"a\ufffd\ufffd":{"static":"\ufffd\ufffd\ufffd\u003c"}}"#
    );
    assert_eq!(
        json(&message_with("\u{fffd}".as_bytes(), b"")),
        "{\"\u{fffd}\":{}}",
        "a valid U+FFFD is not escaped"
    );
    let two = [
        message_with(b"\xff", b"\x10\x01"),
        message_with(b"\xfe", b""),
    ]
    .concat();
    assert_eq!(json(&two), r#"{"\ufffd":{},"\ufffd":{"dynamic":"INDEX"}}"#);
}

#[test]
fn run_info_with_invalid_utf8_returns_byte_for_byte() {
    let tags = [
        message_with(b"a\xe2\x80", b"\x0a\x02\xff<"),
        message_with(b"\xff", b"\x10\x01"),
        message_with(b"\xfe", b""),
    ];
    let message = [&b"\x3a\x02hi"[..], &tags.concat()].concat();
    let json = Tags::of_message(&message).expect("tags").to_json();
    let stepped = down(unit(&message, Datum::from(json))).expect("a step");
    assert_eq!(run_info_of(&stepped.unit), &Datum::from(message));
    assert_eq!(stepped.residue, None);
}

#[test]
fn tags_are_encoded_as_in_go() {
    let entry = message_with;
    let json = |message: &[u8]| go_json(&Tags::of_message(message).expect("tags"));
    assert_eq!(json(b""), "{}");
    assert_eq!(
        json(&entry(b"a", b"\x0a\x03<&>")),
        r#"{"a":{"static":"\u003c\u0026\u003e"}}"#
    );
    assert_eq!(
        json(&entry(b"a", b"\x10\x02")),
        r#"{"a":{"dynamic":"INSTANCE_GUID"}}"#
    );
    assert_eq!(json(&entry(b"a", b"\x10\x09")), r#"{"a":{"dynamic":""}}"#);
    assert_eq!(json(&entry(b"a", b"\x10\x00\x0a\x00")), r#"{"a":{}}"#);
    // Go omits zero values, and writes the static text before the dynamic value.
    assert_eq!(
        json(&entry(b"a", b"\x10\x01\x0a\x01s")),
        r#"{"a":{"static":"s","dynamic":"INDEX"}}"#
    );
    assert_eq!(
        json(&[entry(b"b", b""), entry(b"B", b""), entry(b"", b"")].concat()),
        r#"{"":{},"B":{},"b":{}}"#
    );
}
