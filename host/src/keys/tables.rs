//! The tables with sealed columns. Derived from the layout and from the definitions of the host's
//! own tables.

use bbs_lens::layout::schema::{Layout, Sealing, Table};

use bbs_units::KeyColumn;

/// A table with sealed columns. Rows are addressed by the whole primary key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTable {
    /// The name in the database.
    pub name: String,
    /// The primary key.
    pub key: Vec<KeyColumn>,
    /// The sealed columns.
    pub columns: Vec<String>,
}

impl SealedTable {
    /// None for a table without sealed columns.
    pub fn of(table: &Table) -> Option<Self> {
        let sealed = table
            .columns
            .iter()
            .filter(|column| column.sealing != Sealing::Plain);
        let columns: Vec<_> = sealed.map(|column| column.name.clone()).collect();
        (!columns.is_empty()).then(|| Self {
            name: table.name.clone(),
            key: KeyColumn::named(table, &table.primary_key),
            columns,
        })
    }

    /// The tables with sealed columns of a layout and of the host itself (`own`).
    pub fn all<'a>(layout: &'a Layout, own: impl IntoIterator<Item = &'a Table>) -> Vec<Self> {
        layout
            .tables
            .values()
            .chain(own)
            .filter_map(Self::of)
            .collect()
    }
}
