//! The laws that every migration has to satisfy, checked over generated units. A violation has the
//! seed and the unit; columns that are declared as lost are not compared.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use bbs_lens::layout::history::{LayoutHistory, Unbound, directed_changes, name_before};
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
        "seed {seed}: {direction} refuses every unit that has rows for it, so no round trip was checked; generate values that \
         it accepts with `fill`, or correct it; if `down` can accept only what `up` returns, declare it with `only_from_source`. \
         The first reason: {reason}\n{unit:?}"
    )]
    RefusesAll {
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
    #[error(
        "seed {seed}: {direction} has another result in a second round trip than in the first, with the residue that the first \
         one left\nfirst: {first:?}\nsecond: {second:?}"
    )]
    SecondRoundTrip {
        seed: u64,
        direction: Direction,
        first: UnitData,
        second: UnitData,
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
            .field("before", &self.source.layout)
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
            source: Units::new(before),
            target,
            lost: BTreeSet::new(),
            refusals_allowed: false,
            seed: 1,
            units: 200,
            migration: PhantomData,
        }
    }

    /// Sets how values of a column are generated, in both layouts. A partition key is generated once
    /// for each unit, and again while another unit has it.
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

    /// Allows generated units to be refused, but not all that have rows, nor all of them on the way
    /// back. Otherwise a refusal is a violation.
    #[must_use]
    pub fn may_refuse(mut self) -> Self {
        self.refusals_allowed = true;
        self
    }

    /// Generates no units of the layout after the migration: for a `down` that accepts only what
    /// `up` returns, because columns depend on each other, which `fill` cannot express. Then no law
    /// is checked over units that clients of that layout have changed.
    #[must_use]
    pub fn only_from_source(mut self) -> Self {
        self.target = None;
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
        let layouts = LayoutHistory::over(&self.source.layout, &manifest);
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
        units.units(&mut Generator::new(self.seed), self.units)
    }

    fn stepper(&self, direction: Direction) -> Result<Stepper, Violation> {
        Stepper::new::<M>(&self.source.layout, direction, &run())
            .map_err(|reason| Violation::Manifest { reason })
    }

    /// Runs one direction over generated units, without those that it may refuse.
    fn step(
        &self,
        direction: Direction,
        units: Vec<UnitData>,
    ) -> Result<Vec<(UnitData, Stepped)>, Violation> {
        let seed = self.seed;
        let mut refusals = Refusals::of(self, direction);
        let results = self.stepper(direction)?.step(&units, &[]);
        let mut stepped = Vec::new();
        for (unit, result) in units.into_iter().zip(results) {
            match result {
                Ok(given) => {
                    refusals.note_accepted(&unit);
                    stepped.push((unit, given));
                }
                Err(refused) if self.refusals_allowed => refusals.note(refused, unit),
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
        refusals.end(seed)?;
        Ok(stepped)
    }

    /// The tables whose rows the row function of a direction receives, by their names before the
    /// step; all of the layout without such a table.
    fn tables_of(&self, direction: Direction) -> BTreeSet<String> {
        let manifest = M::manifest();
        let changes = directed_changes(&self.source.layout, &manifest, direction);
        let accesses = manifest.accesses(direction).iter();
        let received: BTreeSet<_> = accesses
            .filter_map(|access| name_before(&changes, &access.table))
            .collect();
        if !received.is_empty() {
            return received;
        }
        let units = match direction {
            Direction::Up => &self.source,
            Direction::Down => self.target.as_ref().unwrap_or(&self.source),
        };
        units.layout.tables.keys().cloned().collect()
    }

    /// A round trip restores each unit, and so does a second one; the result is deterministic and
    /// independent of the rest of the batch.
    fn check_round_trip(&self, direction: Direction, units: &Units) -> Result<(), Violation> {
        let stepped = self.step(direction, self.generate(units))?;
        self.check_determinism(direction, units, &stepped)?;
        if !M::manifest().reversible {
            return Ok(());
        }
        let restored = self.check_return(direction, stepped)?;
        self.check_second_trip(direction, restored)
    }

    /// Results are the same again, of all units together and of each alone.
    fn check_determinism(
        &self,
        direction: Direction,
        units: &Units,
        stepped: &[(UnitData, Stepped)],
    ) -> Result<(), Violation> {
        let seed = self.seed;
        for ((_, one), (_, two)) in stepped
            .iter()
            .zip(self.step(direction, self.generate(units))?)
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
        Ok(())
    }

    /// The opposite step restores the units. Returns those that it restores with their lost
    /// columns, after the step and after the opposite one.
    fn check_return(
        &self,
        direction: Direction,
        stepped: Vec<(UnitData, Stepped)>,
    ) -> Result<Vec<(Stepped, Stepped)>, Violation> {
        let seed = self.seed;
        let opposite = direction.opposite();
        let (before, left): (Vec<_>, Vec<_>) = stepped.into_iter().unzip();
        let reordered = left.iter().map(|left| left.unit.clone().reordered());
        let given: Vec<_> = reordered.collect();
        let returned = self.stepper(opposite)?.step(&given, &left);
        let mut refusals = Refusals::of(self, opposite);
        let mut restored = Vec::new();
        for ((before, left), returned) in before.into_iter().zip(left).zip(returned) {
            let returned = match returned {
                Ok(returned) => returned,
                // A unit generated in the target layout may be one that `up` never produces.
                Err(refused) if self.refusals_allowed && opposite == Direction::Up => {
                    refusals.note(refused, left.unit);
                    continue;
                }
                Err(Refused { reason }) => {
                    return Err(Violation::Refuses {
                        seed,
                        direction: opposite,
                        reason,
                        unit: left.unit,
                    });
                }
            };
            refusals.note_accepted(&left.unit);
            let is_whole = before.clone().sorted() == returned.unit.clone().sorted();
            let before = self.without_lost(before).sorted();
            let after = self.without_lost(returned.unit.clone()).sorted();
            if before != after {
                return Err(Violation::RoundTrip {
                    seed,
                    direction,
                    opposite,
                    before,
                    after,
                });
            }
            if is_whole {
                restored.push((left, returned));
            }
        }
        refusals.end(seed)?;
        Ok(restored)
    }

    /// A second round trip, with the residue that the first one left, has the results of the first:
    /// otherwise a loss shows only once operators have rolled back and forward twice. `trips` are
    /// the units after each step of the first.
    fn check_second_trip(
        &self,
        direction: Direction,
        trips: Vec<(Stepped, Stepped)>,
    ) -> Result<(), Violation> {
        let (left, returned): (Vec<_>, Vec<_>) = trips.into_iter().unzip();
        let again = self.check_same(direction, &returned, &left)?;
        self.check_same(direction.opposite(), &again, &returned)?;
        Ok(())
    }

    /// One direction has the results that it had in the first round trip.
    fn check_same(
        &self,
        direction: Direction,
        from: &[Stepped],
        first: &[Stepped],
    ) -> Result<Vec<Stepped>, Violation> {
        let seed = self.seed;
        let reordered = from.iter().map(|from| from.unit.clone().reordered());
        let given: Vec<_> = reordered.collect();
        let results = self.stepper(direction)?.step(&given, from);
        let mut stepped = Vec::new();
        for ((unit, result), first) in given.into_iter().zip(results).zip(first) {
            let second = result.map_err(|Refused { reason }| Violation::Refuses {
                seed,
                direction,
                reason,
                unit,
            })?;
            let first = self.without_lost(first.unit.clone()).sorted();
            let found = self.without_lost(second.unit.clone()).sorted();
            if first != found {
                return Err(Violation::SecondRoundTrip {
                    seed,
                    direction,
                    first,
                    second: found,
                });
            }
            stepped.push(second);
        }
        Ok(stepped)
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
            .step(Direction::Up, self.generate(&self.source))?
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

/// The refusals of a direction, among units of which some have rows for it.
struct Refusals {
    direction: Direction,
    /// The tables whose rows it receives.
    tables: BTreeSet<String>,
    /// The first refusal of a unit that has rows.
    first: Option<(Refused, UnitData)>,
    accepts_rows: bool,
}

impl Refusals {
    fn of<M: Migration>(laws: &Laws<M>, direction: Direction) -> Self {
        Self {
            direction,
            tables: laws.tables_of(direction),
            first: None,
            accepts_rows: false,
        }
    }

    fn has_rows(&self, unit: &UnitData) -> bool {
        let mut tables = unit.tables.iter();
        tables.any(|(table, rows)| self.tables.contains(table) && !rows.is_empty())
    }

    fn note(&mut self, refused: Refused, unit: UnitData) {
        if self.first.is_none() && self.has_rows(&unit) {
            self.first = Some((refused, unit));
        }
    }

    fn note_accepted(&mut self, unit: &UnitData) {
        self.accepts_rows |= self.has_rows(unit);
    }

    /// A violation if all units with rows were refused.
    fn end(self, seed: u64) -> Result<(), Violation> {
        let direction = self.direction;
        match self.first {
            Some((Refused { reason }, unit)) if !self.accepts_rows => Err(Violation::RefusesAll {
                seed,
                direction,
                reason,
                unit,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
