//! The layout of a database at one data version, of the tables and columns of the contract. Owns
//! the type; `history` has the rules.

use std::collections::BTreeMap;

use serde::Serialize;

pub use bbs_contract::schema::{
    Column, ColumnType, Index, Literal, RECORD_VERSION, Sealing, Table,
};

/// The tables at one data version, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// By name; the same names as in the tables.
    pub tables: BTreeMap<String, Table>,
}

impl Layout {
    /// The layout with these tables.
    #[must_use]
    pub fn of(tables: impl IntoIterator<Item = Table>) -> Self {
        let tables = tables.into_iter();
        Self {
            tables: tables.map(|table| (table.name.clone(), table)).collect(),
        }
    }
}

/// The length of a text as the bound of a column counts it: in characters, or in bytes if it is not
/// UTF-8.
pub fn characters(text: &[u8]) -> usize {
    std::str::from_utf8(text).map_or(text.len(), |text| text.chars().count())
}
