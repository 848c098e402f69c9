//! What an entity writes into columns: plain values that fit, and what is to be sealed. Owns the checks of a value
//! against its column.

use prost::Message;

use super::{StoreError, Table, Writer};
use crate::database::Dialect;
use crate::layout::schema::Sealing;

/// One value to be written, not sealed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnValue {
    Number(i64),
    Flag(bool),
    Text(String),
    Sealed(Sealing, Vec<u8>),
}

/// The columns of one row that are written.
pub(super) type ColumnValues = Vec<(&'static str, ColumnValue)>;

pub(super) fn number(number: impl Into<i64>) -> ColumnValue {
    ColumnValue::Number(number.into())
}

pub(super) fn message(message: &impl Message) -> ColumnValue {
    ColumnValue::Sealed(Sealing::Enveloped, message.encode_to_vec())
}

pub(super) fn json(json: impl Into<Vec<u8>>) -> ColumnValue {
    ColumnValue::Sealed(Sealing::Sealed, json.into())
}

/// From so many bytes on, what is told of a failure is cut, as Diego cuts it.
const LONG: usize = 1024;
const CUT: &str = "(truncated)";

/// What a column keeps of a text that tells of a failure. It is kept whatever it is, because the failure must be.
fn excerpt(text: &[u8], dialect: Dialect) -> String {
    let mut text = String::from_utf8_lossy(text).into_owned();
    if dialect == Dialect::Postgres {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() >= LONG {
        text.truncate(text.floor_char_boundary(LONG - CUT.len()));
        text.push_str(CUT);
    }
    text
}

impl Writer {
    /// See `excerpt`.
    pub(super) fn excerpt(&self, text: &[u8]) -> ColumnValue {
        ColumnValue::Text(excerpt(text, self.tx.dialect()))
    }

    /// The text that a plain column is to hold, if it can.
    pub(super) fn plain(&self, table: Table, column: &'static str, text: &[u8]) -> Result<ColumnValue, StoreError> {
        let name = table.name;
        let text = std::str::from_utf8(text).map_err(|_| StoreError::NotText { table: name, column })?;
        if self.tx.dialect() == Dialect::Postgres && text.contains('\0') {
            return Err(StoreError::NotText { table: name, column });
        }
        match self.access.capacity(name, column) {
            Some(capacity) if !capacity.holds(text.as_bytes()) => Err(StoreError::TooLong { table: name, column }),
            Some(_) | None => Ok(ColumnValue::Text(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_as_far_as_its_column_goes() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
            let kept = |text: &[u8]| excerpt(text, dialect);
            assert_eq!(kept(b""), "");
            assert_eq!(kept("a".repeat(1023).as_bytes()), "a".repeat(1023));
            assert_eq!(kept("a".repeat(1024).as_bytes()), format!("{}(truncated)", "a".repeat(1013)));
            // The 1013th byte is inside of a character.
            assert_eq!(kept("é".repeat(600).as_bytes()), format!("{}(truncated)", "é".repeat(506)));
            assert_eq!(kept(b"a\xff"), "a\u{fffd}");
            assert_eq!(kept(&[0xff; 400]).len(), 1011 + CUT.len());
        }
        assert_eq!(excerpt(b"a\0b", Dialect::Postgres), "a\u{fffd}b");
        assert_eq!(excerpt(b"a\0b", Dialect::Mysql), "a\0b");
    }
}
