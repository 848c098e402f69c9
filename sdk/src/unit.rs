//! The view of a unit that a row function has: rows of the declared tables, read in place and
//! written into drafts. Refuses access to anything that the manifest does not declare.
//! [`crate::transform()`] moves the data.

pub(crate) mod draft;

use std::cell::RefCell;

use prost::Message;

use self::draft::{Draft, Pending, Plan, Slot};
use crate::columns::{ColumnValue, Encoding, NEW_ROW};
use crate::manifest::Direction;
use crate::refused::Refused;

/// A unit: all rows of the declared tables that share one partition key.
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
        let drafts = plans
            .iter()
            .map(|plan| RefCell::new(Draft::new(plan)))
            .collect();
        Self {
            direction,
            plans,
            drafts,
            may_leave,
            found: None,
            left: RefCell::default(),
        }
    }

    /// Shows the rows of one unit of the batch.
    pub(crate) fn open(&mut self, unit: usize, found: Option<&'b [u8]>) {
        for (plan, draft) in self.plans.iter().zip(&mut self.drafts) {
            draft.get_mut().open(plan.rows_of(unit), plan);
        }
        self.found = found;
        *self.left.get_mut() = None;
    }

    /// Ends the open unit with the result of its row function; returns the residue that it left.
    pub(crate) fn close(
        &mut self,
        unit: usize,
        ran: Result<(), Refused>,
    ) -> Result<Option<Vec<u8>>, Refused> {
        let mut drafts = self.plans.iter().zip(&mut self.drafts);
        let complete =
            ran.and_then(|()| drafts.try_for_each(|(plan, draft)| draft.get_mut().check(plan)));
        for (plan, draft) in self.plans.iter().zip(&mut self.drafts) {
            match complete {
                Ok(()) => draft.get_mut().accept(),
                Err(_) => draft.get_mut().refuse(plan.rows_of(unit), plan),
            }
        }
        complete.map(|()| self.left.get_mut().take())
    }

    /// The drafts of all tables, in order.
    pub(crate) fn finish(self) -> impl Iterator<Item = Draft> {
        self.drafts.into_iter().map(RefCell::into_inner)
    }

    /// The table's rows in their given order, then added ones. A row that is added during the
    /// iteration is not part of it.
    ///
    /// # Errors
    /// If the table is not declared.
    pub fn rows(&self, table: &str) -> Result<Rows<'_>, Refused> {
        let table = self.table(table)?;
        let plan = &self.plans[table];
        let draft = &self.drafts[table];
        let next = draft.borrow().first;
        let end = draft.borrow().slots.len();
        Ok(Rows {
            plan,
            draft,
            next,
            end,
        })
    }

    /// The table's only row.
    ///
    /// # Errors
    /// If the table is not declared, or has no row or several.
    pub fn row(&self, table: &str) -> Result<Row<'_>, Refused> {
        let mut rows = self.rows(table)?;
        match (rows.next(), rows.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(Refused::new(format!(
                "`{table}` has no row for this key, one was expected"
            ))),
            (Some(_), Some(_)) => Err(Refused::new(format!(
                "`{table}` has several rows for this key, one was expected"
            ))),
        }
    }

    /// Adds a row. Columns that are not written get their defaults.
    ///
    /// # Errors
    /// If the table is not declared, or not with `reshapes`.
    pub fn add_row(&self, table: &str) -> Result<Row<'_>, Refused> {
        let table = self.table(table)?;
        let plan = &self.plans[table];
        let draft = &self.drafts[table];
        plan.reshaped()?;
        let slot = draft.borrow_mut().add(plan);
        Ok(Row {
            plan,
            draft,
            slot,
            origin: NEW_ROW,
        })
    }

    /// The residue of the opposite step for this unit, if the unit is still as that step returned
    /// it: with the same keys, the same identity of its records (`modification_tag_epoch`,
    /// `created_at`), and the same values of the columns that the step writes. Changes of other
    /// columns are not noticed, so the step has to write each column on which its residue depends,
    /// also one that it leaves unchanged.
    pub fn residue(&self) -> Option<&[u8]> {
        self.found
    }

    /// Sets the residue for the opposite direction, which the host saves sealed. See
    /// [`Self::residue`] for the units to which it is given back.
    ///
    /// # Errors
    /// If the manifest does not declare residue.
    pub fn set_residue(&self, residue: Vec<u8>) -> Result<(), Refused> {
        if !self.may_leave {
            return Err(Refused::new(
                "the manifest declares no residue: add `.leaves_residue()`",
            ));
        }
        *self.left.borrow_mut() = Some(residue);
        Ok(())
    }

    /// The [residue](Self::residue) as a message.
    ///
    /// # Errors
    /// If it cannot be decoded.
    pub fn decode_residue<R: Message + Default>(&self) -> Result<Option<R>, Refused> {
        let refused = |error: &dyn std::fmt::Display| {
            Refused::new(format!("the residue cannot be read: {error}"))
        };
        let Some(residue) = self.found else {
            return Ok(None);
        };
        // Names the byte at fault, which the decoder does not.
        crate::wire::check(residue).map_err(|error| refused(&error))?;
        R::decode(residue)
            .map(Some)
            .map_err(|error| refused(&error))
    }

    /// Sets a message as the [residue](Self::set_residue) for the opposite direction.
    ///
    /// # Errors
    /// If the manifest does not declare residue.
    pub fn encode_residue(&self, residue: &impl Message) -> Result<(), Refused> {
        self.set_residue(residue.encode_to_vec())
    }

    fn table(&self, name: &str) -> Result<usize, Refused> {
        self.plans
            .iter()
            .position(|plan| plan.access.table == name)
            .ok_or_else(|| {
                let direction = self.direction;
                Refused::new(format!(
                    "table `{name}` is not declared: add `.{direction}(Access::to(\"{name}\")…)`"
                ))
            })
    }
}

/// An iterator over the rows of one table of a unit.
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
                return Some(Row {
                    plan: self.plan,
                    draft: self.draft,
                    slot,
                    origin,
                });
            }
        }
        None
    }
}

/// One row. Reads return the given values, whatever has been written since.
///
/// Reads and writes are refused if the column is not declared or has another kind; reads, if the
/// row is new.
#[derive(Debug, Clone, Copy)]
pub struct Row<'u> {
    plan: &'u Plan<'u>,
    draft: &'u RefCell<Draft>,
    slot: usize,
    origin: u32,
}

impl<'u> Row<'u> {
    /// Reads a text column as bytes; `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    #[inline]
    pub fn bytes_or_null(&self, column: &str) -> Result<Option<&'u [u8]>, Refused> {
        match self.value(column)? {
            ColumnValue::Null => Ok(None),
            ColumnValue::Text(bytes) => Ok(Some(bytes)),
            other => Err(self.mismatch(column, other.encoding(), Encoding::Text)),
        }
    }

    /// Reads a text column as bytes.
    ///
    /// # Errors
    /// See [`Row`]; also if the value is NULL.
    #[inline]
    pub fn bytes(&self, column: &str) -> Result<&'u [u8], Refused> {
        self.bytes_or_null(column)?.ok_or_else(|| self.null(column))
    }

    /// Reads a text column as UTF-8; `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`]; also if the value is not UTF-8.
    pub fn text_or_null(&self, column: &str) -> Result<Option<&'u str>, Refused> {
        let Some(bytes) = self.bytes_or_null(column)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes);
        text.map(Some)
            .map_err(|_| Refused::new(format!("{} is not UTF-8", self.named(column))))
    }

    /// Reads a text column as UTF-8.
    ///
    /// # Errors
    /// See [`Row`]; also if the value is NULL or not UTF-8.
    pub fn text(&self, column: &str) -> Result<&'u str, Refused> {
        self.text_or_null(column)?.ok_or_else(|| self.null(column))
    }

    /// Reads an integer column of either width; `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn integer_or_null(&self, column: &str) -> Result<Option<i64>, Refused> {
        match self.value(column)? {
            ColumnValue::Null => Ok(None),
            ColumnValue::Integer(value) => Ok(Some(value)),
            other => Err(self.mismatch(column, other.encoding(), Encoding::Integer)),
        }
    }

    /// Reads an integer column of either width.
    ///
    /// # Errors
    /// See [`Row`]; also if the value is NULL.
    pub fn integer(&self, column: &str) -> Result<i64, Refused> {
        self.integer_or_null(column)?
            .ok_or_else(|| self.null(column))
    }

    /// Reads a boolean column; `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn boolean_or_null(&self, column: &str) -> Result<Option<bool>, Refused> {
        match self.value(column)? {
            ColumnValue::Null => Ok(None),
            ColumnValue::Boolean(value) => Ok(Some(value)),
            other => Err(self.mismatch(column, other.encoding(), Encoding::Boolean)),
        }
    }

    /// Reads a boolean column.
    ///
    /// # Errors
    /// See [`Row`]; also if the value is NULL.
    pub fn boolean(&self, column: &str) -> Result<bool, Refused> {
        self.boolean_or_null(column)?
            .ok_or_else(|| self.null(column))
    }

    /// Whether a column is NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn is_null(&self, column: &str) -> Result<bool, Refused> {
        Ok(self.value(column)? == ColumnValue::Null)
    }

    /// Writes a text column.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_text(&self, column: &str, value: &str) -> Result<(), Refused> {
        self.set_bytes(column, value.as_bytes())
    }

    /// Writes a text column.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_bytes(&self, column: &str, value: &[u8]) -> Result<(), Refused> {
        self.set(column, Some(Encoding::Text), |bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(value);
            Pending::Text {
                start,
                end: bytes.len(),
            }
        })
    }

    /// Writes an integer column of either width.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_integer(&self, column: &str, value: i64) -> Result<(), Refused> {
        self.set(column, Some(Encoding::Integer), |_| Pending::Integer(value))
    }

    /// Writes a boolean column.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_boolean(&self, column: &str, value: bool) -> Result<(), Refused> {
        self.set(column, Some(Encoding::Boolean), |_| Pending::Boolean(value))
    }

    /// Writes NULL to a column of any kind.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_null(&self, column: &str) -> Result<(), Refused> {
        self.set(column, None, |_| Pending::Null)
    }

    /// Writes a text column, or NULL to it.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_bytes_or_null(&self, column: &str, value: Option<&[u8]>) -> Result<(), Refused> {
        match value {
            Some(value) => self.set_bytes(column, value),
            None => self.set_null(column),
        }
    }

    /// Writes an integer column of either width, or NULL to it.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_integer_or_null(&self, column: &str, value: Option<i64>) -> Result<(), Refused> {
        match value {
            Some(value) => self.set_integer(column, value),
            None => self.set_null(column),
        }
    }

    /// Writes a boolean column, or NULL to it.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn set_boolean_or_null(&self, column: &str, value: Option<bool>) -> Result<(), Refused> {
        match value {
            Some(value) => self.set_boolean(column, value),
            None => self.set_null(column),
        }
    }

    /// Removes the row.
    ///
    /// # Errors
    /// If the access does not declare `reshapes`, or the manifest not `removes_rows` and the row
    /// was given.
    pub fn remove(&self) -> Result<(), Refused> {
        let draft = &mut *self.draft.borrow_mut();
        self.plan.removed(draft.slots[self.slot])?;
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
    fn mismatch(&self, column: &str, found: Option<Encoding>, asked: Encoding) -> Refused {
        let found = found.map_or_else(|| "NULL".to_owned(), |kind| kind.to_string());
        Refused::new(format!("{} is {found}, not {asked}", self.named(column)))
    }

    #[cold]
    fn undeclared(&self, column: &str, list: &str) -> Refused {
        Refused::new(format!(
            "{} is not declared: add it to `.{list}([…])`",
            self.named(column)
        ))
    }

    #[cold]
    fn unread(&self, column: &str) -> Refused {
        Refused::new(format!(
            "{} cannot be read: the row is new",
            self.named(column)
        ))
    }

    #[inline]
    fn value(&self, column: &str) -> Result<ColumnValue<'u>, Refused> {
        let mut reads = self.plan.access.reads.iter();
        let Some(at) = reads.position(|read| read == column) else {
            return Err(self.undeclared(column, "reads"));
        };
        if self.origin == NEW_ROW {
            return Err(self.unread(column));
        }
        Ok(self.plan.views[at].value(self.origin as usize))
    }

    #[inline]
    fn set(
        &self,
        column: &str,
        kind: Option<Encoding>,
        value: impl FnOnce(&mut Vec<u8>) -> Pending,
    ) -> Result<(), Refused> {
        let mut writes = self.plan.access.writes.iter();
        let Some(at) = writes.position(|write| write == column) else {
            return Err(self.undeclared(column, "writes"));
        };
        let draft = &mut *self.draft.borrow_mut();
        match (draft.kinds[at], kind) {
            (Some(before), Some(given)) if before != given => {
                return Err(self.mismatch(column, Some(before), given));
            }
            (before, given) => draft.kinds[at] = before.or(given),
        }
        let value = value(&mut draft.bytes);
        let pending = &mut draft.pending[self.slot * self.plan.access.writes.len() + at];
        draft.unset -= usize::from(matches!(pending, Pending::Unset));
        *pending = value;
        Ok(())
    }
}
