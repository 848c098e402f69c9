//! The layout of a database at one data version: tables, typed columns, keys and indexes, independent of the database's
//! dialect. Owns the data types; `database` renders them as SQL.

use std::collections::BTreeMap;

use serde::Serialize;

pub use bbs_encryption::Sealing;

/// The column that holds the version of the last migration whose row function has processed the record. Added by a
/// migration of this project; Diego has no such column.
pub const RECORD_VERSION: &str = "record_version";

/// The tables at one data version, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    pub tables: BTreeMap<String, Table>,
}

/// A table of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub primary_key: Vec<String>,
    pub indexes: Vec<Index>,
    /// The column whose value identifies the unit of a row. Without it, the table has no units.
    pub partition_key: Option<String>,
}

impl Table {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ColumnType,
    pub nullable: bool,
    pub default: Option<Literal>,
    pub sealing: Sealing,
}

/// The type of a column, as declared in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    Boolean,
    /// 32 bits, signed.
    Integer,
    /// 64 bits, signed.
    BigInteger,
    /// At most this many characters.
    Varchar(u32),
    /// Up to 64 KiB on MySQL and MariaDB; without a declared limit on the others.
    Text,
    /// As `Text`, up to 16 MiB.
    MediumText,
    /// As `Text`, up to 4 GiB.
    LongText,
}

impl ColumnType {
    /// Whether it is one of the text types.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Varchar(_) | Self::Text | Self::MediumText | Self::LongText)
    }
}

/// The default of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Literal {
    Boolean(bool),
    Integer(i64),
    Text(String),
}

/// An index of a table. Not unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Index {
    pub name: String,
    pub columns: Vec<String>,
}
