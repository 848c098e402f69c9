//! The rows of a table at the target of a lens. Columns that no step has read are those of the
//! source, as they are stored.

use std::collections::BTreeMap;

use super::{Content, Frame, FrameTable};
use crate::budget::OverBudget;
use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Literal, Sealing};
use crate::layout::values::{Encoding, Value};
use crate::{BatchColumn, Provenance, TableRows};

impl Frame<'_> {
    /// Every column of a table: computed, as in the source, or the same in all rows. A column that
    /// was not loaded is left out.
    pub(crate) fn target_rows(
        &self,
        held: &FrameTable,
        columns: &[(Column, Provenance)],
    ) -> Result<TableRows, OverBudget> {
        let mut rows = TableRows {
            unit_offsets: held.unit_offsets.clone(),
            columns: BTreeMap::new(),
        };
        for (column, provenance) in columns {
            let values = match provenance {
                Provenance::Computed => Some(self.computed(held, column)?),
                Provenance::Fill(literal) => Some(self.repeated(held, column, literal.as_ref())?),
                Provenance::Raw {
                    table,
                    column: name,
                } => self.unread(held, column, (table, name))?,
            };
            rows.columns
                .extend(values.map(|values| (column.name.clone(), values)));
        }
        Ok(rows)
    }

    fn computed(&self, held: &FrameTable, column: &Column) -> Result<BatchColumn, OverBudget> {
        let known = held.find(&column.name);
        if let Content::Given(data) = &known.content {
            return Ok(BatchColumn {
                data: data.clone(),
                sealing: Sealing::Plain,
            });
        }
        let data = self.contents(held, known)?.into_owned(self.budget)?;
        Ok(BatchColumn::new(data, Sealing::Plain))
    }

    fn repeated(
        &self,
        held: &FrameTable,
        column: &Column,
        literal: Option<&Literal>,
    ) -> Result<BatchColumn, OverBudget> {
        let (encoding, value) = (Encoding::from(column.kind), Value::of(literal));
        let bytes = ColumnData::repeated_bytes(encoding, value, held.rows());
        self.budget.spend(bytes)?.keep();
        Ok(BatchColumn::repeated(column, literal, held.rows()))
    }

    /// The values of a column of the source, shared where the rows are all of the source.
    fn unread(
        &self,
        held: &FrameTable,
        column: &Column,
        (table, name): (&str, &str),
    ) -> Result<Option<BatchColumn>, OverBudget> {
        let Some(source) = self.input.tables.get(table) else {
            return self
                .repeated(held, column, column.default.as_ref())
                .map(Some);
        };
        let Some(values) = source.columns.get(name) else {
            return Ok(None);
        };
        let origins = &held.origins[table];
        if source.is_continued_whole(origins) {
            return Ok(Some(values.clone()));
        }
        let (encoding, otherwise) = (
            Encoding::from(column.kind),
            Value::of(column.default.as_ref()),
        );
        let bytes = values.data.picked_bytes(encoding, origins, otherwise);
        self.budget.spend(bytes)?.keep();
        let data = values.data.pick(encoding, origins, otherwise);
        Ok(Some(BatchColumn::new(data, values.sealing)))
    }
}
