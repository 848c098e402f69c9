//! The key of a unit: the value of the partition key, or the primary key of a row that has no
//! partition. Owns its name for people, and how a cursor is kept. In which order keys come is the database's alone to say.

use crate::database::{Row, SqlError};
use crate::layout::values::{Encoding, Value};
pub(super) use crate::units::digest::{digest_of, from_hex, to_hex};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Integer(i64),
    Text(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(pub Vec<Part>);

impl Key {
    /// The first columns of a row, one for each encoding.
    pub(super) fn read(row: &Row, encodings: &[Encoding]) -> Result<Self, SqlError> {
        let part = |(at, encoding): (usize, &Encoding)| match row.value(at, *encoding)? {
            Value::Integer(number) => Ok(Part::Integer(number)),
            Value::Boolean(value) => Ok(Part::Integer(i64::from(value))),
            Value::Text(text) => Ok(Part::Text(text.to_vec())),
            Value::Null => Err(SqlError::Decode("a key that is NULL".into())),
        };
        encodings.iter().enumerate().map(part).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn values(&self) -> Vec<sea_query::Value> {
        self.0
            .iter()
            .map(|part| match part {
                Part::Integer(number) => (*number).into(),
                Part::Text(bytes) => match String::from_utf8(bytes.clone()) {
                    Ok(text) => text.into(),
                    Err(bytes) => bytes.into_bytes().into(),
                },
            })
            .collect()
    }

    /// How people and the residue table call it. No two keys of a table have one name.
    pub(super) fn name(&self) -> String {
        let name = |part: &Part| match part {
            Part::Integer(number) => number.to_string(),
            Part::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => format!("x'{}'", to_hex(bytes)),
            },
        };
        match self.0.as_slice() {
            [part] => name(part),
            parts => serde_json::to_string(&parts.iter().map(name).collect::<Vec<_>>()).expect("a list of text"),
        }
    }

    /// The same with its ASCII letters in lower case.
    pub(super) fn in_lower_case(&self) -> Self {
        let lower = |part: &Part| match part {
            Part::Integer(number) => Part::Integer(*number),
            Part::Text(text) => Part::Text(text.to_ascii_lowercase()),
        };
        Self(self.0.iter().map(lower).collect())
    }

    pub(super) fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        for part in &self.0 {
            match part {
                Part::Integer(number) => Value::Integer(*number).encode(&mut bytes),
                Part::Text(text) => Value::Text(text).encode(&mut bytes),
            }
        }
        to_hex(&bytes)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let bytes = from_hex(text)?;
        let mut rest = bytes.as_slice();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (value, after) = Value::decode(rest)?;
            parts.push(match value {
                Value::Integer(number) => Part::Integer(number),
                Value::Text(text) => Part::Text(text.to_vec()),
                Value::Null | Value::Boolean(_) => return None,
            });
            rest = after;
        }
        Some(Self(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_from_its_text() {
        let key = Key(vec![Part::Text("größe/\"".into()), Part::Integer(-3), Part::Text(vec![0xff])]);
        assert_eq!(Key::from_text(&key.to_text()), Some(key));
        assert_eq!(Key::from_text("0"), None);
        assert_eq!(Key::from_text("zz"), None);
        assert_eq!(Key::from_text("00"), None, "no key is NULL");
    }

    #[test]
    fn no_two_keys_have_one_name() {
        let text = |text: &str| Part::Text(text.into());
        let keys = [
            Key(vec![text("a/b"), text("c")]),
            Key(vec![text("a"), text("b/c")]),
            Key(vec![Part::Text(vec![0xfe])]),
            Key(vec![Part::Text(vec![0xff])]),
        ];
        let names: std::collections::BTreeSet<_> = keys.iter().map(Key::name).collect();
        assert_eq!(names.len(), keys.len());
        assert_eq!(Key(vec![text("größe")]).name(), "größe");
    }
}
