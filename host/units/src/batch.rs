//! Units in memory, at either end of a lens, and the opening and sealing of their values. A column
//! that no step reads stays sealed, byte for byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bbs_encryption::{EncryptionError, Keyring};
use bbs_lens::layout::schema::{Column, Layout, Sealing};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::{BatchColumn, OpenedColumns, OwnedValue, TableRows};

use super::{RowsError, UnitKey, WantedColumns};

#[cfg(test)]
mod tests;

/// The rows of some units over some tables.
#[derive(Debug, Clone, Default)]
pub struct UnitBatch {
    pub units: Vec<UnitKey>,
    pub tables: BTreeMap<String, TableRows>,
}

/// Each value of a column plain; none if it is plain already. A value that does not open stays
/// sealed and is reported with its row.
pub fn opened(
    values: &BatchColumn,
    rows: usize,
    keyring: &Keyring,
    mut failed: impl FnMut(usize, EncryptionError),
) -> Option<BatchColumn> {
    if values.sealing == Sealing::Plain {
        return None;
    }
    let mut plain = ColumnBuilder::new(Encoding::Text);
    for row in 0..rows {
        let value = values.data.get(Encoding::Text, row);
        match open(value, values.sealing, keyring) {
            Ok(text) => plain.push(text.as_deref().map_or(value, Value::Text)),
            Err(fault) => {
                failed(row, fault);
                plain.push(value);
            }
        }
    }
    Some(BatchColumn::new(plain.finish(), Sealing::Plain))
}

/// Each value of a column as the column stores it.
pub fn sealed(values: BatchColumn, rows: usize, column: &Column, keyring: &Keyring) -> BatchColumn {
    if values.sealing == column.sealing {
        return values;
    }
    let mut text = ColumnBuilder::new(Encoding::Text);
    for row in 0..rows {
        text.push(stored(&values, row, column, keyring).value());
    }
    BatchColumn::new(text.finish(), column.sealing)
}

/// One value as its column stores it.
pub(super) fn stored(
    values: &BatchColumn,
    row: usize,
    column: &Column,
    keyring: &Keyring,
) -> OwnedValue {
    match values.data.get(column.kind.into(), row) {
        Value::Text(plain) if values.sealing != column.sealing => {
            OwnedValue::Text(keyring.seal(column.sealing, plain))
        }
        value => value.into(),
    }
}

/// One value, plain. NULL and empty stay what they are: Diego writes both.
pub(super) fn open<'a>(
    value: Value<'a>,
    sealing: Sealing,
    keyring: &Keyring,
) -> Result<Option<Cow<'a, [u8]>>, EncryptionError> {
    match value {
        Value::Text(text) if text.is_empty() || sealing == Sealing::Plain => {
            Ok(Some(Cow::Borrowed(text)))
        }
        Value::Text(text) => keyring
            .open(sealing, text)
            .map(|plain| Some(Cow::Owned(plain))),
        Value::Null | Value::Boolean(_) | Value::Integer(_) => Ok(None),
    }
}

impl UnitBatch {
    /// These units alone, in this order.
    #[must_use]
    pub fn only(&self, layout: &Layout, units: &[usize]) -> Self {
        if units.len() == self.units.len() {
            return self.clone();
        }
        let tables = self
            .tables
            .iter()
            .map(|(name, rows)| (name.clone(), rows.only(&layout.tables[name], units)));
        Self {
            units: units.iter().map(|&unit| self.units[unit].clone()).collect(),
            tables: tables.collect(),
        }
    }

    /// A batch of its units without a row.
    #[must_use]
    pub fn emptied(&self, layout: &Layout) -> Self {
        let none = |(name, rows): (&String, &TableRows)| {
            (
                name.clone(),
                rows.picked(&layout.tables[name], vec![0; self.units.len() + 1], &[]),
            )
        };
        Self {
            units: self.units.clone(),
            tables: self.tables.iter().map(none).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    pub fn rows(&self) -> usize {
        self.tables.values().map(TableRows::count).sum()
    }

    /// The names of the units, in their order.
    pub fn names(&self) -> Vec<String> {
        self.units.iter().map(UnitKey::name).collect()
    }

    /// Opens these columns in place and returns the units of which a value does not open, each with
    /// its first fault.
    pub fn open(
        &mut self,
        columns: &WantedColumns,
        keyring: &Keyring,
    ) -> BTreeMap<usize, RowsError> {
        let mut closed = BTreeMap::new();
        let opened = open_columns(&self.tables, columns, keyring, &mut closed);
        for (name, columns) in opened {
            let rows = self.tables.get_mut(&name).expect("a table of the batch");
            rows.columns.extend(columns);
        }
        closed
    }
}

/// These columns of tables, opened; without those that are plain. Adds each unit of which a value
/// does not open to `closed`, with its first fault.
pub(super) fn open_columns<'a>(
    tables: impl IntoIterator<Item = (&'a String, &'a TableRows)>,
    columns: &WantedColumns,
    keyring: &Keyring,
    closed: &mut BTreeMap<usize, RowsError>,
) -> OpenedColumns {
    let mut all_opened = OpenedColumns::new();
    for (name, rows) in tables {
        for column in columns.get(name).into_iter().flatten() {
            let opened = opened(
                &rows.columns[column],
                rows.count(),
                keyring,
                |row, source| {
                    let fault = || RowsError::Sealed {
                        table: name.clone(),
                        column: column.clone(),
                        source,
                    };
                    closed.entry(rows.unit_of(row)).or_insert_with(fault);
                },
            );
            if let Some(opened) = opened {
                let of_table = all_opened.entry(name.clone()).or_default();
                of_table.insert(column.clone(), opened);
            }
        }
    }
    all_opened
}
