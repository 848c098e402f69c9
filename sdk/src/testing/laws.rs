//! The laws that every migration keeps, checked over generated units. Each violation shows the seed and the
//! unit, and a declared loss is left out of what must be equal.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use super::data::{Datum, UnitData};
use super::generate::{Generator, Units};
use super::step::{Stepped, run, step};
use crate::layout::Layout;
use crate::manifest::{Direction, Manifest};
use crate::migration::{Migration, Refused};

/// Why a migration does not keep a law.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the manifest: {reason}")]
    Manifest { reason: String },
    #[error("seed {seed}: {direction} refuses a unit that it is given: {reason}\n{unit:?}")]
    Refuses { seed: u64, direction: Direction, reason: String, unit: UnitData },
    #[error("seed {seed}: {back} of {there} is not what it was\nbefore: {before:?}\nafter: {after:?}")]
    NotBack { seed: u64, there: Direction, back: Direction, before: UnitData, after: UnitData },
    #[error("seed {seed}: {direction} gives two answers for one unit\none: {one:?}\ntwo: {two:?}")]
    NotDetermined { seed: u64, direction: Direction, one: UnitData, two: UnitData },
    #[error("seed {seed}: {direction} depends on what else is in the batch\nalone: {alone:?}\ntogether: {together:?}")]
    NotAlone { seed: u64, direction: Direction, alone: UnitData, together: UnitData },
    #[error("seed {seed}: up of what up wrote changes it again\nonce: {once:?}\ntwice: {twice:?}")]
    NotSettled { seed: u64, once: UnitData, twice: UnitData },
}

/// The laws of one migration over one layout.
pub struct Laws<M> {
    before: Layout,
    below: Units,
    above: Option<Units>,
    lost: BTreeSet<(String, String)>,
    refusals_allowed: bool,
    seed: u64,
    units: usize,
    migration: PhantomData<M>,
}

impl<M> fmt::Debug for Laws<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Laws").field("before", &self.before).field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl<M: Migration> Laws<M> {
    /// Over units of this layout, which is the one before the migration. Tables that it does not touch may
    /// be left out.
    #[must_use]
    pub fn over(before: Layout) -> Self {
        let mut after = before.clone();
        let above = after.apply(&M::manifest()).is_ok().then(|| Units::new(after));
        Self {
            below: Units::new(before.clone()),
            above,
            before,
            lost: BTreeSet::new(),
            refusals_allowed: false,
            seed: 1,
            units: 200,
            migration: PhantomData,
        }
    }

    /// How values of a column are made, on both sides of the step.
    #[must_use]
    pub fn fill(mut self, table: &str, column: &str, fill: fn(&mut Generator) -> Datum) -> Self {
        self.below.fill(table, column, Box::new(fill));
        if let Some(above) = &mut self.above {
            above.fill(table, column, Box::new(fill));
        }
        self
    }

    /// Declares that the way there and back need not bring this column back.
    #[must_use]
    pub fn loses(mut self, table: &str, column: &str) -> Self {
        self.lost.insert((table.to_owned(), column.to_owned()));
        self
    }

    /// Generated units may be refused. Without this, a refusal is a violation.
    #[must_use]
    pub fn may_refuse(mut self) -> Self {
        self.refusals_allowed = true;
        self
    }

    /// Which units are made. The same seed makes the same ones on every machine.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    #[must_use]
    pub fn units(mut self, units: usize) -> Self {
        self.units = units;
        self
    }

    /// Checks all laws, both ways where there is a way back.
    pub fn check(&self) -> Result<(), Violation> {
        let manifest = M::manifest();
        let faults = |reason: String| Violation::Manifest { reason };
        let mut after = self.before.clone();
        after.apply(&manifest).map_err(|error| faults(error.to_string()))?;
        check_manifest(&manifest, &self.before, &after).map_err(faults)?;
        self.settles()?;
        self.way(Direction::Up, &self.below)?;
        match &self.above {
            Some(above) if manifest.reversible => self.way(Direction::Down, above),
            _ => Ok(()),
        }
    }

    fn generate(&self, units: &Units) -> Vec<UnitData> {
        let mut generator = Generator::new(self.seed);
        (0..self.units).map(|_| units.unit(&mut generator)).collect()
    }

    /// Steps a batch, leaving out units that may be refused.
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
                Err(Refused { reason }) => return Err(Violation::Refuses { seed, direction, reason, unit }),
            }
        }
        Ok(stepped)
    }

    /// There and back is where it began, alone or in a batch, now or later.
    fn way(&self, there: Direction, units: &Units) -> Result<(), Violation> {
        let seed = self.seed;
        let back = if there == Direction::Up { Direction::Down } else { Direction::Up };
        let stepped = self.step(there, self.generate(units), &[])?;
        for ((_, one), (_, two)) in stepped.iter().zip(self.step(there, self.generate(units), &[])?) {
            if *one != two {
                let (one, two) = (one.unit.clone(), two.unit);
                return Err(Violation::NotDetermined { seed, direction: there, one, two });
            }
        }
        // Backwards, so that what a row function carried over from the unit before is another's.
        for (unit, together) in stepped.iter().rev() {
            let alone = step::<M>(there, &run(), std::slice::from_ref(unit), &[]).remove(0);
            if alone.as_ref() != Ok(together) {
                let alone = alone.map(|alone| alone.unit).unwrap_or_default();
                return Err(Violation::NotAlone { seed, direction: there, alone, together: together.unit.clone() });
            }
        }
        if !M::manifest().reversible {
            return Ok(());
        }
        let (before, left): (Vec<_>, Vec<_>) = stepped.into_iter().unzip();
        let given: Vec<_> = left.iter().map(|left| left.unit.clone()).collect();
        let returned = step::<M>(back, &run(), &given, &left);
        for (before, (unit, returned)) in before.into_iter().zip(given.into_iter().zip(returned)) {
            let after = match returned {
                Ok(after) => after,
                // A unit made up on the far side may be one that `up` never gives.
                Err(_) if self.refusals_allowed && back == Direction::Up => continue,
                Err(Refused { reason }) => return Err(Violation::Refuses { seed, direction: back, reason, unit }),
            };
            let (before, after) = (self.without_lost(before).sorted(), self.without_lost(after.unit).sorted());
            if before != after {
                return Err(Violation::NotBack { seed, there, back, before, after });
            }
        }
        Ok(())
    }

    /// `up` of a unit that already has what `up` wrote is refused or changes nothing.
    fn settles(&self) -> Result<(), Violation> {
        let manifest = M::manifest();
        let renames = |change: &crate::manifest::Change| {
            use crate::manifest::Change;
            !matches!(change, Change::AddColumn { .. } | Change::AlterColumn { .. } | Change::SetPrimaryKey { .. })
        };
        // Where the layout took away what `up` reads, there is no unit to give it twice.
        if manifest.changes.iter().any(renames) {
            return Ok(());
        }
        let (_, once): (Vec<_>, Vec<_>) =
            self.step(Direction::Up, self.generate(&self.below), &[])?.into_iter().unzip();
        let given: Vec<_> = once.into_iter().map(|once| once.unit).collect();
        for (once, twice) in given.iter().zip(step::<M>(Direction::Up, &run(), &given, &[])) {
            let Ok(twice) = twice else { continue };
            let written = |unit: &UnitData| self.only_written(&manifest, unit.clone()).sorted();
            let (once, twice) = (written(once), written(&twice.unit));
            if once != twice {
                return Err(Violation::NotSettled { seed: self.seed, once, twice });
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
                    access.is_some_and(|access| access.writes.iter().any(|write| write.column == *column))
                });
            }
            access.is_some()
        });
        unit
    }
}

/// What the declarations must give for a row function to be run at all.
fn check_manifest(manifest: &Manifest, before: &Layout, after: &Layout) -> Result<(), String> {
    for (direction, far) in [(Direction::Up, after), (Direction::Down, before)] {
        for access in manifest.accesses(direction) {
            let table = far.tables.get(&access.table);
            let table = table.ok_or_else(|| format!("{direction} names `{}`, which is not there", access.table))?;
            for write in &access.writes {
                let column = table.columns.iter().find(|column| column.name == write.column);
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
                    // A column in which every value is NULL would not show what it is.
                    None if !through => {
                        let kind = column.kind.kind();
                        let name = &write.column;
                        return Err(format!("{direction} writes `{name}`: declare it as `Write::{kind}(\"{name}\")`"));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
