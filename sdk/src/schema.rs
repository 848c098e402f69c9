//! The parts of a layout (tables, columns, indexes), with builders. Independent of any database.

/// A column's portable type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// 32 bits, signed.
    Integer,
    /// 64 bits, signed.
    BigInteger,
    /// Text of at most this many characters, usable in keys and indexes.
    Varchar(u32),
    /// Text of up to 64 KiB.
    Text,
    /// Text of up to 16 MiB.
    MediumText,
    /// Text of up to 4 GiB.
    LongText,
}

impl ColumnType {
    /// The form in which values of this type cross between host and guest.
    pub fn kind(self) -> Kind {
        match self {
            Self::Boolean => Kind::Boolean,
            Self::Integer | Self::BigInteger => Kind::Integer,
            Self::Varchar(_) | Self::Text | Self::MediumText | Self::LongText => Kind::Text,
        }
    }
}

/// The three forms of column values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One bit.
    Boolean,
    /// A 64-bit signed integer, for integer columns of either width.
    Integer,
    /// Bytes.
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

/// How a text column is stored. A migration always sees the plain bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sealing {
    /// Unencrypted.
    #[default]
    Plain,
    /// Encrypted. Used for JSON.
    Sealed,
    /// Encrypted, behind Diego's two-byte header. Used for protobuf messages.
    Enveloped,
}

/// A constant as a column's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A text.
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

/// A column. By default required, without a default value, and not encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The column's name, in ASCII.
    pub name: String,
    /// Its type.
    pub kind: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// The value of rows that do not provide one.
    pub default: Option<Literal>,
    /// How its values are stored.
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
}

/// A non-unique index over columns of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The index's name, unique in the database.
    pub name: String,
    /// The columns, in order.
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

/// A table. Without a partition key it is copied row by row and cannot have a row function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's name, in ASCII.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// The columns of its primary key, in order; at least one.
    pub primary_key: Vec<String>,
    /// Its indexes besides the primary key.
    pub indexes: Vec<Index>,
    /// The column that determines the unit of a row.
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
}
