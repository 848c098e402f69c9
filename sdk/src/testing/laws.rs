//! The laws that every migration has to satisfy, checked over generated units. A violation has the
//! seed and the unit; columns that are declared as lost are not compared.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use super::data::{Datum, UnitData};
use super::generate::{Generator, Units};
use super::step::{Stepped, run, step};
use crate::layout::Layout;
use crate::manifest::{Direction, Manifest};
use crate::migration::{Migration, Refused};
use crate::schema::{Column, Sealing};

/// Columns that are set when a record is made, and that no change of the record changes.
const SET_ONCE: [&str; 2] = ["modification_tag_epoch", "created_at"];

/// How a migration violates a law.
#[allow(missing_docs, reason = "the messages describe the variants and fields")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the manifest: {reason}")]
    Manifest { reason: String },
    #[error(
        "the residue that {direction} leaves would be given to any record with the same key, also to one that another client made \
         meanwhile: no table that {direction} names has a column that distinguishes them (`modification_tag_epoch` or `created_at`, \
         unencrypted). Name one that has; if the table has it, declare it in the layout of this test"
    )]
    Unbound { direction: Direction },
    #[error("seed {seed}: {direction} refuses a generated unit: {reason}\n{unit:?}")]
    Refuses {
        seed: u64,
        direction: Direction,
        reason: String,
        unit: UnitData,
    },
    #[error(
        "seed {seed}: {opposite} after {direction} does not restore the unit\nbefore: {before:?}\nafter: {after:?}"
    )]
    RoundTrip {
        seed: u64,
        direction: Direction,
        opposite: Direction,
        before: UnitData,
        after: UnitData,
    },
    #[error("seed {seed}: {direction} gives two results for one unit\none: {one:?}\ntwo: {two:?}")]
    Nondeterministic {
        seed: u64,
        direction: Direction,
        one: UnitData,
        two: UnitData,
    },
    #[error(
        "seed {seed}: {direction} depends on other units of the batch\nalone: {alone:?}\ntogether: {together:?}"
    )]
    BatchDependent {
        seed: u64,
        direction: Direction,
        alone: UnitData,
        together: UnitData,
    },
    #[error("seed {seed}: a second up changes what up wrote\nonce: {once:?}\ntwice: {twice:?}")]
    NotIdempotent {
        seed: u64,
        once: UnitData,
        twice: UnitData,
    },
}

/// The laws of one migration over one layout.
pub struct Laws<M> {
    source_layout: Layout,
    source: Units,
    target: Option<Units>,
    lost: BTreeSet<(String, String)>,
    refusals_allowed: bool,
    seed: u64,
    units: usize,
    migration: PhantomData<M>,
}

impl<M> fmt::Debug for Laws<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Laws")
            .field("before", &self.source_layout)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<M: Migration> Laws<M> {
    /// The laws over units of this layout, which is the one before the migration. Tables that the
    /// migration does not touch may be omitted.
    #[must_use]
    pub fn over(before: Layout) -> Self {
        let mut after = before.clone();
        let target = after
            .apply(&M::manifest())
            .is_ok()
            .then(|| Units::new(after));
        Self {
            source: Units::new(before.clone()),
            target,
            source_layout: before,
            lost: BTreeSet::new(),
            refusals_allowed: false,
            seed: 1,
            units: 200,
            migration: PhantomData,
        }
    }

    /// Sets how values of a column are generated, in both layouts.
    #[must_use]
    pub fn fill(mut self, table: &str, column: &str, fill: fn(&mut Generator) -> Datum) -> Self {
        self.source.fill(table, column, Box::new(fill));
        if let Some(target) = &mut self.target {
            target.fill(table, column, Box::new(fill));
        }
        self
    }

    /// Declares that a round trip does not restore this column.
    #[must_use]
    pub fn loses(mut self, table: &str, column: &str) -> Self {
        self.lost.insert((table.to_owned(), column.to_owned()));
        self
    }

    /// Allows generated units to be refused. Otherwise a refusal is a violation.
    #[must_use]
    pub fn may_refuse(mut self) -> Self {
        self.refusals_allowed = true;
        self
    }

    /// Sets the seed. The same seed generates the same units on every machine.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of units.
    #[must_use]
    pub fn units(mut self, units: usize) -> Self {
        self.units = units;
        self
    }

    /// Checks all laws, in both directions if the migration is reversible.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), Violation> {
        let manifest = M::manifest();
        let faults = |reason: String| Violation::Manifest { reason };
        let mut after = self.source_layout.clone();
        after
            .apply(&manifest)
            .map_err(|error| faults(error.to_string()))?;
        check_manifest(&manifest, &self.source_layout, &after).map_err(faults)?;
        check_residue(&manifest, &self.source_layout, &after)?;
        self.check_idempotence()?;
        self.check_round_trip(Direction::Up, &self.source)?;
        match &self.target {
            Some(target) if manifest.reversible => self.check_round_trip(Direction::Down, target),
            _ => Ok(()),
        }
    }

    fn generate(&self, units: &Units) -> Vec<UnitData> {
        let mut generator = Generator::new(self.seed);
        (0..self.units)
            .map(|_| units.unit(&mut generator))
            .collect()
    }

    /// Runs one direction over a batch, without the units that it may refuse.
    fn step(
        &self,
        direction: Direction,
        units: Vec<UnitData>,
        left: &[Stepped],
    ) -> Result<Vec<(UnitData, Stepped)>, Violation> {
        let seed = self.seed;
        let results = step::<M>(direction, &run(), &units, left);
        let mut stepped = Vec::new();
        for (unit, result) in units.into_iter().zip(results) {
            match result {
                Ok(given) => stepped.push((unit, given)),
                Err(_) if self.refusals_allowed => {}
                Err(Refused { reason }) => {
                    return Err(Violation::Refuses {
                        seed,
                        direction,
                        reason,
                        unit,
                    });
                }
            }
        }
        Ok(stepped)
    }

    /// A round trip restores each unit; the result is deterministic and independent of the rest of
    /// the batch.
    fn check_round_trip(&self, direction: Direction, units: &Units) -> Result<(), Violation> {
        let seed = self.seed;
        let opposite = if direction == Direction::Up {
            Direction::Down
        } else {
            Direction::Up
        };
        let stepped = self.step(direction, self.generate(units), &[])?;
        for ((_, one), (_, two)) in
            stepped
                .iter()
                .zip(self.step(direction, self.generate(units), &[])?)
        {
            if *one != two {
                let (one, two) = (one.unit.clone(), two.unit);
                return Err(Violation::Nondeterministic {
                    seed,
                    direction,
                    one,
                    two,
                });
            }
        }
        // In reverse, so that state that a row function carried over would come from another unit.
        for (unit, together) in stepped.iter().rev() {
            let alone = step::<M>(direction, &run(), std::slice::from_ref(unit), &[]).remove(0);
            if alone.as_ref() != Ok(together) {
                let alone = alone.map(|alone| alone.unit).unwrap_or_default();
                return Err(Violation::BatchDependent {
                    seed,
                    direction,
                    alone,
                    together: together.unit.clone(),
                });
            }
        }
        if !M::manifest().reversible {
            return Ok(());
        }
        let (before, left): (Vec<_>, Vec<_>) = stepped.into_iter().unzip();
        let given: Vec<_> = left.iter().map(|left| left.unit.clone()).collect();
        let returned = step::<M>(opposite, &run(), &given, &left);
        for (before, (unit, returned)) in before.into_iter().zip(given.into_iter().zip(returned)) {
            let after = match returned {
                Ok(after) => after,
                // A unit generated in the target layout may be one that `up` never produces.
                Err(_) if self.refusals_allowed && opposite == Direction::Up => continue,
                Err(Refused { reason }) => {
                    return Err(Violation::Refuses {
                        seed,
                        direction: opposite,
                        reason,
                        unit,
                    });
                }
            };
            let (before, after) = (
                self.without_lost(before).sorted(),
                self.without_lost(after.unit).sorted(),
            );
            if before != after {
                return Err(Violation::RoundTrip {
                    seed,
                    direction,
                    opposite,
                    before,
                    after,
                });
            }
        }
        Ok(())
    }

    /// `up` of a unit that already has what `up` wrote is refused or changes nothing.
    fn check_idempotence(&self) -> Result<(), Violation> {
        let manifest = M::manifest();
        let renames = |change: &crate::manifest::Change| {
            use crate::manifest::Change;
            !matches!(
                change,
                Change::AddColumn { .. }
                    | Change::AlterColumn { .. }
                    | Change::SetPrimaryKey { .. }
            )
        };
        // If the layout change removes what `up` reads, it cannot run twice.
        if manifest.changes.iter().any(renames) {
            return Ok(());
        }
        let (_, once): (Vec<_>, Vec<_>) = self
            .step(Direction::Up, self.generate(&self.source), &[])?
            .into_iter()
            .unzip();
        let given: Vec<_> = once.into_iter().map(|once| once.unit).collect();
        for (once, twice) in given
            .iter()
            .zip(step::<M>(Direction::Up, &run(), &given, &[]))
        {
            let Ok(twice) = twice else { continue };
            let written = |unit: &UnitData| self.only_written(&manifest, unit.clone()).sorted();
            let (once, twice) = (written(once), written(&twice.unit));
            if once != twice {
                return Err(Violation::NotIdempotent {
                    seed: self.seed,
                    once,
                    twice,
                });
            }
        }
        Ok(())
    }

    fn without_lost(&self, mut unit: UnitData) -> UnitData {
        for (table, column) in &self.lost {
            for row in unit.tables.get_mut(table).into_iter().flatten() {
                row.remove(column);
            }
        }
        unit
    }

    fn only_written(&self, manifest: &Manifest, mut unit: UnitData) -> UnitData {
        unit.tables.retain(|table, rows| {
            let access = manifest.up.iter().find(|access| access.table == *table);
            for row in rows {
                row.retain(|column, _| {
                    access.is_some_and(|access| {
                        access.writes.iter().any(|write| write.column == *column)
                    })
                });
            }
            access.is_some()
        });
        unit
    }
}

/// Checks the declarations that running a row function depends on.
fn check_manifest(manifest: &Manifest, before: &Layout, after: &Layout) -> Result<(), String> {
    for (direction, layout) in [(Direction::Up, after), (Direction::Down, before)] {
        for access in manifest.accesses(direction) {
            let table = layout.tables.get(&access.table);
            let table = table.ok_or_else(|| {
                format!("{direction} names `{}`, which is not there", access.table)
            })?;
            for write in &access.writes {
                let column = table
                    .columns
                    .iter()
                    .find(|column| column.name == write.column);
                let Some(column) = column else {
                    return Err(format!(
                        "{direction} writes `{}` of `{}`, which is not there",
                        write.column, table.name
                    ));
                };
                let known = manifest.written_kind(&access.table, write);
                let through = access.reads.contains(&write.column);
                match known {
                    Some(kind) if kind != column.kind.kind() => {
                        return Err(format!("{direction} writes `{}` as {kind}", write.column));
                    }
                    // The kind of a column whose values are all NULL could not be determined.
                    None if !through => {
                        let kind = column.kind.kind();
                        let name = &write.column;
                        return Err(format!(
                            "{direction} writes `{name}`: declare it as `Write::{kind}(\"{name}\")`"
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Residue belongs to the record that it was left of: the host passes it only while the record's
/// identity is the same.
fn check_residue(manifest: &Manifest, before: &Layout, after: &Layout) -> Result<(), Violation> {
    for (direction, left) in [(Direction::Up, after), (Direction::Down, before)] {
        let accesses = manifest.accesses(direction);
        let mut tables = accesses
            .iter()
            .filter_map(|access| left.tables.get(&access.table));
        let is_identity =
            |column: &Column| SET_ONCE.contains(&&*column.name) && column.sealing == Sealing::Plain;
        let is_bound =
            accesses.is_empty() || tables.any(|table| table.columns.iter().any(is_identity));
        if manifest.leaves_residue && manifest.reversible && !is_bound {
            return Err(Violation::Unbound { direction });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
