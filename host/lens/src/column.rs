//! Columns between two steps, and the values that a step reads of them, with what those take from
//! the batch budget while they are in memory.

use std::borrow::Cow;
use std::sync::Arc;

use super::budget::{BatchBudget, OverBudget, Spent};
use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Literal, Sealing};
use crate::layout::values::{Encoding, Value};

/// The content of a column of the frame.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A column of the source, with the sealing that it has there.
    Source {
        table: String,
        column: String,
        sealing: Sealing,
    },
    Fill(Option<Literal>),
    /// Made by a step. Shared by tables that have the same rows, and with the result of the lens.
    Given(Arc<ColumnData>),
}

#[derive(Debug, Clone)]
pub(super) struct FrameColumn {
    pub(super) column: Column,
    pub(super) content: Content,
}

impl FrameColumn {
    /// This column under another name.
    pub(super) fn named(&self, name: &str) -> Self {
        let mut named = self.clone();
        name.clone_into(&mut named.column.name);
        named
    }
}

/// The plain values of a column, and the bytes of the batch budget that they take if they were made
/// for this.
#[derive(Debug)]
pub(super) struct PlainColumn<'a> {
    data: Cow<'a, ColumnData>,
    spent: Spent<'a>,
}

impl<'a> PlainColumn<'a> {
    pub(super) fn borrowed(
        data: &'a ColumnData,
        budget: &'a BatchBudget,
    ) -> Result<Self, OverBudget> {
        Ok(Self {
            data: Cow::Borrowed(data),
            spent: budget.spend(0)?,
        })
    }

    /// A column with one value, repeated in every row.
    pub(super) fn repeated(
        value: Value<'_>,
        column: &Column,
        rows: usize,
        budget: &'a BatchBudget,
    ) -> Result<Self, OverBudget> {
        let encoding = Encoding::from(column.kind);
        let spent = budget.spend(ColumnData::repeated_bytes(encoding, value, rows))?;
        Ok(Self {
            data: Cow::Owned(ColumnData::repeat(encoding, value, rows)),
            spent,
        })
    }

    /// The rows at `origins`, in that order; `otherwise` for new ones.
    pub(super) fn picked(
        data: &ColumnData,
        column: &Column,
        origins: &[u32],
        otherwise: Value<'_>,
        budget: &'a BatchBudget,
    ) -> Result<Self, OverBudget> {
        let encoding = Encoding::from(column.kind);
        let spent = budget.spend(data.picked_bytes(encoding, origins, otherwise))?;
        Ok(Self {
            data: Cow::Owned(data.pick(encoding, origins, otherwise)),
            spent,
        })
    }

    /// The values for longer than this; they stay spent until the step ends.
    pub(super) fn into_owned(self, budget: &BatchBudget) -> Result<ColumnData, OverBudget> {
        match self.data {
            Cow::Owned(data) => {
                self.spent.keep();
                Ok(data)
            }
            Cow::Borrowed(data) => {
                budget.spend(data.bytes())?.keep();
                Ok(data.clone())
            }
        }
    }
}

impl std::ops::Deref for PlainColumn<'_> {
    type Target = ColumnData;

    fn deref(&self) -> &ColumnData {
        &self.data
    }
}

/// Encoded values of every row, and the bytes that they take.
#[derive(Debug)]
pub(super) struct EncodedRows<'a> {
    rows: Vec<Vec<u8>>,
    spent: Spent<'a>,
}

impl<'a> EncodedRows<'a> {
    pub(super) fn new(rows: Vec<Vec<u8>>, spent: Spent<'a>) -> Self {
        Self { rows, spent }
    }

    /// The rows for longer than this; they stay spent until the step ends.
    pub(super) fn into_rows(self) -> Vec<Vec<u8>> {
        self.spent.keep();
        self.rows
    }
}

impl std::ops::Deref for EncodedRows<'_> {
    type Target = [Vec<u8>];

    fn deref(&self) -> &[Vec<u8>] {
        &self.rows
    }
}
