//! The parts of a layout (tables, typed columns, keys and indexes), with builders. Independent of
//! any database.

/// The column that holds the version of the last migration whose row function has processed the
/// record. Added by a migration of this project; Diego has no such column.
pub const RECORD_VERSION: &str = "record_version";

/// Columns that are set when a record is made, and that no change of the record changes: with
/// another value, it is another record under the same key. Those of Diego's modification tags, and
/// of tasks.
const SET_ONCE: [&str; 2] = ["modification_tag_epoch", "created_at"];

/// A table of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    /// A table without columns.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            partition_key: None,
        }
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the primary key.
    #[must_use]
    pub fn primary_key<const N: usize>(mut self, columns: [&str; N]) -> Self {
        self.primary_key = columns.map(str::to_owned).to_vec();
        self
    }

    /// Adds an index.
    #[must_use]
    pub fn index<const N: usize>(mut self, name: &str, columns: [&str; N]) -> Self {
        self.indexes.push(Index::new(name, columns));
        self
    }

    /// Sets the column that determines the unit of a row.
    #[must_use]
    pub fn partition_key(mut self, column: &str) -> Self {
        self.partition_key = Some(column.to_owned());
        self
    }

    /// Whether the table has the record that a unit belongs to: one row for each unit, with an
    /// identity.
    pub fn identifies_units(&self) -> bool {
        let is_key = |key: &String| self.primary_key == std::slice::from_ref(key);
        self.partition_key.as_ref().is_some_and(is_key)
            && self.columns.iter().any(Column::is_identity)
    }

    /// The column of this name.
    pub fn find_column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Column {
    /// Under the same rules as a table's name.
    pub name: String,
    /// The portable type; each database has its own name for it.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: ColumnType,
    /// Whether the column accepts NULL.
    pub nullable: bool,
    /// The value where none is written; NULL if absent. Encrypted columns have none.
    pub default: Option<Literal>,
    /// How the bytes are stored. Only text can be encrypted.
    pub sealing: Sealing,
}

impl Column {
    /// A column of this type.
    pub fn new(name: &str, kind: ColumnType) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            nullable: false,
            default: None,
            sealing: Sealing::Plain,
        }
    }

    /// A boolean column.
    pub fn boolean(name: &str) -> Self {
        Self::new(name, ColumnType::Boolean)
    }

    /// 32 bits, signed.
    pub fn integer(name: &str) -> Self {
        Self::new(name, ColumnType::Integer)
    }

    /// 64 bits, signed.
    pub fn big_integer(name: &str) -> Self {
        Self::new(name, ColumnType::BigInteger)
    }

    /// Text of at most `length` characters, usable in keys and indexes.
    pub fn varchar(name: &str, length: u32) -> Self {
        Self::new(name, ColumnType::Varchar(length))
    }

    /// Text of up to 64 KiB.
    pub fn text(name: &str) -> Self {
        Self::new(name, ColumnType::Text)
    }

    /// Text of up to 16 MiB.
    pub fn medium_text(name: &str) -> Self {
        Self::new(name, ColumnType::MediumText)
    }

    /// Text of up to 4 GiB.
    pub fn long_text(name: &str) -> Self {
        Self::new(name, ColumnType::LongText)
    }

    /// Allows NULL.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Sets the default value.
    #[must_use]
    pub fn default(mut self, literal: impl Into<Literal>) -> Self {
        self.default = Some(literal.into());
        self
    }

    /// Encrypts the values; for JSON.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.sealing = Sealing::Sealed;
        self
    }

    /// Encrypts the values behind Diego's header; for protobuf messages.
    #[must_use]
    pub fn enveloped(mut self) -> Self {
        self.sealing = Sealing::Enveloped;
        self
    }

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Sealing {
    /// Unencrypted.
    #[default]
    Plain,
    /// Encrypted. Used for JSON.
    Sealed,
    /// Encrypted, behind Diego's two-byte envelope header. Used for protobuf messages.
    Enveloped,
}

/// The default of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
#[allow(missing_docs, reason = "the variants are the encodings of a column")]
pub enum Literal {
    Boolean(bool),
    Integer(i64),
    Text(String),
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// An index of a table. Not unique.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Index {
    /// Unique in the layout.
    pub name: String,
    /// In order; at least one.
    pub columns: Vec<String>,
}

impl Index {
    /// An index over these columns.
    pub fn new<const N: usize>(name: &str, columns: [&str; N]) -> Self {
        Self {
            name: name.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
        }
    }
}
