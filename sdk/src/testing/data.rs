//! The rows of a unit as plain maps, which are easy to write in a test, to compare and to print.

use std::collections::BTreeMap;
use std::fmt;

use crate::columns::ColumnValue;

/// A value of one column. A column that is absent is not in the row's map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datum {
    /// NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer of either width.
    Integer(i64),
    /// Text, as bytes.
    Text(Vec<u8>),
}

/// A row: its values by column name.
pub type RowData = BTreeMap<String, Datum>;

/// The rows of one unit, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitData {
    /// The rows by table name.
    pub tables: BTreeMap<String, Vec<RowData>>,
}

impl UnitData {
    /// Adds a row to a table.
    #[must_use]
    pub fn row<const N: usize>(mut self, table: &str, columns: [(&str, Datum); N]) -> Self {
        let row = columns
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        self.tables.entry(table.to_owned()).or_default().push(row);
        self
    }

    /// The same unit with its rows sorted and without empty tables.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.tables.retain(|_, rows| !rows.is_empty());
        self.tables.values_mut().for_each(|rows| rows.sort());
        self
    }
}

impl Datum {
    pub(crate) fn value(&self) -> ColumnValue<'_> {
        match self {
            Self::Null => ColumnValue::Null,
            Self::Boolean(value) => ColumnValue::Boolean(*value),
            Self::Integer(value) => ColumnValue::Integer(*value),
            Self::Text(value) => ColumnValue::Text(value),
        }
    }
}

impl From<ColumnValue<'_>> for Datum {
    fn from(value: ColumnValue<'_>) -> Self {
        match value {
            ColumnValue::Null => Self::Null,
            ColumnValue::Boolean(value) => Self::Boolean(value),
            ColumnValue::Integer(value) => Self::Integer(value),
            ColumnValue::Text(value) => Self::Text(value.to_vec()),
        }
    }
}

impl From<bool> for Datum {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for Datum {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Datum {
    fn from(value: &str) -> Self {
        Self::Text(value.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Datum {
    fn from(value: Vec<u8>) -> Self {
        Self::Text(value)
    }
}

/// Longest part of a value that is printed, in bytes.
const SHOWN_BYTES: usize = 200;

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Text(value) if value.len() > SHOWN_BYTES => {
                write!(
                    f,
                    "\"{}…\" ({} bytes)",
                    value[..SHOWN_BYTES].escape_ascii(),
                    value.len()
                )
            }
            Self::Text(value) => write!(f, "\"{}\"", value.escape_ascii()),
        }
    }
}
