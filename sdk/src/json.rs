//! JSON as Diego reads and writes it: keys sorted, no white space, and `<`, `>`, `&`, U+2028 and U+2029 escaped, because
//! Go's encoder wrote Diego's columns and they have to stay the same byte for byte. Small, because it becomes a part of
//! components; there is no mapping to types.

mod read;

use std::collections::BTreeMap;

/// A JSON value. Of several members with the same name, the last one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, with its original spelling.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<JsonValue>),
    /// An object.
    Object(BTreeMap<String, JsonValue>),
}

impl JsonValue {
    /// Returns the text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns the items of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[JsonValue]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    /// Returns the members of an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&BTreeMap<String, JsonValue>> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }
}

impl From<&str> for JsonValue {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// A text is not valid JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: the error is at line {line}, column {column}")]
pub struct JsonError {
    /// Line of the error, counted from 1.
    pub line: usize,
    /// Column of the error in bytes, counted from 1.
    pub column: usize,
}

/// Parses a JSON text.
///
/// # Errors
/// If it is not valid JSON, or nests deeper than 128 levels.
pub fn parse(text: &[u8]) -> Result<JsonValue, JsonError> {
    read::read(text)
}

/// Encodes a value as Go does.
#[must_use]
pub fn to_go_string(value: &JsonValue) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// Appends a string in quotes, escaped as Go does.
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

fn write_value(out: &mut String, value: &JsonValue) {
    match value {
        JsonValue::Null => out.push_str("null"),
        JsonValue::Bool(true) => out.push_str("true"),
        JsonValue::Bool(false) => out.push_str("false"),
        JsonValue::Number(spelling) => out.push_str(spelling),
        JsonValue::String(text) => write_go_string(out, text),
        JsonValue::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        JsonValue::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_go_string(out, name);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests;
