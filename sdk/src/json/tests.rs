//! The tree of values; `bbs_go_json` has the cases of syntax and escapes.

use super::*;

#[test]
fn keys_are_sorted_without_white_space() {
    let value =
        parse(b" { \"b\" : [ 1 , null, true ] , \"a\\u003c\" : { } ,\r\n\t\"B\": -2.50e+3, \"c\": false, \"d\":[] } ");
    let written = r#"{"B":-2.50e+3,"a\u003c":{},"b":[1,null,true],"c":false,"d":[]}"#;
    assert_eq!(to_go_string(&value.expect("JSON")), written);
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
            parse(spelling.as_bytes()),
            Ok(JsonValue::Number(spelling.to_owned()))
        );
    }
    assert!(parse(b"01").is_err());
}

#[test]
fn strings_are_parsed_and_written_as_in_go() {
    let value = JsonValue::from("<é🚀>\u{2028}\n");
    assert_eq!(to_go_string(&value), r#""\u003cé🚀\u003e\u2028\n""#);
    assert_eq!(
        parse(br#" "\u003c\u00e9\ud83d\ude80>\u2028\n" "#),
        Ok(value)
    );
    assert_eq!(
        parse(b"\"\xe2\x80\""),
        Ok(JsonValue::from("\u{fffd}\u{fffd}")),
        "one for each byte"
    );
}

#[test]
fn last_member_of_a_name_counts() {
    assert_eq!(
        to_go_string(&parse(br#"{"a":1,"a":2}"#).expect("JSON")),
        r#"{"a":2}"#
    );
}

#[test]
fn error_has_line_and_column() {
    let at = |text: &str| {
        parse(text.as_bytes())
            .map_err(|error| (error.line, error.column))
            .expect_err(text)
    };
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
    assert_eq!(
        error.to_string(),
        "not JSON: the error is at line 2, column 2"
    );
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert_eq!(
        parse(nested(129).as_bytes()).map(|value| to_go_string(&value)),
        Ok(nested(129))
    );
    assert_eq!(
        parse(nested(130).as_bytes()),
        Err(JsonError {
            line: 1,
            column: 130
        })
    );
    // Level 130 is the object of pair 65; a pair has six bytes.
    let column = 64 * 6 + 2;
    assert_eq!(
        parse("[{\"a\":".repeat(100_000).as_bytes()),
        Err(JsonError { line: 1, column })
    );
}
