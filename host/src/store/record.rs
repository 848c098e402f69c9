//! A row as a record: values of columns by name, decrypted. NULL in a plain column reads as empty
//! or zero; in a sealed column it is an error unless the column is optional.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use bbs_database::{Row, SqlError};
use bbs_encryption::{EncryptionError, Keyring};
use bbs_lens::layout::schema::Sealing;
use bbs_model::json::Malformed;
use bbs_model::{ModificationTag, Text};
use bbs_units::RowsError;
use prost::Message;

use super::{EntityTable, StoreError};

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordReadError {
    #[error("{column} has an unexpected type")]
    Column {
        column: &'static str,
        source: SqlError,
    },
    #[error("{column} holds the number {number}, which is out of range")]
    OutOfRange { column: &'static str, number: i64 },
    #[error("{column} is empty")]
    Empty { column: &'static str },
    #[error("{column} cannot be decrypted")]
    Sealed {
        column: &'static str,
        source: EncryptionError,
    },
    #[error("{column} is not a valid protobuf message")]
    Message {
        column: &'static str,
        source: prost::DecodeError,
    },
    #[error("{column} is not valid JSON for this column")]
    Json {
        column: &'static str,
        source: Malformed,
    },
    #[error("the lens cannot transform its unit")]
    Lens { source: Arc<RowsError> },
}

/// The columns of a row by name, as they are stored.
pub(super) trait Columns {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordReadError>;

    /// A number; a boolean is 0 or 1.
    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordReadError>;

    /// Whether the lens has opened a sealed column, so that it is plain.
    fn is_opened(&self, _column: &'static str) -> bool {
        false
    }

    /// The plaintext of a sealed column; none if it is NULL or empty. Empty plaintext of one that
    /// is opened is a valid message, but not valid JSON.
    fn open(
        &self,
        column: &'static str,
        sealing: Sealing,
        keyring: &Keyring,
    ) -> Result<Option<Cow<'_, [u8]>>, RecordReadError> {
        let Some(text) = self.bytes(column)? else {
            return Ok(None);
        };
        let is_opened = self.is_opened(column);
        if text.is_empty() && !(is_opened && sealing == Sealing::Enveloped) {
            return Ok(None);
        }
        if is_opened {
            return Ok(Some(Cow::Borrowed(text)));
        }
        let opened = keyring
            .open(sealing, text)
            .map_err(|source| RecordReadError::Sealed { column, source })?;
        Ok(Some(Cow::Owned(opened)))
    }
}

/// A row of a statement that selects these columns in this order.
pub(super) struct SelectedRow<'a> {
    row: &'a Row,
    columns: &'static [&'static str],
    /// The column after the one that was read last: most records are read in the order of their
    /// columns.
    next: Cell<usize>,
}

impl<'a> SelectedRow<'a> {
    pub(super) fn new(row: &'a Row, columns: &'static [&'static str]) -> Self {
        Self {
            row,
            columns,
            next: Cell::new(0),
        }
    }

    /// A position is found faster than the driver finds a name.
    fn read<'r, T>(
        &'r self,
        column: &'static str,
        read: impl FnOnce(&'r Row, usize) -> Result<T, SqlError>,
    ) -> Result<T, RecordReadError> {
        let is_column = |at: &usize| self.columns.get(*at) == Some(&column);
        let position = Some(self.next.get())
            .filter(is_column)
            .or_else(|| (0..self.columns.len()).find(is_column));
        let value = position
            .ok_or_else(|| SqlError::ColumnNotFound(column.to_owned()))
            .and_then(|at| {
                self.next.set(at + 1);
                read(self.row, at)
            });
        value.map_err(|source| RecordReadError::Column { column, source })
    }
}

impl Columns for SelectedRow<'_> {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordReadError> {
        self.read(column, |row, at| row.bytes(at))
    }

    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordReadError> {
        self.read(column, |row, at| row.integer(at))
    }
}

/// A row with the keys that open its sealed columns.
pub(super) struct Record<'a> {
    columns: &'a dyn Columns,
    keyring: &'a Keyring,
}

/// The columns of a table that an entity, or a part of it, is read from.
#[derive(Debug)]
pub(super) struct Projection<T> {
    pub(super) table: EntityTable,
    pub(super) columns: &'static [&'static str],
    read: fn(&Record<'_>) -> Result<T, RecordReadError>,
}

impl EntityTable {
    /// A projection without columns yet.
    pub(super) const fn read<T>(
        self,
        read: fn(&Record<'_>) -> Result<T, RecordReadError>,
    ) -> Projection<T> {
        Projection {
            table: self,
            columns: &[],
            read,
        }
    }
}

impl<T> Projection<T> {
    pub(super) const fn columns(self, columns: &'static [&'static str]) -> Self {
        Self { columns, ..self }
    }

    /// Reads a row. An error names the record by its key.
    pub(super) fn record(&self, columns: &dyn Columns, keyring: &Keyring) -> Result<T, StoreError> {
        let record = Record { columns, keyring };
        (self.read)(&record).map_err(|source| {
            let key = record.text(self.table.key).unwrap_or_default();
            StoreError::Unreadable {
                table: self.table.name,
                key,
                source,
            }
        })
    }
}

impl Record<'_> {
    /// A text as bytes, which need not be UTF-8.
    pub(super) fn text(&self, column: &'static str) -> Result<Text, RecordReadError> {
        Ok(self.columns.bytes(column)?.unwrap_or_default().to_vec())
    }

    pub(super) fn long(&self, column: &'static str) -> Result<i64, RecordReadError> {
        Ok(self.columns.integer(column)?.unwrap_or(0))
    }

    pub(super) fn number<N: TryFrom<i64>>(
        &self,
        column: &'static str,
    ) -> Result<N, RecordReadError> {
        let number = self.long(column)?;
        N::try_from(number).map_err(|_| RecordReadError::OutOfRange { column, number })
    }

    pub(super) fn flag(&self, column: &'static str) -> Result<bool, RecordReadError> {
        Ok(self.long(column)? != 0)
    }

    pub(super) fn tag(&self) -> Result<ModificationTag, RecordReadError> {
        Ok(ModificationTag {
            epoch: self.text("modification_tag_epoch")?,
            index: self.number("modification_tag_index")?,
        })
    }

    /// A sealed message. NULL and empty text are errors.
    pub(super) fn message<M: Message + Default>(
        &self,
        column: &'static str,
    ) -> Result<M, RecordReadError> {
        self.optional_message(column)?
            .ok_or(RecordReadError::Empty { column })
    }

    /// A sealed message; none for NULL and empty text.
    pub(super) fn optional_message<M: Message + Default>(
        &self,
        column: &'static str,
    ) -> Result<Option<M>, RecordReadError> {
        let plain = self
            .columns
            .open(column, Sealing::Enveloped, self.keyring)?;
        plain
            .map(|plain| M::decode(&plain[..]))
            .transpose()
            .map_err(|source| RecordReadError::Message { column, source })
    }

    /// Sealed JSON. NULL and empty text are errors.
    pub(super) fn json<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordReadError> {
        let plain = self.columns.open(column, Sealing::Sealed, self.keyring)?;
        parsed(column, plain, parse)?.ok_or(RecordReadError::Empty { column })
    }

    /// Sealed JSON; the default for NULL and empty text.
    pub(super) fn optional_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordReadError> {
        let plain = self.columns.open(column, Sealing::Sealed, self.keyring)?;
        Ok(parsed(column, plain, parse)?.unwrap_or_default())
    }

    /// Unencrypted JSON; the default for NULL.
    pub(super) fn plain_json<T: Default>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, RecordReadError> {
        Ok(parsed(column, self.columns.bytes(column)?, parse)?.unwrap_or_default())
    }
}

fn parsed<T>(
    column: &'static str,
    text: Option<impl AsRef<[u8]>>,
    parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
) -> Result<Option<T>, RecordReadError> {
    text.map(|text| parse(text.as_ref()))
        .transpose()
        .map_err(|source| RecordReadError::Json { column, source })
}
