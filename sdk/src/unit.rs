//! A unit as its author sees it: rows of the declared tables, read in place and written into drafts.
//! Refuses, with a reason, everything the manifest does not declare. Moves no data across the
//! boundary: that is [`crate::transform`].

use std::cell::RefCell;

use crate::columns::{Builder, Cell, ColumnData, NEW_ROW, View};
use crate::manifest::{Access, Direction};
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
    fn rows_of(&self, unit: usize) -> std::ops::Range<u32> {
        self.unit_offsets[unit]..self.unit_offsets[unit + 1]
    }

    fn reshaped(&self) -> Result<(), Refused> {
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
enum Pending {
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
    pending: Vec<Pending>,
    bytes: Vec<u8>,
    /// What each written column was written as, if anything.
    pub(crate) kinds: Vec<Option<Kind>>,
    /// How many rows there are up to the end of each unit.
    pub(crate) ends: Vec<u32>,
    first: usize,
    first_byte: usize,
    kinds_before: Vec<Option<Kind>>,
    unset: usize,
    removed: u32,
}

impl Draft {
    fn new(plan: &Plan<'_>) -> Self {
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

    fn open(&mut self, rows: std::ops::Range<u32>, plan: &Plan<'_>) {
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

    fn add(&mut self, plan: &Plan<'_>) -> usize {
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
    fn check(&self, plan: &Plan<'_>) -> Result<(), Refused> {
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

    fn accept(&mut self) {
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends.push(before + (self.slots.len() - self.first) as u32 - self.removed);
    }

    /// Takes back everything of the open unit. Where the number of rows is fixed they stay, as fillers.
    fn refuse(&mut self, rows: std::ops::Range<u32>, plan: &Plan<'_>) {
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

/// All rows, over the declared tables, that share one partition key.
#[derive(Debug)]
pub struct Unit<'b> {
    direction: Direction,
    plans: &'b [Plan<'b>],
    drafts: Vec<RefCell<Draft>>,
    may_leave: bool,
    found: Option<&'b [u8]>,
    left: RefCell<Option<Vec<u8>>>,
}

impl<'b> Unit<'b> {
    pub(crate) fn new(direction: Direction, plans: &'b [Plan<'b>], may_leave: bool) -> Self {
        let drafts = plans.iter().map(|plan| RefCell::new(Draft::new(plan))).collect();
        Self { direction, plans, drafts, may_leave, found: None, left: RefCell::default() }
    }

    /// Shows the rows of one unit of the batch.
    pub(crate) fn open(&mut self, unit: usize, found: Option<&'b [u8]>) {
        for (plan, draft) in self.plans.iter().zip(&mut self.drafts) {
            draft.get_mut().open(plan.rows_of(unit), plan);
        }
        self.found = found;
        *self.left.get_mut() = None;
    }

    /// Ends the open unit with what its row function returned, and gives the residue that it left.
    pub(crate) fn close(&mut self, unit: usize, ran: Result<(), Refused>) -> Result<Option<Vec<u8>>, Refused> {
        let mut drafts = self.plans.iter().zip(&mut self.drafts);
        let complete = ran.and_then(|()| drafts.try_for_each(|(plan, draft)| draft.get_mut().check(plan)));
        for (plan, draft) in self.plans.iter().zip(&mut self.drafts) {
            match complete {
                Ok(()) => draft.get_mut().accept(),
                Err(_) => draft.get_mut().refuse(plan.rows_of(unit), plan),
            }
        }
        complete.map(|()| self.left.get_mut().take())
    }

    /// All that was written, table by table.
    pub(crate) fn finish(self) -> impl Iterator<Item = Draft> {
        self.drafts.into_iter().map(RefCell::into_inner)
    }

    /// The table's rows, in the order in which they came; added ones last. One that is added while these are
    /// walked is not among them.
    pub fn rows(&self, table: &str) -> Result<Rows<'_>, Refused> {
        let table = self.table(table)?;
        let (plan, draft) = (&self.plans[table], &self.drafts[table]);
        let (next, end) = (draft.borrow().first, draft.borrow().slots.len());
        Ok(Rows { plan, draft, next, end })
    }

    /// The table's only row.
    pub fn row(&self, table: &str) -> Result<Row<'_>, Refused> {
        let mut rows = self.rows(table)?;
        match (rows.next(), rows.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(Refused::new(format!("`{table}` has no row for this key, one was expected"))),
            (Some(_), Some(_)) => {
                Err(Refused::new(format!("`{table}` has several rows for this key, one was expected")))
            }
        }
    }

    /// Adds a row. Every column that is not written gets its default.
    pub fn add_row(&self, table: &str) -> Result<Row<'_>, Refused> {
        let table = self.table(table)?;
        let (plan, draft) = (&self.plans[table], &self.drafts[table]);
        plan.reshaped()?;
        let slot = draft.borrow_mut().add(plan);
        Ok(Row { plan, draft, slot, origin: NEW_ROW })
    }

    /// What the opposite step left for this unit.
    pub fn residue(&self) -> Option<&[u8]> {
        self.found
    }

    /// Leaves bytes for the way back; the host keeps them sealed.
    pub fn set_residue(&self, residue: Vec<u8>) -> Result<(), Refused> {
        if !self.may_leave {
            return Err(Refused::new("the manifest declares no residue: add `.leaves_residue()`"));
        }
        *self.left.borrow_mut() = Some(residue);
        Ok(())
    }

    fn table(&self, name: &str) -> Result<usize, Refused> {
        self.plans.iter().position(|plan| plan.access.table == name).ok_or_else(|| {
            let direction = self.direction;
            Refused::new(format!("table `{name}` is not declared: add `.{direction}(Access::to(\"{name}\")…)`"))
        })
    }
}

/// The rows of one table of a unit.
#[derive(Debug, Clone)]
pub struct Rows<'u> {
    plan: &'u Plan<'u>,
    draft: &'u RefCell<Draft>,
    next: usize,
    end: usize,
}

impl<'u> Iterator for Rows<'u> {
    type Item = Row<'u>;

    fn next(&mut self) -> Option<Row<'u>> {
        let draft = self.draft.borrow();
        while self.next < self.end {
            let slot = self.next;
            self.next += 1;
            let Slot { origin, removed } = draft.slots[slot];
            if !removed {
                return Some(Row { plan: self.plan, draft: self.draft, slot, origin });
            }
        }
        None
    }
}

/// One row. Reading gives what came, whatever has been written since.
#[derive(Debug, Clone, Copy)]
pub struct Row<'u> {
    plan: &'u Plan<'u>,
    draft: &'u RefCell<Draft>,
    slot: usize,
    origin: u32,
}

impl<'u> Row<'u> {
    /// A text column's bytes, `None` for NULL.
    #[inline]
    pub fn bytes_or_null(&self, column: &str) -> Result<Option<&'u [u8]>, Refused> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Text(bytes) => Ok(Some(bytes)),
            other => Err(self.mismatch(column, other.kind(), Kind::Text)),
        }
    }

    /// A text column's bytes; refuses NULL.
    #[inline]
    pub fn bytes(&self, column: &str) -> Result<&'u [u8], Refused> {
        self.bytes_or_null(column)?.ok_or_else(|| self.null(column))
    }

    /// A text column as UTF-8, `None` for NULL.
    pub fn text_or_null(&self, column: &str) -> Result<Option<&'u str>, Refused> {
        let Some(bytes) = self.bytes_or_null(column)? else { return Ok(None) };
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| Refused::new(format!("{} is not UTF-8", self.named(column))))
    }

    /// A text column as UTF-8; refuses NULL.
    pub fn text(&self, column: &str) -> Result<&'u str, Refused> {
        self.text_or_null(column)?.ok_or_else(|| self.null(column))
    }

    /// An integer column of either width, `None` for NULL.
    pub fn integer_or_null(&self, column: &str) -> Result<Option<i64>, Refused> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Integer(value) => Ok(Some(value)),
            other => Err(self.mismatch(column, other.kind(), Kind::Integer)),
        }
    }

    /// An integer column of either width; refuses NULL.
    pub fn integer(&self, column: &str) -> Result<i64, Refused> {
        self.integer_or_null(column)?.ok_or_else(|| self.null(column))
    }

    /// A boolean column, `None` for NULL.
    pub fn boolean_or_null(&self, column: &str) -> Result<Option<bool>, Refused> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Boolean(value) => Ok(Some(value)),
            other => Err(self.mismatch(column, other.kind(), Kind::Boolean)),
        }
    }

    /// A boolean column; refuses NULL.
    pub fn boolean(&self, column: &str) -> Result<bool, Refused> {
        self.boolean_or_null(column)?.ok_or_else(|| self.null(column))
    }

    pub fn is_null(&self, column: &str) -> Result<bool, Refused> {
        Ok(self.cell(column)? == Cell::Null)
    }

    pub fn set_text(&self, column: &str, value: &str) -> Result<(), Refused> {
        self.set_bytes(column, value.as_bytes())
    }

    pub fn set_bytes(&self, column: &str, value: &[u8]) -> Result<(), Refused> {
        self.set(column, Some(Kind::Text), |bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(value);
            Pending::Text { start, end: bytes.len() }
        })
    }

    pub fn set_integer(&self, column: &str, value: i64) -> Result<(), Refused> {
        self.set(column, Some(Kind::Integer), |_| Pending::Integer(value))
    }

    pub fn set_boolean(&self, column: &str, value: bool) -> Result<(), Refused> {
        self.set(column, Some(Kind::Boolean), |_| Pending::Boolean(value))
    }

    pub fn set_null(&self, column: &str) -> Result<(), Refused> {
        self.set(column, None, |_| Pending::Null)
    }

    /// Removes the row.
    pub fn remove(&self) -> Result<(), Refused> {
        self.plan.reshaped()?;
        let draft = &mut *self.draft.borrow_mut();
        let removed = std::mem::replace(&mut draft.slots[self.slot].removed, true);
        draft.removed += u32::from(!removed);
        Ok(())
    }

    fn named(&self, column: &str) -> String {
        format!("`{column}` of `{}`", self.plan.access.table)
    }

    #[cold]
    fn null(&self, column: &str) -> Refused {
        Refused::new(format!("{} is NULL", self.named(column)))
    }

    #[cold]
    fn mismatch(&self, column: &str, found: Option<Kind>, asked: Kind) -> Refused {
        let found = found.map_or_else(|| "NULL".to_owned(), |kind| kind.to_string());
        Refused::new(format!("{} is {found}, not {asked}", self.named(column)))
    }

    #[cold]
    fn undeclared(&self, column: &str, list: &str) -> Refused {
        Refused::new(format!("{} is not declared: add it to `.{list}([…])`", self.named(column)))
    }

    #[cold]
    fn unread(&self, column: &str) -> Refused {
        Refused::new(format!("{} cannot be read: the row is new", self.named(column)))
    }

    #[inline]
    fn cell(&self, column: &str) -> Result<Cell<'u>, Refused> {
        let mut reads = self.plan.access.reads.iter();
        let Some(at) = reads.position(|read| read == column) else { return Err(self.undeclared(column, "reads")) };
        if self.origin == NEW_ROW {
            return Err(self.unread(column));
        }
        Ok(self.plan.views[at].cell(self.origin as usize))
    }

    #[inline]
    fn set(
        &self,
        column: &str,
        kind: Option<Kind>,
        value: impl FnOnce(&mut Vec<u8>) -> Pending,
    ) -> Result<(), Refused> {
        let mut writes = self.plan.access.writes.iter();
        let Some(at) = writes.position(|write| write.column == column) else {
            return Err(self.undeclared(column, "writes"));
        };
        let draft = &mut *self.draft.borrow_mut();
        match (draft.kinds[at], kind) {
            (Some(before), Some(given)) if before != given => return Err(self.mismatch(column, Some(before), given)),
            (before, given) => draft.kinds[at] = before.or(given),
        }
        let value = value(&mut draft.bytes);
        let pending = &mut draft.pending[self.slot * self.plan.access.writes.len() + at];
        draft.unset -= usize::from(matches!(pending, Pending::Unset));
        *pending = value;
        Ok(())
    }
}
