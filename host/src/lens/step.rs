//! One migration of a lens, in one direction: hand the row function what it reads, change the layout in
//! memory, take what it wrote, and see to what would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::frame::{Content, Frame, NoCounterpart};
use super::keep::{self, Entry, Kept, Left, Mark};
use super::transform::Transform;
use super::{Applied, Arguments, LensError, bisect};
use crate::layout::columns::{Batch, ColumnData, Outcome, Shape, TableData, Written};
use crate::layout::fold::access::name_before;
use crate::layout::manifest::{Access, Change, DataVersion, Direction};
use crate::layout::schema::{Column, Layout};
use crate::layout::values::{Encoding, Value};

pub(super) struct Step {
    pub(super) transform: Arc<dyn Transform>,
    direction: Direction,
    changes: Vec<Change>,
    near: Layout,
    far: Layout,
    encodings: Vec<bisect::Encodings>,
    /// Tables that the row function takes, under their names before the step.
    taken: Vec<String>,
    /// Tables that the row function of the way back takes: their names before and after this step.
    taken_back: Vec<(Option<String>, String)>,
}

/// What the host does about a dropped column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// There is no way back, or the module itself sees to it with its residue.
    Lost,
    /// The way back would fill in the default.
    KeptUnlessDefault,
    /// The way back would compute something, which need not be what was there.
    Kept,
}

/// The part of a step that concerns one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) calls: bool,
    pub(super) creates: BTreeSet<String>,
}

impl Scope {
    pub(super) fn everything(step: &Step) -> Self {
        Self { calls: !step.accesses().is_empty(), creates: step.created().map(str::to_owned).collect() }
    }

    /// What is left of it for tables that `belongs` lets in.
    pub(super) fn narrowed(&self, step: &Step, belongs: impl Fn(&str) -> bool) -> Self {
        Self {
            calls: self.calls && belongs(&step.accesses()[0].table),
            creates: self.creates.iter().filter(|table| belongs(table)).cloned().collect(),
        }
    }
}

impl Step {
    pub(super) fn new(
        transform: Arc<dyn Transform>,
        direction: Direction,
        changes: Vec<Change>,
        back: &[Change],
        (near, far): (Layout, Layout),
    ) -> Self {
        let manifest = transform.manifest();
        let names = |accesses: &[Access], changes: &[Change], near: &Layout| -> Vec<String> {
            let before = accesses.iter().filter_map(|access| name_before(changes, &access.table));
            before.filter(|name| near.tables.contains_key(name)).collect()
        };
        let taken = names(manifest.accesses(direction), &changes, &near);
        let taken_back = names(manifest.accesses(direction.opposite()), back, &far);
        let taken_back = taken_back.into_iter().map(|name| (name_before(&changes, &name), name)).collect();
        let encodings = transform
            .manifest()
            .accesses(direction)
            .iter()
            .map(|access| {
                let source = name_before(&changes, &access.table).and_then(|name| near.tables.get(&name));
                let kind = |column: &Column| Encoding::from(column.kind);
                let known = |column: &String| source.and_then(|table| table.column(column)).map(kind);
                bisect::Encodings {
                    reads: access.reads.iter().filter_map(known).collect(),
                    writes: access
                        .writes
                        .iter()
                        .filter_map(|name| far.tables[&access.table].column(name))
                        .map(kind)
                        .collect(),
                }
            })
            .collect();
        Self { transform, direction, changes, near, far, encodings, taken, taken_back }
    }

    pub(super) fn version(&self) -> DataVersion {
        self.transform.manifest().version
    }

    fn accesses(&self) -> &[Access] {
        self.transform.manifest().accesses(self.direction)
    }

    fn opposite(&self) -> &[Access] {
        self.transform.manifest().accesses(self.direction.opposite())
    }

    fn created(&self) -> impl Iterator<Item = &str> {
        self.changes.iter().filter_map(|change| match change {
            Change::CreateTable(table) => Some(table.name.as_str()),
            _ => None,
        })
    }

    pub(super) fn creates(&self, table: &str) -> bool {
        self.created().any(|created| created == table)
    }

    /// Whether the rows of a table that the step makes are its row function's.
    pub(super) fn fills(&self, table: &str) -> bool {
        self.creates(table) && self.accesses().iter().any(|access| access.table == table && access.reshapes)
    }

    /// Whether the row function of the way back makes the rows of a table that the step drops.
    fn is_filled_on_the_way_back(&self, table: &str) -> bool {
        self.opposite().iter().any(|access| access.table == table && access.reshapes)
    }

    /// Whether the row function gives a column its values.
    pub(super) fn computes(&self, table: &str, column: &[u8]) -> bool {
        let mut accesses = self.accesses().iter().filter(|access| access.table == table);
        accesses.any(|access| access.writes.iter().any(|name| name.as_bytes() == column))
    }

    /// What the step could give back, if the other direction had kept it: what its row function left, and columns
    /// that have their values from nowhere else.
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
            let key = &self.far.tables[*table].primary_key;
            let adopted = |name: &String| !moved.is_empty() && (moved.contains(&name) || key.contains(name));
            self.brought(table).any(|column| !adopted(&column.name))
        };
        let manifest = self.transform.manifest();
        let left = (manifest.leaves_residue && manifest.reversible).then(String::new);
        left.into_iter().chain(self.far.tables.keys().filter(unaccounted).cloned())
    }

    /// The columns that the step adds to a table, or the whole of a table that it makes.
    pub(super) fn brought(&self, table: &str) -> impl Iterator<Item = &Column> {
        let before = name_before(&self.changes, table).and_then(|name| self.near.tables.get(&name));
        let is_new = move |column: &&Column| before.is_none_or(|before| before.column(&column.name).is_none());
        self.far.tables[table].columns.iter().filter(is_new)
    }

    /// What happens to a column that the step drops.
    pub(super) fn fate(&self, table: &str, column: &str) -> Fate {
        let manifest = self.transform.manifest();
        if !manifest.reversible {
            return Fate::Lost;
        }
        let before = name_before(&self.changes, table).unwrap_or_else(|| table.to_owned());
        let computed = |access: &Access| access.table == before && access.writes.iter().any(|name| name == column);
        match (self.opposite().iter().any(computed), manifest.leaves_residue) {
            (false, _) => Fate::KeptUnlessDefault,
            (true, false) => Fate::Kept,
            (true, true) => Fate::Lost,
        }
    }

    /// Takes the frame over the step. Without `rows` it only notes what would be asked for.
    pub(super) fn take(
        &self,
        frame: &mut Frame<'_>,
        scope: &Scope,
        rows: Option<(&Left, &Arguments)>,
        restorable: &BTreeSet<(DataVersion, String)>,
        applied: &mut Applied,
    ) -> Result<(), LensError> {
        let version = self.version();
        let empty = Left::default();
        let left = rows.map_or(&empty, |(left, _)| left);
        if rows.is_none() {
            frame.note_all(version);
        }
        let given_back = |table: &str| restorable.contains(&(version, table.to_owned()));
        let fills = self.far.tables.keys().any(|table| given_back(table) && self.fills(table));
        let unit_marks = if fills { keep::unit_marks(frame, &self.taken) } else { Vec::new() };
        let outcome = scope.calls.then(|| self.call(frame, given_back(""), rows, applied)).transpose()?;
        let mut marks = BTreeMap::new();
        for table in self.far.tables.keys().filter(|table| given_back(table)) {
            if let Some(name) = name_before(&self.changes, table).filter(|name| frame.has(name)) {
                marks.insert(table.clone(), keep::marks(frame, &name));
            }
        }
        self.join_taken_back(frame);
        for change in &self.changes {
            if let Change::DropTable { table } = change
                && frame.has(table)
            {
                if self.transform.manifest().reversible {
                    let is_filled = self.is_filled_on_the_way_back(table);
                    keep::keep_table(frame, self, table, is_filled, &mut applied.kept);
                }
                frame.remove(table);
            }
            let changed = frame.change(version, change, |table| scope.creates.contains(table));
            changed.map_err(|NoCounterpart { unit, from, to }| LensError::Counterpart {
                unit,
                version,
                direction: self.direction,
                from,
                to,
            })?;
        }
        if let Some(outcome) = outcome {
            self.accept(frame, outcome, &mut marks, applied);
        }
        self.mark_kept_tables(frame, &mut applied.kept);
        for table in frame.names() {
            keep::keep_columns(frame, self, &table, &mut applied.kept);
            if given_back(&table) && self.fills(&table) {
                keep::restore_filled(frame, self, &table, &unit_marks, left, &mut applied.stale);
            } else if given_back(&table) {
                keep::restore(frame, self, &table, marks.remove(&table), left, &mut applied.stale);
            }
        }
        if rows.is_none() {
            frame.note_all(version);
        }
        frame.settle();
        Ok(())
    }

    /// Tables that the step drops and whose rows the row function of the way back makes. They are kept, and given back
    /// only to units that are then what this step gave.
    fn dropped_to_be_filled(&self) -> impl Iterator<Item = &String> {
        self.changes.iter().filter_map(|change| match change {
            Change::DropTable { table } if self.is_filled_on_the_way_back(table) => Some(table),
            _ => None,
        })
    }

    /// Takes such tables together with those by which the way back will know their units.
    fn join_taken_back(&self, frame: &mut Frame<'_>) {
        for table in self.dropped_to_be_filled() {
            for other in self.taken_back.iter().filter_map(|(before, _)| before.as_ref()) {
                if frame.has(table) && frame.has(other) {
                    frame.join(table, other);
                }
            }
        }
    }

    /// Marks what was kept of such tables with what the step gave the units.
    fn mark_kept_tables(&self, frame: &Frame<'_>, kept: &mut [Kept]) {
        let dropped: Vec<_> = self.dropped_to_be_filled().collect();
        if dropped.is_empty() {
            return;
        }
        let names: Vec<_> = self.taken_back.iter().map(|(_, after)| after.clone()).collect();
        let marks = keep::unit_marks(frame, &names);
        for kept in kept.iter_mut().filter(|kept| kept.version == self.version() && dropped.contains(&&kept.table)) {
            kept.entry.digest.clone_from(&marks[kept.unit]);
        }
    }

    fn call(
        &self,
        frame: &mut Frame<'_>,
        residue: bool,
        rows: Option<(&Left, &Arguments)>,
        applied: &mut Applied,
    ) -> Result<Outcome, LensError> {
        let tables = self.accesses().iter().map(|access| self.reads(frame, access)).collect();
        let mut batch = Batch { tables, residue: Vec::new() };
        if residue {
            let empty = Left::default();
            let left = rows.map_or(&empty, |(left, _)| left);
            batch.residue = keep::given_back(frame, self.version(), self.opposite(), left, &mut applied.stale);
        }
        let Some((_, arguments)) = rows else { return Ok(self.nothing()) };
        let run = &arguments[&self.version()];
        bisect::run(self.transform.as_ref(), self.direction, run, &self.encodings, batch, frame.units())
    }

    fn reads(&self, frame: &Frame<'_>, access: &Access) -> TableData {
        let Some(name) = name_before(&self.changes, &access.table) else {
            return TableData { unit_offsets: vec![0; frame.units() + 1], columns: Vec::new() };
        };
        TableData {
            unit_offsets: frame.table(&name).unit_offsets.clone(),
            columns: access.reads.iter().map(|column| frame.read(&name, column).into_owned()).collect(),
        }
    }

    /// What a row function makes of no units.
    fn nothing(&self) -> Outcome {
        let written = self.accesses().iter().zip(&self.encodings).map(|(access, encodings)| Written {
            shape: access.reshapes.then(|| Shape { unit_offsets: vec![0], origins: Vec::new() }),
            columns: encodings.writes.iter().map(|&e| ColumnData::repeat(e, Value::Null, 0)).collect(),
        });
        Outcome { tables: written.collect(), refused: Vec::new(), residue: Vec::new() }
    }

    /// Takes what the row function wrote into the frame, whose layout is that after the step.
    fn accept(
        &self,
        frame: &mut Frame<'_>,
        outcome: Outcome,
        marks: &mut BTreeMap<String, Vec<Mark>>,
        applied: &mut Applied,
    ) {
        for (access, written) in self.accesses().iter().zip(outcome.tables) {
            if let Some(shape) = &written.shape {
                frame.reshape(&access.table, shape);
                if let Some(marks) = marks.get_mut(&access.table) {
                    let of = |&row: &u32| marks.get(row as usize).cloned().unwrap_or_default();
                    *marks = shape.origins.iter().map(of).collect();
                }
            }
            for (name, data) in access.writes.iter().zip(written.columns) {
                frame.table_mut(&access.table).set(name, Content::Given(data));
            }
            if !access.writes.is_empty() || access.reshapes {
                frame.table_mut(&access.table).transformed = Some(self.version());
            }
            frame.note(self.version(), &access.table);
            frame.join(&self.accesses()[0].table, &access.table);
        }
        if !self.transform.manifest().leaves_residue || !self.transform.manifest().reversible {
            return;
        }
        let digests = keep::unit_digests(frame, self.accesses());
        frame.note_loss(&self.accesses()[0].table);
        for (unit, bytes) in outcome.residue.into_iter().enumerate() {
            if let Some(bytes) = bytes {
                let entry = Entry { row_key: Vec::new(), digest: digests[unit].clone(), bytes };
                applied.kept.push(Kept { unit, table: String::new(), version: self.version(), entry });
            }
        }
    }
}
