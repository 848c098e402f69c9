//! Residue: the values that a step would lose, and their return. Owns the form of residue and the
//! rule that a record which has changed since gets no old values back; `bbs_units::residue` stores it.

use std::collections::{BTreeMap, BTreeSet};

use super::budget::OverBudget;
use super::column::{Content, FrameColumn};
use super::digests::{ordered_unit_digests, row_digests, unit_digests};
use super::error::StepError;
use super::frame::{Frame, FrameTable, LeavingColumn};
use super::step::{ColumnFate, DroppedTable, Step};
use crate::layout::columns::ColumnData;
use crate::layout::history::{Leg, column_before, name_before};
use crate::layout::manifest::{Access, DataVersion};
use crate::layout::schema::{Column, Layout, RECORD_VERSION};
use crate::layout::values::{ColumnBuilder, Encoding, Value};

/// Values of one row or unit that a step would lose, for the migration in the other direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidueEntry {
    pub unit: usize,
    /// Empty for residue that the row function returned.
    pub table: String,
    pub left_by: Leg,
    pub value: ResidueValue,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResidueValue {
    /// The encoded primary key of a row; empty for a whole unit.
    pub row_key: Vec<u8>,
    /// The digest of the values that the step returned. Empty where it returned nothing that could
    /// change.
    pub digest: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl ResidueEntry {
    pub(super) fn of(left_by: Leg, unit: usize, table: &str, value: ResidueValue) -> Self {
        Self {
            unit,
            table: table.to_owned(),
            left_by,
            value,
        }
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let ResidueValue {
            row_key,
            digest,
            bytes,
        } = &self.value;
        size_of::<Self>() + self.table.len() + row_key.len() + digest.len() + bytes.len()
    }
}

/// The values of the units of a batch that steps in the other direction would have lost.
#[derive(Debug, Clone, Default)]
pub struct Residue {
    entries: BTreeMap<(DataVersion, String), BTreeMap<usize, Vec<ResidueValue>>>,
    edited: bool,
}

impl Residue {
    pub fn add(&mut self, version: DataVersion, table: &str, unit: usize, value: ResidueValue) {
        self.entries
            .entry((version, table.to_owned()))
            .or_default()
            .entry(unit)
            .or_default()
            .push(value);
    }

    /// For rows that a client may have edited through the columns that were there: a column that no
    /// row function writes is given back whatever else has changed.
    #[must_use]
    pub fn of_edited(mut self) -> Self {
        self.edited = true;
        self
    }

    /// Discards the entries of some places: versions and tables.
    pub fn discard(&mut self, places: &BTreeSet<(DataVersion, String)>) {
        self.entries.retain(|place, _| !places.contains(place));
    }

    /// The entries of these units, each at the unit's place in the list.
    #[must_use]
    pub fn only(&self, units: &[usize]) -> Self {
        let mut residue = Self {
            edited: self.edited,
            ..Self::default()
        };
        for ((version, table), entries) in &self.entries {
            for (place, unit) in units.iter().enumerate() {
                for entry in entries.get(unit).into_iter().flatten() {
                    residue.add(*version, table, place, entry.clone());
                }
            }
        }
        residue
    }

    fn of(&self, version: DataVersion, table: &str, unit: usize) -> &[ResidueValue] {
        self.entries
            .get(&(version, table.to_owned()))
            .and_then(|units| units.get(&unit))
            .map_or(&[], Vec::as_slice)
    }
}

impl From<Vec<ResidueEntry>> for Residue {
    fn from(entries: Vec<ResidueEntry>) -> Self {
        let mut residue = Self::default();
        for ResidueEntry {
            unit,
            table,
            left_by,
            value,
        } in entries
        {
            residue.add(left_by.version, &table, unit, value);
        }
        residue
    }
}

/// For each unit, the residue of its row function, if the unit is still what the other direction
/// returned. `layout` is that of the frame.
pub(super) fn given_back(
    frame: &Frame<'_>,
    version: DataVersion,
    opposite: &[Access],
    layout: &Layout,
    residue: &Residue,
) -> Result<Vec<Option<Vec<u8>>>, OverBudget> {
    let digests = unit_digests(frame, opposite, layout)?;
    let entry_of = |unit| residue.of(version, "", unit).first();
    let differs = |(unit, digest): (usize, &Vec<u8>)| {
        entry_of(unit).is_some_and(|entry| entry.digest != *digest)
    };
    let ordered = if digests.iter().enumerate().any(differs) {
        ordered_unit_digests(frame, opposite, layout)?
    } else {
        Vec::new()
    };
    let mut given = Vec::with_capacity(frame.units());
    for (unit, digest) in digests.iter().enumerate() {
        let entry = entry_of(unit);
        let fresh = entry
            .filter(|entry| entry.digest == *digest || ordered.get(unit) == Some(&entry.digest));
        frame
            .budget()
            .spend(fresh.map_or(0, |entry| entry.bytes.len()))?
            .keep();
        given.push(fresh.map(|entry| entry.bytes.clone()));
    }
    Ok(given)
}

/// The units of which a row function saved something that it does not get back.
pub(super) fn not_given_back(
    version: DataVersion,
    residue: &Residue,
    given: &[Option<Vec<u8>>],
) -> Vec<usize> {
    let is_lost = |(unit, given): (usize, &Option<Vec<u8>>)| {
        (given.is_none() && !residue.of(version, "", unit).is_empty()).then_some(unit)
    };
    given.iter().enumerate().filter_map(is_lost).collect()
}

/// Saves the columns that the step drops from a table, except values that the other direction, or
/// the host, would set anyway.
pub(super) fn keep_columns(
    frame: &mut Frame<'_>,
    step: &Step,
    table: &str,
    entries: &mut Vec<ResidueEntry>,
) -> Result<(), OverBudget> {
    let mut leaving = frame.table(table).leaving.clone();
    if step.is_left_to_return() {
        let is_aside = |leaving: &mut LeavingColumn| {
            step.fate(table, &leaving.before) == ColumnFate::SavedUnlessDefault
        };
        for LeavingColumn { column, .. } in leaving.extract_if(.., is_aside) {
            frame.set_column_aside(step.version(), table, column);
        }
    }
    let leaving = leaving
        .iter()
        .filter(|leaving| leaving.before != RECORD_VERSION);
    let fated = leaving.map(|leaving| (step.fate(table, &leaving.before), leaving));
    let leaving: Vec<_> = fated
        .filter(|(fate, _)| *fate != ColumnFate::Lost)
        .map(|(fate, leaving)| (fate, leaving.column.named(&leaving.before)))
        .collect();
    if leaving.is_empty() {
        return Ok(());
    }
    // The migration in the other direction looks for it under the name that the table has after it.
    let name = name_before(&step.changes, table).unwrap_or_else(|| table.to_owned());
    frame.record_saved(step.place, table, &name);
    let digests = row_digests(frame, table)?;
    keep(frame, step, (table, &name), &leaving, &digests, entries)
}

/// Saves all rows of a table that is dropped. Where a row function of the other direction makes its
/// rows, a unit without rows is saved as such.
pub(super) fn keep_table(
    frame: &mut Frame<'_>,
    step: &Step,
    DroppedTable { table, name, after }: &DroppedTable<'_>,
    entries: &mut Vec<ResidueEntry>,
) -> Result<(), OverBudget> {
    frame.record_saved(step.place, table, name);
    if step.is_filled_on_the_way_back(name) {
        let held = frame.table(table);
        let empty = (0..frame.units()).filter(|&unit| held.rows_of(unit).is_empty());
        let saved = |unit| ResidueEntry::of(step.leg(), unit, name, ResidueValue::default());
        entries.extend(empty.map(saved));
    }
    // Those that the other direction adds to the table once it has created it are among them.
    let held = frame.table(table);
    let present = held.columns.iter().filter_map(|column| {
        let before = column_before(after, table, &column.column.name)?;
        Some(column.named(&before))
    });
    let leaving = held.leaving.iter();
    let columns: Vec<_> = present
        .chain(leaving.map(|leaving| leaving.column.named(&leaving.before)))
        .map(|column| (ColumnFate::Saved, column))
        .collect();
    let digests = vec![Vec::new(); frame.table(table).rows()];
    keep(frame, step, (table, name), &columns, &digests, entries)
}

/// Saves rows of a table under a name.
fn keep(
    frame: &Frame<'_>,
    step: &Step,
    (table, name): (&str, &str),
    columns: &[(ColumnFate, FrameColumn)],
    digests: &[Vec<u8>],
    entries: &mut Vec<ResidueEntry>,
) -> Result<(), OverBudget> {
    let held = frame.table(table);
    let keys = frame.keys(table)?;
    let data = columns
        .iter()
        .map(|(_, column)| frame.contents(held, column))
        .collect::<Result<Vec<_>, OverBudget>>()?;
    for ((_, FrameColumn { column, .. }), data) in columns.iter().zip(&data) {
        let tags = held.rows() * (column.name.len() + 2 * Value::MOST_TAG_BYTES);
        frame.budget().spend(data.bytes() + tags)?.keep();
    }
    frame
        .budget()
        .spend(held.rows() * size_of::<ResidueEntry>())?
        .keep();
    for unit in 0..frame.units() {
        for row in held.rows_of(unit) {
            let mut bytes = Vec::new();
            for ((fate, FrameColumn { column, .. }), data) in columns.iter().zip(&data) {
                let value = data.get(Encoding::from(column.kind), row);
                if *fate == ColumnFate::Saved || value != Value::of(column.default.as_ref()) {
                    Value::Text(column.name.as_bytes()).encode(&mut bytes);
                    value.encode(&mut bytes);
                }
            }
            if !bytes.is_empty() {
                let value = ResidueValue {
                    row_key: keys[row].clone(),
                    digest: digests[row].clone(),
                    bytes,
                };
                entries.push(ResidueEntry::of(step.leg(), unit, name, value));
            }
        }
    }
    Ok(())
}

/// Identifies a row for which residue was saved: its key and its digest before the step.
#[derive(Debug, Clone, Default)]
pub(super) struct RowIdentity {
    row_key: Vec<u8>,
    digest: Vec<u8>,
}

/// The identities of a table's rows, computed before the step changes anything.
pub(super) fn row_identities(
    frame: &Frame<'_>,
    table: &str,
) -> Result<Vec<RowIdentity>, OverBudget> {
    let rows = frame
        .keys(table)?
        .into_rows()
        .into_iter()
        .zip(row_digests(frame, table)?);
    Ok(rows
        .map(|(row_key, digest)| RowIdentity { row_key, digest })
        .collect())
}

/// Restores the values of the columns that the step added, row by row. A table that the step
/// creates has no rows before it: its rows are matched by their keys and by the records that they
/// belong to. Returns the number of stale entries.
pub(super) fn restore_columns(
    frame: &mut Frame<'_>,
    step: &Step,
    table: &str,
    rows_before: Option<Vec<RowIdentity>>,
    residue: &Residue,
    identities: &[Vec<u8>],
) -> Result<u64, StepError> {
    let held = frame.table(table);
    // A table that adopted the rows of another one keeps them and the moved values, even if all of
    // these came from residue.
    if step.creates(table) && held.origins.is_empty() && held.same_rows_as.is_empty() {
        return restore_table(frame, step.version(), table, residue, identities);
    }
    let row_identities = match rows_before {
        Some(identities) => identities,
        None => {
            let of_units =
                (0..frame.units()).flat_map(|unit| held.rows_of(unit).map(move |_| unit));
            let keys = frame.keys(table)?.into_rows().into_iter();
            keys.zip(of_units)
                .map(|(row_key, unit)| RowIdentity {
                    row_key,
                    digest: identities[unit].clone(),
                })
                .collect()
        }
    };
    let mut rows: Vec<_> = (0..held.rows()).map(RestoredRow::present).collect();
    let mut stale = 0;
    for unit in 0..frame.units() {
        let entries: BTreeMap<_, _> = residue
            .of(step.version(), table, unit)
            .iter()
            .map(|entry| (entry.row_key.as_slice(), entry))
            .collect();
        // A row function may continue a row twice.
        let mut used = BTreeSet::new();
        for row in held.rows_of(unit) {
            let Some(entry) = entries.get(row_identities[row].row_key.as_slice()) else {
                continue;
            };
            // Earlier hosts bound the rows of a dropped table to nothing.
            let is_unbound = entry.digest.is_empty() && step.creates(table);
            let is_same = row_identities[row].digest == entry.digest || is_unbound;
            if is_same || residue.edited {
                used.insert(entry.row_key.as_slice());
                rows[row].saved = decode(&entry.bytes, (table, held))?;
            }
            if !is_same {
                rows[row].discard_computed(step, table);
            }
        }
        stale += entries.len() - used.len();
    }
    let restored = step.brought(table).map(|column| {
        let present = frame.contents(held, held.find(&column.name))?;
        let data = restored_column(column, Some(&present), &rows);
        Ok((column.name.clone(), data))
    });
    for (name, data) in restored.collect::<Result<Vec<_>, OverBudget>>()? {
        frame
            .table_mut(table)
            .set(&name, Content::Given(data.into()));
    }
    Ok(stale as u64)
}

/// A row of a table to which saved values are restored.
struct RestoredRow<'a> {
    /// Its place among the present rows, if it is one.
    place: Option<usize>,
    /// Saved values, which take precedence over present ones.
    saved: BTreeMap<&'a [u8], Value<'a>>,
}

impl<'a> RestoredRow<'a> {
    /// A present row without saved values.
    fn present(place: usize) -> Self {
        Self {
            place: Some(place),
            saved: BTreeMap::new(),
        }
    }

    /// A row that exists only in residue.
    fn saved(saved: BTreeMap<&'a [u8], Value<'a>>) -> Self {
        Self { place: None, saved }
    }

    /// Discards the saved values of columns that the row function writes.
    fn discard_computed(&mut self, step: &Step, table: &str) {
        self.saved.retain(|column, _| !step.computes(table, column));
    }
}

/// The values of a column: saved ones, else those of the present rows, else the default.
fn restored_column(
    column: &Column,
    present: Option<&ColumnData>,
    rows: &[RestoredRow<'_>],
) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let mut data = ColumnBuilder::new(encoding);
    for row in rows {
        let saved = row.saved.get(column.name.as_bytes()).copied();
        let otherwise = || {
            if let Some(present) = present
                && let Some(place) = row.place
            {
                present.get(encoding, place)
            } else {
                Value::of(column.default.as_ref())
            }
        };
        data.push(saved.unwrap_or_else(otherwise));
    }
    data.finish()
}

/// Restores a table that the step creates with rows of its row function. A unit that is still what
/// the other direction returned gets the saved rows; any other keeps those of the row function.
/// Returns the number of stale entries.
pub(super) fn restore_filled(
    frame: &mut Frame<'_>,
    step: &Step,
    table: &str,
    unit_digests: &[Vec<u8>],
    residue: &Residue,
) -> Result<u64, StepError> {
    let held = frame.table(table);
    let keys = frame.keys(table)?;
    let mut offsets = vec![0];
    let mut rows = Vec::new();
    let mut stale = 0;
    for (unit, digest) in unit_digests.iter().enumerate() {
        let entries = residue.of(step.version(), table, unit);
        if entries.first().is_some_and(|entry| *digest == entry.digest) {
            let of_rows = entries.iter().filter(|entry| !entry.row_key.is_empty());
            for entry in of_rows {
                rows.push(RestoredRow::saved(decode(&entry.bytes, (table, held))?));
            }
        } else {
            stale += entries.len();
            for row in held.rows_of(unit) {
                let own = entries
                    .iter()
                    .find(|entry| residue.edited && entry.row_key == keys[row]);
                let mut restored = RestoredRow::present(row);
                if let Some(entry) = own {
                    restored.saved = decode(&entry.bytes, (table, held))?;
                    restored.discard_computed(step, table);
                }
                rows.push(restored);
            }
        }
        offsets.push(u32::try_from(rows.len()).expect("batches are bounded"));
    }
    let contents = held.columns.iter().map(|column| {
        let present = frame.contents(held, column)?;
        let data = restored_column(&column.column, Some(&present), &rows);
        Ok(Content::Given(data.into()))
    });
    let contents = contents.collect::<Result<Vec<_>, OverBudget>>()?;
    drop(keys);
    let held = frame.table_mut(table);
    held.unit_offsets = offsets;
    held.columns
        .iter_mut()
        .zip(contents)
        .for_each(|(column, content)| column.content = content);
    Ok(stale as u64)
}

/// Restores the rows of a table that the step creates, for the records that they were taken from.
/// Returns the number of stale entries.
fn restore_table(
    frame: &mut Frame<'_>,
    version: DataVersion,
    table: &str,
    residue: &Residue,
    identities: &[Vec<u8>],
) -> Result<u64, StepError> {
    let mut offsets = vec![0];
    let mut rows = Vec::new();
    let mut stale = 0;
    for (unit, identity) in identities.iter().enumerate() {
        let entries = residue.of(version, table, unit);
        // Earlier hosts bound the rows to nothing.
        let own = entries
            .iter()
            .filter(|entry| entry.digest.is_empty() || entry.digest == *identity);
        let before = rows.len();
        for entry in own {
            let saved = decode(&entry.bytes, (table, frame.table(table)))?;
            rows.push(RestoredRow::saved(saved));
        }
        stale += entries.len() - (rows.len() - before);
        offsets.push(u32::try_from(rows.len()).expect("batches are bounded"));
    }
    let held = frame.table_mut(table);
    held.unit_offsets = offsets;
    for FrameColumn { column, content } in &mut held.columns {
        *content = Content::Given(restored_column(column, None, &rows).into());
    }
    Ok(stale as u64)
}

/// Decodes the saved values of a row of a table. Names of columns that it does not have any more
/// are decoded, too.
///
/// # Errors
/// The bytes are not what was saved, or a column has another type than it had then.
fn decode<'a>(
    mut bytes: &'a [u8],
    (name, table): (&str, &FrameTable),
) -> Result<BTreeMap<&'a [u8], Value<'a>>, StepError> {
    // Without the bytes, which may be a secret.
    let damaged = || StepError::Batch(format!("the residue of a row of `{name}` is damaged"));
    let mut values = BTreeMap::new();
    while !bytes.is_empty() {
        let Some((Value::Text(column), rest)) = Value::decode(bytes) else {
            return Err(damaged());
        };
        let (value, rest) = Value::decode(rest).ok_or_else(damaged)?;
        let mut columns = table.columns.iter().map(|column| &column.column);
        let known = columns.find(|known| known.name.as_bytes() == column);
        if known.is_some_and(|known| !value.fits(known.kind.into())) {
            return Err(damaged());
        }
        values.insert(column, value);
        bytes = rest;
    }
    Ok(values)
}
