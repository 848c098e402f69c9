//! The layout that a sequence of manifests results in, and the checks that they fit together. The
//! host has an implementation of its own; this one shows the result to an author without a host.

use std::collections::BTreeMap;

use crate::manifest::{Change, Manifest};
use crate::schema::{Column, Table};

/// A set of tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The tables by name.
    pub tables: BTreeMap<String, Table>,
}

/// A manifest does not fit the layout before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("migration {version}: {reason}")]
pub struct LayoutError {
    /// The version of the migration.
    pub version: u64,
    /// What does not fit.
    pub reason: String,
}

impl Layout {
    /// A layout with these tables, for tests of one migration.
    #[must_use]
    pub fn of(tables: impl IntoIterator<Item = Table>) -> Self {
        Self {
            tables: tables
                .into_iter()
                .map(|table| (table.name.clone(), table))
                .collect(),
        }
    }

    /// The layout after these migrations, starting without tables.
    ///
    /// # Errors
    /// If a manifest does not fit the layout before it.
    pub fn after<'a>(
        manifests: impl IntoIterator<Item = &'a Manifest>,
    ) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        for manifest in manifests {
            layout.apply(manifest)?;
        }
        Ok(layout)
    }

    /// Applies the changes of one migration.
    ///
    /// # Errors
    /// If they do not fit this layout.
    pub fn apply(&mut self, manifest: &Manifest) -> Result<(), LayoutError> {
        let version = manifest.version;
        for change in &manifest.changes {
            self.change(change)
                .map_err(|reason| LayoutError { version, reason })?;
        }
        self.check_keys()
            .map_err(|reason| LayoutError { version, reason })
    }

    fn change(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::CreateTable(table) => {
                if self.tables.contains_key(&table.name) {
                    return Err(format!("creates table `{}`, which is there", table.name));
                }
                self.tables.insert(table.name.clone(), table.clone());
            }
            Change::DropTable { table } => drop(self.take(table)?),
            Change::RenameTable { from, to } => {
                let mut table = self.take(from)?;
                table.name.clone_from(to);
                if self.tables.insert(to.clone(), table).is_some() {
                    return Err(format!("renames `{from}` to `{to}`, which is there"));
                }
            }
            Change::AddColumn { table, column } => self.add_column(table, column.clone())?,
            Change::AlterColumn { table, column } => {
                *self.column(table, &column.name)? = column.clone()
            }
            Change::DropColumn { table, column } => drop(self.take_column(table, column)?),
            Change::RenameColumn { table, from, to } => self.rename_column(table, from, to)?,
            Change::MoveColumn { column, from, to } => {
                let moved = self.take_column(from, column)?;
                self.add_column(to, moved)?;
            }
            Change::SetPrimaryKey { table, columns } => {
                self.table(table)?.primary_key.clone_from(columns)
            }
            Change::CreateIndex { table, index } => {
                let indexes = &mut self.table(table)?.indexes;
                if indexes.iter().any(|there| there.name == index.name) {
                    return Err(format!("creates index `{}`, which is there", index.name));
                }
                indexes.push(index.clone());
            }
            Change::DropIndex { table, index } => {
                let indexes = &mut self.table(table)?.indexes;
                let at = indexes.iter().position(|there| there.name == *index);
                indexes.remove(
                    at.ok_or_else(|| format!("drops index `{index}`, which is not there"))?,
                );
            }
        }
        Ok(())
    }

    fn table(&mut self, name: &str) -> Result<&mut Table, String> {
        self.tables
            .get_mut(name)
            .ok_or_else(|| format!("changes table `{name}`, which is not there"))
    }

    fn take(&mut self, name: &str) -> Result<Table, String> {
        self.tables
            .remove(name)
            .ok_or_else(|| format!("changes table `{name}`, which is not there"))
    }

    fn column(&mut self, table: &str, name: &str) -> Result<&mut Column, String> {
        let columns = &mut self.table(table)?.columns;
        let found = columns.iter_mut().find(|column| column.name == name);
        found.ok_or_else(|| format!("changes column `{name}` of `{table}`, which is not there"))
    }

    fn add_column(&mut self, table: &str, column: Column) -> Result<(), String> {
        let columns = &mut self.table(table)?.columns;
        if columns.iter().any(|there| there.name == column.name) {
            return Err(format!(
                "adds column `{}` to `{table}`, which has it",
                column.name
            ));
        }
        columns.push(column);
        Ok(())
    }

    fn take_column(&mut self, table: &str, name: &str) -> Result<Column, String> {
        let columns = &mut self.table(table)?.columns;
        let at = columns.iter().position(|column| column.name == name);
        Ok(columns.remove(
            at.ok_or_else(|| format!("takes column `{name}` of `{table}`, which is not there"))?,
        ))
    }

    fn rename_column(&mut self, table: &str, from: &str, to: &str) -> Result<(), String> {
        if self.column(table, to).is_ok() {
            return Err(format!(
                "renames column `{from}` of `{table}` to `{to}`, which is there"
            ));
        }
        to.clone_into(&mut self.column(table, from)?.name);
        let table = self.table(table)?;
        let in_indexes = table
            .indexes
            .iter_mut()
            .flat_map(|index| &mut index.columns);
        let in_keys = table.primary_key.iter_mut().chain(&mut table.partition_key);
        for name in in_keys.chain(in_indexes).filter(|name| *name == from) {
            to.clone_into(name);
        }
        Ok(())
    }

    /// Checks that keys and indexes name existing columns, once a migration's changes are complete.
    fn check_keys(&self) -> Result<(), String> {
        for table in self.tables.values() {
            if table.primary_key.is_empty() {
                return Err(format!(
                    "leaves table `{}` without a primary key",
                    table.name
                ));
            }
            let in_indexes = table.indexes.iter().flat_map(|index| &index.columns);
            for name in table
                .primary_key
                .iter()
                .chain(&table.partition_key)
                .chain(in_indexes)
            {
                if !table.columns.iter().any(|column| column.name == *name) {
                    return Err(format!(
                        "leaves `{name}` in a key or index of `{}`, which has no such column",
                        table.name
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Manifest {
        let table = Table::new("t")
            .column(Column::text("a"))
            .column(Column::integer("b"));
        Manifest::new(1, "start").create_table(
            table
                .primary_key(["a"])
                .partition_key("a")
                .index("i", ["b"]),
        )
    }

    fn refused(manifest: Manifest) -> String {
        Layout::after([&start(), &manifest])
            .expect_err("a step that does not fit")
            .reason
    }

    #[test]
    fn changes_of_absent_or_duplicate_items_are_refused() {
        let step = || Manifest::new(2, "step");
        assert_eq!(
            refused(step().create_table(Table::new("t"))),
            "creates table `t`, which is there"
        );
        assert_eq!(
            refused(step().drop_table("u")),
            "changes table `u`, which is not there"
        );
        assert_eq!(
            refused(step().rename_table("u", "v")),
            "changes table `u`, which is not there"
        );
        assert_eq!(
            refused(step().add_column("t", Column::text("a"))),
            "adds column `a` to `t`, which has it"
        );
        let absent = "changes column `c` of `t`, which is not there";
        assert_eq!(refused(step().alter_column("t", Column::text("c"))), absent);
        assert_eq!(refused(step().rename_column("t", "c", "d")), absent);
        assert_eq!(
            refused(step().rename_column("t", "a", "b")),
            "renames column `a` of `t` to `b`, which is there"
        );
        assert_eq!(
            refused(step().drop_column("t", "c")),
            "takes column `c` of `t`, which is not there"
        );
        assert_eq!(
            refused(step().create_index("t", "i", ["a"])),
            "creates index `i`, which is there"
        );
        assert_eq!(
            refused(step().drop_index("t", "j")),
            "drops index `j`, which is not there"
        );
        let dangling = "leaves `b` in a key or index of `t`, which has no such column";
        assert_eq!(refused(step().drop_column("t", "b")), dangling);
        assert_eq!(
            refused(step().set_primary_key("t", [])),
            "leaves table `t` without a primary key"
        );
        let other = Table::new("u").column(Column::text("a")).primary_key(["a"]);
        assert_eq!(
            refused(step().create_table(other).rename_table("u", "t")),
            "renames `u` to `t`, which is there"
        );
    }

    #[test]
    fn renamed_column_is_renamed_in_keys_and_indexes() {
        let renamed = Manifest::new(2, "rename")
            .rename_column("t", "a", "x")
            .rename_column("t", "b", "y");
        let layout =
            Layout::after([&start(), &renamed.rename_table("t", "u")]).expect("a step that fits");
        let table = Table::new("u")
            .column(Column::text("x"))
            .column(Column::integer("y"));
        assert_eq!(
            layout,
            Layout::of([table
                .primary_key(["x"])
                .partition_key("x")
                .index("i", ["y"])])
        );
    }

    #[test]
    fn moved_column_keeps_its_definition() {
        let other = Table::new("u").column(Column::text("a")).primary_key(["a"]);
        let step = Manifest::new(2, "move")
            .create_table(other)
            .drop_index("t", "i")
            .move_column("b", "t", "u");
        let layout = Layout::after([&start(), &step]).expect("a step that fits");
        assert_eq!(
            layout.tables["u"].columns,
            [Column::text("a"), Column::integer("b")]
        );
        assert_eq!(layout.tables["t"].columns, [Column::text("a")]);
    }
}
