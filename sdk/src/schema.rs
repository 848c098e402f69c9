//! The nouns of a layout (tables, columns, indexes) with builders that read like a page. Knows
//! nothing of how a database spells them.

/// A column's portable type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Boolean,
    /// 32 bits, signed.
    Integer,
    /// 64 bits, signed.
    BigInteger,
    /// At most this many characters, usable in keys and indexes.
    Varchar(u32),
    /// Up to 64 KiB.
    Text,
    /// Up to 16 MiB.
    MediumText,
    /// Up to 4 GiB.
    LongText,
}

impl ColumnType {
    /// How values of this type cross between host and guest.
    pub fn kind(self) -> Kind {
        match self {
            Self::Boolean => Kind::Boolean,
            Self::Integer | Self::BigInteger => Kind::Integer,
            Self::Varchar(_) | Self::Text | Self::MediumText | Self::LongText => Kind::Text,
        }
    }
}

/// The three shapes that a column's values can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Integer,
    Text,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Text => "text",
        })
    }
}

/// How a text column rests in the database. A migration always sees the plain bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sealing {
    /// As they are.
    #[default]
    Plain,
    /// Encrypted. Used for JSON.
    Sealed,
    /// Encrypted, behind Diego's two-byte header. Used for protobuf messages.
    Enveloped,
}

/// A constant that fills a column.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// A column. Not nullable, without default and plain unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnType,
    pub nullable: bool,
    pub default: Option<Literal>,
    pub sealing: Sealing,
}

impl Column {
    pub fn new(name: &str, kind: ColumnType) -> Self {
        Self { name: name.to_owned(), kind, nullable: false, default: None, sealing: Sealing::Plain }
    }

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

    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    #[must_use]
    pub fn default(mut self, literal: impl Into<Literal>) -> Self {
        self.default = Some(literal.into());
        self
    }

    /// Encrypted at rest; for JSON.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.sealing = Sealing::Sealed;
        self
    }

    /// Encrypted at rest behind Diego's header; for protobuf messages.
    #[must_use]
    pub fn enveloped(mut self) -> Self {
        self.sealing = Sealing::Enveloped;
        self
    }
}

/// An index over columns of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub name: String,
    pub columns: Vec<String>,
}

impl Index {
    pub fn new<const N: usize>(name: &str, columns: [&str; N]) -> Self {
        Self { name: name.to_owned(), columns: columns.map(str::to_owned).to_vec() }
    }
}

/// A table. Without a partition key it is copied row by row and can have no row function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub primary_key: Vec<String>,
    pub indexes: Vec<Index>,
    pub partition_key: Option<String>,
}

impl Table {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            partition_key: None,
        }
    }

    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    #[must_use]
    pub fn primary_key<const N: usize>(mut self, columns: [&str; N]) -> Self {
        self.primary_key = columns.map(str::to_owned).to_vec();
        self
    }

    #[must_use]
    pub fn index<const N: usize>(mut self, name: &str, columns: [&str; N]) -> Self {
        self.indexes.push(Index::new(name, columns));
        self
    }

    /// The column that says which unit a row belongs to.
    #[must_use]
    pub fn partition_key(mut self, column: &str) -> Self {
        self.partition_key = Some(column.to_owned());
        self
    }
}
