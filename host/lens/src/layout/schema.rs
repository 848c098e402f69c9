//! The layout of a database at one data version: tables, typed columns, keys and indexes,
//! independent of the database's dialect. Owns the data types; `database` renders them as SQL.

use std::collections::BTreeMap;

use serde::Serialize;

/// The column that holds the version of the last migration whose row function has processed the
/// record. Added by a migration of this project; Diego has no such column.
pub const RECORD_VERSION: &str = "record_version";

/// Columns that are set when a record is made, and that no change of the record changes: with
/// another value, it is another record under the same key. Those of Diego's modification tags, and
/// of tasks.
const SET_ONCE: [&str; 2] = ["modification_tag_epoch", "created_at"];

/// The tables at one data version, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// By name; the same names as in the tables.
    pub tables: BTreeMap<String, Table>,
}

/// A table of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// At most 63 lower-case letters, digits and single underscores, beginning with a letter.
    pub name: String,
    /// At least one, with unique names.
    pub columns: Vec<Column>,
    /// The key's columns, in order. At least one; none is nullable or encrypted.
    pub primary_key: Vec<String>,
    /// With names that are unique in the layout.
    pub indexes: Vec<Index>,
    /// The column whose value identifies the unit of a row. Without it, the table has no units.
    pub partition_key: Option<String>,
}

impl Table {
    /// Whether the table has the record that a unit belongs to: one row for each unit, with an
    /// identity.
    pub fn identifies_units(&self) -> bool {
        let is_key = |key: &String| self.primary_key == std::slice::from_ref(key);
        self.partition_key.as_ref().is_some_and(is_key)
            && self.columns.iter().any(Column::is_identity)
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Under the same rules as a table's name.
    pub name: String,
    /// The portable type; each database has its own name for it.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// Whether the column accepts NULL.
    pub nullable: bool,
    /// The value where none is written; NULL if absent. Encrypted columns have none.
    pub default: Option<Literal>,
    /// How the bytes are stored. Only text can be encrypted.
    pub sealing: Sealing,
}

impl Column {
    /// Whether another record under the same key has another value here.
    pub fn is_identity(&self) -> bool {
        SET_ONCE.contains(&self.name.as_str()) && self.sealing == Sealing::Plain
    }

    /// Whether it holds the version of the last migration that its record went through: the host
    /// sets it whenever it writes the record.
    pub fn is_record_version(&self) -> bool {
        self.name == RECORD_VERSION
            && matches!(self.kind, ColumnType::Integer | ColumnType::BigInteger)
    }
}

/// The type of a column, as declared in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// True or false; an integer, 0 or 1, in SQLite and MySQL.
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
        matches!(
            self,
            Self::Varchar(_) | Self::Text | Self::MediumText | Self::LongText
        )
    }
}

/// How a text column is stored in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sealing {
    /// Unencrypted.
    Plain,
    /// Encrypted. Used for JSON.
    Sealed,
    /// Encrypted, behind Diego's two-byte envelope header. Used for protobuf messages.
    Enveloped,
}

/// The default of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the variants are the encodings of a column")]
pub enum Literal {
    Boolean(bool),
    Integer(i64),
    Text(String),
}

/// An index of a table. Not unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Index {
    /// Unique in the layout.
    pub name: String,
    /// In order; at least one.
    pub columns: Vec<String>,
}
