//! The values that an entity writes into columns. Owns the checks of a value against its column's
//! capacity and encoding.

use bbs_lens::layout::schema::Sealing;
use bbs_model::bounds::WRITE_BYTES;
use bbs_model::excerpt;
use prost::Message;

use super::{EntityTable, StoreError, Writer};

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

/// The effect of an insertion if a row with the same primary key exists.
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

/// Texts about what became of a record. A character that the column cannot hold must not keep the
/// record from its next state.
pub(super) const DIAGNOSTIC: [&str; 5] = [
    "crash_reason",
    "failure_reason",
    "placement_error",
    "rejection_reason",
    "result",
];

/// A text with a question mark for each character beyond ASCII.
pub(super) fn ascii(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_ascii() { character } else { '?' })
        .collect()
}

/// Copy of the values in which diagnostic texts are [`ascii`]; `None` if they are already.
pub(super) fn with_ascii_diagnostics(values: &ColumnValues) -> Option<ColumnValues> {
    let mut replaced = None;
    for (at, (column, value)) in values.iter().enumerate() {
        if let ColumnValue::Text(text) = value
            && DIAGNOSTIC.contains(column)
            && !text.is_ascii()
        {
            let ascii = ColumnValue::Text(ascii(text));
            replaced.get_or_insert_with(|| values.clone())[at].1 = ascii;
        }
    }
    replaced
}

/// Rejects a write that is too large for modules to carry.
pub(super) fn check_size(table: EntityTable, values: &ColumnValues) -> Result<(), StoreError> {
    let bytes = |value: &ColumnValue| match value {
        ColumnValue::Number(_) | ColumnValue::Flag(_) => 0,
        ColumnValue::Text(text) => text.len(),
        // Stored as base64.
        ColumnValue::Sealed(_, plain) => plain.len().div_ceil(3) * 4,
    };
    let bytes = values.iter().map(|(_, value)| bytes(value)).sum();
    let limit = WRITE_BYTES;
    if bytes > limit {
        Err(StoreError::TooLarge {
            table: table.name,
            bytes,
            limit,
        })
    } else {
        Ok(())
    }
}

impl Writer {
    /// A failure text, made to fit; see [`excerpt`].
    pub(super) fn excerpt(&self, text: &[u8]) -> String {
        excerpt(text, self.session.tx.dialect().stores_nul())
    }

    /// A plain column with its value.
    ///
    /// # Errors
    /// If the column cannot hold the text.
    pub(super) fn plain(
        &self,
        table: EntityTable,
        column: &'static str,
        text: &[u8],
    ) -> Result<(&'static str, ColumnValue), StoreError> {
        let table = table.name;
        let stores_nul = self.session.tx.dialect().stores_nul();
        let text = std::str::from_utf8(text)
            .ok()
            .filter(|text| stores_nul || !text.contains('\0'))
            .ok_or(StoreError::NotText { table, column })?;
        match self.access.capacity(table, column) {
            Some(capacity) if !capacity.holds(text.as_bytes()) => {
                Err(StoreError::TooLong { table, column })
            }
            Some(_) | None => Ok((column, ColumnValue::Text(text.to_owned()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_diagnostic_texts_lose_characters() {
        let text = |text: &str| ColumnValue::Text(text.to_owned());
        let values = |reason| {
            vec![
                ("domain", text("größe")),
                ("crash_reason", text(reason)),
                ("since", number(7)),
            ]
        };
        assert_eq!(with_ascii_diagnostics(&values("out of memory")), None);
        assert_eq!(
            with_ascii_diagnostics(&values("no \u{1f600}\u{2028}.")),
            Some(values("no ??."))
        );
        let sealed = vec![("result", ColumnValue::Sealed(Sealing::Sealed, vec![0xff]))];
        assert_eq!(with_ascii_diagnostics(&sealed), None);
    }
}
