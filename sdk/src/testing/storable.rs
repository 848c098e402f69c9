//! Rows that no database can store, in the result of a step: a text or a number that its column
//! does not hold, NULL in a required column, a key twice. The lens knows which columns and keys the
//! step has made; a database has stored the others before.

use std::collections::BTreeSet;

use bbs_lens::layout::schema::characters;
use bbs_lens::{Composed, Lens};

use super::data::{Datum, RowData, UnitData};
use crate::schema::{Column, ColumnType, Sealing};

/// The first flaw of a unit at the target of a lens.
pub(super) fn flaw(lens: &Lens, unit: &UnitData) -> Option<String> {
    unit.tables.iter().find_map(|(name, rows)| {
        let composed = &lens.tables[name];
        unfit_value(lens, composed, rows).or_else(|| repeated_key(lens, composed, rows))
    })
}

/// Values that rows lack, as in a golden case, are left out.
fn unfit_value(lens: &Lens, composed: &Composed, rows: &[RowData]) -> Option<String> {
    let made = composed
        .columns
        .iter()
        .filter(|(column, provenance)| lens.makes_values(column, provenance));
    let mut made = made.map(|(column, _)| column);
    made.find_map(|column| {
        let mut values = rows.iter().filter_map(|row| row.get(&column.name));
        let flaw = values.find_map(|value| value_flaw(column, value))?;
        let table = &composed.table.name;
        Some(format!("`{}` of `{table}` has {flaw}", column.name))
    })
}

fn value_flaw(column: &Column, value: &Datum) -> Option<&'static str> {
    match (column.kind, value) {
        (_, Datum::Null) if !column.nullable => Some("NULL, and the column takes none"),
        (ColumnType::Integer, Datum::Integer(number)) if i32::try_from(*number).is_err() => {
            Some("a number that does not fit 32 bits")
        }
        (ColumnType::Varchar(most), Datum::Text(text))
            if column.sealing == Sealing::Plain && characters(text) > most as usize =>
        {
            Some("a text that is longer than the column holds")
        }
        _ => None,
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
