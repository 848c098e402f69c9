//! The manifest of a migration, with a builder, independent of the contract version that the module
//! was built for. Owns the data types; `bbs_lens::layout::history` has the rules.

use crate::schema::{Column, Index, Table};
use crate::values::Encoding;

/// The version of a layout of the database: a Unix timestamp in seconds, by Diego's convention. 0
/// is the empty database.
pub type DataVersion = u64;

/// The description of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Manifest {
    /// The version that the migration leads to; not 0.
    pub version: DataVersion,
    /// Lower-case words and digits joined by `-`; at most 64 bytes.
    pub name: String,
    /// One line for operators, of 1 to 200 bytes.
    pub summary: String,
    /// In the order in which they apply to the layout before.
    pub changes: Vec<Change>,
    /// Empty if no row function runs upwards.
    pub up: Vec<Access>,
    /// Empty if no row function runs downwards.
    pub down: Vec<Access>,
    /// If false, a database at this version or above cannot go below it.
    pub reversible: bool,
    /// Whether row functions may leave residue for the opposite direction.
    pub leaves_residue: bool,
    /// Whether row functions may remove given rows.
    pub removes_rows: bool,
}

impl Manifest {
    /// A manifest that changes nothing.
    pub fn new(version: u64, name: &str) -> Self {
        Self {
            version,
            name: name.to_owned(),
            summary: String::new(),
            changes: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            reversible: true,
            leaves_residue: false,
            removes_rows: false,
        }
    }

    /// Sets the one-line description for operators.
    #[must_use]
    pub fn summary(mut self, line: &str) -> Self {
        self.summary = line.to_owned();
        self
    }

    /// Appends a layout change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Creates a table.
    #[must_use]
    pub fn create_table(self, table: Table) -> Self {
        self.change(Change::CreateTable(table))
    }

    /// Drops a table. The host saves its rows for `down`.
    #[must_use]
    pub fn drop_table(self, table: &str) -> Self {
        self.change(Change::DropTable {
            table: table.to_owned(),
        })
    }

    /// Renames a table.
    #[must_use]
    pub fn rename_table(self, from: &str, to: &str) -> Self {
        self.change(Change::RenameTable {
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    /// Adds a column.
    #[must_use]
    pub fn add_column(self, table: &str, column: Column) -> Self {
        self.change(Change::AddColumn {
            table: table.to_owned(),
            column,
        })
    }

    /// Changes the definition of a column, which keeps its name.
    #[must_use]
    pub fn alter_column(self, table: &str, column: Column) -> Self {
        self.change(Change::AlterColumn {
            table: table.to_owned(),
            column,
        })
    }

    /// Drops a column. The host saves its values for `down`.
    #[must_use]
    pub fn drop_column(self, table: &str, column: &str) -> Self {
        self.change(Change::DropColumn {
            table: table.to_owned(),
            column: column.to_owned(),
        })
    }

    /// Renames a column.
    #[must_use]
    pub fn rename_column(self, table: &str, from: &str, to: &str) -> Self {
        self.change(Change::RenameColumn {
            table: table.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    /// Moves a column to another table of the same unit, without a row function and without
    /// decrypting it.
    #[must_use]
    pub fn move_column(self, column: &str, from: &str, to: &str) -> Self {
        self.change(Change::MoveColumn {
            column: column.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    /// Changes the primary key.
    #[must_use]
    pub fn set_primary_key<const N: usize>(self, table: &str, columns: [&str; N]) -> Self {
        self.change(Change::SetPrimaryKey {
            table: table.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
        })
    }

    /// Creates an index.
    #[must_use]
    pub fn create_index<const N: usize>(self, table: &str, name: &str, columns: [&str; N]) -> Self {
        self.change(Change::CreateIndex {
            table: table.to_owned(),
            index: Index::new(name, columns),
        })
    }

    /// Drops an index.
    #[must_use]
    pub fn drop_index(self, table: &str, index: &str) -> Self {
        self.change(Change::DropIndex {
            table: table.to_owned(),
            index: index.to_owned(),
        })
    }

    /// Declares the columns that `up` reads and writes in one table.
    #[must_use]
    pub fn up(mut self, access: Access) -> Self {
        self.up.push(access);
        self
    }

    /// Declares the columns that `down` reads and writes in one table.
    #[must_use]
    pub fn down(mut self, access: Access) -> Self {
        self.down.push(access);
        self
    }

    /// Declares that the migration cannot be taken back.
    #[must_use]
    pub fn irreversible(mut self) -> Self {
        self.reversible = false;
        self
    }

    /// Declares that row functions may leave residue for the opposite direction.
    #[must_use]
    pub fn leaves_residue(mut self) -> Self {
        self.leaves_residue = true;
        self
    }

    /// Declares that row functions may remove rows that they are given; operators see how many. The
    /// accesses that do so declare [`Access::reshapes`] as well.
    #[must_use]
    pub fn removes_rows(mut self) -> Self {
        self.removes_rows = true;
        self
    }

    /// The accesses of a direction.
    pub fn accesses(&self, direction: Direction) -> &[Access] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The encoding of the written column at a place of an access, as far as it is declared: by the
    /// write itself, or else by the last definition of the column in the changes.
    pub fn written_encoding(&self, access: &Access, place: usize) -> Option<Encoding> {
        let table = &access.table;
        let name = access.writes.get(place)?;
        let defined = || {
            self.changes.iter().rev().find_map(|change| {
                let column = match change {
                    Change::CreateTable(created) if created.name == *table => {
                        created.find_column(name)?
                    }
                    Change::AddColumn { table: on, column }
                    | Change::AlterColumn { table: on, column }
                        if on == table && column.name == *name =>
                    {
                        column
                    }
                    _ => return None,
                };
                Some(Encoding::from(column.kind))
            })
        };
        access.declared(place).or_else(defined)
    }
}

/// The direction of a step: up to newer versions or down to older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Direction {
    /// To newer versions.
    Up,
    /// To older versions.
    Down,
}

impl Direction {
    /// The direction from one version to another; up if they are the same.
    pub fn between(from: DataVersion, to: DataVersion) -> Self {
        if to >= from { Self::Up } else { Self::Down }
    }

    /// The other direction.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// One change of the layout, for the direction up. Its inverse is derived from the layout before
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[allow(
    missing_docs,
    reason = "operations and operands have the names of the contract, `sdk/wit`"
)]
pub enum Change {
    CreateTable(Table),
    DropTable {
        table: String,
    },
    RenameTable {
        from: String,
        to: String,
    },
    AddColumn {
        table: String,
        column: Column,
    },
    /// Replaces the definition of a column; the name stays.
    AlterColumn {
        table: String,
        column: Column,
    },
    DropColumn {
        table: String,
        column: String,
    },
    RenameColumn {
        table: String,
        from: String,
        to: String,
    },
    /// Moves a column to another table of the same unit. The values are not decrypted.
    MoveColumn {
        column: String,
        from: String,
        to: String,
    },
    SetPrimaryKey {
        table: String,
        columns: Vec<String>,
    },
    CreateIndex {
        table: String,
        index: Index,
    },
    DropIndex {
        table: String,
        index: String,
    },
}

/// The columns of one table that a migration reads and writes in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Access {
    /// The table's name in the target layout of the direction.
    pub table: String,
    /// The columns passed to the guest, under their names in the source layout.
    pub reads: Vec<String>,
    /// The columns returned by the guest, under their names in the target layout.
    pub writes: Vec<String>,
    /// The encodings of the written columns, as far as the author declares them, in their order;
    /// the contract does not carry them.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub encodings: Vec<Option<Encoding>>,
    /// Whether the guest may also remove, reorder or add rows.
    pub reshapes: bool,
}

/// A column that a row function returns. The encoding is required only if neither the manifest's
/// changes define the column nor the row function reads it under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    column: String,
    encoding: Option<Encoding>,
}

impl Write {
    /// A boolean column.
    pub fn boolean(column: &str) -> Self {
        Self::declared(column, Encoding::Boolean)
    }

    /// An integer column of either width.
    pub fn integer(column: &str) -> Self {
        Self::declared(column, Encoding::Integer)
    }

    /// A text column.
    pub fn text(column: &str) -> Self {
        Self::declared(column, Encoding::Text)
    }

    fn declared(column: &str, encoding: Encoding) -> Self {
        Self {
            column: column.to_owned(),
            encoding: Some(encoding),
        }
    }
}

impl From<&str> for Write {
    fn from(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            encoding: None,
        }
    }
}

impl Access {
    /// An access to a table, without columns.
    pub fn to(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            reads: Vec::new(),
            writes: Vec::new(),
            encodings: Vec::new(),
            reshapes: false,
        }
    }

    /// Adds columns that are read.
    #[must_use]
    pub fn reads<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.reads.extend(columns.into_iter().map(str::to_owned));
        self
    }

    /// Adds columns that are written.
    #[must_use]
    pub fn writes<W: Into<Write>>(mut self, columns: impl IntoIterator<Item = W>) -> Self {
        for column in columns {
            let Write { column, encoding } = column.into();
            self.writes.push(column);
            self.encodings.push(encoding);
        }
        self
    }

    /// Allows the row function to add rows, and to remove them if the manifest declares
    /// [`Manifest::removes_rows`].
    #[must_use]
    pub fn reshapes(mut self) -> Self {
        self.reshapes = true;
        self
    }

    /// The encoding that the author declares for a written column.
    fn declared(&self, place: usize) -> Option<Encoding> {
        self.encodings.get(place).copied().flatten()
    }
}
