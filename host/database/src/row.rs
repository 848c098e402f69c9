//! One row of a result: its values in the few types that the host uses, independent of the
//! database's types.

use bbs_lens::layout::values::{Encoding, Value};
use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, TypeInfo, ValueRef};

use super::SqlError;

/// A row of a result, in the driver's form.
pub enum Row {
    /// A row from SQLite.
    Sqlite(SqliteRow),
    /// A row from PostgreSQL.
    Postgres(PgRow),
    /// A row from MariaDB or MySQL.
    Mysql(MySqlRow),
}

impl std::fmt::Debug for Row {
    /// Prints no values: a row may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Row")
    }
}

impl Row {
    /// Returns text as bytes, so that text that is not UTF-8 can be read; `None` for NULL.
    ///
    /// # Errors
    /// If there is no such column, or the database returned another type.
    pub fn bytes(&self, at: usize) -> Result<Option<&[u8]>, SqlError> {
        match self {
            Self::Sqlite(row) => row.try_get_unchecked(at),
            Self::Postgres(row) => row.try_get_unchecked(at),
            Self::Mysql(row) => row.try_get_unchecked(at),
        }
    }

    /// Returns text; `None` for NULL.
    ///
    /// # Errors
    /// If there is no such column, or its value is not UTF-8.
    pub fn text(&self, at: usize) -> Result<Option<&str>, SqlError> {
        let bytes = self.bytes(at)?;
        bytes
            .map(std::str::from_utf8)
            .transpose()
            .map_err(|fault| SqlError::Decode(fault.into()))
    }

    /// Returns text; an empty one for NULL.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn text_or_empty(&self, at: usize) -> Result<&str, SqlError> {
        Ok(self.text(at)?.unwrap_or_default())
    }

    /// Returns a copy of a text; an empty one for NULL.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn owned_text(&self, at: usize) -> Result<String, SqlError> {
        Ok(self.text_or_empty(at)?.to_owned())
    }

    /// Returns an integer of any width, or a boolean as 0 or 1; `None` for NULL.
    ///
    /// # Errors
    /// If there is no such column, or its value is not an integer.
    pub fn integer(&self, at: usize) -> Result<Option<i64>, SqlError> {
        match self {
            Self::Sqlite(row) => row.try_get_unchecked(at),
            Self::Postgres(row) => postgres_integer(row, at),
            Self::Mysql(row) => row.try_get_unchecked(at),
        }
    }

    /// Returns an integer of any width, or a boolean as 0 or 1; 0 for NULL.
    ///
    /// # Errors
    /// As [`integer`](Self::integer).
    pub fn integer_or_zero(&self, at: usize) -> Result<i64, SqlError> {
        Ok(self.integer(at)?.unwrap_or_default())
    }

    /// Returns the absolute value of an integer of any width; 0 for NULL.
    ///
    /// # Errors
    /// As [`integer`](Self::integer).
    pub fn unsigned(&self, at: usize) -> Result<u64, SqlError> {
        Ok(self.integer_or_zero(at)?.unsigned_abs())
    }

    /// Returns whether an integer or boolean differs from 0; `None` for NULL.
    ///
    /// # Errors
    /// If there is no such column, or its value is not an integer.
    pub fn flag(&self, at: usize) -> Result<Option<bool>, SqlError> {
        Ok(self.integer(at)?.map(|number| number != 0))
    }

    /// Returns the storage class of a value that does not have that of its encoding. Only in
    /// SQLite, whose columns hold values of any class: those of another class are equal to no value
    /// of the encoding, and sort before or behind all of them.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn foreign_class(&self, at: usize, encoding: Encoding) -> Result<Option<String>, SqlError> {
        let Self::Sqlite(row) = self else {
            return Ok(None);
        };
        let raw = row.try_get_raw(at)?;
        let usual = match encoding {
            Encoding::Boolean | Encoding::Integer => "INTEGER",
            Encoding::Text => "TEXT",
        };
        let class = raw.type_info().name().to_owned();
        Ok((!raw.is_null() && class != usual).then_some(class))
    }

    /// Returns the value of a layout's column, in the given encoding.
    ///
    /// # Errors
    /// If there is no such column, or its value has another type.
    pub fn value(&self, at: usize, encoding: Encoding) -> Result<Value<'_>, SqlError> {
        Ok(match encoding {
            Encoding::Boolean => self.flag(at)?.map_or(Value::Null, Value::Boolean),
            Encoding::Integer => self.integer(at)?.map_or(Value::Null, Value::Integer),
            Encoding::Text => self.bytes(at)?.map_or(Value::Null, Value::Text),
        })
    }
}

/// PostgreSQL's driver decodes an integer of any width, and any other value of at most eight bytes
/// as if it were one.
fn postgres_integer(row: &PgRow, at: usize) -> Result<Option<i64>, SqlError> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(None);
    }
    let number = match raw.type_info().name() {
        "INT2" | "INT4" | "INT8" => <i64 as Decode<Postgres>>::decode(raw),
        "BOOL" => <bool as Decode<Postgres>>::decode(raw).map(i64::from),
        _ => return row.try_get(at),
    };
    number.map(Some).map_err(SqlError::Decode)
}
