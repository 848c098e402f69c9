//! From loaded units to rows ready to be written: open, apply the lens, seal, digest. Pure work on
//! memory, done away from the threads that serve.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::key::Key;
use super::plan::TablePlan;
use super::quarantine::Refused;
use super::read::Loaded;
use super::residue::{self, SealedEntry};
use super::write::Rows;
use super::{MigrateError, RefusedUnits, Work};
use crate::layout::columns::{ColumnData, NEW_ROW};
use crate::layout::schema::{Column, Sealing, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::{AppliedTable, Left, Provenance, Source, SourceTable};
use crate::record::Keyring;

/// One batch of a group as it was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub units: Vec<Key>,
    pub tables: BTreeMap<String, Loaded>,
    pub left: Left,
}

impl Read {
    /// Goes on without some of the units.
    pub(super) fn leave_out(&mut self, work: &Work, units: &HashSet<Key>) {
        if !units.is_empty() {
            let kept: Vec<_> = (0..self.units.len()).filter(|&unit| !units.contains(&self.units[unit])).collect();
            *self = self.only(work, &kept);
        }
    }

    fn only(&self, work: &Work, units: &[usize]) -> Self {
        let tables = self.tables.iter().map(|(name, loaded)| {
            let table = &work.lens.near.tables[name];
            (name.clone(), loaded.only(table, units))
        });
        Self {
            units: units.iter().map(|&unit| self.units[unit].clone()).collect(),
            tables: tables.collect(),
            left: self.left.only(units),
        }
    }
}

/// The same batch at the far end.
#[derive(Debug, Default)]
pub(super) struct Transformed {
    /// Units that are not in it, since they would not go.
    pub refused: Vec<Refused>,
    pub tables: BTreeMap<String, (Rows, Checksum)>,
    pub residue: Vec<SealedEntry>,
    pub stale: u64,
}

/// A digest of rows in which their order does not matter: the sum of the digests of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Checksum(pub u128);

impl Checksum {
    pub(super) fn subtract(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    fn add_row<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) {
        let mut hash = Sha256::new();
        for value in values {
            match value {
                // Long text goes in without a copy.
                Value::Text(bytes) => {
                    hash.update([3]);
                    hash.update((bytes.len() as u64).to_le_bytes());
                    hash.update(bytes);
                }
                value => {
                    let mut bytes = Vec::with_capacity(9);
                    value.encode(&mut bytes);
                    hash.update(bytes);
                }
            }
        }
        let (first, _) =
            hash.finalize().split_first_chunk().map(|(first, rest)| (*first, rest.len())).expect("32 bytes");
        self.0 = self.0.wrapping_add(u128::from_le_bytes(first));
    }
}

/// The batch, or what stopped it. Where the operator chose so, units that will not go are left out and told.
pub(super) fn transform(work: &Work, group: usize, read: &Read) -> Result<Transformed, MigrateError> {
    let mut units: Vec<_> = (0..read.units.len()).collect();
    let mut refused = Vec::new();
    let mut fault = match whole(work, group, read) {
        Err(fault) if work.refused_units == RefusedUnits::Quarantine => fault,
        done => return done,
    };
    loop {
        if fault.unit().is_none() {
            return Err(fault);
        }
        let mut found = match refused_by_name(work, read, &units, &fault) {
            Some(refused) => refused,
            None => failing(work, group, read, &units)?,
        };
        if found.is_empty() {
            // It fails among others and not alone: a module that keeps something between calls.
            let place = units.iter().position(|&unit| fault.unit() == Some(&read.units[unit].name()));
            found.push((units[place.unwrap_or(0)], fault));
        }
        let left_out: HashSet<_> = found.iter().map(|(unit, _)| *unit).collect();
        units.retain(|unit| !left_out.contains(unit));
        refused.extend(found.into_iter().map(|(unit, error)| Refused { key: read.units[unit].clone(), error }));
        fault = match whole(work, group, &read.only(work, &units)) {
            Ok(transformed) => return Ok(Transformed { refused, ..transformed }),
            Err(fault) => fault,
        };
    }
}

/// The units that a module named when it came back, each with an error of its own: none of them has to be looked for.
fn refused_by_name(
    work: &Work,
    read: &Read,
    units: &[usize],
    fault: &MigrateError,
) -> Option<Vec<(usize, MigrateError)>> {
    let MigrateError::Unit { source, .. } = fault else { return None };
    let names: Vec<_> = units.iter().map(|&unit| read.units[unit].name()).collect();
    let refused = source.refused()?;
    Some(refused.into_iter().map(|error| (units[error.unit()], work.at_fault(error, &names))).collect())
}

/// The units that fail alone, found by halving.
fn failing(
    work: &Work,
    group: usize,
    read: &Read,
    units: &[usize],
) -> Result<Vec<(usize, MigrateError)>, MigrateError> {
    let fault = match whole(work, group, &read.only(work, units)) {
        Ok(_) => return Ok(Vec::new()),
        Err(fault) if fault.unit().is_none() => return Err(fault),
        Err(fault) => fault,
    };
    if let [unit] = units {
        return Ok(vec![(*unit, fault)]);
    }
    let (front, back) = units.split_at(units.len() / 2);
    let mut found = failing(work, group, read, front)?;
    found.extend(failing(work, group, read, back)?);
    Ok(found)
}

fn whole(work: &Work, group: usize, read: &Read) -> Result<Transformed, MigrateError> {
    let units: Vec<_> = read.units.iter().map(Key::name).collect();
    let source = open(work, read, &units)?;
    let applied =
        work.lens.apply(group, &source, &read.left, &work.arguments).map_err(|fault| work.at_fault(fault, &units))?;
    let mut transformed = Transformed { stale: applied.stale, ..Transformed::default() };
    transformed.residue = residue::seal(&work.keyring, applied.kept, &units);
    for (name, mut table) in applied.tables {
        let Some(plan) = work.copied(&name).filter(|plan| !plan.by_range()) else { continue };
        let checksum = checksum_of(plan, &table, &read.tables);
        let rows = whole_rows(&work.keyring, plan, &mut table, &read.tables);
        transformed.tables.insert(name, (rows, checksum));
    }
    Ok(transformed)
}

/// Every column of a table's rows: as the lens gave it, as it was read, or the same in all.
fn whole_rows(
    keyring: &Keyring,
    plan: &TablePlan,
    table: &mut AppliedTable,
    loaded: &BTreeMap<String, Loaded>,
) -> Rows {
    let count = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
    let columns = plan.columns.iter().map(|(column, provenance)| {
        let encoding = Encoding::from(column.kind);
        match provenance {
            Provenance::Computed => {
                let data = table.computed.remove(&column.name).expect("the lens gave what it said");
                Arc::new(sealed(keyring, column, data))
            }
            Provenance::Raw { table: source, column: name } => {
                let at = plan.sources.iter().position(|known| known == source).expect("a source of the table");
                let (origins, data) = (&table.origins[at], &loaded[source].columns[name]);
                let rows = loaded[source].rows();
                let as_they_are =
                    origins.len() == rows && origins.iter().enumerate().all(|(at, &row)| at as u32 == row);
                match as_they_are {
                    true => Arc::clone(data),
                    false => Arc::new(data.pick(encoding, origins, Value::of(column.default.as_ref()))),
                }
            }
            Provenance::Fill(value) => Arc::new(ColumnData::repeat(encoding, Value::of(value.as_ref()), count)),
        }
    });
    Rows { count, columns: columns.collect() }
}

fn open(work: &Work, read: &Read, units: &[String]) -> Result<Source, MigrateError> {
    let mut source = Source { units: units.len(), tables: BTreeMap::new() };
    for (name, loaded) in &read.tables {
        let table = &work.lens.near.tables[name];
        let needed = work.lens.needed.get(name).into_iter().flatten();
        let mut columns = BTreeMap::new();
        for column in needed {
            let known = table.column(column).expect("needed columns are the table's");
            columns.insert(column.clone(), opened(&work.keyring, table, known, loaded, units)?);
        }
        source.tables.insert(name.clone(), SourceTable { unit_offsets: loaded.unit_offsets.clone(), columns });
    }
    Ok(source)
}

/// A column's plain values. NULL and empty stay what they are: Diego writes both.
fn opened(
    keyring: &Keyring,
    table: &Table,
    column: &Column,
    loaded: &Loaded,
    units: &[String],
) -> Result<ColumnData, MigrateError> {
    let data = &loaded.columns[&column.name];
    if column.sealing == Sealing::Plain {
        return Ok(ColumnData::clone(data));
    }
    let mut plain = ColumnBuilder::new(Encoding::Text);
    for row in 0..loaded.rows() {
        let value = data.get(Encoding::Text, row);
        let Value::Text(text) = value else {
            plain.push(value);
            continue;
        };
        let bytes = open_text(keyring, column.sealing, text).map_err(|source| {
            let unit = loaded.unit_offsets.partition_point(|&start| start as usize <= row) - 1;
            MigrateError::Record {
                unit: units[unit].clone(),
                table: table.name.clone(),
                column: column.name.clone(),
                source,
            }
        })?;
        plain.push(Value::Text(&bytes));
    }
    Ok(plain.finish())
}

pub(super) fn open_text(
    keyring: &Keyring,
    sealing: Sealing,
    text: &[u8],
) -> Result<Vec<u8>, crate::record::RecordError> {
    if text.is_empty() { Ok(Vec::new()) } else { keyring.open(sealing, text) }
}

/// A column's values as they are to rest. Empty text in a column that may be NULL stays empty.
pub(super) fn sealed(keyring: &Keyring, column: &Column, data: ColumnData) -> ColumnData {
    if column.sealing == Sealing::Plain {
        return data;
    }
    let mut text = ColumnBuilder::new(Encoding::Text);
    for row in 0..data.offsets.len() - 1 {
        match data.get(Encoding::Text, row) {
            Value::Text(plain) => text.push(Value::Text(&keyring.seal(column.sealing, plain))),
            value => text.push(value),
        }
    }
    text.finish()
}

fn checksum_of(plan: &TablePlan, table: &AppliedTable, loaded: &BTreeMap<String, Loaded>) -> Checksum {
    let mut sum = Checksum::default();
    let columns: Vec<_> = plan
        .digested()
        .into_iter()
        .filter_map(|(column, provenance)| match provenance {
            Provenance::Computed => Some((column, &table.computed[&column.name], None)),
            Provenance::Raw { table: source, column: name } => {
                let at = plan.sources.iter().position(|known| known == source)?;
                Some((column, &*loaded[source].columns[name], Some(&table.origins[at])))
            }
            Provenance::Fill(_) => None,
        })
        .collect();
    for row in 0..table.unit_offsets.last().map_or(0, |&rows| rows as usize) {
        sum.add_row(columns.iter().map(|(column, data, origins)| {
            let encoding = Encoding::from(column.kind);
            match origins {
                None => data.get(encoding, row),
                Some(origins) if origins[row] == NEW_ROW => Value::of(column.default.as_ref()),
                Some(origins) => data.get(encoding, origins[row] as usize),
            }
        }));
    }
    sum
}

/// The same digest from rows as the database has them at the far end.
pub(super) fn checksum_of_stored(
    keyring: &Keyring,
    plan: &TablePlan,
    rows: usize,
    stored: &[ColumnData],
) -> Result<Checksum, crate::record::RecordError> {
    let columns: Vec<_> = plan.digested();
    let mut opened = Vec::with_capacity(columns.len());
    for ((column, provenance), data) in columns.iter().map(|column| (&column.0, &column.1)).zip(stored) {
        if column.sealing == Sealing::Plain || *provenance != Provenance::Computed {
            opened.push(data.clone());
            continue;
        }
        let mut plain = ColumnBuilder::new(Encoding::Text);
        for row in 0..rows {
            match data.get(Encoding::Text, row) {
                Value::Text(text) => plain.push(Value::Text(&open_text(keyring, column.sealing, text)?)),
                value => plain.push(value),
            }
        }
        opened.push(plain.finish());
    }
    let mut sum = Checksum::default();
    for row in 0..rows {
        let values = columns.iter().zip(&opened);
        sum.add_row(values.map(|((column, _), data)| data.get(column.kind.into(), row)));
    }
    Ok(sum)
}
