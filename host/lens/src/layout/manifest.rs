//! The manifest of a migration, independent of the contract version that the module was built for.
//! Owns the data types; the rules are in `history`.

use serde::Serialize;

use super::schema::{Column, Index, Table};

/// The version of a layout of the database: a Unix timestamp in seconds, by Diego's convention. 0
/// is the empty database.
pub type DataVersion = u64;

/// The description of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// The accesses of a direction.
    pub fn accesses(&self, direction: Direction) -> &[Access] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// The direction of a step: up to newer versions or down to older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The table's name in the target layout of the direction.
    pub table: String,
    /// The columns passed to the guest, under their names in the source layout.
    pub reads: Vec<String>,
    /// The columns returned by the guest, under their names in the target layout.
    pub writes: Vec<String>,
    /// Whether the guest may also remove, reorder or add rows.
    pub reshapes: bool,
}
