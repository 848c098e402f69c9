//! JSON against the behaviour of Go's encoder and decoder.

use super::*;

fn string(text: &[u8]) -> String {
    match parse(text) {
        Ok(JsonValue::String(string)) => string,
        other => panic!("{}: {other:?}", text.escape_ascii()),
    }
}

#[test]
fn strings_are_escaped_as_in_go() {
    let cases = [
        ("<a&b>", r#""\u003ca\u0026b\u003e""#),
        ("\u{2028}\u{2029}\u{2027}", "\"\\u2028\\u2029\u{2027}\""),
        ("\"\\/\n\r\t", r#""\"\\/\n\r\t""#),
        ("\u{8}\u{c}\u{0}\u{1f}\u{7f}", "\"\\b\\f\\u0000\\u001f\u{7f}\""),
        ("é🚀", "\"é🚀\""),
        ("", "\"\""),
    ];
    for (plain, written) in cases {
        assert_eq!(to_go_string(&JsonValue::from(plain)), written);
        assert_eq!(string(written.as_bytes()), plain);
    }
}

#[test]
fn keys_are_sorted_without_white_space() {
    let value =
        parse(b" { \"b\" : [ 1 , null, true ] , \"a\\u003c\" : { } ,\r\n\t\"B\": -2.50e+3, \"c\": false, \"d\":[] } ");
    let written = r#"{"B":-2.50e+3,"a\u003c":{},"b":[1,null,true],"c":false,"d":[]}"#;
    assert_eq!(to_go_string(&value.expect("JSON")), written);
}

#[test]
fn numbers_keep_their_spelling() {
    for spelling in ["0", "-0", "10", "1.0", "1e5", "1E-05", "123456789012345678901234567890", "0.1e+2"] {
        assert_eq!(parse(spelling.as_bytes()), Ok(JsonValue::Number(spelling.to_owned())));
    }
    for wrong in ["01", "-", "+1", "1.", ".5", "1e", "1e+", "--1", "0x1", "1.e3"] {
        assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn escapes_are_parsed_as_in_go() {
    assert_eq!(string(br#""\/\b\f\u00e9\uD83D\uDE80""#), "/\u{8}\u{c}é🚀");
    assert_eq!(string(br#""\ud83d""#), "\u{fffd}", "half a character");
    assert_eq!(string(br#""\ude80x""#), "\u{fffd}x", "the other half");
    assert_eq!(string(br#""\ud83d\u0041""#), "\u{fffd}A", "half a character before a whole one");
    assert_eq!(string(br#""\ud83d\ud83d\ude80""#), "\u{fffd}🚀");
    assert_eq!(string(b"\"a\xffb\""), "a\u{fffd}b");
    for wrong in [&br#""\x""#[..], br#""\u12g4""#, br#""\u12"#, br#""\"#, b"\"\n\"", b"\"\x1f\"", br#""\ud83d\u""#] {
        assert!(parse(wrong).is_err(), "{}", wrong.escape_ascii());
    }
}

#[test]
fn last_member_of_a_name_counts() {
    assert_eq!(to_go_string(&parse(br#"{"a":1,"a":2}"#).expect("JSON")), r#"{"a":2}"#);
}

#[test]
fn error_has_line_and_column() {
    let at = |text: &str| parse(text.as_bytes()).map_err(|error| (error.line, error.column)).expect_err(text);
    assert_eq!(at(""), (1, 1));
    assert_eq!(at("{"), (1, 2));
    assert_eq!(at("{\"a\":}"), (1, 6));
    assert_eq!(at("{\"a\" 1}"), (1, 6));
    assert_eq!(at("{1:2}"), (1, 2));
    assert_eq!(at("[1,]"), (1, 4));
    assert_eq!(at("[1 2]"), (1, 4));
    assert_eq!(at("[1}"), (1, 3));
    assert_eq!(at("nul"), (1, 4));
    assert_eq!(at("{} {}"), (1, 4));
    assert_eq!(at("\n \"a"), (2, 4));
    assert_eq!(at("\"a\nb\""), (1, 3));
    let error = parse(b"{\"a\":\n x}").expect_err("not JSON");
    assert_eq!(error.to_string(), "not JSON: the error is at line 2, column 2");
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert!(parse(nested(129).as_bytes()).is_ok());
    assert!(parse(nested(130).as_bytes()).is_err());
    assert!(parse("[{\"a\":".repeat(100_000).as_bytes()).is_err());
}
