//! A row with sealed texts: its primary key and its re-sealed texts. Owns the three forms of the
//! key: values for a statement, a name for messages, JSON for the cursor.

use bbs_lens::layout::values::{Encoding, Value};

use crate::database::{Row, SqlError};
use crate::encryption::{EncryptionError, Keyring, header};

use super::tables::SealedTable;

/// The primary key of a row: one value for each key column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowKey(pub Vec<RowKeyPart>);

/// A value of a key column; never NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowKeyPart {
    Flag(bool),
    Number(i64),
    Text(Vec<u8>),
}

impl RowKey {
    /// Reads the key from the first columns of a row.
    pub(super) fn read(row: &Row, table: &SealedTable) -> Result<Self, SqlError> {
        let part = |(at, encoding): (usize, Encoding)| {
            Ok(match row.value(at, encoding)? {
                Value::Text(bytes) => RowKeyPart::Text(bytes.to_vec()),
                Value::Integer(number) => RowKeyPart::Number(number),
                Value::Boolean(flag) => RowKeyPart::Flag(flag),
                // Only SQLite permits NULL in a key. No statement finds such a row by its key, so
                // it is not rewritten.
                Value::Null => RowKeyPart::Text(Vec::new()),
            })
        };
        let encodings = table.key.iter().map(|column| column.encoding);
        encodings
            .enumerate()
            .map(part)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The key for messages: its values, separated by slashes.
    pub(super) fn name(&self) -> String {
        let name = |part: &RowKeyPart| match part {
            RowKeyPart::Flag(flag) => flag.to_string(),
            RowKeyPart::Number(number) => number.to_string(),
            RowKeyPart::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        self.0.iter().map(name).collect::<Vec<_>>().join("/")
    }

    /// The key for the cursor: a JSON array; text that is not UTF-8 is an array of bytes.
    pub(super) fn to_text(&self) -> String {
        let part = |part: &RowKeyPart| match part {
            RowKeyPart::Flag(flag) => serde_json::json!(flag),
            RowKeyPart::Number(number) => serde_json::json!(number),
            RowKeyPart::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serde_json::json!(text),
                Err(_) => serde_json::json!(bytes),
            },
        };
        serde_json::Value::Array(self.0.iter().map(part).collect()).to_string()
    }

    /// Parses [`to_text`](Self::to_text). None if it does not match the table's key: the cursor was
    /// written for another key.
    pub(super) fn from_text(text: &str, table: &SealedTable) -> Option<Self> {
        let parts: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
        let part = |(part, encoding): (serde_json::Value, Encoding)| match encoding {
            Encoding::Boolean => part.as_bool().map(RowKeyPart::Flag),
            Encoding::Integer => part.as_i64().map(RowKeyPart::Number),
            Encoding::Text => match part {
                serde_json::Value::String(text) => Some(RowKeyPart::Text(text.into_bytes())),
                bytes => serde_json::from_value(bytes).ok().map(RowKeyPart::Text),
            },
        };
        let encodings = table.key.iter().map(|column| column.encoding);
        let same_width = parts.len() == table.key.len();
        same_width
            .then(|| {
                parts
                    .into_iter()
                    .zip(encodings)
                    .map(part)
                    .collect::<Option<_>>()
            })?
            .map(Self)
    }
}

/// A row as it was read, with at least one text that is not under the active key.
#[derive(Debug)]
pub(super) struct StaleRow {
    pub key: RowKey,
    /// In the order of the table's sealed columns.
    pub texts: Vec<Option<Vec<u8>>>,
}

/// A row with its new texts.
#[derive(Debug)]
pub(super) struct ResealedRow {
    pub key: RowKey,
    /// In the order of the table's sealed columns; `None` where a column stays as it is.
    pub changes: Vec<Option<ResealedText>>,
}

/// A re-sealed text.
#[derive(Debug)]
pub(super) struct ResealedText {
    /// The unique prefix of the old text. The column is overwritten only if it still has this
    /// prefix.
    pub identity: String,
    pub text: String,
}

/// A row that stays as it is because one of its texts does not open.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub key: RowKey,
    pub reason: EncryptionError,
}

impl StaleRow {
    /// Re-seals the texts that are not under the active key. NULL and empty texts, which Diego
    /// writes, stay as they are.
    pub(super) fn reseal(self, keyring: &Keyring) -> Result<ResealedRow, Unreadable> {
        let change = |text: &Option<Vec<u8>>| {
            let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            if header::label_of(text)? == keyring.active_label() {
                return Ok(None);
            }
            let identity = header::identity(text)?.to_owned();
            let text = String::from_utf8(keyring.reseal(text)?).expect("sealed text is ASCII");
            Ok(Some(ResealedText { identity, text }))
        };
        match self.texts.iter().map(change).collect::<Result<_, _>>() {
            Ok(changes) => Ok(ResealedRow {
                key: self.key,
                changes,
            }),
            Err(reason) => Err(Unreadable {
                key: self.key,
                reason,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::schema::Sealing;

    use super::super::tables::KeyColumn;
    use super::*;

    fn table() -> SealedTable {
        let column = |name: &str, encoding| KeyColumn {
            name: name.to_owned(),
            encoding,
        };
        let key = vec![
            column("guid", Encoding::Text),
            column("slot", Encoding::Integer),
        ];
        SealedTable {
            name: "things".into(),
            key,
            columns: vec!["message".into()],
        }
    }

    #[test]
    fn cursor_round_trips_through_its_text() {
        for text in [
            b"gr\xc3\xb6\xc3\x9fe/\"".to_vec(),
            vec![0xff, 0],
            Vec::new(),
        ] {
            let key = RowKey(vec![RowKeyPart::Text(text), RowKeyPart::Number(-3)]);
            assert_eq!(RowKey::from_text(&key.to_text(), &table()), Some(key));
        }
    }

    #[test]
    fn cursor_of_another_key_is_none() {
        for text in [
            "",
            "7",
            "[]",
            r#"["a"]"#,
            r#"["a","b"]"#,
            r#"[1,2]"#,
            r#"["a",1,2]"#,
            r#"[[256],1]"#,
        ] {
            assert_eq!(RowKey::from_text(text, &table()), None, "{text}");
        }
    }

    #[test]
    fn row_with_an_unreadable_text_is_not_resealed() {
        let keys = Keyring::new([("old", "first"), ("new", "second")], "new").unwrap();
        let only_old = Keyring::new([("old", "first")], "old").unwrap();
        let sealed = |keys: &Keyring| keys.seal(Sealing::Sealed, b"plain");
        let key = || RowKey(vec![RowKeyPart::Text(b"g".to_vec()), RowKeyPart::Number(1)]);
        let row = |texts| StaleRow { key: key(), texts };
        let resealed = row(vec![
            Some(sealed(&only_old)),
            Some(sealed(&keys)),
            None,
            Some(Vec::new()),
        ]);
        let changes = resealed.reseal(&keys).unwrap().changes;
        assert_eq!(
            changes.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, false, false]
        );
        let unreadable = row(vec![Some(sealed(&only_old)), Some(b"02/w==".to_vec())])
            .reseal(&keys)
            .unwrap_err();
        assert_eq!(
            (unreadable.key.name(), unreadable.reason),
            ("g/1".into(), EncryptionError::Truncated { length: 1 })
        );
    }
}
