//! The rows of one table as columns, in the order of their units: the one form in which rows go
//! from the database to a lens, and from it to the database.

mod builder;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Literal, Sealing, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
pub use builder::TableBuilder;

/// The rows of one table, in the order of the batch's units.
#[derive(Debug, Clone, Default)]
pub struct TableRows {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    pub columns: BTreeMap<String, BatchColumn>,
}

/// Columns by table and name, plain.
pub type OpenedColumns = BTreeMap<String, BTreeMap<String, BatchColumn>>;

/// The values of one column.
#[derive(Debug, Clone)]
pub struct BatchColumn {
    /// Shared where a column passes a lens unchanged.
    pub data: Arc<ColumnData>,
    /// How the values here are sealed; [`Sealing::Plain`] once they are opened.
    pub sealing: Sealing,
}

impl BatchColumn {
    pub fn new(data: ColumnData, sealing: Sealing) -> Self {
        Self {
            data: Arc::new(data),
            sealing,
        }
    }

    /// A column with one plain value, repeated in every row.
    pub fn repeated(column: &Column, value: Option<&Literal>, rows: usize) -> Self {
        Self::new(
            ColumnData::repeat(column.kind.into(), Value::of(value), rows),
            Sealing::Plain,
        )
    }
}

impl TableRows {
    /// No row, for so many units.
    pub fn empty(table: &Table, columns: &BTreeSet<String>, units: usize) -> Self {
        let all = table.columns.iter();
        let columns = all.filter(|column| columns.contains(&column.name));
        TableBuilder::new(columns).finish(vec![0; units + 1])
    }

    pub fn of(&self, unit: usize) -> Range<usize> {
        self.unit_offsets[unit] as usize..self.unit_offsets[unit + 1] as usize
    }

    pub fn units(&self) -> usize {
        self.unit_offsets.len() - 1
    }

    pub fn count(&self) -> usize {
        self.unit_offsets.last().map_or(0, |&rows| rows as usize)
    }

    /// The unit that a row is of.
    pub fn unit_of(&self, row: usize) -> usize {
        self.unit_offsets
            .partition_point(|&start| start as usize <= row)
            - 1
    }

    /// Whether rows with these origins are all of these, in their order.
    pub(crate) fn is_continued_whole(&self, origins: &[u32]) -> bool {
        origins.len() == self.count() && origins.iter().zip(0..).all(|(&origin, row)| origin == row)
    }

    /// The rows of these units alone, in this order.
    #[must_use]
    pub fn only(&self, table: &Table, units: &[usize]) -> Self {
        let mut unit_offsets = vec![0];
        let mut rows = Vec::new();
        for &unit in units {
            rows.extend(self.unit_offsets[unit]..self.unit_offsets[unit + 1]);
            unit_offsets.push(u32::try_from(rows.len()).expect("batches are bounded"));
        }
        self.picked(table, unit_offsets, &rows)
    }

    /// Leaves out what comes after that many units.
    pub fn truncate(&mut self, table: &Table, units: usize) {
        if units < self.units() {
            self.unit_offsets.truncate(units + 1);
            let rows = self.count();
            for (name, values) in &mut self.columns {
                values.data = Arc::new(values.data.slice(encoding(table, name), 0..rows));
            }
        }
    }

    /// Keeps the rows for which `keep` holds, of a batch of one unit.
    pub fn retain(&mut self, table: &Table, keep: impl Fn(usize) -> bool) {
        let rows: Vec<_> = (0..self.count())
            .filter(|row| keep(*row))
            .map(|row| row as u32)
            .collect();
        *self = self.picked(table, vec![0, rows.len() as u32], &rows);
    }

    /// Adds rows to a batch of one unit. Each column has one value for each.
    pub fn extend(&mut self, table: &Table, rows: &[BTreeMap<String, OwnedValue>]) {
        let before = self.count();
        self.unit_offsets = vec![0, (before + rows.len()) as u32];
        for (name, values) in &mut self.columns {
            let encoding = encoding(table, name);
            let mut data = ColumnBuilder::new(encoding);
            (0..before).for_each(|row| data.push(values.data.get(encoding, row)));
            rows.iter().for_each(|row| data.push(row[name].value()));
            values.data = Arc::new(data.finish());
        }
    }

    /// Sets a column of some rows to a value.
    pub fn set(&mut self, table: &Table, name: &str, rows: &[usize], value: Value<'_>) {
        let encoding = encoding(table, name);
        let count = self.count();
        let values = self
            .columns
            .get_mut(name)
            .expect("a batch that is changed has every column");
        let mut data = ColumnBuilder::new(encoding);
        for row in 0..count {
            data.push(if rows.contains(&row) {
                value
            } else {
                values.data.get(encoding, row)
            });
        }
        values.data = Arc::new(data.finish());
    }

    pub fn value(&self, table: &Table, name: &str, row: usize) -> Option<Value<'_>> {
        self.columns
            .get(name)
            .map(|values| values.data.get(encoding(table, name), row))
    }

    /// The values of some columns of a row, encoded.
    pub fn encoded(&self, table: &Table, columns: &[String], row: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in columns {
            let value = self.value(table, name, row);
            value.unwrap_or(Value::Null).encode(&mut bytes);
        }
        bytes
    }

    /// These rows, in this order.
    pub fn picked(&self, table: &Table, unit_offsets: Vec<u32>, rows: &[u32]) -> Self {
        let columns = self.columns.iter().map(|(name, values)| {
            let data = values.data.pick(encoding(table, name), rows, Value::Null);
            (name.clone(), BatchColumn::new(data, values.sealing))
        });
        let picked = Self {
            unit_offsets,
            columns: columns.collect(),
        };
        picked.checked(table)
    }

    /// The rows as they are, with their shape checked in tests: a fault in it would give units rows
    /// of others.
    pub fn checked(self, table: &Table) -> Self {
        debug_assert_eq!(self.unit_offsets.first(), Some(&0), "offsets begin at 0");
        debug_assert!(self.unit_offsets.is_sorted(), "offsets ascend");
        for (name, values) in &self.columns {
            debug_assert!(
                has_rows(&values.data, encoding(table, name), self.count()),
                "{name} has a value for each row"
            );
        }
        self
    }
}

fn has_rows(data: &ColumnData, encoding: Encoding, rows: usize) -> bool {
    match encoding {
        Encoding::Text => data.offsets.len() == rows + 1,
        Encoding::Integer => data.values.len() == 8 * rows,
        Encoding::Boolean => data.values.len() == rows.div_ceil(8),
    }
}

fn encoding(table: &Table, column: &str) -> Encoding {
    table
        .find_column(column)
        .expect("a batch has columns of its layout")
        .kind
        .into()
}

/// A value that owns its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnedValue {
    /// NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer of either width.
    Integer(i64),
    /// Text, as bytes.
    Text(Vec<u8>),
}

impl OwnedValue {
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Text(text) => Value::Text(text),
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Integer(value),
            Value::Text(text) => Self::Text(text.to_vec()),
        }
    }
}

impl From<bool> for OwnedValue {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for OwnedValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for OwnedValue {
    fn from(value: &str) -> Self {
        Self::Text(value.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for OwnedValue {
    fn from(value: Vec<u8>) -> Self {
        Self::Text(value)
    }
}

/// Longest part of a value that is printed, in bytes.
const SHOWN_BYTES: usize = 200;

impl fmt::Debug for OwnedValue {
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

#[cfg(test)]
mod tests;
