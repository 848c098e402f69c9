//! One row as a record: columns by name, opened where they are sealed. NULL in a plain column reads
//! as empty or zero; in a sealed one it is a problem unless the column may be empty.

use prost::Message;
use sea_query::Value;

use super::{Store, StoreError};
use crate::database::{Row, SqlError};
use crate::layout::schema::Sealing;
use crate::model::json::Malformed;
use crate::model::{ModificationTag, Text};
use crate::record::{Keyring, RecordError};

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordProblem {
    #[error("{column} is not stored as it should be")]
    Column { column: &'static str, source: SqlError },
    #[error("{column} holds the number {number}, which is out of range")]
    OutOfRange { column: &'static str, number: i64 },
    #[error("{column} is empty")]
    Empty { column: &'static str },
    #[error("{column} does not open")]
    Sealed { column: &'static str, source: RecordError },
    #[error("{column} is not the message it should be")]
    Message { column: &'static str, source: prost::DecodeError },
    #[error("{column} is not the JSON it should be")]
    Json { column: &'static str, source: Malformed },
}

pub(super) struct Record<'a> {
    row: &'a Row,
    keyring: &'a Keyring,
}

impl<'a> Record<'a> {
    pub(super) fn new(row: &'a Row, store: &'a Store) -> Self {
        Self { row, keyring: store.keyring() }
    }

    /// The record that `read` makes of the row, or an error that names it by its key.
    pub(super) fn read<T>(
        row: &'a Row,
        store: &'a Store,
        table: &'static str,
        key: &'static str,
        read: impl FnOnce(&Self) -> Result<T, RecordProblem>,
    ) -> Result<T, StoreError> {
        let record = Self::new(row, store);
        read(&record).map_err(|source| {
            let key = String::from_utf8_lossy(&record.text(key).unwrap_or_default()).into_owned();
            StoreError::Unreadable { table, key, source }
        })
    }

    /// As bytes, so that text which is not UTF-8 can be read.
    pub(super) fn text(&self, column: &'static str) -> Result<Text, RecordProblem> {
        Ok(self.bytes(column)?.unwrap_or_default())
    }

    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, RecordProblem> {
        self.row
            .bytes(column)
            .map(|bytes| bytes.map(<[u8]>::to_vec))
            .map_err(|source| RecordProblem::Column { column, source })
    }

    pub(super) fn long(&self, column: &'static str) -> Result<i64, RecordProblem> {
        let number = self.row.integer(column).map_err(|source| RecordProblem::Column { column, source })?;
        Ok(number.unwrap_or(0))
    }

    pub(super) fn number<N: TryFrom<i64>>(&self, column: &'static str) -> Result<N, RecordProblem> {
        let number = self.long(column)?;
        N::try_from(number).map_err(|_| RecordProblem::OutOfRange { column, number })
    }

    pub(super) fn flag(&self, column: &'static str) -> Result<bool, RecordProblem> {
        Ok(self.long(column)? != 0)
    }

    pub(super) fn tag(&self) -> Result<ModificationTag, RecordProblem> {
        Ok(ModificationTag {
            epoch: self.text("modification_tag_epoch")?,
            index: self.number("modification_tag_index")?,
        })
    }

    /// A sealed message that must be there.
    pub(super) fn message<M: Message + Default>(&self, column: &'static str) -> Result<M, RecordProblem> {
        self.optional_message(column)?.ok_or(RecordProblem::Empty { column })
    }

    /// A sealed message; NULL and empty text hold none.
    pub(super) fn optional_message<M: Message + Default>(
        &self,
        column: &'static str,
    ) -> Result<Option<M>, RecordProblem> {
        let Some(plain) = self.open(column, Sealing::Enveloped)? else { return Ok(None) };
        M::decode(&plain[..]).map(Some).map_err(|source| RecordProblem::Message { column, source })
    }

    /// Sealed JSON that must be there.
    pub(super) fn json<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let plain = self.open(column, Sealing::Sealed)?.ok_or(RecordProblem::Empty { column })?;
        parse(&plain).map_err(|source| RecordProblem::Json { column, source })
    }

    /// Sealed JSON; NULL and empty text hold the default.
    pub(super) fn optional_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let Some(plain) = self.open(column, Sealing::Sealed)? else { return Ok(T::default()) };
        parse(&plain).map_err(|source| RecordProblem::Json { column, source })
    }

    /// JSON in plain sight; NULL holds the default.
    pub(super) fn plain_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let Some(plain) = self.bytes(column)? else { return Ok(T::default()) };
        parse(&plain).map_err(|source| RecordProblem::Json { column, source })
    }

    fn open(&self, column: &'static str, sealing: Sealing) -> Result<Option<Vec<u8>>, RecordProblem> {
        let Some(text) = self.bytes(column)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        self.keyring.open(sealing, &text).map(Some).map_err(|source| RecordProblem::Sealed { column, source })
    }
}

impl Store {
    pub(super) fn seal_message(&self, message: &impl Message) -> Value {
        self.seal(Sealing::Enveloped, &message.encode_to_vec())
    }

    pub(super) fn seal_json(&self, json: &[u8]) -> Value {
        self.seal(Sealing::Sealed, json)
    }

    fn seal(&self, sealing: Sealing, plain: &[u8]) -> Value {
        let text = self.keyring().seal(sealing, plain);
        String::from_utf8(text).expect("a sealed column is ASCII").into()
    }
}
