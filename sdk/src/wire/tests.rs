//! The wire editor: every wire type, every truncation, every edit.

use super::*;

/// Field 1 varint 300, field 2 "hi", field 3 fixed32, field 4 fixed64, field 5 a group with field
/// 1.
const MESSAGE: &[u8] =
    b"\x08\xac\x02\x12\x02hi\x1d\x01\x00\x00\x00\x21\x02\x00\x00\x00\x00\x00\x00\x00\x2b\x08\x01\x2c";

fn numbers(message: &[u8]) -> Vec<u32> {
    fields(message)
        .map(|field| field.expect("a field").number)
        .collect()
}

fn error(message: &[u8]) -> WireError {
    check(message).expect_err("not a message")
}

#[test]
fn every_wire_type_is_parsed() {
    let values: Vec<_> = fields(MESSAGE)
        .map(|field| field.expect("a field").value)
        .collect();
    let group = Value::Group(b"\x08\x01");
    assert_eq!(
        values,
        [
            Value::Varint(300),
            Value::Bytes(b"hi"),
            Value::Fixed32(1),
            Value::Fixed64(2),
            group
        ]
    );
}

#[test]
fn fields_cover_the_message_without_a_gap() {
    let raw: Vec<u8> = fields(MESSAGE)
        .flat_map(|field| field.expect("a field").raw.to_vec())
        .collect();
    assert_eq!(raw, MESSAGE);
    let mut at = 0;
    for field in fields(MESSAGE).map(|field| field.expect("a field")) {
        assert_eq!(field.at, at);
        at += field.raw.len();
    }
}

#[test]
fn appended_fields_equal_the_parsed_ones() {
    let mut copy = Vec::new();
    for field in fields(MESSAGE).map(|field| field.expect("a field")) {
        append(&mut copy, field.number, field.value);
    }
    assert_eq!(copy, MESSAGE);
}

#[test]
fn truncation_inside_a_field_is_an_error() {
    let ends: Vec<_> = fields(MESSAGE)
        .map(|field| field.expect("a field"))
        .map(|f| f.at + f.raw.len())
        .collect();
    for length in 1..MESSAGE.len() {
        match check(&MESSAGE[..length]) {
            Ok(()) => assert!(ends.contains(&length), "cut at {length}"),
            Err(error) => assert!(
                matches!(error, WireError::Truncated { .. }),
                "cut at {length}: {error}"
            ),
        }
    }
}

#[test]
fn malformed_messages_are_specific_errors() {
    assert_eq!(error(b"\x08"), WireError::Truncated { at: 1 });
    assert_eq!(error(b"\x12\x05abc"), WireError::Truncated { at: 0 });
    assert_eq!(
        error(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        WireError::Truncated { at: 0 }
    );
    assert_eq!(
        error(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        WireError::Overlong { at: 1 }
    );
    assert_eq!(
        error(b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"),
        WireError::Overlong { at: 1 }
    );
    assert_eq!(
        error(b"\x0e"),
        WireError::UnknownWireType {
            at: 0,
            wire_type: 6
        }
    );
    assert_eq!(
        error(b"\x0f"),
        WireError::UnknownWireType {
            at: 0,
            wire_type: 7
        }
    );
    assert_eq!(
        error(b"\x00\x00"),
        WireError::BadNumber { at: 0, number: 0 }
    );
    assert_eq!(
        error(b"\x80\x80\x80\x80\x10\x00"),
        WireError::BadNumber {
            at: 0,
            number: 1 << 29
        }
    );
    assert_eq!(error(b"\x0c"), WireError::StrayEndGroup { at: 0 });
    assert_eq!(error(b"\x0b\x14"), WireError::StrayEndGroup { at: 1 });
    assert_eq!(error(&[0x0b; 100]), WireError::TooDeep { at: 33 });
    assert!(
        check(b"\xf8\xff\xff\xff\x0f\x00").is_ok(),
        "the highest field number"
    );
    assert!(
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_ok(),
        "the highest number"
    );
    assert!(
        check(&[[0x0b; 32], [0x0c; 32]].concat()).is_ok(),
        "groups as deep as they may be"
    );
}

#[test]
fn iteration_ends_after_an_error() {
    let walk =
        fields(b"\x08\x01\x0e\x08\x01").map(|field| field.map(|field| (field.number, field.value)));
    let error = WireError::UnknownWireType {
        at: 2,
        wire_type: 6,
    };
    assert_eq!(
        walk.collect::<Vec<_>>(),
        [Ok((1, Value::Varint(1))), Err(error)]
    );
}

#[test]
fn last_field_of_a_number_counts() {
    assert_eq!(
        get(b"\x08\x01\x10\x05\x08\x02", 1)
            .expect("a message")
            .map(|field| field.value),
        Some(Value::Varint(2))
    );
    assert_eq!(get(b"\x08\x01", 2), Ok(None));
    assert_eq!(
        get_all(b"\x08\x01\x10\x05\x08\x02", 1)
            .expect("a message")
            .len(),
        2
    );
    assert!(
        get(b"\x08\x01\x12", 1).is_err(),
        "an error behind the field is not overlooked"
    );
}

#[test]
fn edit_keeps_every_other_byte() {
    let without = remove(MESSAGE, 2).expect("a message");
    assert_eq!(numbers(&without), [1, 3, 4, 5]);
    assert_eq!(without, [&MESSAGE[..3], &MESSAGE[7..]].concat());
    let replaced = replace(MESSAGE, 2, Value::Bytes(b"you")).expect("a message");
    assert_eq!(
        replaced,
        [&MESSAGE[..3], b"\x12\x03you", &MESSAGE[7..]].concat()
    );
    let added = replace(b"\x08\x01", 3, Value::Varint(0)).expect("a message");
    assert_eq!(added, b"\x08\x01\x18\x00");
    let inserted = replace(b"\x18\x03\x08\x01", 2, Value::Varint(0)).expect("a message");
    assert_eq!(
        inserted, b"\x10\x00\x18\x03\x08\x01",
        "before the first field of a higher number"
    );
    let merged = replace(b"\x08\x01\x10\x07\x08\x02", 1, Value::Varint(9)).expect("a message");
    assert_eq!(merged, b"\x08\x09\x10\x07");
    assert!(remove(b"\x08", 1).is_err());
    assert!(replace(b"\x08", 1, Value::Varint(0)).is_err());
}

#[test]
fn edited_content_replaces_the_old_one_in_place() {
    let edited =
        |edit: fn(Field<'_>) -> Result<Option<Vec<u8>>, WireError>| edit_all(MESSAGE, edit);
    assert_eq!(edited(|_| Ok(None)), Ok(None));
    let you = edited(|field| Ok((field.number == 2).then(|| b"you".to_vec())));
    assert_eq!(
        you.expect("a message").expect("a change"),
        [&MESSAGE[..3], b"\x12\x03you", &MESSAGE[7..]].concat()
    );
    assert!(
        edited(|field| field.bytes().map(|_| None)).is_err(),
        "errors of the edit"
    );
    assert!(edit_all(b"\x12\x00\x08", |_| Ok(Some(Vec::new()))).is_err());
}

fn edit_all(
    message: &[u8],
    change: fn(Field<'_>) -> Result<Option<Vec<u8>>, WireError>,
) -> Result<Option<Vec<u8>>, WireError> {
    edit(message, change)
}

#[test]
fn overlong_encodings_of_other_fields_are_kept() {
    // A length of two in three bytes: valid, but not what `append` would write.
    let message = b"\x12\x82\x80\x00hi\x08\x01";
    assert_eq!(
        remove(message, 1).expect("a message"),
        b"\x12\x82\x80\x00hi"
    );
}

#[test]
fn wire_type_mismatch_names_both_types() {
    let field = get(b"\x08\x01", 1).expect("a message").expect("a field");
    assert_eq!(field.varint(), Ok(1));
    let mismatch = field.bytes().expect_err("a varint").to_string();
    assert_eq!(
        mismatch,
        "field 1 is a varint on the wire, not length-delimited"
    );
    let field = get(b"\x12\x01\xff", 2)
        .expect("a message")
        .expect("a field");
    assert_eq!(field.bytes(), Ok(&b"\xff"[..]));
    assert_eq!(field.text(), Err(WireError::NotUtf8 { number: 2 }));
    assert!(field.varint().is_err());
}

#[test]
fn absent_values_are_empty_and_parts_of_a_message_are_joined() {
    let message = b"\x0a\x01a\x10\x05\x0a\x02bc";
    assert_eq!(get_bytes(message, 1), Ok(&b"bc"[..]));
    assert_eq!(get_bytes(message, 3), Ok(&b""[..]));
    assert_eq!(get_varint(message, 2), Ok(5));
    assert_eq!(get_varint(message, 3), Ok(0));
    assert_eq!(get_message(message, 1), Ok(Some(b"abc".to_vec())));
    assert_eq!(get_message(message, 3), Ok(None));
    assert!(get_bytes(message, 2).is_err() && get_message(message, 2).is_err());
    assert!(get_varint(message, 1).is_err());
}
