//! What is written to one table in the course of a batch: one draft a table, from which columns are made at the
//! end. Owns the cells and their completeness; knows nothing of names.

use crate::columns::{Builder, Cell, ColumnData, NEW_ROW, View};
use crate::manifest::Access;
use crate::migration::Refused;
use crate::schema::Kind;

/// One access of the direction, resolved against the batch.
#[derive(Debug)]
pub(crate) struct Plan<'b> {
    pub(crate) access: &'b Access,
    pub(crate) unit_offsets: &'b [u32],
    /// In the order of the access's reads.
    pub(crate) views: Vec<View<'b>>,
    /// In the order of the access's writes: the column that is also read, which passes through
    /// where the row function writes nothing.
    pub(crate) through: Vec<Option<usize>>,
    /// As far as declarations tell them.
    pub(crate) kinds: Vec<Option<Kind>>,
}

impl Plan<'_> {
    pub(super) fn rows_of(&self, unit: usize) -> std::ops::Range<u32> {
        self.unit_offsets[unit]..self.unit_offsets[unit + 1]
    }

    pub(super) fn reshaped(&self) -> Result<(), Refused> {
        if self.access.reshapes {
            return Ok(());
        }
        let name = &self.access.table;
        Err(Refused::new(format!("rows of `{name}` may not be added or removed: declare `.reshapes()`")))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) origin: u32,
    pub(crate) removed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Pending {
    Unset,
    /// The row belongs to a refused unit: nobody reads it.
    Filler,
    Null,
    Boolean(bool),
    Integer(i64),
    Text {
        start: usize,
        end: usize,
    },
}

/// What was written to one table: the units that are done and, from `first` on, the one that is open. It is
/// kept for the whole batch, because columns are then filled one after another, which is what is fast.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) slots: Vec<Slot>,
    /// One a slot and written column.
    pub(super) pending: Vec<Pending>,
    pub(super) bytes: Vec<u8>,
    /// What each written column was written as, if anything.
    pub(crate) kinds: Vec<Option<Kind>>,
    /// How many rows there are up to the end of each unit.
    pub(crate) ends: Vec<u32>,
    pub(super) first: usize,
    first_byte: usize,
    kinds_before: Vec<Option<Kind>>,
    pub(super) unset: usize,
    pub(super) removed: u32,
}

impl Draft {
    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let rows = plan.unit_offsets.last().map_or(0, |end| *end as usize);
        Self {
            slots: Vec::with_capacity(rows),
            pending: Vec::with_capacity(rows * plan.access.writes.len()),
            bytes: Vec::new(),
            kinds: plan.kinds.clone(),
            ends: vec![0],
            first: 0,
            first_byte: 0,
            kinds_before: plan.kinds.clone(),
            unset: 0,
            removed: 0,
        }
    }

    pub(super) fn open(&mut self, rows: std::ops::Range<u32>, plan: &Plan<'_>) {
        self.first = self.slots.len();
        self.first_byte = self.bytes.len();
        self.kinds_before.copy_from_slice(&self.kinds);
        self.removed = 0;
        self.unset = 0;
        for origin in rows {
            self.slots.push(Slot { origin, removed: false });
            self.add_cells(plan);
        }
    }

    pub(super) fn add(&mut self, plan: &Plan<'_>) -> usize {
        self.slots.push(Slot { origin: NEW_ROW, removed: false });
        self.add_cells(plan);
        self.slots.len() - 1
    }

    fn add_cells(&mut self, plan: &Plan<'_>) {
        for _ in &plan.access.writes {
            self.pending.push(Pending::Unset);
            self.unset += 1;
        }
    }

    /// Refuses the open unit if a column was left out that has nothing to pass through.
    pub(super) fn check(&self, plan: &Plan<'_>) -> Result<(), Refused> {
        if self.unset == 0 {
            return Ok(());
        }
        let writes = plan.access.writes.len();
        for (row, slot) in self.slots.iter().enumerate().skip(self.first).filter(|(_, slot)| !slot.removed) {
            for (at, write) in plan.access.writes.iter().enumerate() {
                let left_out = matches!(self.pending[row * writes + at], Pending::Unset);
                if left_out && (slot.origin == NEW_ROW || plan.through[at].is_none()) {
                    let reason = format!("`{}` of `{}` was declared and not written", write.column, plan.access.table);
                    return Err(Refused::new(reason));
                }
            }
        }
        Ok(())
    }

    pub(super) fn accept(&mut self) {
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends.push(before + (self.slots.len() - self.first) as u32 - self.removed);
    }

    /// Takes back everything of the open unit. Where the number of rows is fixed they stay, as fillers.
    pub(super) fn refuse(&mut self, rows: std::ops::Range<u32>, plan: &Plan<'_>) {
        let writes = plan.access.writes.len();
        self.slots.truncate(self.first);
        self.pending.truncate(self.first * writes);
        self.bytes.truncate(self.first_byte);
        self.kinds.copy_from_slice(&self.kinds_before);
        self.removed = 0;
        if !plan.access.reshapes {
            self.slots.extend(rows.map(|origin| Slot { origin, removed: false }));
            self.pending.resize(self.slots.len() * writes, Pending::Filler);
        }
        self.accept();
    }

    /// One written column of all rows.
    pub(crate) fn column(&self, plan: &Plan<'_>, at: usize) -> ColumnData {
        let writes = plan.access.writes.len();
        let through = plan.through[at].map(|read| &plan.views[read]);
        let kind = self.kinds[at].or(through.map(|view| view.kind)).unwrap_or(Kind::Text);
        let mut builder = Builder::new(kind, self.slots.len());
        for (slot, pending) in self.slots.iter().zip(self.pending.iter().skip(at).step_by(writes)) {
            if slot.removed {
                continue;
            }
            builder.push(match *pending {
                Pending::Text { start, end } => Cell::Text(&self.bytes[start..end]),
                Pending::Integer(value) => Cell::Integer(value),
                Pending::Boolean(value) => Cell::Boolean(value),
                Pending::Null => Cell::Null,
                Pending::Unset => through.map_or(Cell::Null, |view| view.cell(slot.origin as usize)),
                Pending::Filler => Cell::filler(kind),
            });
        }
        builder.finish()
    }
}
