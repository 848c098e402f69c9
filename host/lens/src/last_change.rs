//! The step of a lens that has last changed a part of a table of its target: the one to name if a
//! database cannot store that part. Pure, from the manifests; backwards from the target.

use super::Lens;
use super::step::Step;
use crate::layout::history::Leg;
use crate::layout::manifest::Change;

/// A part of a table of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablePart<'a> {
    /// The values of a column.
    Column(&'a str),
    /// The primary key.
    Key,
    /// Rows as a whole.
    Rows,
}

impl Lens {
    /// The last step that changed the part, by its row function or in the layout; the last of all
    /// if none did. Of rows as a whole the last one that ran a row function over them, if there is
    /// one.
    ///
    /// # Panics
    /// If the lens has no steps.
    pub fn last_change(&self, table: &str, part: TablePart<'_>) -> Leg {
        let composed = self.tables.get(table);
        let columns = match part {
            TablePart::Column(column) => vec![column.to_owned()],
            TablePart::Key => composed
                .map(|composed| composed.table.primary_key.clone())
                .unwrap_or_default(),
            TablePart::Rows => {
                if let Some(leg) = composed.and_then(|composed| composed.transformed) {
                    return leg;
                }
                Vec::new()
            }
        };
        let mut place = PartPlace {
            part,
            table: table.to_owned(),
            columns,
        };
        let found = self.steps.iter().rfind(|step| place.is_changed_by(step));
        found
            .or(self.steps.last())
            .expect("a lens that changes a table has steps")
            .leg()
    }
}

/// Where the part is after a step.
struct PartPlace<'a> {
    part: TablePart<'a>,
    table: String,
    columns: Vec<String>,
}

impl PartPlace<'_> {
    /// Whether the step changed the part. If not, the place is then that before the step.
    fn is_changed_by(&mut self, step: &Step) -> bool {
        let mut of_table = step
            .accesses()
            .iter()
            .filter(|access| access.table == self.table);
        let is_written = of_table.any(|access| {
            let reorders = access.reshapes && self.part == TablePart::Key;
            reorders
                || access
                    .writes
                    .iter()
                    .any(|column| self.columns.contains(column))
        });
        is_written
            || step
                .changes
                .iter()
                .rev()
                .any(|change| self.is_changed(change))
    }

    fn is_changed(&mut self, change: &Change) -> bool {
        match change {
            Change::RenameTable { from, to } if *to == self.table => {
                self.table.clone_from(from);
                false
            }
            Change::RenameColumn { table, from, to } if *table == self.table => {
                self.columns
                    .iter_mut()
                    .filter(|column| *column == to)
                    .for_each(|column| column.clone_from(from));
                false
            }
            Change::MoveColumn { column, from, to }
                if *to == self.table && self.columns == [column.clone()] =>
            {
                self.table.clone_from(from);
                false
            }
            Change::CreateTable(created) => created.name == self.table,
            Change::AlterColumn { table, column } | Change::AddColumn { table, column }
                if *table == self.table =>
            {
                self.part == TablePart::Rows || self.columns.contains(&column.name)
            }
            Change::MoveColumn { to, .. } => {
                *to == self.table && !matches!(self.part, TablePart::Column(_))
            }
            Change::SetPrimaryKey { table, .. } => {
                *table == self.table && self.part == TablePart::Key
            }
            Change::CreateIndex { table, .. } => {
                *table == self.table && self.part == TablePart::Rows
            }
            Change::AlterColumn { .. }
            | Change::AddColumn { .. }
            | Change::RenameTable { .. }
            | Change::RenameColumn { .. }
            | Change::DropTable { .. }
            | Change::DropColumn { .. }
            | Change::DropIndex { .. } => false,
        }
    }
}
