//! One migration of a lens, in one direction: what it changes, what its row function reads and
//! writes, and what it would lose. Pure facts of the manifest; `walk` applies them to rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bisect;
use super::error::{FailedStep, LensError};
use super::transform::Transform;
use crate::layout::history::Leg;
use crate::layout::history::{name_before, share_units};
use crate::layout::manifest::{Access, Change, DataVersion, Direction};
use crate::layout::schema::{Column, Layout, Table};
use crate::layout::values::Encoding;

pub(super) struct Step {
    pub(super) transform: Arc<dyn Transform>,
    pub(super) direction: Direction,
    /// Its place on the way.
    pub(super) place: usize,
    /// The place of the same migration in the other direction, if the way goes down and up again
    /// through it.
    pub(super) counterpart: Option<usize>,
    pub(super) changes: Vec<Change>,
    pub(super) source: Layout,
    pub(super) target: Layout,
    pub(super) encodings: Vec<bisect::Encodings>,
    /// The tables that the row function reads, by their names before the step.
    pub(super) taken: Vec<String>,
    /// The tables that the row function of the other direction reads: their names before and after
    /// this step.
    pub(super) taken_back: Vec<(Option<String>, String)>,
}

/// The treatment of the values of a dropped column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnFate {
    /// Nothing: the migration is not reversible, or the module saves them in its own residue.
    Lost,
    /// Saves them, except where the default is what the other direction would set.
    SavedUnlessDefault,
    /// Saves them all: the other direction computes values, which may differ.
    Saved,
}

/// A table that a step drops.
pub(super) struct DroppedTable<'a> {
    /// The name that the change gives it, after those before it.
    pub(super) table: &'a str,
    /// The name before the step, by which the migration in the other direction gives its rows back.
    pub(super) name: String,
    /// The changes of the step before it.
    pub(super) after: &'a [Change],
}

/// The part of a step that concerns one group.
#[derive(Debug, Clone, Default)]
pub(super) struct StepScope {
    pub(super) calls: bool,
    /// The places of the changes that create its tables: another table may have the name of one,
    /// before or after it.
    pub(super) creates: BTreeSet<usize>,
}

impl StepScope {
    pub(super) fn everything(step: &Step) -> Self {
        Self {
            calls: !step.accesses().is_empty(),
            creates: step.created().map(|(change, _)| change).collect(),
        }
    }

    /// The part that concerns the tables for which `belongs` holds, and those that a change creates
    /// for which `creates` holds.
    pub(super) fn narrowed(
        &self,
        step: &Step,
        belongs: impl Fn(&str) -> bool,
        creates: impl Fn(&usize) -> bool,
    ) -> Self {
        Self {
            calls: self.calls && belongs(&step.accesses()[0].table),
            creates: self.creates.iter().copied().filter(creates).collect(),
        }
    }
}

impl Step {
    /// The step at a place on the way.
    pub(super) fn new(
        transform: Arc<dyn Transform>,
        (direction, place): (Direction, usize),
        changes: Vec<Change>,
        back: &[Change],
        (source, target): (Layout, Layout),
    ) -> Self {
        let manifest = transform.manifest();
        let names = |accesses: &[Access], changes: &[Change], source: &Layout| -> Vec<String> {
            let before = accesses
                .iter()
                .filter_map(|access| name_before(changes, &access.table));
            before
                .filter(|name| source.tables.contains_key(name))
                .collect()
        };
        let taken = names(manifest.accesses(direction), &changes, &source);
        let taken_back = names(manifest.accesses(direction.opposite()), back, &target);
        let taken_back = taken_back
            .into_iter()
            .map(|name| (name_before(&changes, &name), name))
            .collect();
        let encodings = manifest
            .accesses(direction)
            .iter()
            .map(|access| {
                let before =
                    name_before(&changes, &access.table).and_then(|name| source.tables.get(&name));
                let kind = |column: &Column| Encoding::from(column.kind);
                let known =
                    |column: &String| before.and_then(|table| table.find_column(column)).map(kind);
                bisect::Encodings {
                    reads: access.reads.iter().filter_map(known).collect(),
                    writes: access
                        .writes
                        .iter()
                        .filter_map(|name| target.tables[&access.table].find_column(name))
                        .map(kind)
                        .collect(),
                }
            })
            .collect();
        Self {
            transform,
            direction,
            place,
            counterpart: None,
            changes,
            source,
            target,
            encodings,
            taken,
            taken_back,
        }
    }

    pub(super) fn leg(&self) -> Leg {
        Leg {
            version: self.version(),
            direction: self.direction,
        }
    }

    /// Whether the way comes up again through this migration, which it goes down through here.
    pub(super) fn is_left_to_return(&self) -> bool {
        self.direction == Direction::Down && self.counterpart.is_some()
    }

    /// The place of the step in which the way went down through this migration before.
    pub(super) fn went_down(&self) -> Option<usize> {
        self.counterpart.filter(|_| self.direction == Direction::Up)
    }

    /// Whether a table that the step drops is set aside as it is, until the way comes up again.
    /// Otherwise its rows are saved and made anew: those that a row function makes, and those of a
    /// table that columns moved to.
    pub(super) fn sets_aside(&self, dropped: &DroppedTable<'_>) -> bool {
        let gives = |change: &Change| matches!(change, Change::MoveColumn { from, .. } if from == dropped.table);
        self.is_left_to_return()
            && !self.is_filled_on_the_way_back(&dropped.name)
            && !self.changes.iter().any(gives)
    }

    /// The table that a change drops.
    pub(super) fn dropped_by(&self, place: usize) -> Option<DroppedTable<'_>> {
        let Change::DropTable { table } = &self.changes[place] else {
            return None;
        };
        let after = &self.changes[..place];
        let name = name_before(after, table).unwrap_or_else(|| table.clone());
        Some(DroppedTable { table, name, after })
    }

    pub(super) fn dropped(&self) -> impl Iterator<Item = DroppedTable<'_>> {
        (0..self.changes.len()).filter_map(|place| self.dropped_by(place))
    }

    pub(super) fn version(&self) -> DataVersion {
        self.transform.manifest().version
    }

    pub(super) fn accesses(&self) -> &[Access] {
        self.transform.manifest().accesses(self.direction)
    }

    /// The partition key of an access's table, if the row function writes it, with its place among
    /// the written columns.
    pub(super) fn partition_key_written(&self, access: &Access) -> Option<(usize, &Column)> {
        let table = &self.target.tables[&access.table];
        let key = table.partition_key.as_ref()?;
        let place = access.writes.iter().position(|name| name == key)?;
        table.find_column(key).map(|column| (place, column))
    }

    /// Whether the row function writes a partition key.
    pub(super) fn writes_keys(&self) -> bool {
        self.accesses()
            .iter()
            .any(|access| self.partition_key_written(access).is_some())
    }

    /// The name before the step of an access's table and of its partition key, unless the step
    /// creates the table.
    pub(super) fn partition_key_before(&self, access: &Access) -> Option<(String, &Column)> {
        let name = name_before(&self.changes, &access.table)?;
        let table = self.source.tables.get(&name)?;
        table
            .partition_key
            .as_ref()
            .and_then(|key| table.find_column(key))
            .map(|column| (name, column))
    }

    /// The tables with the records that the units of a table belong to, as they are on the lower
    /// side of the migration. Units of several kinds may have the same keys, and differ in the name
    /// or type of the column. A table that the migration drops on its way up is none of them: on
    /// the way down it has no records until its rows are restored.
    pub(super) fn owners(&self, bound: &Table) -> Vec<String> {
        let lower = if self.direction == Direction::Up {
            &self.source
        } else {
            &self.target
        };
        let is_owner = |table: &&Table| table.identifies_units() && share_units(table, bound);
        let is_on_both_sides = |table: &&Table| match self.direction {
            Direction::Up => self.dropped().all(|dropped| dropped.name != table.name),
            Direction::Down => !self.creates(&table.name),
        };
        lower
            .tables
            .values()
            .filter(is_owner)
            .filter(is_on_both_sides)
            .map(|table| table.name.clone())
            .collect()
    }

    pub(super) fn opposite(&self) -> &[Access] {
        self.transform
            .manifest()
            .accesses(self.direction.opposite())
    }

    /// The tables that the step creates, under the names that they are created with, and the places
    /// of the changes.
    pub(super) fn created(&self) -> impl Iterator<Item = (usize, &str)> {
        self.changes
            .iter()
            .enumerate()
            .filter_map(|(place, change)| match change {
                Change::CreateTable(table) => Some((place, table.name.as_str())),
                _ => None,
            })
    }

    /// Whether the step creates a table of its target.
    pub(super) fn creates(&self, table: &str) -> bool {
        name_before(&self.changes, table).is_none()
    }

    /// Whether the row function makes the rows of a table that the step creates.
    pub(super) fn fills(&self, table: &str) -> bool {
        self.creates(table)
            && self
                .accesses()
                .iter()
                .any(|access| access.table == table && access.reshapes)
    }

    /// Whether the row function of the other direction makes the rows of a table that the step
    /// drops.
    pub(super) fn is_filled_on_the_way_back(&self, table: &str) -> bool {
        self.opposite()
            .iter()
            .any(|access| access.table == table && access.reshapes)
    }

    /// The name after the step of the table that a change creates as `table`.
    pub(super) fn name_after(&self, place: usize, table: &str) -> String {
        self.changes[place..]
            .iter()
            .fold(table.to_owned(), |name, change| match change {
                Change::RenameTable { from, to } if *from == name => to.clone(),
                _ => name,
            })
    }

    /// Whether it leaves rows as they are but for what it adds, which is no table with records: saved
    /// rows are bound to the records of their units.
    pub(super) fn only_adds(&self) -> bool {
        let adds = |change: &Change| {
            matches!(
                change,
                Change::AddColumn { .. }
                    | Change::CreateTable(_)
                    | Change::CreateIndex { .. }
                    | Change::DropIndex { .. }
            )
        };
        let has_records = |layout: &Layout, name: &String| {
            layout.tables.get(name).is_some_and(Table::identifies_units)
        };
        let mut tables = self.target.tables.keys();
        self.accesses().is_empty()
            && self.changes.iter().all(adds)
            && tables
                .all(|name| !has_records(&self.target, name) || has_records(&self.source, name))
    }

    /// Whether the row function writes a column.
    pub(super) fn computes(&self, table: &str, column: &[u8]) -> bool {
        let mut accesses = self
            .accesses()
            .iter()
            .filter(|access| access.table == table);
        accesses.any(|access| access.writes.iter().any(|name| name.as_bytes() == column))
    }

    /// The tables for which the step could give residue back: those with columns that no other
    /// source gives values to, and the empty name for the residue of the row function.
    pub(super) fn restorable(&self) -> impl Iterator<Item = String> {
        let unaccounted = |table: &&String| {
            let moved: Vec<_> = self
                .changes
                .iter()
                .filter_map(|change| match change {
                    Change::MoveColumn { column, to, .. } if to == *table => Some(column),
                    _ => None,
                })
                .collect();
            let target = &self.target.tables[*table];
            let is_key = |name: &String| {
                target.primary_key.contains(name) || target.partition_key.as_ref() == Some(name)
            };
            let adopted =
                |name: &String| !moved.is_empty() && (moved.contains(&name) || is_key(name));
            self.brought(table).any(|column| !adopted(&column.name))
        };
        let manifest = self.transform.manifest();
        let left = (manifest.leaves_residue && manifest.reversible).then(String::new);
        left.into_iter()
            .chain(self.target.tables.keys().filter(unaccounted).cloned())
    }

    /// The columns that the step adds to a table, or all of a table that it creates.
    pub(super) fn brought(&self, table: &str) -> impl Iterator<Item = &Column> {
        let before =
            name_before(&self.changes, table).and_then(|name| self.source.tables.get(&name));
        let is_new = move |column: &&Column| {
            before.is_none_or(|before| before.find_column(&column.name).is_none())
        };
        self.target.tables[table].columns.iter().filter(is_new)
    }

    /// The error of so many units, from one on, to which the step cannot be applied.
    pub(super) fn refused(&self, (unit, units): (usize, usize), reason: String) -> LensError {
        LensError::Step {
            unit,
            units,
            step: FailedStep::of(&*self.transform, self.direction),
            reason,
        }
    }

    /// The fate of a column that the step drops, by its name before the step.
    pub(super) fn fate(&self, table: &str, column: &str) -> ColumnFate {
        let manifest = self.transform.manifest();
        if !manifest.reversible {
            return ColumnFate::Lost;
        }
        let before = name_before(&self.changes, table).unwrap_or_else(|| table.to_owned());
        let computed = |access: &Access| {
            access.table == before && access.writes.iter().any(|name| name == column)
        };
        match (
            self.opposite().iter().any(computed),
            manifest.leaves_residue,
        ) {
            (false, _) => ColumnFate::SavedUnlessDefault,
            (true, false) => ColumnFate::Saved,
            (true, true) => ColumnFate::Lost,
        }
    }
}
