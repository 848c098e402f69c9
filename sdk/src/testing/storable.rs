//! Rows that no database can store, in the result of a step: a text that is longer than its column,
//! a key twice. The lens knows which columns and keys the step has made; a database has stored the
//! others before.

use std::collections::BTreeSet;

use bbs_lens::layout::schema::characters;
use bbs_lens::{Composed, Lens};

use super::data::{Datum, RowData, UnitData};
use crate::schema::{Column, ColumnType, Sealing};

/// The first flaw of a unit at the target of a lens.
pub(super) fn flaw(lens: &Lens, unit: &UnitData) -> Option<String> {
    unit.tables.iter().find_map(|(name, rows)| {
        let composed = &lens.tables[name];
        too_long(lens, composed, rows).or_else(|| repeated_key(lens, composed, rows))
    })
}

fn too_long(lens: &Lens, composed: &Composed, rows: &[RowData]) -> Option<String> {
    let made = composed
        .columns
        .iter()
        .filter(|(column, provenance)| lens.makes_values(column, provenance));
    let mut made = made.map(|(column, _)| column);
    let is_flawed = |column: &&Column| rows.iter().any(|row| !fits(column, row.get(&column.name)));
    let column = made.find(is_flawed)?;
    Some(format!(
        "`{}` of `{}` has a text that is longer than the column holds",
        column.name, composed.table.name
    ))
}

fn fits(column: &Column, value: Option<&Datum>) -> bool {
    match (column.kind, column.sealing, value) {
        (ColumnType::Varchar(most), Sealing::Plain, Some(Datum::Text(text))) => {
            characters(text) <= most as usize
        }
        _ => true,
    }
}

/// Rows that lack a column of the key, as in a golden case, are left out.
fn repeated_key(lens: &Lens, composed: &Composed, rows: &[RowData]) -> Option<String> {
    if !lens.makes_keys(composed) {
        return None;
    }
    let mut keys = rows.iter().filter_map(|row| {
        let columns = composed.table.primary_key.iter();
        columns
            .map(|name| row.get(name))
            .collect::<Option<Vec<_>>>()
    });
    let mut seen = BTreeSet::new();
    keys.any(|key| !seen.insert(key)).then(|| {
        format!(
            "two rows of `{}` have the same primary key",
            composed.table.name
        )
    })
}
