//! What a migration says about itself, with a builder that reads like a page. Acts on nothing: the
//! host plans with it, and [`crate::transform`] shows a row function what it declares.

use crate::schema::{Column, Index, Kind, Table};

/// Which way a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
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

/// What a migration says about itself. Reversible and without residue unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The data version that the step leads to: a timestamp.
    pub version: u64,
    /// Lower-case words joined by `-`.
    pub name: String,
    /// One line for an operator.
    pub summary: String,
    pub changes: Vec<Change>,
    /// Empty where no row function runs upwards.
    pub up: Vec<Access>,
    /// Empty where no row function runs downwards.
    pub down: Vec<Access>,
    pub reversible: bool,
    pub leaves_residue: bool,
}

/// One change of the layout, as it reads upwards. The host derives the way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    CreateTable(Table),
    DropTable { table: String },
    RenameTable { from: String, to: String },
    AddColumn { table: String, column: Column },
    AlterColumn { table: String, column: Column },
    DropColumn { table: String, column: String },
    RenameColumn { table: String, from: String, to: String },
    MoveColumn { column: String, from: String, to: String },
    SetPrimaryKey { table: String, columns: Vec<String> },
    CreateIndex { table: String, index: Index },
    DropIndex { table: String, index: String },
}

/// What one direction touches in one table. Nothing else is opened, decoded or shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The table's name after the step, in the direction in which it goes.
    pub table: String,
    /// Columns given to the row function, under their names before the step.
    pub reads: Vec<String>,
    /// Columns it returns, under their names after the step.
    pub writes: Vec<Write>,
    pub reshapes: bool,
}

/// A column that a row function returns. `kind` is needed only where the SDK cannot know it: the
/// column is neither defined by the manifest's own changes nor read under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub column: String,
    pub kind: Option<Kind>,
}

impl Write {
    pub fn boolean(column: &str) -> Self {
        Self { column: column.to_owned(), kind: Some(Kind::Boolean) }
    }

    pub fn integer(column: &str) -> Self {
        Self { column: column.to_owned(), kind: Some(Kind::Integer) }
    }

    pub fn text(column: &str) -> Self {
        Self { column: column.to_owned(), kind: Some(Kind::Text) }
    }
}

impl From<&str> for Write {
    fn from(column: &str) -> Self {
        Self { column: column.to_owned(), kind: None }
    }
}

impl Access {
    pub fn to(table: &str) -> Self {
        Self { table: table.to_owned(), reads: Vec::new(), writes: Vec::new(), reshapes: false }
    }

    #[must_use]
    pub fn reads<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.reads.extend(columns.into_iter().map(str::to_owned));
        self
    }

    #[must_use]
    pub fn writes<W: Into<Write>>(mut self, columns: impl IntoIterator<Item = W>) -> Self {
        self.writes.extend(columns.into_iter().map(Into::into));
        self
    }

    /// The row function may also remove and add rows.
    #[must_use]
    pub fn reshapes(mut self) -> Self {
        self.reshapes = true;
        self
    }
}

impl Manifest {
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
        }
    }

    #[must_use]
    pub fn summary(mut self, line: &str) -> Self {
        self.summary = line.to_owned();
        self
    }

    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    #[must_use]
    pub fn create_table(self, table: Table) -> Self {
        self.change(Change::CreateTable(table))
    }

    #[must_use]
    pub fn drop_table(self, table: &str) -> Self {
        self.change(Change::DropTable { table: table.to_owned() })
    }

    #[must_use]
    pub fn rename_table(self, from: &str, to: &str) -> Self {
        self.change(Change::RenameTable { from: from.to_owned(), to: to.to_owned() })
    }

    #[must_use]
    pub fn add_column(self, table: &str, column: Column) -> Self {
        self.change(Change::AddColumn { table: table.to_owned(), column })
    }

    /// A column's new definition under its old name.
    #[must_use]
    pub fn alter_column(self, table: &str, column: Column) -> Self {
        self.change(Change::AlterColumn { table: table.to_owned(), column })
    }

    #[must_use]
    pub fn drop_column(self, table: &str, column: &str) -> Self {
        self.change(Change::DropColumn { table: table.to_owned(), column: column.to_owned() })
    }

    #[must_use]
    pub fn rename_column(self, table: &str, from: &str, to: &str) -> Self {
        self.change(Change::RenameColumn { table: table.to_owned(), from: from.to_owned(), to: to.to_owned() })
    }

    /// To another table of the same unit, without a row function and without opening the value.
    #[must_use]
    pub fn move_column(self, column: &str, from: &str, to: &str) -> Self {
        self.change(Change::MoveColumn { column: column.to_owned(), from: from.to_owned(), to: to.to_owned() })
    }

    #[must_use]
    pub fn set_primary_key<const N: usize>(self, table: &str, columns: [&str; N]) -> Self {
        self.change(Change::SetPrimaryKey { table: table.to_owned(), columns: columns.map(str::to_owned).to_vec() })
    }

    #[must_use]
    pub fn create_index<const N: usize>(self, table: &str, name: &str, columns: [&str; N]) -> Self {
        self.change(Change::CreateIndex { table: table.to_owned(), index: Index::new(name, columns) })
    }

    #[must_use]
    pub fn drop_index(self, table: &str, index: &str) -> Self {
        self.change(Change::DropIndex { table: table.to_owned(), index: index.to_owned() })
    }

    /// What `up` touches in one table.
    #[must_use]
    pub fn up(mut self, access: Access) -> Self {
        self.up.push(access);
        self
    }

    /// What `down` touches in one table.
    #[must_use]
    pub fn down(mut self, access: Access) -> Self {
        self.down.push(access);
        self
    }

    /// There is no way back.
    #[must_use]
    pub fn irreversible(mut self) -> Self {
        self.reversible = false;
        self
    }

    /// A step hands the host bytes to keep for the way back.
    #[must_use]
    pub fn leaves_residue(mut self) -> Self {
        self.leaves_residue = true;
        self
    }

    pub fn accesses(&self, direction: Direction) -> &[Access] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The kind of a written column, where declarations tell it: the write itself, else the
    /// column's last definition in the changes.
    pub(crate) fn written_kind(&self, table: &str, write: &Write) -> Option<Kind> {
        let defined = || {
            self.changes.iter().rev().find_map(|change| {
                let column = match change {
                    Change::CreateTable(created) if created.name == table => {
                        created.columns.iter().find(|column| column.name == write.column)?
                    }
                    Change::AddColumn { table: on, column } | Change::AlterColumn { table: on, column }
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
