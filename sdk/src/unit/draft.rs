//! The writes to one table during a batch: one draft per table, from which columns are built at the
//! end. Owns the written values and their completeness; contains no column names.

use crate::columns::{ColumnBuilder, ColumnData, ColumnValue, Encoding, NEW_ROW, View, filler};
use crate::manifest::Access;
use crate::refused::Refused;

/// One access of the direction, resolved against the batch.
#[derive(Debug)]
pub(crate) struct Plan<'b> {
    pub(crate) access: &'b Access,
    pub(crate) unit_offsets: &'b [u32],
    /// In the order of the access's reads.
    pub(crate) views: Vec<View<'b>>,
    /// In the order of the access's writes: the read column of the same name, whose value passes
    /// through where the row function writes none.
    pub(crate) through: Vec<Option<usize>>,
    /// The declared kinds of the written columns.
    pub(crate) kinds: Vec<Option<Encoding>>,
    /// Whether the manifest declares that given rows are removed.
    pub(crate) removes_rows: bool,
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
        Err(Refused::new(format!(
            "rows of `{name}` may not be added or removed: declare `.reshapes()`"
        )))
    }

    pub(super) fn removed(&self, slot: Slot) -> Result<(), Refused> {
        self.reshaped()?;
        if self.removes_rows || slot.origin == NEW_ROW {
            return Ok(());
        }
        let name = &self.access.table;
        Err(Refused::new(format!(
            "rows of `{name}` may not be removed: declare `.removes_rows()` in the manifest"
        )))
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
    /// A value of a refused unit's row, which is never read.
    Filler,
    Null,
    Boolean(bool),
    Integer(i64),
    Text {
        start: usize,
        end: usize,
    },
}

/// The writes to one table: of completed units and, from `first` on, of the open one. Stored for
/// the whole batch, because filling columns one after another is faster than row by row.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) slots: Vec<Slot>,
    /// One per slot and written column.
    pub(super) pending: Vec<Pending>,
    pub(super) bytes: Vec<u8>,
    /// The kind of each written column, once it is known.
    pub(crate) kinds: Vec<Option<Encoding>>,
    /// The number of rows up to the end of each unit.
    pub(crate) ends: Vec<u32>,
    pub(super) first: usize,
    first_byte: usize,
    kinds_before: Vec<Option<Encoding>>,
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
            self.slots.push(Slot {
                origin,
                removed: false,
            });
            self.add_values(plan);
        }
    }

    pub(super) fn add(&mut self, plan: &Plan<'_>) -> usize {
        self.slots.push(Slot {
            origin: NEW_ROW,
            removed: false,
        });
        self.add_values(plan);
        self.slots.len() - 1
    }

    fn add_values(&mut self, plan: &Plan<'_>) {
        for _ in &plan.access.writes {
            self.pending.push(Pending::Unset);
            self.unset += 1;
        }
    }

    /// Refuses the open unit if a column was not written and has no value to pass through.
    pub(super) fn check(&self, plan: &Plan<'_>) -> Result<(), Refused> {
        if self.unset == 0 {
            return Ok(());
        }
        let writes = plan.access.writes.len();
        for (row, slot) in self
            .slots
            .iter()
            .enumerate()
            .skip(self.first)
            .filter(|(_, slot)| !slot.removed)
        {
            for (at, write) in plan.access.writes.iter().enumerate() {
                let left_out = matches!(self.pending[row * writes + at], Pending::Unset);
                if left_out && (slot.origin == NEW_ROW || plan.through[at].is_none()) {
                    let reason = format!(
                        "`{write}` of `{}` was declared and not written",
                        plan.access.table
                    );
                    return Err(Refused::new(reason));
                }
            }
        }
        Ok(())
    }

    pub(super) fn accept(&mut self) {
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends
            .push(before + (self.slots.len() - self.first) as u32 - self.removed);
    }

    /// Discards the writes of the open unit. If the number of rows is fixed, its rows remain with
    /// filler values.
    pub(super) fn refuse(&mut self, rows: std::ops::Range<u32>, plan: &Plan<'_>) {
        let writes = plan.access.writes.len();
        self.slots.truncate(self.first);
        self.pending.truncate(self.first * writes);
        self.bytes.truncate(self.first_byte);
        self.kinds.copy_from_slice(&self.kinds_before);
        self.removed = 0;
        if !plan.access.reshapes {
            self.slots.extend(rows.map(|origin| Slot {
                origin,
                removed: false,
            }));
            self.pending
                .resize(self.slots.len() * writes, Pending::Filler);
        }
        self.accept();
    }

    /// Builds one written column of all rows.
    pub(crate) fn column(&self, plan: &Plan<'_>, at: usize) -> ColumnData {
        let writes = plan.access.writes.len();
        let through = plan.through[at].map(|read| &plan.views[read]);
        let kind = self.kinds[at]
            .or(through.map(|view| view.encoding))
            .unwrap_or(Encoding::Text);
        let mut builder = ColumnBuilder::new(kind);
        for (slot, pending) in self
            .slots
            .iter()
            .zip(self.pending.iter().skip(at).step_by(writes))
        {
            if slot.removed {
                continue;
            }
            builder.push(match *pending {
                Pending::Text { start, end } => ColumnValue::Text(&self.bytes[start..end]),
                Pending::Integer(value) => ColumnValue::Integer(value),
                Pending::Boolean(value) => ColumnValue::Boolean(value),
                Pending::Null => ColumnValue::Null,
                Pending::Unset => {
                    through.map_or(ColumnValue::Null, |view| view.value(slot.origin as usize))
                }
                Pending::Filler => filler(kind),
            });
        }
        builder.finish()
    }
}
