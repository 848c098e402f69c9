//! The values that an entity writes into columns. Owns the checks of a value against its column's capacity and encoding.

use prost::Message;

use super::{EntityTable, StoreError, Writer};
use crate::database::Dialect;
use crate::layout::schema::Sealing;
use crate::model::bounds::WRITE_BYTES;

/// A value to be written, not encrypted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnValue {
    Number(i64),
    Flag(bool),
    Text(String),
    Sealed(Sealing, Vec<u8>),
}

/// The written columns of one row.
pub(super) type ColumnValues = Vec<(&'static str, ColumnValue)>;

/// What an insertion does if a row with the same primary key exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    /// The whole insertion fails with [`StoreError::Exists`].
    Fails,
    /// The existing row gets the new value of this column.
    Updates(&'static str),
}

pub(super) fn number(number: impl Into<i64>) -> ColumnValue {
    ColumnValue::Number(number.into())
}

pub(super) fn message(message: &impl Message) -> ColumnValue {
    ColumnValue::Sealed(Sealing::Enveloped, message.encode_to_vec())
}

pub(super) fn json(json: impl Into<Vec<u8>>) -> ColumnValue {
    ColumnValue::Sealed(Sealing::Sealed, json.into())
}

/// Rejects a write that is too large for modules to carry.
pub(super) fn check_size(table: EntityTable, values: &ColumnValues) -> Result<(), StoreError> {
    let bytes = |value: &ColumnValue| match value {
        ColumnValue::Number(_) | ColumnValue::Flag(_) => 0,
        ColumnValue::Text(text) => text.len(),
        // Stored as base64.
        ColumnValue::Sealed(_, plain) => plain.len().div_ceil(3) * 4,
    };
    let (bytes, limit) = (values.iter().map(|(_, value)| bytes(value)).sum(), WRITE_BYTES);
    if bytes > limit { Err(StoreError::TooLarge { table: table.name, bytes, limit }) } else { Ok(()) }
}

/// Failure texts of this many bytes or more are truncated, as in Diego.
const LONG: usize = 1024;
const CUT: &str = "(truncated)";

/// A failure text in the form that fits a column: lossy UTF-8, truncated. Never rejected, because the failure itself must
/// be stored.
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
    /// A failure text, made to fit; see the function `excerpt`.
    pub(super) fn excerpt(&self, text: &[u8]) -> ColumnValue {
        ColumnValue::Text(excerpt(text, self.session.tx.dialect()))
    }

    /// The value for a plain column.
    ///
    /// # Errors
    /// If the column cannot hold the text.
    pub(super) fn plain(
        &self,
        table: EntityTable,
        column: &'static str,
        text: &[u8],
    ) -> Result<ColumnValue, StoreError> {
        let name = table.name;
        let text = std::str::from_utf8(text).map_err(|_| StoreError::NotText { table: name, column })?;
        if self.session.tx.dialect() == Dialect::Postgres && text.contains('\0') {
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
    fn failure_text_is_truncated_and_made_valid() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
            let stored = |text: &[u8]| excerpt(text, dialect);
            assert_eq!(stored(b""), "");
            assert_eq!(stored("a".repeat(1023).as_bytes()), "a".repeat(1023));
            assert_eq!(stored("a".repeat(1024).as_bytes()), format!("{}(truncated)", "a".repeat(1013)));
            // The 1013th byte is within a character.
            assert_eq!(stored("é".repeat(600).as_bytes()), format!("{}(truncated)", "é".repeat(506)));
            assert_eq!(stored(b"a\xff"), "a\u{fffd}");
            assert_eq!(stored(&[0xff; 400]).len(), 1011 + CUT.len());
        }
        assert_eq!(excerpt(b"a\0b", Dialect::Postgres), "a\u{fffd}b");
        assert_eq!(excerpt(b"a\0b", Dialect::Mysql), "a\0b");
    }
}
