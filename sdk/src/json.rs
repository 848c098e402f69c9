//! JSON as Diego reads and writes it: keys sorted, no white space, and `<`, `>`, `&`, U+2028 and U+2029
//! escaped, because Diego's columns were written by Go's encoder and stay equal byte for byte. Small, because
//! it becomes part of components; it maps no types.

mod read;

use std::collections::BTreeMap;

/// Any JSON. Of several members of one name, the last one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    /// As it is spelled.
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

impl Value {
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    #[must_use]
    pub fn as_object(&self) -> Option<&BTreeMap<String, Value>> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    #[must_use]
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// Why bytes are not the JSON that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: the error is at line {line}, column {column}")]
pub struct JsonError {
    pub line: usize,
    pub column: usize,
}

/// Reads any JSON text.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    read::read(text)
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
        Value::Number(spelling) => out.push_str(spelling),
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
