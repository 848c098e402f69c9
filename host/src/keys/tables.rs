//! Which tables have sealed columns, and what a row of them is called. Owns the list; the layout and the host's own
//! tables say which columns are sealed.

use crate::layout::schema::{Layout, Sealing, Table};
use crate::layout::values::Encoding;

/// A table with sealed columns, found by its whole primary key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTable {
    pub name: String,
    pub key: Vec<KeyColumn>,
    pub columns: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    pub encoding: Encoding,
}

impl SealedTable {
    /// Nothing for a table in which everything is in plain sight.
    pub fn of(table: &Table) -> Option<Self> {
        let sealed = table.columns.iter().filter(|column| column.sealing != Sealing::Plain);
        let columns: Vec<_> = sealed.map(|column| column.name.clone()).collect();
        let key = table.primary_key.iter().map(|name| {
            let column = table.column(name).expect("a key is made of columns");
            KeyColumn { name: name.clone(), encoding: column.kind.into() }
        });
        (!columns.is_empty()).then(|| Self { name: table.name.clone(), key: key.collect(), columns })
    }

    /// Every sealed table of a layout and of what the host keeps beside it.
    pub fn all<'a>(layout: &'a Layout, own: impl IntoIterator<Item = &'a Table>) -> Vec<Self> {
        layout.tables.values().chain(own).filter_map(Self::of).collect()
    }
}
