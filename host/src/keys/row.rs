//! A row that has sealed texts: how it is found again, and what changes about it. Owns the key's three forms: values
//! for a statement, a name for people, a text for the cursor.

use crate::database::{Row, SqlError};
use crate::layout::values::{Encoding, Value};
use crate::record::{Keyring, RecordError, header};

use super::tables::SealedTable;

/// The primary key of a row, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowKey(pub Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Flag(bool),
    Number(i64),
    Text(Vec<u8>),
}

impl RowKey {
    /// The first columns of a row, as the table's key has them.
    pub(super) fn read(row: &Row, table: &SealedTable) -> Result<Self, SqlError> {
        let part = |(at, encoding): (usize, Encoding)| {
            Ok(match row.value(at, encoding)? {
                Value::Text(bytes) => Part::Text(bytes.to_vec()),
                Value::Integer(number) => Part::Number(number),
                Value::Boolean(flag) => Part::Flag(flag),
                // SQLite alone lets a key be NULL: such a row cannot be found by its key, and is not found here.
                Value::Null => Part::Text(Vec::new()),
            })
        };
        let encodings = table.key.iter().map(|column| column.encoding);
        encodings.enumerate().map(part).collect::<Result<_, _>>().map(Self)
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        let name = |part: &Part| match part {
            Part::Flag(flag) => flag.to_string(),
            Part::Number(number) => number.to_string(),
            Part::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        self.0.iter().map(name).collect::<Vec<_>>().join("/")
    }

    /// For the cursor: JSON, with bytes as numbers where they are no text.
    pub(super) fn to_text(&self) -> String {
        let part = |part: &Part| match part {
            Part::Flag(flag) => serde_json::json!(flag),
            Part::Number(number) => serde_json::json!(number),
            Part::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serde_json::json!(text),
                Err(_) => serde_json::json!(bytes),
            },
        };
        serde_json::Value::Array(self.0.iter().map(part).collect()).to_string()
    }

    /// Nothing for what is no key of this table: the cursor of a table that had another one.
    pub(super) fn from_text(text: &str, table: &SealedTable) -> Option<Self> {
        let parts: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
        let part = |(part, encoding): (serde_json::Value, Encoding)| match encoding {
            Encoding::Boolean => part.as_bool().map(Part::Flag),
            Encoding::Integer => part.as_i64().map(Part::Number),
            Encoding::Text => match part {
                serde_json::Value::String(text) => Some(Part::Text(text.into_bytes())),
                bytes => serde_json::from_value(bytes).ok().map(Part::Text),
            },
        };
        let encodings = table.key.iter().map(|column| column.encoding);
        let same_width = parts.len() == table.key.len();
        same_width.then(|| parts.into_iter().zip(encodings).map(part).collect::<Option<_>>())?.map(Self)
    }
}

/// A row as it was read: those of its texts that are not under the active key.
#[derive(Debug)]
pub(super) struct StaleRow {
    pub key: RowKey,
    /// In the order of the table's sealed columns.
    pub texts: Vec<Option<Vec<u8>>>,
}

/// A row as it is to be.
#[derive(Debug)]
pub(super) struct Resealed {
    pub key: RowKey,
    /// In the order of the table's sealed columns; nothing where a column stays as it is.
    pub changes: Vec<Option<Change>>,
}

/// A text in the place of another.
#[derive(Debug)]
pub(super) struct Change {
    /// How the old text begins, and no other: written over only if it is still there.
    pub identity: String,
    pub text: String,
}

/// A row of which something does not open, so that all of it stays as it is.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub key: RowKey,
    pub reason: RecordError,
}

impl StaleRow {
    /// NULL and empty stay what they are: Diego writes them.
    pub(super) fn reseal(self, keyring: &Keyring) -> Result<Resealed, Unreadable> {
        let change = |text: &Option<Vec<u8>>| {
            let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
            if header::label_of(text)? == keyring.active_label() {
                return Ok(None);
            }
            let identity = header::identity(text)?.to_owned();
            let text = String::from_utf8(keyring.reseal(text)?).expect("sealed text is ASCII");
            Ok(Some(Change { identity, text }))
        };
        match self.texts.iter().map(change).collect::<Result<_, _>>() {
            Ok(changes) => Ok(Resealed { key: self.key, changes }),
            Err(reason) => Err(Unreadable { key: self.key, reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::KeyColumn;
    use super::*;
    use crate::layout::schema::Sealing;

    fn table() -> SealedTable {
        let column = |name: &str, encoding| KeyColumn { name: name.to_owned(), encoding };
        let key = vec![column("guid", Encoding::Text), column("slot", Encoding::Integer)];
        SealedTable { name: "things".into(), key, columns: vec!["message".into()] }
    }

    #[test]
    fn a_cursor_comes_back_from_its_text() {
        for text in [b"gr\xc3\xb6\xc3\x9fe/\"".to_vec(), vec![0xff, 0], Vec::new()] {
            let key = RowKey(vec![Part::Text(text), Part::Number(-3)]);
            assert_eq!(RowKey::from_text(&key.to_text(), &table()), Some(key));
        }
    }

    #[test]
    fn a_cursor_of_another_key_is_none() {
        for text in ["", "7", "[]", r#"["a"]"#, r#"["a","b"]"#, r#"[1,2]"#, r#"["a",1,2]"#, r#"[[256],1]"#] {
            assert_eq!(RowKey::from_text(text, &table()), None, "{text}");
        }
    }

    #[test]
    fn a_row_of_which_one_text_does_not_open_stays_whole() {
        let keys = Keyring::new([("old", "first"), ("new", "second")], "new").unwrap();
        let only_old = Keyring::new([("old", "first")], "old").unwrap();
        let sealed = |keys: &Keyring| keys.seal(Sealing::Sealed, b"plain");
        let key = || RowKey(vec![Part::Text(b"g".to_vec()), Part::Number(1)]);
        let row = |texts| StaleRow { key: key(), texts };
        let resealed = row(vec![Some(sealed(&only_old)), Some(sealed(&keys)), None, Some(Vec::new())]);
        let changes = resealed.reseal(&keys).unwrap().changes;
        assert_eq!(changes.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, false]);
        let unreadable = row(vec![Some(sealed(&only_old)), Some(b"02/w==".to_vec())]).reseal(&keys).unwrap_err();
        assert_eq!((unreadable.key.name(), unreadable.reason), ("g/1".into(), RecordError::Truncated { length: 1 }));
    }
}
