//! Columns that a migration drops on the way down and adds again on the way up: they are set aside
//! as they are, and return with their values unread.

use super::{ChangePlace, Content, Frame, FrameColumn, LeavingColumn};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::{Column, Table};

/// A column that a migration has dropped on the way down, for its way up.
#[derive(Debug, Clone)]
pub(super) struct ColumnAside {
    pub(super) version: DataVersion,
    pub(super) column: FrameColumn,
}

impl Frame<'_> {
    /// Adds a table that a change creates: that which its migration has set aside, or a new one.
    pub(crate) fn create(&mut self, place: ChangePlace, version: DataVersion, table: &Table) {
        let returned = self.aside.remove(&(version, table.name.clone()));
        let created = returned
            .unwrap_or_else(|| self.start(table, |column| Content::Fill(column.default.clone())));
        self.created.insert(place, created.group);
        self.recorded_groups
            .insert((place.step, table.name.clone()), created.group);
        self.tables.insert(table.name.clone(), created);
    }

    /// Sets a table aside that a migration drops, until the way comes up through it again.
    pub(crate) fn set_aside(&mut self, version: DataVersion, table: &str) {
        if let Some(mut held) = self.tables.remove(table) {
            held.aside.extend(
                held.leaving
                    .drain(..)
                    .map(|LeavingColumn { column, .. }| ColumnAside { version, column }),
            );
            self.aside.insert((version, table.to_owned()), held);
        }
    }

    /// Sets a column aside that a migration has dropped, until the way comes up through it again.
    pub(crate) fn set_column_aside(
        &mut self,
        version: DataVersion,
        table: &str,
        column: FrameColumn,
    ) {
        self.table_mut(table)
            .aside
            .push(ColumnAside { version, column });
    }

    /// Returns a column that a migration has set aside; whether there is such a one.
    pub(crate) fn return_column(
        &mut self,
        version: DataVersion,
        table: &str,
        column: &Column,
    ) -> bool {
        let Some(table) = self.tables.get_mut(table) else {
            return false;
        };
        let is_it = |aside: &ColumnAside| {
            aside.version == version && aside.column.column.name == column.name
        };
        let Some(at) = table.aside.iter().position(is_it) else {
            return false;
        };
        let content = table.aside.remove(at).column.content;
        table.columns.push(FrameColumn {
            column: column.clone(),
            content,
        });
        true
    }
}
