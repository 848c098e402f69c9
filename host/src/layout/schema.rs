//! The layout of a database at one data version: tables, typed columns, keys and indexes,
//! portable over the databases. Owns the nouns; how each database spells them is `dialect`'s.

use std::collections::BTreeMap;

use serde::Serialize;

/// The column, added by a migration of ours, that names the last migration whose row function a record went through.
pub const RECORD_VERSION: &str = "record_version";

/// The tables at one data version, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    pub tables: BTreeMap<String, Table>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub primary_key: Vec<String>,
    pub indexes: Vec<Index>,
    /// The column that says which unit a row belongs to.
    pub partition_key: Option<String>,
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ColumnType,
    pub nullable: bool,
    pub default: Option<Literal>,
    pub sealing: Sealing,
}

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
    /// Up to 64 KiB where the database tells text types apart.
    Text,
    /// Up to 16 MiB.
    MediumText,
    /// Up to 4 GiB.
    LongText,
}

impl ColumnType {
    pub fn is_text(self) -> bool {
        matches!(self, Self::Varchar(_) | Self::Text | Self::MediumText | Self::LongText)
    }
}

/// How the bytes of a text column rest in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sealing {
    /// As they are.
    Plain,
    /// Encrypted. Used for JSON.
    Sealed,
    /// Encrypted, behind Diego's two-byte envelope header. Used for protobuf messages.
    Enveloped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Literal {
    Boolean(bool),
    Integer(i64),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Index {
    pub name: String,
    pub columns: Vec<String>,
}
