//! The manifest of a migration, with a builder. Only declares: the host plans with it, and
//! [`crate::transform()`] shows a row function the columns that it declares.

use crate::schema::{Column, Index, Kind, Table};

/// The direction of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the version before to the migration's version.
    Up,
    /// From the migration's version to the version before.
    Down,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// The declarations of a migration. Reversible, without residue and without removed rows by
/// default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The data version that the migration leads to: a timestamp in seconds.
    pub version: u64,
    /// Lower-case words joined by `-`.
    pub name: String,
    /// One line for operators.
    pub summary: String,
    /// The layout changes, in order.
    pub changes: Vec<Change>,
    /// The accesses of `up`; empty if it has no row function.
    pub up: Vec<Access>,
    /// The accesses of `down`; empty if it has no row function.
    pub down: Vec<Access>,
    /// Whether the migration can be taken back.
    pub reversible: bool,
    /// Whether row functions may leave residue.
    pub leaves_residue: bool,
    /// Whether row functions may remove rows that they are given.
    pub removes_rows: bool,
}

/// One layout change, in the direction up. The host derives its inverse.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names describe the variants and fields")]
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

/// The columns of one table that one direction reads and writes. No other column is decrypted,
/// decoded or passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The table's name after the migration, in the given direction.
    pub table: String,
    /// Columns passed to the row function, with their names before the migration.
    pub reads: Vec<String>,
    /// Columns that it returns, with their names after the migration.
    pub writes: Vec<Write>,
    /// Whether the row function may add and remove rows.
    pub reshapes: bool,
}

/// A column that a row function returns. `kind` is required only if neither the manifest's changes
/// define the column nor the row function reads it under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The column's name after the migration.
    pub column: String,
    /// The kind of its values, if declared.
    pub kind: Option<Kind>,
}

impl Write {
    /// A boolean column.
    pub fn boolean(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            kind: Some(Kind::Boolean),
        }
    }

    /// An integer column of either width.
    pub fn integer(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            kind: Some(Kind::Integer),
        }
    }

    /// A text column.
    pub fn text(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            kind: Some(Kind::Text),
        }
    }
}

impl From<&str> for Write {
    fn from(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            kind: None,
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
        self.writes.extend(columns.into_iter().map(Into::into));
        self
    }

    /// Allows the row function to add rows, and to remove them if the manifest declares
    /// [`Manifest::removes_rows`].
    #[must_use]
    pub fn reshapes(mut self) -> Self {
        self.reshapes = true;
        self
    }
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

    /// The kind of a written column as far as it is declared: by the write itself, or else by the
    /// last definition of the column in the changes.
    pub(crate) fn written_kind(&self, table: &str, write: &Write) -> Option<Kind> {
        let defined = || {
            self.changes.iter().rev().find_map(|change| {
                let column = match change {
                    Change::CreateTable(created) if created.name == table => created
                        .columns
                        .iter()
                        .find(|column| column.name == write.column)?,
                    Change::AddColumn { table: on, column }
                    | Change::AlterColumn { table: on, column }
                        if on == table && column.name == write.column =>
                    {
                        column
                    }
                    _ => return None,
                };
                Some(column.kind.kind())
            })
        };
        write.kind.or_else(defined)
    }
}
