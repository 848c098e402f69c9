//! Additions of a database's owner to its tables: columns and indexes that no migration declares.
//! They become part of the layouts that the database passes through, so that a migration
//! carries them over like the columns that it does not read.

use std::collections::BTreeMap;

use super::{LayoutError, LayoutHistory, directed_changes};
use crate::layout::manifest::{Change, DataVersion, Direction, Manifest};
use crate::layout::schema::{Column, Index, Layout};

/// The additional columns and indexes of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Additions {
    pub columns: Vec<Column>,
    /// Indexes of columns that the table has.
    pub indexes: Vec<Index>,
}

impl LayoutHistory {
    /// Returns this history with additions to tables of the layout at a version, by table. The
    /// additions follow their table, upwards and downwards; an index ends where a migration drops
    /// one of its columns.
    ///
    /// # Errors
    /// A migration cannot change a table that has the addition.
    pub fn with_additions<'a>(
        &self,
        at: DataVersion,
        additions: &BTreeMap<String, Additions>,
        manifests: impl IntoIterator<Item = &'a Manifest>,
    ) -> Result<Self, LayoutError> {
        match self.layouts.get(&at).filter(|_| !additions.is_empty()) {
            Some(found) => Ok(Self {
                additions: additions.clone(),
                ..self.with_layout(at, extended(found, additions), manifests)?
            }),
            None => Ok(self.clone()),
        }
    }

    /// This history with another layout at a version, one with additions, which become part of the
    /// layouts at all others.
    ///
    /// # Errors
    /// As [`with_additions`](Self::with_additions).
    pub fn with_layout<'a>(
        &self,
        at: DataVersion,
        extended: Layout,
        manifests: impl IntoIterator<Item = &'a Manifest>,
    ) -> Result<Self, LayoutError> {
        let of_this = manifests
            .into_iter()
            .filter(|manifest| self.layouts.contains_key(&manifest.version));
        let (below, above): (Vec<_>, Vec<_>) = of_this.partition(|manifest| manifest.version <= at);
        let mut layouts = BTreeMap::from([(at, extended.clone())]);
        let mut layout = extended.clone();
        for manifest in above {
            layout.pass(manifest, &manifest.changes)?;
            layouts.insert(manifest.version, layout.clone());
        }
        let mut layout = extended;
        for manifest in below.into_iter().rev() {
            let (&version, before) = self
                .layouts
                .range(..manifest.version)
                .next_back()
                .expect("the empty layout is there");
            layout.pass(
                manifest,
                &directed_changes(before, manifest, Direction::Down),
            )?;
            layouts.insert(version, layout.clone());
        }
        Ok(Self::from_layouts(layouts))
    }

    /// The additions of [`with_additions`](Self::with_additions), by table.
    pub fn additions(&self) -> &BTreeMap<String, Additions> {
        &self.additions
    }

    /// Whether a layout of the history has a table with this name and column.
    pub fn declares_column(&self, table: &str, column: &str) -> bool {
        self.layouts
            .values()
            .filter_map(|layout| layout.tables.get(table))
            .any(|table| table.find_column(column).is_some())
    }

    /// Whether a layout of the history has a table with this name and index.
    pub fn declares_index(&self, table: &str, index: &str) -> bool {
        self.layouts
            .values()
            .filter_map(|layout| layout.tables.get(table))
            .flat_map(|table| &table.indexes)
            .any(|known| known.name == index)
    }
}

impl Layout {
    /// Applies the changes of a step, without the rules that a manifest has to satisfy.
    fn pass(&mut self, manifest: &Manifest, changes: &[Change]) -> Result<(), LayoutError> {
        for change in changes {
            self.leave_out_indexes(change);
            let fail = |problem| LayoutError {
                version: manifest.version,
                name: manifest.name.clone(),
                problem,
            };
            self.change(change).map_err(fail)?;
        }
        Ok(())
    }

    /// Leaves out the indexes of a column that a change takes from its table. A valid manifest
    /// drops its own before.
    fn leave_out_indexes(&mut self, change: &Change) {
        let (Change::DropColumn { table, column }
        | Change::MoveColumn {
            from: table,
            column,
            ..
        }) = change
        else {
            return;
        };
        if let Some(table) = self.tables.get_mut(table) {
            table
                .indexes
                .retain(|index| !index.columns.contains(column));
        }
    }
}

fn extended(layout: &Layout, additions: &BTreeMap<String, Additions>) -> Layout {
    let mut layout = layout.clone();
    for (name, Additions { columns, indexes }) in additions {
        if let Some(table) = layout.tables.get_mut(name) {
            table.columns.extend(columns.iter().cloned());
            table.indexes.extend(indexes.iter().cloned());
        }
    }
    layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::schema::Table;

    fn note() -> Column {
        Column::integer("note").nullable()
    }

    /// The table `apps` with the column `place`; it gets the name `things`, and loses the column.
    fn manifests() -> [Manifest; 3] {
        let table = Table::new("apps")
            .column(Column::integer("guid"))
            .column(Column::integer("place").nullable())
            .primary_key(["guid"]);
        let manifest = |version| Manifest::new(version, "step").summary("a step");
        [
            manifest(1).create_table(table),
            manifest(2).rename_table("apps", "things"),
            manifest(3).drop_column("things", "place"),
        ]
    }

    fn extended_at(version: DataVersion, table: &str, index: Index) -> LayoutHistory {
        let added = Additions {
            columns: vec![note()],
            indexes: vec![index],
        };
        let manifests = manifests();
        let layouts = LayoutHistory::new(&manifests).unwrap();
        layouts
            .with_additions(version, &[(table.to_owned(), added)].into(), &manifests)
            .unwrap()
    }

    #[test]
    fn additions_follow_their_table_upwards_and_an_index_ends_with_its_column() {
        let index = Index::new("op_idx", ["place", "note"]);
        let layouts = extended_at(1, "apps", index.clone());
        let of = |version, table: &str| layouts.at(version).unwrap().tables[table].clone();
        assert_eq!(layouts.at(0), Some(&Layout::default()));
        for (version, table, has_index) in
            [(1, "apps", true), (2, "things", true), (3, "things", false)]
        {
            assert_eq!(
                of(version, table).find_column("note"),
                Some(&note()),
                "{version}"
            );
            let indexes = if has_index {
                std::slice::from_ref(&index)
            } else {
                &[]
            };
            assert_eq!(of(version, table).indexes, indexes, "{version}");
        }
    }

    #[test]
    fn additions_follow_their_table_downwards() {
        let index = Index::new("op_idx", ["note"]);
        let layouts = extended_at(3, "things", index.clone());
        for (version, table) in [(3, "things"), (2, "things"), (1, "apps")] {
            let table = &layouts.at(version).unwrap().tables[table];
            assert_eq!(
                (table.find_column("note"), &table.indexes[..]),
                (Some(&note()), std::slice::from_ref(&index))
            );
        }
        assert_eq!(layouts.at(0), Some(&Layout::default()));
    }

    #[test]
    fn what_any_layout_declares_is_known() {
        let layouts = LayoutHistory::new(&manifests()).unwrap();
        assert!(layouts.declares_column("things", "place"));
        assert!(!layouts.declares_column("things", "note"));
        assert!(!layouts.declares_index("things", "op_idx"));
    }
}
