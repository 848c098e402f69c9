//! JSON as Diego writes it: keys sorted, no white space, and `<`, `>`, `&`, U+2028 and U+2029
//! escaped, because Diego's columns were written by Go's encoder and stay equal byte for byte.
//! Reading is serde_json's.

pub use serde_json::{Map, Value};

/// Why bytes are not the JSON that was expected.
#[derive(Debug, thiserror::Error)]
#[error("not JSON: the error is at line {line}, column {column}")]
pub struct JsonError {
    pub line: usize,
    pub column: usize,
}

/// Reads any JSON text.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    serde_json::from_slice(text).map_err(|error| JsonError { line: error.line(), column: error.column() })
}

/// Writes a value as Go does.
#[must_use]
pub fn to_go_string(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// Appends a string with its quotes, escaped as Go does.
pub fn write_go_string(out: &mut String, value: &str) {
    out.push('"');
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str("\\u");
                for shift in [12, 8, 4, 0] {
                    let digit = (character as u32) >> shift & 0xf;
                    out.extend(char::from_digit(digit, 16));
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_go_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_go_string(out, key);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        let cases = [
            ("<a&b>", r#""\u003ca\u0026b\u003e""#),
            ("\u{2028}\u{2029}\u{2027}", "\"\\u2028\\u2029\u{2027}\""),
            ("\"\\/\n\r\t", r#""\"\\/\n\r\t""#),
            ("\u{8}\u{c}\u{0}\u{1f}\u{7f}", "\"\\b\\f\\u0000\\u001f\u{7f}\""),
            ("é🚀", "\"é🚀\""),
            ("", "\"\""),
        ];
        for (plain, written) in cases {
            assert_eq!(to_go_string(&Value::from(plain)), written);
            assert_eq!(parse(written.as_bytes()).expect("JSON"), Value::from(plain));
        }
    }

    #[test]
    fn keys_are_sorted_and_nothing_is_padded() {
        let value = parse(br#" { "b" : [ 1 , null, true ] , "a\u003c" : { } , "B": -2.5, "c": false } "#);
        let written = r#"{"B":-2.5,"a\u003c":{},"b":[1,null,true],"c":false}"#;
        assert_eq!(to_go_string(&value.expect("JSON")), written);
    }

    #[test]
    fn what_is_not_json_says_where() {
        for text in ["", "{", "{\"a\":}", "[1,]", "nul", "{} {}"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let error = parse(b"{\"a\":\n x}").expect_err("not JSON");
        assert_eq!(error.to_string(), "not JSON: the error is at line 2, column 2");
    }
}
