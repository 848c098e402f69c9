//! Flaws for which the database would refuse transformed rows, found before they are written: a NUL
//! character, a text or a number that its column does not hold, NULL in a required column, a key
//! twice. Owns the rules and the names of the unit, the module and the column in the error. The
//! types of what a module returned were checked then; a column may also be altered, or restored.
//!
//! Columns that pass a lens unchanged are skipped: the database had their values before. The others
//! are scanned as a whole.

use std::collections::{BTreeMap, HashSet};

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_lens::layout::history::Leg;
use bbs_lens::layout::schema::{Column, ColumnType, Sealing, Table};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::{BatchColumn, Composed, FailedStep, Lens, TablePart, TableRows};

use super::batch::UnitBatch;
use super::{Capacity, RowsError};

/// A unit has rows that the database cannot store, and the module that made them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step} makes a row that the database cannot store: {flaw}")]
pub struct Unstorable {
    pub step: FailedStep,
    /// Names table and column; has no value.
    pub flaw: String,
}

/// The units of a transformed batch that the database cannot store, by their places, each with its
/// first flaw.
pub(super) fn refused(
    lens: &Lens,
    batch: &UnitBatch,
    keyring: &Keyring,
    dialect: Dialect,
) -> Vec<(usize, RowsError)> {
    let mut refused = BTreeMap::new();
    for (name, rows) in &batch.tables {
        let composed = &lens.tables[name];
        let mut flaws: Vec<(usize, TablePart<'_>, String)> = Vec::new();
        for (column, provenance) in &composed.columns {
            if let Some(values) = rows.columns.get(&column.name)
                && lens.makes_values(column, provenance)
            {
                let mut of_column = text_flaws((name, column), values, keyring, dialect);
                of_column.extend(value_flaws((name, column), values, rows.count()));
                flaws.extend(
                    of_column
                        .into_iter()
                        .map(|(row, flaw)| (row, TablePart::Column(&column.name), flaw)),
                );
            }
        }
        let keys = repeated_keys(lens, composed, rows).into_iter();
        flaws.extend(keys.map(|(row, flaw)| (row, TablePart::Key, flaw)));
        for (row, part, flaw) in flaws {
            let new = || {
                RowsError::Unstorable(Box::new(unstorable(
                    lens,
                    lens.last_change(name, part),
                    flaw,
                )))
            };
            refused.entry(rows.unit_of(row)).or_insert_with(new);
        }
    }
    refused.into_iter().collect()
}

/// The flaws of rows that a database cannot store in a table; none has a value.
pub fn flaws(table: &Table, rows: &TableRows, keyring: &Keyring, dialect: Dialect) -> Vec<String> {
    let mut flaws = Vec::new();
    for column in &table.columns {
        let Some(values) = rows.columns.get(&column.name) else {
            continue;
        };
        flaws.extend(
            text_flaws((&table.name, column), values, keyring, dialect)
                .into_iter()
                .map(|(_, flaw)| flaw),
        );
        let is_text =
            Encoding::from(column.kind) == Encoding::Text && column.sealing == Sealing::Plain;
        let is_utf8 = |row: usize| match values.data.get(Encoding::Text, row) {
            Value::Text(text) => std::str::from_utf8(text).is_ok(),
            _ => true,
        };
        if is_text && dialect != Dialect::Sqlite && !(0..rows.count()).all(is_utf8) {
            flaws.push(format!(
                "`{}` of `{}` has a text that is not UTF-8",
                column.name, table.name
            ));
        }
    }
    flaws.extend(repetitions(table, rows).into_iter().map(|(_, flaw)| flaw));
    flaws
}

/// A row of a table of the target that the database has refused.
pub fn refused_row(lens: &Lens, table: &str, flaw: &str) -> Unstorable {
    unstorable(
        lens,
        lens.last_change(table, TablePart::Rows),
        format!("`{table}`: {flaw}"),
    )
}

/// Residue of a migration that the database has refused.
pub fn refused_residue(lens: &Lens, left_by: Leg, flaw: &str) -> Unstorable {
    unstorable(lens, left_by, format!("its residue: {flaw}"))
}

fn unstorable(lens: &Lens, leg: Leg, flaw: String) -> Unstorable {
    let (step, _) = lens
        .steps()
        .zip(lens.legs())
        .find(|(_, of_step)| *of_step == leg)
        .expect("a step of the lens");
    Unstorable {
        step: FailedStep::of(&**step, leg.direction),
        flaw,
    }
}

/// The rows of a column that have NULL where it takes none, or a number that it does not hold.
/// SQLite would store that number, in a column from which the host reads 32 bits.
fn value_flaws(
    (table, column): (&str, &Column),
    values: &BatchColumn,
    rows: usize,
) -> Vec<(usize, String)> {
    let data = &values.data;
    let has_null = !column.nullable && !data.validity.is_empty();
    if !has_null && column.kind != ColumnType::Integer {
        return Vec::new();
    }
    let encoding = Encoding::from(column.kind);
    let flaw = |row: usize| match data.get(encoding, row) {
        Value::Null if !column.nullable => Some("NULL, and the column takes none"),
        Value::Integer(number)
            if column.kind == ColumnType::Integer && i32::try_from(number).is_err() =>
        {
            Some("a number that does not fit 32 bits")
        }
        _ => None,
    };
    (0..rows)
        .filter_map(|row| Some((row, flaw(row)?)))
        .map(|(row, flaw)| (row, format!("`{}` of `{table}` has {flaw}", column.name)))
        .collect()
}

/// The rows of a column whose texts the database cannot hold.
fn text_flaws(
    (table, column): (&str, &Column),
    values: &BatchColumn,
    keyring: &Keyring,
    dialect: Dialect,
) -> Vec<(usize, String)> {
    if Encoding::from(column.kind) != Encoding::Text {
        return Vec::new();
    }
    let data = &values.data;
    let is_stored = values.sealing == column.sealing;
    let text = |row: usize| match data.get(Encoding::Text, row) {
        Value::Text(text) => text,
        _ => &[],
    };
    let rows = 0..data.offsets.len().saturating_sub(1);
    let mut flaws = Vec::new();
    // Sealed text is base64.
    if !dialect.stores_nul() && column.sealing == Sealing::Plain && data.values.contains(&0) {
        let nul = rows.clone().filter(|row| text(*row).contains(&0));
        let flaw = format!(
            "`{}` of `{table}` has a NUL character, which PostgreSQL does not store",
            column.name
        );
        flaws.extend(nul.map(|row| (row, flaw.clone())));
    }
    let Some(capacity) = Capacity::of(column.kind, dialect) else {
        return flaws;
    };
    let holds = |row: usize| {
        let length = (data.offsets[row + 1] - data.offsets[row]) as usize;
        let stored = if is_stored {
            length
        } else {
            keyring.sealed_length(column.sealing, length)
        };
        // A text has at most as many characters as bytes, so most rows need no further look.
        stored <= capacity.most() || column.sealing == Sealing::Plain && capacity.holds(text(row))
    };
    let flaw = || {
        format!(
            "`{}` of `{table}` has a text that is longer than the column holds",
            column.name
        )
    };
    flaws.extend(rows.filter(|row| !holds(*row)).map(|row| (row, flaw())));
    flaws
}

/// The rows whose primary key an earlier row of the batch has.
fn repeated_keys(lens: &Lens, composed: &Composed, rows: &TableRows) -> Vec<(usize, String)> {
    let table = &composed.table;
    let is_loaded = table
        .primary_key
        .iter()
        .all(|name| rows.columns.contains_key(name));
    if is_loaded && lens.makes_keys(composed) {
        repetitions(table, rows)
    } else {
        Vec::new()
    }
}

/// The rows whose primary key an earlier row has.
fn repetitions(table: &Table, rows: &TableRows) -> Vec<(usize, String)> {
    let mut seen = HashSet::new();
    let flaw = || format!("two rows of `{}` have the same primary key", table.name);
    let is_repeated = |row: &usize| !seen.insert(rows.encoded(table, &table.primary_key, *row));
    (0..rows.count())
        .filter(is_repeated)
        .map(|row| (row, flaw()))
        .collect()
}
