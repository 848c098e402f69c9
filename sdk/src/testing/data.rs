//! The rows of a unit as plain maps, which are easy to write in a test, to compare and to print.

use std::collections::BTreeMap;

#[doc(inline)]
pub use bbs_lens::OwnedValue as Datum;

/// A row: its values by column name. A column that is absent is not in the map.
pub type RowData = BTreeMap<String, Datum>;

/// The rows of one unit, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitData {
    /// The rows by table name.
    pub tables: BTreeMap<String, Vec<RowData>>,
}

impl UnitData {
    /// Adds a row to a table.
    #[must_use]
    pub fn row<const N: usize>(mut self, table: &str, columns: [(&str, Datum); N]) -> Self {
        let row = columns
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        self.tables.entry(table.to_owned()).or_default().push(row);
        self
    }

    /// The same unit with its rows sorted and without empty tables.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.tables.retain(|_, rows| !rows.is_empty());
        self.reordered()
    }

    /// This unit with its rows in an order that does not depend on the present one: a database
    /// returns rows by their keys, not as a function has left them.
    #[must_use]
    pub(crate) fn reordered(mut self) -> Self {
        self.tables.values_mut().for_each(|rows| rows.sort());
        self
    }
}
