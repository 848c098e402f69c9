//! One row as a record: columns by name, opened where they are sealed. NULL in a plain column reads
//! as empty or zero; in a sealed one it is a problem unless the column may be empty.

use std::borrow::Cow;
use std::sync::Arc;

use prost::Message;

use super::{Store, StoreError, Table};
use crate::database::{Row, SqlError};
use crate::layout::schema::Sealing;
use crate::model::json::Malformed;
use crate::model::{ModificationTag, Text};
use crate::record::{Keyring, RecordError};
use crate::rows::RowsError;

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
    #[error("it cannot be taken to the layout that the handlers speak")]
    Lens { source: Arc<RowsError> },
}

/// Columns by name, as they rest.
pub(super) trait Columns {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordProblem>;

    /// A boolean is 0 or 1.
    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordProblem>;

    /// What a sealed column holds.
    fn open(
        &self,
        column: &'static str,
        sealing: Sealing,
        keyring: &Keyring,
    ) -> Result<Option<Cow<'_, [u8]>>, RecordProblem> {
        let Some(text) = self.bytes(column)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let opened = keyring.open(sealing, text).map_err(|source| RecordProblem::Sealed { column, source })?;
        Ok(Some(Cow::Owned(opened)))
    }
}

impl Columns for Row {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordProblem> {
        self.bytes(column).map_err(|source| RecordProblem::Column { column, source })
    }

    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordProblem> {
        self.integer(column).map_err(|source| RecordProblem::Column { column, source })
    }
}

pub(super) struct Record<'a> {
    columns: &'a dyn Columns,
    keyring: &'a Keyring,
}

/// How an entity is made of a record.
pub(super) type Read<T> = fn(&Record<'_>) -> Result<T, RecordProblem>;

impl<'a> Record<'a> {
    /// The record that `read` makes of the row, or an error that names it by its key.
    pub(super) fn read<T>(
        columns: &'a dyn Columns,
        store: &'a Store,
        table: Table,
        read: impl FnOnce(&Self) -> Result<T, RecordProblem>,
    ) -> Result<T, StoreError> {
        let record = Self { columns, keyring: store.keyring() };
        read(&record).map_err(|source| {
            let key = String::from_utf8_lossy(&record.text(table.key).unwrap_or_default()).into_owned();
            StoreError::Unreadable { table: table.name, key, source }
        })
    }

    /// As bytes, so that text which is not UTF-8 can be read.
    pub(super) fn text(&self, column: &'static str) -> Result<Text, RecordProblem> {
        Ok(self.columns.bytes(column)?.unwrap_or_default().to_vec())
    }

    pub(super) fn long(&self, column: &'static str) -> Result<i64, RecordProblem> {
        Ok(self.columns.integer(column)?.unwrap_or(0))
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
        let Some(plain) = self.columns.open(column, Sealing::Enveloped, self.keyring)? else { return Ok(None) };
        M::decode(&plain[..]).map(Some).map_err(|source| RecordProblem::Message { column, source })
    }

    /// Sealed JSON that must be there.
    pub(super) fn json<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let plain = self.columns.open(column, Sealing::Sealed, self.keyring)?;
        parse(&plain.ok_or(RecordProblem::Empty { column })?).map_err(|source| RecordProblem::Json { column, source })
    }

    /// Sealed JSON; NULL and empty text hold the default.
    pub(super) fn optional_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let Some(plain) = self.columns.open(column, Sealing::Sealed, self.keyring)? else { return Ok(T::default()) };
        parse(&plain).map_err(|source| RecordProblem::Json { column, source })
    }

    /// JSON in plain sight; NULL holds the default.
    pub(super) fn plain_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordProblem> {
        let Some(plain) = self.columns.bytes(column)? else { return Ok(T::default()) };
        parse(plain).map_err(|source| RecordProblem::Json { column, source })
    }
}
