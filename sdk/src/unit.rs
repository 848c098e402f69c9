//! A unit as its author sees it: rows of the declared tables, read in place and written into drafts.
//! Refuses, with a reason, everything the manifest does not declare. Moves no data across the
//! boundary: that is [`crate::transform`].

use std::cell::RefCell;

use crate::columns::{Cell, NEW_ROW, View};
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
    pub(crate) kinds: Vec<Option<Kind>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) origin: u32,
    pub(crate) removed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Unset,
    Null,
    Boolean(bool),
    Integer(i64),
    Text { start: usize, end: usize },
}

/// What the row function wrote to one table of the unit so far.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) slots: Vec<Slot>,
    /// One a slot and written column.
    pending: Vec<Pending>,
    bytes: Vec<u8>,
}

impl Draft {
    fn reset(&mut self, rows: std::ops::Range<u32>, writes: usize) {
        self.slots.clear();
        self.slots.extend(rows.map(|origin| Slot { origin, removed: false }));
        self.pending.clear();
        self.pending.resize(self.slots.len() * writes, Pending::Unset);
        self.bytes.clear();
    }

    /// The value written to a row; `None` where there is none.
    pub(crate) fn written(&self, at: usize) -> Option<Cell<'_>> {
        match self.pending[at] {
            Pending::Unset => None,
            Pending::Null => Some(Cell::Null),
            Pending::Boolean(value) => Some(Cell::Boolean(value)),
            Pending::Integer(value) => Some(Cell::Integer(value)),
            Pending::Text { start, end } => Some(Cell::Text(&self.bytes[start..end])),
        }
    }
}

/// All rows, over the declared tables, that share one partition key.
#[derive(Debug)]
pub struct Unit<'b> {
    direction: Direction,
    plans: &'b [Plan<'b>],
    drafts: RefCell<Vec<Draft>>,
    may_leave: bool,
    found: Option<&'b [u8]>,
    left: RefCell<Option<Vec<u8>>>,
}

impl<'b> Unit<'b> {
    pub(crate) fn new(direction: Direction, plans: &'b [Plan<'b>], may_leave: bool) -> Self {
        let drafts = RefCell::new(plans.iter().map(|_| Draft::default()).collect());
        Self { direction, plans, drafts, may_leave, found: None, left: RefCell::default() }
    }

    /// Shows the rows of one unit of the batch, forgetting the one before.
    pub(crate) fn open(&mut self, unit: usize, found: Option<&'b [u8]>) {
        for (plan, draft) in self.plans.iter().zip(self.drafts.get_mut()) {
            draft.reset(plan.unit_offsets[unit]..plan.unit_offsets[unit + 1], plan.access.writes.len());
        }
        self.found = found;
        *self.left.get_mut() = None;
    }

    pub(crate) fn close(&mut self) -> (&[Draft], Option<Vec<u8>>) {
        (self.drafts.get_mut(), self.left.get_mut().take())
    }

    /// The table's rows, in the order in which they came; added ones last. One that is added while these are
    /// walked is not among them.
    pub fn rows(&self, table: &str) -> Result<Rows<'_>, Refused> {
        let table = self.table(table)?;
        Ok(Rows { unit: self, table, next: 0, end: self.drafts.borrow()[table].slots.len() })
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
        let table = self.reshaped(self.table(table)?)?;
        let mut drafts = self.drafts.borrow_mut();
        let draft = &mut drafts[table];
        draft.slots.push(Slot { origin: NEW_ROW, removed: false });
        let cells = draft.slots.len() * self.plans[table].access.writes.len();
        draft.pending.resize(cells, Pending::Unset);
        Ok(Row { unit: self, table, slot: draft.slots.len() - 1 })
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

    fn reshaped(&self, table: usize) -> Result<usize, Refused> {
        let access = &self.plans[table].access;
        if access.reshapes {
            return Ok(table);
        }
        let name = &access.table;
        Err(Refused::new(format!("rows of `{name}` may not be added or removed: declare `.reshapes()`")))
    }
}

/// The rows of one table of a unit.
#[derive(Debug, Clone)]
pub struct Rows<'u> {
    unit: &'u Unit<'u>,
    table: usize,
    next: usize,
    end: usize,
}

impl<'u> Iterator for Rows<'u> {
    type Item = Row<'u>;

    fn next(&mut self) -> Option<Row<'u>> {
        let drafts = self.unit.drafts.borrow();
        let slots = &drafts[self.table].slots;
        while self.next < self.end {
            self.next += 1;
            if !slots[self.next - 1].removed {
                return Some(Row { unit: self.unit, table: self.table, slot: self.next - 1 });
            }
        }
        None
    }
}

/// One row. Reading gives what came, whatever has been written since.
#[derive(Debug, Clone, Copy)]
pub struct Row<'u> {
    unit: &'u Unit<'u>,
    table: usize,
    slot: usize,
}

impl<'u> Row<'u> {
    /// A text column's bytes, `None` for NULL.
    pub fn bytes_or_null(&self, column: &str) -> Result<Option<&'u [u8]>, Refused> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Text(bytes) => Ok(Some(bytes)),
            other => Err(self.mismatch(column, other.kind(), Kind::Text)),
        }
    }

    /// A text column's bytes; refuses NULL.
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
        let table = self.unit.reshaped(self.table)?;
        self.unit.drafts.borrow_mut()[table].slots[self.slot].removed = true;
        Ok(())
    }

    fn access(&self) -> &'u Access {
        self.unit.plans[self.table].access
    }

    fn named(&self, column: &str) -> String {
        format!("`{column}` of `{}`", self.access().table)
    }

    fn null(&self, column: &str) -> Refused {
        Refused::new(format!("{} is NULL", self.named(column)))
    }

    fn mismatch(&self, column: &str, found: Option<Kind>, asked: Kind) -> Refused {
        let found = found.map_or_else(|| "NULL".to_owned(), |kind| kind.to_string());
        Refused::new(format!("{} is {found}, not {asked}", self.named(column)))
    }

    fn cell(&self, column: &str) -> Result<Cell<'u>, Refused> {
        let plan = &self.unit.plans[self.table];
        let at =
            plan.access.reads.iter().position(|read| read == column).ok_or_else(|| {
                Refused::new(format!("{} is not declared: add it to `.reads([…])`", self.named(column)))
            })?;
        let origin = self.unit.drafts.borrow()[self.table].slots[self.slot].origin;
        if origin == NEW_ROW {
            return Err(Refused::new(format!("{} cannot be read: the row is new", self.named(column))));
        }
        Ok(plan.views[at].cell(origin as usize))
    }

    fn set(
        &self,
        column: &str,
        kind: Option<Kind>,
        value: impl FnOnce(&mut Vec<u8>) -> Pending,
    ) -> Result<(), Refused> {
        let plan = &self.unit.plans[self.table];
        let at =
            plan.access.writes.iter().position(|write| write.column == column).ok_or_else(|| {
                Refused::new(format!("{} is not declared: add it to `.writes([…])`", self.named(column)))
            })?;
        if let (Some(declared), Some(given)) = (plan.kinds[at], kind)
            && declared != given
        {
            return Err(self.mismatch(column, Some(declared), given));
        }
        let mut drafts = self.unit.drafts.borrow_mut();
        let draft = &mut drafts[self.table];
        draft.pending[self.slot * plan.access.writes.len() + at] = value(&mut draft.bytes);
        Ok(())
    }
}
