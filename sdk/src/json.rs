//! JSON as Diego reads and writes it: keys sorted, no white space, and `<`, `>`, `&`, U+2028 and
//! U+2029 escaped, because Go's encoder wrote Diego's columns and they have to stay the same byte
//! for byte. Small, because it becomes a part of components; there is no mapping to types. Owns the
//! tree of values; syntax and escapes are those of `bbs_go_json`.

use std::collections::BTreeMap;

use bbs_go_json::{Malformed, Scanner, Token};

/// Deepest nesting of a value. The input is untrusted, and parsing is recursive.
const DEPTH: usize = 128;

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
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// Returns the items of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[JsonValue]> {
        if let Self::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// Returns the members of an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&BTreeMap<String, JsonValue>> {
        if let Self::Object(members) = self {
            Some(members)
        } else {
            None
        }
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
    bbs_go_json::read(text, |scanner| read_value(scanner, 0)).map_err(|Malformed { at }| {
        let before = &text[..at];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n')
            .count();
        JsonError { line, column }
    })
}

fn read_value(scanner: &mut Scanner<'_>, depth: usize) -> Result<JsonValue, Malformed> {
    if depth > DEPTH {
        return Err(scanner.malformed());
    }
    Ok(match scanner.token()? {
        Token::Null => JsonValue::Null,
        Token::Bool(value) => JsonValue::Bool(value),
        Token::Number(spelling) => {
            JsonValue::Number(String::from_utf8_lossy(spelling).into_owned())
        }
        Token::String(quoted) => JsonValue::String(quoted.decode()),
        Token::Array => {
            let mut items = Vec::new();
            while scanner.element()? {
                items.push(read_value(scanner, depth + 1)?);
            }
            JsonValue::Array(items)
        }
        Token::Object => {
            let mut members = BTreeMap::new();
            while let Some(name) = scanner.key()? {
                members.insert(name.decode(), read_value(scanner, depth + 1)?);
            }
            JsonValue::Object(members)
        }
    })
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
    bbs_go_json::quote_str(value, out);
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
