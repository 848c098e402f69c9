//! A unit's rows as plain maps: easy to write in a test, easy to compare and to print.

use std::collections::BTreeMap;
use std::fmt;

use crate::columns::Cell;
use crate::schema::Literal;

/// A value of one column. A column that is not there at all is not in the row's map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datum {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(Vec<u8>),
}

/// A row: its columns by name.
pub type Row = BTreeMap<String, Datum>;

/// The rows of one unit, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitData {
    pub tables: BTreeMap<String, Vec<Row>>,
}

impl UnitData {
    #[must_use]
    pub fn row<const N: usize>(mut self, table: &str, columns: [(&str, Datum); N]) -> Self {
        let row = columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.tables.entry(table.to_owned()).or_default().push(row);
        self
    }

    /// The same rows in an order of their own, without tables that have none.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.tables.retain(|_, rows| !rows.is_empty());
        self.tables.values_mut().for_each(|rows| rows.sort());
        self
    }
}

impl Datum {
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Boolean(value) => Cell::Boolean(*value),
            Self::Integer(value) => Cell::Integer(*value),
            Self::Text(value) => Cell::Text(value),
        }
    }
}

impl From<Cell<'_>> for Datum {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Boolean(value) => Self::Boolean(value),
            Cell::Integer(value) => Self::Integer(value),
            Cell::Text(value) => Self::Text(value.to_vec()),
        }
    }
}

impl From<&Literal> for Datum {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::Boolean(value) => Self::Boolean(*value),
            Literal::Integer(value) => Self::Integer(*value),
            Literal::Text(value) => Self::Text(value.clone().into_bytes()),
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

/// How many bytes of a long value are shown.
const SHOWN_BYTES: usize = 200;

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Text(value) if value.len() > SHOWN_BYTES => {
                write!(f, "\"{}…\" ({} bytes)", value[..SHOWN_BYTES].escape_ascii(), value.len())
            }
            Self::Text(value) => write!(f, "\"{}\"", value.escape_ascii()),
        }
    }
}
