//! Two states of the same units, compared: which row is which, and whether a value is still what it
//! was.

use std::collections::{BTreeMap, BTreeSet};

use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Column, Layout, Table};
use bbs_lens::layout::values::Value;
use bbs_lens::{BatchColumn, TableRows};

use super::batch::{UnitBatch, open};

/// A difference: its table, its row's encoded primary key and its column. No column where a whole
/// row was added or removed.
pub type Difference = (String, Vec<u8>, String);

/// The rows of one unit in two states, matched by their primary keys.
#[derive(Debug)]
pub struct Matched {
    /// Each row of the later state, in its order, with the row that it was before.
    pub rows: Vec<(Option<usize>, usize)>,
    pub removed: Vec<usize>,
}

/// Matches the rows of one unit in two states.
pub fn matched(
    table: &Table,
    (before, at): (&TableRows, usize),
    (after, unit): (&TableRows, usize),
) -> Matched {
    let mut removed: BTreeMap<Vec<u8>, usize> = before
        .of(at)
        .map(|row| (encoded_key(table, before, row), row))
        .collect();
    let rows = after
        .of(unit)
        .map(|row| (removed.remove(&encoded_key(table, after, row)), row))
        .collect();
    Matched {
        rows,
        removed: removed.into_values().collect(),
    }
}

fn encoded_key(table: &Table, rows: &TableRows, row: usize) -> Vec<u8> {
    rows.encoded(table, &table.primary_key, row)
}

/// Whether two values are alike once they are plain. Sealed values differ each time they are
/// sealed, so they are opened unless both are stored with the same bytes; a value that does not
/// open is the same only if its bytes are.
pub fn same(
    column: &Column,
    (was, before): (&BatchColumn, usize),
    (is, after): (&BatchColumn, usize),
    keyring: &Keyring,
    alike: impl Fn(Value<'_>, Value<'_>) -> bool,
) -> bool {
    let old = was.data.get(column.kind.into(), before);
    let new = is.data.get(column.kind.into(), after);
    if was.sealing == is.sealing && old == new {
        return true;
    }
    match (
        open(old, was.sealing, keyring),
        open(new, is.sealing, keyring),
    ) {
        (Ok(old_text), Ok(new_text)) => alike(
            old_text.as_deref().map_or(old, Value::Text),
            new_text.as_deref().map_or(new, Value::Text),
        ),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// The differences of two batches of the same one unit.
pub fn differences(
    layout: &Layout,
    before: &UnitBatch,
    after: &UnitBatch,
    keyring: &Keyring,
    alike: impl Fn(Value<'_>, Value<'_>) -> bool + Copy,
) -> BTreeSet<Difference> {
    let mut differences = BTreeSet::new();
    for (name, new) in &after.tables {
        let table = &layout.tables[name];
        let old = &before.tables[name];
        let Matched { rows, removed } = matched(table, (old, 0), (new, 0));
        let whole = |key| (name.clone(), key, String::new());
        differences.extend(
            removed
                .into_iter()
                .map(|row| whole(encoded_key(table, old, row))),
        );
        for (was, row) in rows {
            let key = encoded_key(table, new, row);
            let Some(was) = was else {
                differences.insert(whole(key));
                continue;
            };
            for column in &table.columns {
                let (Some(is), Some(of)) =
                    (new.columns.get(&column.name), old.columns.get(&column.name))
                else {
                    continue;
                };
                if !same(column, (of, was), (is, row), keyring, alike) {
                    differences.insert((name.clone(), key.clone(), column.name.clone()));
                }
            }
        }
    }
    differences
}
