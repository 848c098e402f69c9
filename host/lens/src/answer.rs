//! Validates the outcome of a row function against its input and the manifest: for the sandbox of
//! the host, and for the SDK's test kit. No part of an outcome is used before this. Owns the rules
//! of form; the values are up to the migration.

use crate::layout::columns::{Batch, ColumnData, NEW_ROW, Outcome, Shape, TableData, Written};
use crate::layout::history::needed_by_new_rows;
use crate::layout::manifest::{Access, Manifest};
use crate::layout::schema::{Column, ColumnType, Layout, Sealing};

/// The columns that one direction writes, for each of its accesses.
pub type WrittenColumns = Vec<Definitions>;

/// The layout's definitions for a table that is written.
#[derive(Debug)]
pub struct Definitions {
    /// The definitions of the written columns, in the order of `writes`.
    pub columns: Vec<Column>,
    /// A required column without a default that is not written; rows cannot be added without it.
    pub missing: Option<String>,
}

/// Returns the definitions of the columns that accesses write, from the layout after the step.
///
/// # Panics
/// If the layout history has not accepted the accesses.
pub fn written_columns(target: &Layout, accesses: &[Access]) -> WrittenColumns {
    accesses
        .iter()
        .map(|access| {
            let table = &target.tables[&access.table];
            let column = |name| {
                table
                    .find_column(name)
                    .expect("the layout history was checked for the written columns")
                    .clone()
            };
            let missing =
                needed_by_new_rows(table).find(|column| !access.writes.contains(&column.name));
            Definitions {
                columns: access.writes.iter().map(|name| column(name)).collect(),
                missing: missing.map(|column| column.name.clone()),
            }
        })
        .collect()
}

/// Declarations of a manifest besides its accesses.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    pub leaves_residue: bool,
    pub removes_rows: bool,
}

impl From<&Manifest> for Declared {
    fn from(manifest: &Manifest) -> Self {
        Self {
            leaves_residue: manifest.leaves_residue,
            removes_rows: manifest.removes_rows,
        }
    }
}

/// Validates an outcome. Without definitions, as when a module is loaded without its catalog, each
/// column only has to be consistent with some type.
///
/// # Errors
/// The first flaw.
pub fn check(
    accesses: &[Access],
    columns: Option<&WrittenColumns>,
    declared: Declared,
    batch: &Batch,
    outcome: &Outcome,
) -> Result<(), String> {
    let given = batch.tables.first();
    let units = given.map_or(0, |table| units(&table.unit_offsets));
    let refused = refused_units(units, outcome)?;
    check_residue(units, declared.leaves_residue, &outcome.residue)?;
    if outcome.tables.len() != accesses.len() {
        return Err(format!(
            "{} tables for {} declared",
            outcome.tables.len(),
            accesses.len()
        ));
    }
    for (index, (access, written)) in accesses.iter().zip(&outcome.tables).enumerate() {
        let definitions = columns.map(|columns| &columns[index]);
        check_table(access, definitions, &batch.tables[index], written, &refused)
            .and_then(|()| check_removed(declared, &batch.tables[index], written, &refused))
            .map_err(|flaw| format!("table `{}`: {flaw}", access.table))?;
    }
    Ok(())
}

fn refused_units(units: usize, outcome: &Outcome) -> Result<Vec<bool>, String> {
    let mut refused = vec![false; units];
    for refusal in &outcome.refused {
        let unit = refusal.unit as usize;
        match refused.get_mut(unit) {
            None => return Err(format!("refuses unit {unit} of {units}")),
            Some(true) => return Err(format!("refuses unit {unit} twice")),
            Some(seen) => *seen = true,
        }
    }
    Ok(refused)
}

fn check_residue(units: usize, declared: bool, residue: &[Option<Vec<u8>>]) -> Result<(), String> {
    if !residue.is_empty() && residue.len() != units {
        return Err(format!("residue for {} units of {units}", residue.len()));
    }
    if !declared && residue.iter().any(Option::is_some) {
        return Err("residue, which the manifest does not declare".to_owned());
    }
    Ok(())
}

fn check_table(
    access: &Access,
    definitions: Option<&Definitions>,
    given: &TableData,
    written: &Written,
    refused: &[bool],
) -> Result<(), String> {
    let unit_offsets = match (&written.shape, access.reshapes) {
        (Some(shape), true) => {
            check_shape(given, shape)?;
            check_added(shape, definitions, refused)?;
            &shape.unit_offsets
        }
        (None, false) => &given.unit_offsets,
        (Some(_), false) => {
            return Err("a new shape, which the manifest does not declare".to_owned());
        }
        (None, true) => {
            return Err("no shape, though the manifest declares that rows may change".to_owned());
        }
    };
    if written.columns.len() != access.writes.len() {
        return Err(format!(
            "{} columns for {} declared",
            written.columns.len(),
            access.writes.len()
        ));
    }
    let rows = unit_offsets.last().map_or(0, |rows| *rows as usize);
    for (index, (name, column)) in access.writes.iter().zip(&written.columns).enumerate() {
        let named = |flaw: String| format!("column `{name}`: {flaw}");
        check_validity(rows, column).map_err(named)?;
        match definitions.map(|definitions| &definitions.columns[index]) {
            None => check_some_type(rows, column).map_err(named)?,
            Some(definition) => {
                check_type(definition, rows, column).map_err(named)?;
                check_nulls(definition, column, unit_offsets, refused).map_err(named)?;
            }
        }
    }
    Ok(())
}

fn check_shape(given: &TableData, shape: &Shape) -> Result<(), String> {
    if shape.unit_offsets.len() != given.unit_offsets.len() {
        return Err(format!(
            "{} units for {} given",
            units(&shape.unit_offsets),
            units(&given.unit_offsets)
        ));
    }
    check_offsets(&shape.unit_offsets, shape.origins.len())
        .map_err(|flaw| format!("unit {flaw}"))?;
    for (unit, (ends, from)) in shape
        .unit_offsets
        .windows(2)
        .zip(given.unit_offsets.windows(2))
        .enumerate()
    {
        for origin in &shape.origins[ends[0] as usize..ends[1] as usize] {
            if *origin != NEW_ROW && !(from[0]..from[1]).contains(origin) {
                return Err(format!(
                    "a row of unit {unit} continues row {origin}, which is not of that unit"
                ));
            }
        }
    }
    Ok(())
}

/// Rows may be added only if every required column is written; except in refused units, which are
/// dropped.
fn check_added(
    shape: &Shape,
    definitions: Option<&Definitions>,
    refused: &[bool],
) -> Result<(), String> {
    let Some(missing) = definitions.and_then(|definitions| definitions.missing.as_ref()) else {
        return Ok(());
    };
    let added = shape
        .unit_offsets
        .windows(2)
        .enumerate()
        .find(|(unit, ends)| {
            !refused[*unit] && shape.origins[ends[0] as usize..ends[1] as usize].contains(&NEW_ROW)
        });
    match added {
        None => Ok(()),
        Some((unit, _)) => Err(format!(
            "a row is added to unit {unit}, but its column `{missing}`, which has no value otherwise, is not among the \
             columns written"
        )),
    }
}

/// Every given row is continued, unless the manifest declares that rows are removed; except in
/// refused units, which are dropped. Returned rows only continue rows of their own unit, so a unit
/// has lost one if fewer rows are continued.
fn check_removed(
    declared: Declared,
    given: &TableData,
    written: &Written,
    refused: &[bool],
) -> Result<(), String> {
    let Some(shape) = written.shape.as_ref().filter(|_| !declared.removes_rows) else {
        return Ok(());
    };
    let removed = shape
        .removed_rows(&given.unit_offsets)
        .find(|(unit, _)| !refused[*unit]);
    match removed {
        None => Ok(()),
        Some((unit, rows)) => Err(format!(
            "{rows} of the rows of unit {unit} are removed, which the manifest does not declare: return a row that \
             continues each, or declare `removes-rows`"
        )),
    }
}

fn units(offsets: &[u32]) -> usize {
    offsets.len().saturating_sub(1)
}

/// Offsets start at 0, never decrease and end at the number of values.
fn check_offsets(offsets: &[u32], end: usize) -> Result<(), String> {
    if offsets.first().is_some_and(|first| *first != 0) {
        return Err(format!("offsets begin at {}", offsets[0]));
    }
    if let Some(back) = offsets.windows(2).find(|ends| ends[0] > ends[1]) {
        return Err(format!("offsets go back from {} to {}", back[0], back[1]));
    }
    let last = offsets.last().map_or(0, |last| *last as usize);
    if last != end {
        return Err(format!("offsets end at {last}, the values at {end}"));
    }
    Ok(())
}

fn check_validity(rows: usize, column: &ColumnData) -> Result<(), String> {
    let found = column.validity.len();
    if found != 0 && found != rows.div_ceil(8) {
        return Err(format!("{found} bytes of validity for {rows} rows"));
    }
    Ok(())
}

fn check_type(definition: &Column, rows: usize, column: &ColumnData) -> Result<(), String> {
    match definition.kind {
        ColumnType::Boolean => check_fixed(rows, rows.div_ceil(8), column),
        ColumnType::BigInteger => check_fixed(rows, rows * 8, column),
        ColumnType::Integer => {
            check_fixed(rows, rows * 8, column)?;
            check_width(column)
        }
        ColumnType::Varchar(_)
        | ColumnType::Text
        | ColumnType::MediumText
        | ColumnType::LongText => {
            check_text(rows, column)?;
            match definition.sealing {
                // A protobuf message is arbitrary bytes.
                Sealing::Enveloped => Ok(()),
                Sealing::Plain | Sealing::Sealed => check_utf8(column),
            }
        }
    }
}

fn check_some_type(rows: usize, column: &ColumnData) -> Result<(), String> {
    if !column.offsets.is_empty() {
        return check_text(rows, column);
    }
    check_fixed(rows, rows * 8, column).or_else(|_| check_fixed(rows, rows.div_ceil(8), column))
}

fn check_fixed(rows: usize, bytes: usize, column: &ColumnData) -> Result<(), String> {
    if !column.offsets.is_empty() {
        return Err("offsets, which only text has".to_owned());
    }
    if column.values.len() != bytes {
        return Err(format!(
            "{} bytes for {rows} rows, which take {bytes}",
            column.values.len()
        ));
    }
    Ok(())
}

fn check_text(rows: usize, column: &ColumnData) -> Result<(), String> {
    // A column without rows may omit its single offset.
    let found = column.offsets.len();
    if found != rows + 1 && !(rows == 0 && found == 0) {
        return Err(format!(
            "{found} offsets for {rows} rows, which take {}",
            rows + 1
        ));
    }
    check_offsets(&column.offsets, column.values.len())
}

fn check_utf8(column: &ColumnData) -> Result<(), String> {
    let text =
        std::str::from_utf8(&column.values).map_err(|error| format!("not UTF-8: {error}"))?;
    match column
        .offsets
        .iter()
        .find(|offset| !text.is_char_boundary(**offset as usize))
    {
        Some(offset) => Err(format!(
            "not UTF-8: a value ends inside a character, at byte {offset}"
        )),
        None => Ok(()),
    }
}

/// A 32-bit integer crosses the boundary in eight bytes; its value has to fit 32 bits.
fn check_width(column: &ColumnData) -> Result<(), String> {
    let (values, _) = column.values.as_chunks::<8>();
    let wide = values
        .iter()
        .map(|bytes| i64::from_le_bytes(*bytes))
        .find(|value| i32::try_from(*value).is_err());
    match wide {
        Some(value) => Err(format!("{value} does not fit an integer of 32 bits")),
        None => Ok(()),
    }
}

/// Rejects NULL in a required column; except in the rows of refused units, which are dropped.
fn check_nulls(
    definition: &Column,
    column: &ColumnData,
    unit_offsets: &[u32],
    refused: &[bool],
) -> Result<(), String> {
    if definition.nullable || column.validity.is_empty() {
        return Ok(());
    }
    for (unit, ends) in unit_offsets
        .windows(2)
        .enumerate()
        .filter(|(unit, _)| !refused[*unit])
    {
        for row in ends[0]..ends[1] {
            if column.validity[row as usize / 8] >> (row % 8) & 1 == 0 {
                return Err(format!(
                    "NULL in row {row} (unit {unit}), and the column takes none"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
