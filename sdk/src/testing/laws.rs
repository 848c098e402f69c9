//! The laws that every migration has to satisfy, checked over generated units. A violation has the
//! seed and the unit; columns that are declared as lost are not compared.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use bbs_lens::layout::history::{LayoutHistory, Unbound};
use bbs_lens::layout::schema::Layout;

use super::data::{Datum, UnitData};
use super::generate::{Generator, Units};
use super::step::{Stepped, Stepper, run};
use crate::manifest::{Change, Direction, Manifest};
use crate::migration::Migration;
use crate::refused::Refused;

/// How a migration violates a law.
#[allow(missing_docs, reason = "the messages describe the variants and fields")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the manifest: {reason}")]
    Manifest { reason: String },
    #[error("{unbound}; if a table has such a column, declare it in the layout of this test")]
    Unbound { unbound: Unbound },
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
        // A manifest that does not fit is a violation, which `check` returns.
        let target = before.apply(&M::manifest()).ok().map(Units::new);
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
        self.stepper(Direction::Up)?;
        let layouts = LayoutHistory::over(&self.source_layout, &manifest);
        let unbound = layouts.map(|layouts| layouts.unbound(&manifest));
        if let Some(unbound) = unbound.into_iter().flatten().next() {
            return Err(Violation::Unbound { unbound });
        }
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

    fn stepper(&self, direction: Direction) -> Result<Stepper, Violation> {
        Stepper::new::<M>(&self.source_layout, direction, &run())
            .map_err(|reason| Violation::Manifest { reason })
    }

    /// Runs one direction over a batch, without the units that it may refuse.
    fn step(
        &self,
        direction: Direction,
        units: Vec<UnitData>,
        left: &[Stepped],
    ) -> Result<Vec<(UnitData, Stepped)>, Violation> {
        let seed = self.seed;
        let results = self.stepper(direction)?.step(&units, left);
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
        let opposite = direction.opposite();
        let stepped = self.step(direction, self.generate(units), &[])?;
        for ((_, one), (_, two)) in
            stepped
                .iter()
                .zip(self.step(direction, self.generate(units), &[])?)
        {
            if *one != two {
                let one = one.unit.clone();
                let two = two.unit;
                return Err(Violation::Nondeterministic {
                    seed,
                    direction,
                    one,
                    two,
                });
            }
        }
        // In reverse, so that state that a row function carried over would come from another unit.
        let stepper = self.stepper(direction)?;
        for (unit, together) in stepped.iter().rev() {
            let alone = stepper.step(std::slice::from_ref(unit), &[]).remove(0);
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
        let returned = self.stepper(opposite)?.step(&given, &left);
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
            let before = self.without_lost(before).sorted();
            let after = self.without_lost(after.unit).sorted();
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
        let renames = |change: &Change| {
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
            .zip(self.stepper(Direction::Up)?.step(&given, &[]))
        {
            let Ok(twice) = twice else { continue };
            let written = |unit: &UnitData| self.only_written(&manifest, unit.clone()).sorted();
            let once = written(once);
            let twice = written(&twice.unit);
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
                row.retain(|column, _| access.is_some_and(|access| access.writes.contains(column)));
            }
            access.is_some()
        });
        unit
    }
}

#[cfg(test)]
mod tests;
