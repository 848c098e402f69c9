//! Units through a lens: what the steps read is opened, what they compute is plain, and what no step reads passes as it
//! is stored. Pure work on memory; callers run it away from the threads that serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::{BatchColumn, TableRows, UnitBatch};
use super::{RowsError, WantedColumns};
use crate::encryption::Keyring;
use crate::layout::schema::{Column, Sealing, Table};
use crate::layout::values::{Encoding, Value};
use crate::lens::{
    AppliedTable, Arguments, Composed, InputTable, Lens, LensError, LensInput, Provenance, Residue, ResidueEntry,
    Search,
};

/// A way through a lens for units of some of its groups.
#[derive(Debug, Clone, Copy)]
pub struct Passage<'a> {
    pub lens: &'a Lens,
    pub groups: &'a [usize],
    pub arguments: &'a Arguments,
    pub keyring: &'a Keyring,
}

/// Units at the target of a lens, and what the steps would lose of them.
#[derive(Debug, Default)]
pub struct Transformed {
    pub batch: UnitBatch,
    pub residue: Vec<ResidueEntry>,
    /// The number of residue entries that were not given back because their units have changed since.
    pub stale: u64,
}

/// A unit that cannot be transformed: its place in the batch, and why.
pub type Refused = (usize, RowsError);

/// What [`Passage::sift`] returns.
#[derive(Debug, Default)]
pub struct Sifted {
    /// The places of the units that were transformed.
    pub units: Vec<usize>,
    pub transformed: Transformed,
    pub refused: Vec<Refused>,
}

impl Passage<'_> {
    /// Takes all units to the target. The source has every column that the lens needs and those that are wanted at the
    /// target.
    ///
    /// # Errors
    /// The first unit that cannot be transformed.
    pub fn all(&self, source: &UnitBatch, left: &Residue) -> Result<Transformed, Refused> {
        self.take(source, left, Search::First)
            .map_err(|refused| refused.into_iter().next().expect("a failed batch has a unit at fault"))
    }

    /// Takes to the target the units that can be transformed and returns the others with the reason of each.
    pub fn sift(&self, source: &UnitBatch, left: &Residue) -> Sifted {
        let mut sifted = Sifted { units: (0..source.units.len()).collect(), ..Sifted::default() };
        let mut taken = self.take(source, left, Search::Every);
        loop {
            let refused = match taken {
                Ok(transformed) => return Sifted { transformed, ..sifted },
                Err(refused) => refused,
            };
            let at_fault: BTreeSet<_> = refused.iter().map(|(unit, _)| sifted.units[*unit]).collect();
            sifted.refused.extend(refused.into_iter().map(|(unit, fault)| (sifted.units[unit], fault)));
            sifted.units.retain(|unit| !at_fault.contains(unit));
            let rest = source.only(&self.lens.source, &sifted.units);
            taken = self.take(&rest, &left.only(&sifted.units), Search::Every);
        }
    }

    fn take(&self, source: &UnitBatch, left: &Residue, search: Search) -> Result<Transformed, Vec<Refused>> {
        let mut target = Transformed::default();
        target.batch.units.clone_from(&source.units);
        for &group in self.groups {
            let input = self.input(group, source)?;
            let applied = self.lens.apply(group, &input, left, self.arguments, search).map_err(|faults| {
                let refused = |fault: LensError| (fault.unit(), RowsError::Lens(Box::new(fault)));
                faults.into_iter().map(refused).collect::<Vec<_>>()
            })?;
            target.residue.extend(applied.residue);
            target.stale += applied.stale;
            for (name, table) in applied.tables {
                let rows = target_rows(&self.lens.tables[&name], table, source);
                target.batch.tables.insert(name, rows);
            }
        }
        Ok(target)
    }

    /// The plain columns that the lens needs of a group.
    fn input(&self, group: usize, batch: &UnitBatch) -> Result<LensInput, Vec<Refused>> {
        let mut input = LensInput { units: batch.units.len(), tables: BTreeMap::new() };
        let mut closed = BTreeMap::new();
        for name in &self.lens.groups[group].sources {
            // A table that was not loaded has no row.
            let Some(rows) = batch.tables.get(name) else { continue };
            let needed = self.lens.needed.get(name).into_iter().flatten();
            let columns = needed.map(|column| {
                let plain = rows.columns[column].opened(rows.count(), self.keyring, |row, source| {
                    let fault = || RowsError::Sealed { table: name.clone(), column: column.clone(), source };
                    closed.entry(rows.unit_of(row)).or_insert_with(fault);
                });
                (column.clone(), plain.into_owned())
            });
            let columns = columns.collect();
            input.tables.insert(name.clone(), InputTable { unit_offsets: rows.unit_offsets.clone(), columns });
        }
        if closed.is_empty() { Ok(input) } else { Err(closed.into_iter().collect()) }
    }
}

/// Every column of a table's rows at the target: computed, as in the source, or the same in all rows. A column that was
/// not loaded is left out.
fn target_rows(composed: &Composed, mut table: AppliedTable, source: &UnitBatch) -> TableRows {
    let count = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
    let mut columns = BTreeMap::new();
    for (column, provenance) in &composed.columns {
        let values = match provenance {
            Provenance::Computed => {
                let data = table.computed.remove(&column.name).expect("the lens computes what it said");
                BatchColumn::new(data, Sealing::Plain)
            }
            Provenance::Fill(literal) => BatchColumn::repeated(column, literal.as_ref(), count),
            Provenance::Raw { table: from, column: name } => {
                let at = composed.sources.iter().position(|source| source == from).expect("a source of the table");
                match source.tables.get(from).map(|rows| (rows.columns.get(name), rows.count())) {
                    Some((Some(values), rows)) => unread(column, values, rows, &table.origins[at]),
                    Some((None, _)) => continue,
                    None => BatchColumn::repeated(column, column.default.as_ref(), count),
                }
            }
        };
        columns.insert(column.name.clone(), values);
    }
    TableRows { unit_offsets: table.unit_offsets, columns }
}

/// The values of a column that no step has read, in the rows that continue rows of the source.
fn unread(column: &Column, values: &BatchColumn, rows: usize, origins: &[u32]) -> BatchColumn {
    if origins.len() == rows && origins.iter().zip(0..).all(|(&origin, row)| origin == row) {
        return BatchColumn { data: Arc::clone(&values.data), sealing: values.sealing };
    }
    let data = values.data.pick(Encoding::from(column.kind), origins, Value::of(column.default.as_ref()));
    BatchColumn::new(data, values.sealing)
}

/// All columns of these tables.
pub fn whole<'a>(tables: impl IntoIterator<Item = &'a Table>) -> WantedColumns {
    let columns = |table: &Table| table.columns.iter().map(|column| column.name.clone()).collect();
    tables.into_iter().map(|table| (table.name.clone(), columns(table))).collect()
}
