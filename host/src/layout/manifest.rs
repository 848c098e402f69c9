//! What a migration says about itself, as the host keeps it whatever contract version the
//! module was built for. Owns the shape of a manifest and nothing that acts on one.

use serde::Serialize;

use super::schema::{Column, Index, Table};

/// An integer, in fact a timestamp, that names a layout of the database.
pub type DataVersion = u64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    pub version: DataVersion,
    pub name: String,
    pub summary: String,
    pub changes: Vec<Change>,
    /// Empty where no row function runs upwards.
    pub up: Vec<Access>,
    /// Empty where no row function runs downwards.
    pub down: Vec<Access>,
    pub reversible: bool,
    pub leaves_residue: bool,
}

impl Manifest {
    pub fn accesses(&self, direction: Direction) -> &[Access] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Up,
    Down,
}

impl Direction {
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
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// One change of the layout, as it reads upwards. The way back is derived from the layout before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// A column's new definition under its old name.
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
    /// To another table of the same unit, without opening the value.
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

/// What one direction of a migration touches in one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The table's name after the step, in the direction in which it goes.
    pub table: String,
    /// Columns given to the guest, under their names before the step.
    pub reads: Vec<String>,
    /// Columns the guest returns, under their names after the step.
    pub writes: Vec<String>,
    /// Whether the guest may also remove, reorder or add rows.
    pub reshapes: bool,
}
