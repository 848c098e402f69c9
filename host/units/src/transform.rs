//! Units through a lens: what the steps read is opened, what they compute is plain, and what no
//! step reads passes as it is stored. Pure work on memory; callers run it away from the threads
//! that serve.

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_lens::budget::BatchBudget;
use bbs_lens::layout::schema::{Layout, Table};
use bbs_lens::{Arguments, Lens, LensError, LensInput, Residue, ResidueEntry, Search};

use super::batch::{UnitBatch, open_columns};
use super::{RowsError, WantedColumns, key, storable};

/// A way through a lens for units of some of its groups.
#[derive(Debug, Clone, Copy)]
pub struct Passage<'a> {
    pub lens: &'a Lens,
    pub groups: &'a [usize],
    pub arguments: &'a Arguments,
    pub keyring: &'a Keyring,
    /// The database that the result is written to, which cannot store every text; none if it is
    /// only read.
    pub writes_to: Option<Dialect>,
}

/// Units at the target of a lens, and what the steps would lose of them.
#[derive(Debug, Default)]
pub struct Transformed {
    pub batch: UnitBatch,
    /// The places in the source of the units of the batch.
    pub places: Vec<usize>,
    /// The units of the source that cannot be transformed.
    pub refused: Vec<Refused>,
    pub residue: Vec<ResidueEntry>,
    /// The number of residue entries that were not given back because their units have changed
    /// since.
    pub stale: u64,
    /// The number of rows that modules removed.
    pub removed: u64,
}

/// A unit that cannot be transformed: its place in the batch, and why.
pub(crate) type Refused = (usize, RowsError);

impl Passage<'_> {
    /// Takes all units to the target. The source has every column that the lens needs and those
    /// that are wanted at the target.
    ///
    /// # Errors
    /// The first unit that cannot be transformed, or an error of several units
    /// ([`RowsError::is_of_several_units`]).
    pub fn all(&self, source: &UnitBatch, left: &Residue) -> Result<Transformed, Refused> {
        self.take(source, left, Search::First).map_err(|refused| {
            refused
                .into_iter()
                .next()
                .expect("a failed batch has a unit at fault")
        })
    }

    /// Takes to the target the units that can be transformed and returns the others with the reason
    /// of each.
    ///
    /// # Errors
    /// The units cannot be taken to the target at once ([`RowsError::is_of_several_units`]): the
    /// caller takes fewer. Or a module is too slow to search for the units at fault
    /// ([`RowsError::is_of_module`]).
    pub fn sift(&self, source: &UnitBatch, left: &Residue) -> Result<Transformed, RowsError> {
        let mut places: Vec<_> = (0..source.units.len()).collect();
        let mut all_refused = Vec::new();
        let mut taken = self.take(source, left, Search::Every);
        loop {
            let mut refused = match taken {
                Ok(transformed) => {
                    return Ok(Transformed {
                        places,
                        refused: all_refused,
                        ..transformed
                    });
                }
                Err(refused) => refused,
            };
            let is_of_no_unit =
                |(_, fault): &Refused| fault.is_of_several_units() || fault.is_of_module();
            if let Some(place) = refused.iter().position(is_of_no_unit) {
                return Err(refused.swap_remove(place).1);
            }
            refused
                .iter_mut()
                .for_each(|(unit, _)| *unit = places[*unit]);
            let at_fault: BTreeSet<_> = refused.iter().map(|(unit, _)| *unit).collect();
            all_refused.extend(refused);
            places.retain(|unit| !at_fault.contains(unit));
            let rest = source.only(&self.lens.source, &places);
            taken = self.take(&rest, &left.only(&places), Search::Every);
        }
    }

    fn take(
        &self,
        source: &UnitBatch,
        left: &Residue,
        search: Search,
    ) -> Result<Transformed, Vec<Refused>> {
        let budget = BatchBudget::default();
        let mut target = Transformed {
            places: (0..source.units.len()).collect(),
            ..Transformed::default()
        };
        target.batch.units.clone_from(&source.units);
        for &group in self.groups {
            let input = self.input(group, source)?;
            let applied = self
                .lens
                .apply(group, &input, left, self.arguments, search, &budget)
                .map_err(|faults| {
                    let refused =
                        |fault: LensError| (fault.unit(), RowsError::Lens(Box::new(fault)));
                    faults.into_iter().map(refused).collect::<Vec<_>>()
                })?;
            target.residue.extend(applied.residue);
            target.stale += applied.stale;
            target.removed += applied.removed;
            target.batch.tables.extend(applied.tables);
        }
        let refused = self
            .writes_to
            .map(|dialect| storable::refused(self.lens, &target.batch, self.keyring, dialect));
        match refused {
            Some(refused) if !refused.is_empty() => Err(refused),
            Some(_) | None => Ok(target),
        }
    }

    /// The rows of a group, and the columns that the lens needs opened.
    fn input(&self, group: usize, batch: &UnitBatch) -> Result<LensInput, Vec<Refused>> {
        let keys = self
            .lens
            .writes_keys()
            .then(|| key::values(&batch.units))
            .flatten();
        // A table that was not loaded has no row.
        let sources = self.lens.groups[group].sources.iter();
        let loaded = sources.filter_map(|name| batch.tables.get_key_value(name));
        let mut closed = BTreeMap::new();
        let opened = open_columns(loaded.clone(), &self.lens.needed, self.keyring, &mut closed);
        if !closed.is_empty() {
            return Err(closed.into_iter().collect());
        }
        Ok(LensInput {
            units: batch.units.len(),
            keys,
            tables: loaded
                .map(|(name, rows)| (name.clone(), rows.clone()))
                .collect(),
            opened,
        })
    }
}

/// The two halves of units that cannot be taken to the target at once.
///
/// # Panics
/// If it is not several units.
pub fn halves(layout: &Layout, batch: &UnitBatch, left: &Residue) -> [(UnitBatch, Residue); 2] {
    let units: Vec<_> = (0..batch.units.len()).collect();
    assert!(units.len() > 1, "an error of several units");
    let (front, back) = units.split_at(units.len() / 2);
    [front, back].map(|units| (batch.only(layout, units), left.only(units)))
}

/// All columns of these tables.
pub fn whole<'a>(tables: impl IntoIterator<Item = &'a Table>) -> WantedColumns {
    let columns = |table: &Table| {
        table
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    };
    tables
        .into_iter()
        .map(|table| (table.name.clone(), columns(table)))
        .collect()
}
