//! Cases of Go's encoder and decoder, each of which has broken an implementation once.

use super::*;
use crate as bbs_go_json;

#[test]
fn example_of_the_documentation_succeeds() -> Result<(), Malformed> {
    let object = br#"{ "a<b" : [ 1.50 ] }"#;
    let mut out = Vec::new();
    for (name, value) in bbs_go_json::members(object)?.unwrap_or_default() {
        bbs_go_json::quote(&name, &mut out);
        bbs_go_json::compact(value, &mut out)?;
    }
    assert_eq!(out, br#""a\u003cb"[1.50]"#);
    Ok(())
}

fn compacted(text: &str) -> String {
    let mut out = Vec::new();
    compact(text.as_bytes(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Quoted as bytes, and as text if it is valid.
fn quoted(text: &[u8]) -> String {
    let mut out = Vec::new();
    quote(text, &mut out);
    let out = String::from_utf8(out).unwrap();
    if let Ok(text) = str::from_utf8(text) {
        let mut again = String::new();
        quote_str(text, &mut again);
        assert_eq!(again, out);
    }
    out
}

fn decoded(text: &[u8]) -> String {
    String::from_utf8(string(text).unwrap().unwrap()).unwrap()
}

#[test]
fn nested_values_are_read_in_one_pass() {
    let text = br#" { "a" : [ "b", null, {"skipped": [1, "\""]} ], "\u0063" : null } "#;
    let mut scanner = Scanner::new(text);
    let mut found = Vec::new();
    let is_object = scanner.members(|key, scanner| {
        let mut texts = Vec::new();
        let is_array = scanner.elements(|scanner| {
            if texts.len() < 2 {
                texts.push(scanner.text()?)
            } else {
                assert_eq!(scanner.value()?.len(), 22)
            }
            Ok(())
        })?;
        found.push((key.decode(), is_array, texts));
        Ok(())
    });
    assert_eq!((is_object, scanner.end()), (Ok(true), Ok(())));
    assert_eq!(
        found,
        [
            ("a".to_owned(), true, vec![Some(b"b".to_vec()), None]),
            ("c".to_owned(), false, vec![])
        ]
    );
}

#[test]
fn value_of_another_type_is_an_error_where_it_starts() {
    let read =
        |text: &str| Scanner::new(text.as_bytes()).members(|_, scanner| scanner.text().map(drop));
    assert_eq!(read("null"), Ok(false));
    assert_eq!(read("[]"), Err(Malformed { at: 0 }));
    assert_eq!(read(r#"{"a":"b","c":1}"#), Err(Malformed { at: 13 }));
    assert_eq!(
        Scanner::new(b"{}").elements(|_| Ok(())),
        Err(Malformed { at: 0 })
    );
}

#[test]
fn compaction_removes_space_and_preserves_spelling() {
    assert_eq!(
        compacted(" { \"a b\" : [ 1.50 , 1E+2,\t-0 ] ,\n\"\\u0041\":\"\\/\" } "),
        r#"{"a b":[1.50,1E+2,-0],"\u0041":"\/"}"#
    );
}

#[test]
fn html_characters_are_escaped() {
    assert_eq!(
        compacted("\"<a>&\u{2028}\u{2029}\u{2027}\""),
        "\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{2027}\""
    );
    assert_eq!(
        quoted("<a>&\u{2028}\u{2029}\u{2027}".as_bytes()),
        "\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{2027}\""
    );
}

#[test]
fn escaped_quote_does_not_end_a_string() {
    assert_eq!(
        compacted(r#"[ "a \" b" , "\\" , " c" ]"#),
        r#"["a \" b","\\"," c"]"#
    );
}

#[test]
fn invalid_utf8_passes_compaction_and_is_replaced_byte_by_byte_in_quoting() {
    let mut out = Vec::new();
    compact(b"[ \"\xff\xe2\x80\" ]", &mut out).unwrap();
    assert_eq!(out, b"[\"\xff\xe2\x80\"]");
    assert_eq!(quoted(b"a\xff\xe2\x80z"), r#""a\ufffd\ufffd\ufffdz""#);
    assert_eq!(decoded(b"\"\xff\xe2\x80\""), "\u{fffd}\u{fffd}\u{fffd}");
    assert_eq!(decoded(b"\"a\xffb\""), "a\u{fffd}b");
    assert_eq!(
        replace_invalid(b"a\xff\xe2\x80z"),
        "a\u{fffd}\u{fffd}\u{fffd}z"
    );
    assert_eq!(replace_invalid("é\u{fffd}".as_bytes()), "é\u{fffd}");
}

/// The pairs are those of Unicode's `CaseFolding.txt` with status C or S whose other end is ASCII.
#[test]
fn name_of_a_field_matches_in_any_case() {
    for name in [
        "task_guid",
        "TASK_GUID",
        "Task_Guid",
        "ta\u{17f}\u{212a}_guid",
    ] {
        assert!(names_field(name.as_bytes(), "task_guid"), "{name}");
    }
    assert!(names_field(b"scheme", "Scheme") && names_field(b"", ""));
    for name in [
        "task-guid",
        "task_gui",
        "task_guids",
        "ta\u{df}k_guid",
        "task_gu\u{131}d",
    ] {
        assert!(!names_field(name.as_bytes(), "task_guid"), "{name}");
    }
    assert!(!names_field(b"task_guid\xff", "task_guid"));
}

#[test]
fn control_characters_are_escaped_as_in_go() {
    for (plain, written) in [
        ("\"\\/\n\r\t", r#""\"\\/\n\r\t""#),
        ("é🚀", "\"é🚀\""),
        ("", "\"\""),
    ] {
        assert_eq!(quoted(plain.as_bytes()), written);
        assert_eq!(decoded(written.as_bytes()), plain);
    }
    assert_eq!(
        quoted(b"\0\x08\x0c\n\r\t\x1f\x7f\"\\/"),
        "\"\\u0000\\b\\f\\n\\r\\t\\u001f\x7f\\\"\\\\/\""
    );
}

#[test]
fn escapes_decode_with_surrogate_pairs_and_lone_halves() {
    assert_eq!(decoded(br#""\b\f\n\r\t\"\\\/""#), "\u{8}\u{c}\n\r\t\"\\/");
    assert_eq!(decoded(br#""\u00e9\uD83D\uDE80""#), "é🚀");
    assert_eq!(decoded(br#""\ud83dx\ude00""#), "\u{fffd}x\u{fffd}");
    assert_eq!(decoded(br#""\ud83d""#), "\u{fffd}", "half a character");
    assert_eq!(decoded(br#""\ude80x""#), "\u{fffd}x", "the other half");
    assert_eq!(
        decoded(br#""\ud83d\u0041""#),
        "\u{fffd}A",
        "half a character before a whole one"
    );
    assert_eq!(decoded(br#""\ud83d\ud83d\ude80""#), "\u{fffd}🚀");
    for wrong in [
        &br#""\x""#[..],
        br#""\u12g4""#,
        br#""\u12"#,
        br#""\"#,
        b"\"\n\"",
        b"\"\x1f\"",
        br#""\ud83d\u""#,
    ] {
        assert!(string(wrong).is_err(), "{}", wrong.escape_ascii());
    }
}

#[test]
fn numbers_keep_their_spelling() {
    for spelling in [
        "0",
        "-0",
        "10",
        "1.0",
        "1e5",
        "1E-05",
        "123456789012345678901234567890",
        "0.1e+2",
    ] {
        assert_eq!(
            Scanner::new(spelling.as_bytes()).token(),
            Ok(Token::Number(spelling.as_bytes()))
        );
        assert_eq!(compacted(spelling), spelling);
    }
    for wrong in [
        "01", "-", "+1", "1.", ".5", "1e", "1e+", "--1", "0x1", "1.e3",
    ] {
        assert!(
            compact(wrong.as_bytes(), &mut Vec::new()).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn members_and_elements_are_split() {
    let found = members(br#" { "a" : {"x":[1]} , "b":null } "#)
        .unwrap()
        .unwrap();
    assert_eq!(
        found,
        vec![
            (b"a".to_vec(), &br#"{"x":[1]}"#[..]),
            (b"b".to_vec(), &b"null"[..])
        ]
    );
    assert_eq!(members(b"{}").unwrap().unwrap(), vec![]);
    assert_eq!(members(b" null ").unwrap(), None);
    assert_eq!(
        elements(b"[ 1, \"x\" ,[] ]").unwrap().unwrap(),
        vec![&b"1"[..], b"\"x\"", b"[]"]
    );
    assert_eq!(elements(b"[]").unwrap().unwrap(), Vec::<&[u8]>::new());
    assert_eq!(elements(b"null").unwrap(), None);
    assert_eq!(string(b"null").unwrap(), None);
    assert!(is_null(b" null\n") && !is_null(b"\"null\"") && !is_null(b"nul"));
}

#[test]
fn malformed_json_is_rejected() {
    for (text, at) in [
        ("", 0),
        (" ", 1),
        ("{", 1),
        ("}", 0),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        (r#"{"a"}"#, 4),
        (r#"{"a":}"#, 5),
        (r#"{"a":1,}"#, 7),
        ("{1:2}", 1),
        (r#"{"a":1"#, 6),
        ("[1}", 2),
        ("01", 1),
        ("1.", 2),
        (".5", 0),
        ("1e", 2),
        ("-", 1),
        ("+1", 0),
        ("tru", 3),
        ("nulll", 4),
        ("\"", 1),
        (r#""\x""#, 2),
        (r#""\u12g4""#, 5),
        ("\"\u{1}\"", 1),
        ("1 2", 2),
        ("'a'", 0),
        (r#"{"a" 1}"#, 5),
    ] {
        assert_eq!(
            compact(text.as_bytes(), &mut Vec::new()),
            Err(Malformed { at }),
            "{text:?}"
        );
    }
    assert_eq!(
        (members(b"[]"), members(b"1")),
        (Err(Malformed { at: 0 }), Err(Malformed { at: 0 }))
    );
    assert_eq!(elements(b"{}"), Err(Malformed { at: 0 }));
    assert_eq!(
        (string(b"1"), string(b"[\"a\"]")),
        (Err(Malformed { at: 0 }), Err(Malformed { at: 0 }))
    );
    assert_eq!(
        (members(b"{} x"), elements(b"[] x")),
        (Err(Malformed { at: 3 }), Err(Malformed { at: 3 }))
    );
}

#[test]
fn nesting_is_limited_as_in_go() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert_eq!(compacted(&nested(10_000)), nested(10_000));
    assert_eq!(
        compact(nested(10_001).as_bytes(), &mut Vec::new()),
        Err(Malformed { at: 10_000 })
    );
}
