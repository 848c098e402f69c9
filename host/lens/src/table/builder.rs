//! Rows of a table, added value by value as they are stored.

use super::{BatchColumn, TableRows};
use crate::layout::schema::Column;
use crate::layout::values::{ColumnBuilder, Value};

/// Columns of a table under construction.
#[derive(Debug)]
pub struct TableBuilder<'a> {
    columns: Vec<(&'a Column, ColumnBuilder)>,
}

impl<'a> TableBuilder<'a> {
    /// Without rows.
    pub fn new(columns: impl IntoIterator<Item = &'a Column>) -> Self {
        let column = |column: &'a Column| (column, ColumnBuilder::new(column.kind.into()));
        Self {
            columns: columns.into_iter().map(column).collect(),
        }
    }

    /// Appends a value to the column at a place, which has a value for each row in the end.
    pub fn push(&mut self, place: usize, value: Value<'_>) {
        self.columns[place].1.push(value);
    }

    /// Appends a row of as many values as there are columns.
    pub fn push_row<'v>(&mut self, values: impl IntoIterator<Item = Value<'v>>) {
        self.columns
            .iter_mut()
            .zip(values)
            .for_each(|((_, builder), value)| builder.push(value));
    }

    /// The rows of units with these offsets.
    pub fn finish(self, unit_offsets: Vec<u32>) -> TableRows {
        let columns = self.columns.into_iter().map(|(column, builder)| {
            (
                column.name.clone(),
                BatchColumn::new(builder.finish(), column.sealing),
            )
        });
        TableRows {
            unit_offsets,
            columns: columns.collect(),
        }
    }
}
