//! The rows of a table at the target of a lens. Columns that no step has read are those of the
//! source, as they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Content, Frame, FrameTable};
use crate::budget::OverBudget;
use crate::column::PlainColumn;
use crate::layout::schema::{Column, Sealing};
use crate::layout::values::Value;
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
                Provenance::Computed | Provenance::Fill(_) => Some(self.plain(held, column)?),
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

    fn plain(&self, held: &FrameTable, column: &Column) -> Result<BatchColumn, OverBudget> {
        let known = held.find(&column.name);
        let data = match &known.content {
            Content::Given(data) => Arc::clone(data),
            _ => Arc::new(self.contents(held, known)?.into_owned(self.budget)?),
        };
        Ok(BatchColumn {
            data,
            sealing: Sealing::Plain,
        })
    }

    /// The values of a column of the source, shared where the rows are all of the source.
    fn unread(
        &self,
        held: &FrameTable,
        column: &Column,
        (table, name): (&str, &str),
    ) -> Result<Option<BatchColumn>, OverBudget> {
        let otherwise = Value::of(column.default.as_ref());
        let Some(source) = self.input.tables.get(table) else {
            let data = PlainColumn::repeated(otherwise, column, held.rows(), self.budget)?;
            let data = data.into_owned(self.budget)?;
            return Ok(Some(BatchColumn::new(data, Sealing::Plain)));
        };
        let Some(values) = source.columns.get(name) else {
            return Ok(None);
        };
        let origins = &held.origins[table];
        if source.is_continued_whole(origins) {
            return Ok(Some(values.clone()));
        }
        let data = PlainColumn::picked(&values.data, column, origins, otherwise, self.budget)?;
        let data = data.into_owned(self.budget)?;
        Ok(Some(BatchColumn::new(data, values.sealing)))
    }
}
