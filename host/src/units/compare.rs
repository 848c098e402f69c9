//! Two states of the same units, compared: which row is which, and whether a value is still what it was.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{Batch, Content, Rows, opened};
use crate::layout::schema::{Column, Layout, Table};
use crate::layout::values::Value;
use crate::record::Keyring;

/// A cell by its table, its row's encoded primary key and its column. No column where a whole row is meant.
pub type Cell = (String, Vec<u8>, String);

/// The primary key of a row, encoded.
pub(super) fn key(table: &Table, rows: &Rows, row: usize) -> Vec<u8> {
    let mut key = Vec::new();
    for name in &table.primary_key {
        rows.value(table, name, row).unwrap_or(Value::Null).encode(&mut key);
    }
    key
}

/// Whether two values are alike once they are plain. Sealed values differ each time they are sealed, so they are
/// opened unless they travelled unopened; one that does not open is the same only if its bytes are.
pub(super) fn same(
    column: &Column,
    (was, before): (&Content, usize),
    (is, after): (&Content, usize),
    keyring: &Keyring,
    alike: impl Fn(Value<'_>, Value<'_>) -> bool,
) -> bool {
    let (old, new) = (was.data.get(column.kind.into(), before), is.data.get(column.kind.into(), after));
    if was.sealing == is.sealing && old == new {
        return true;
    }
    match (opened(old, was.sealing, keyring), opened(new, is.sealing, keyring)) {
        (Ok(old_text), Ok(new_text)) => {
            alike(old_text.as_deref().map_or(old, Value::Text), new_text.as_deref().map_or(new, Value::Text))
        }
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Where two batches of the same one unit differ.
pub fn differing(
    layout: &Layout,
    one: &Batch,
    other: &Batch,
    keyring: &Keyring,
    alike: impl Fn(Value<'_>, Value<'_>) -> bool + Copy,
) -> BTreeSet<Cell> {
    let mut cells = BTreeSet::new();
    for (name, rows) in &one.tables {
        let (table, others) = (&layout.tables[name], &other.tables[name]);
        let mut unmet: BTreeMap<_, _> = (0..others.count()).map(|row| (key(table, others, row), row)).collect();
        for row in 0..rows.count() {
            let key = key(table, rows, row);
            let Some(met) = unmet.remove(&key) else {
                cells.insert((name.clone(), key, String::new()));
                continue;
            };
            for column in &table.columns {
                let (Some(is), Some(was)) = (rows.columns.get(&column.name), others.columns.get(&column.name)) else {
                    continue;
                };
                if !same(column, (is, row), (was, met), keyring, alike) {
                    cells.insert((name.clone(), key.clone(), column.name.clone()));
                }
            }
        }
        cells.extend(unmet.into_keys().map(|key| (name.clone(), key, String::new())));
    }
    cells
}
