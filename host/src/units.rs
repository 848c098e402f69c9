//! Units between the database and memory: their rows at one layout as columns, taken through a lens, and written back
//! as a difference. What the store does when the data is of another version than its handlers, and what a migration
//! does when it writes to old tables and new ones at once.
//!
//! Owns loading, opening, sealing and replacing whole units; decides neither which units, nor when, nor what changes.

mod batch;
mod capacity;
mod compare;
pub mod digest;
mod key;
mod read;
mod replace;
pub mod residue;

use crate::database::SqlError;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
pub use crate::layout::schema::RECORD_VERSION;
use crate::lens::LensError;
use crate::record::RecordError;

pub use batch::{Batch, Content, Held, Rows, Transformed, transform};
pub use capacity::Capacity;
pub use compare::{Cell, differing};
pub use key::{Key, name, operand, unit_column};
pub use read::{Wanted, load, load_locked};
pub use replace::replace;

use std::collections::BTreeMap;

/// A layout, and the names under which its tables rest.
#[derive(Debug, Clone)]
pub struct Place {
    pub layout: Layout,
    /// Only where it is not the table's own.
    names: BTreeMap<String, String>,
    /// What a row gets that is written, where its table has such a column.
    record_version: Option<DataVersion>,
}

impl Place {
    pub fn new(layout: Layout) -> Self {
        Self { layout, names: BTreeMap::new(), record_version: None }
    }

    /// Marks each row that is written as having gone through this migration, the newest that transforms rows.
    #[must_use]
    pub fn stamping(mut self, record_version: DataVersion) -> Self {
        self.record_version = Some(record_version);
        self
    }

    /// The same layout in tables of other names, such as those that a migration is filling.
    #[must_use]
    pub fn named(mut self, names: BTreeMap<String, String>) -> Self {
        self.names = names;
        self
    }

    pub fn name<'a>(&'a self, table: &'a str) -> &'a str {
        self.names.get(table).map_or(table, String::as_str)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UnitsError {
    #[error("cannot read or write the rows of {table}")]
    Rows { table: String, source: SqlError },
    #[error("cannot read or write what was kept of records in bbs_residue")]
    Residue(#[source] SqlError),
    #[error("bbs_residue has a damaged entry for unit {unit:?}; delete it to go on without what it kept")]
    DamagedResidue { unit: String },
    #[error("what was kept of unit {unit:?} in bbs_residue does not open; add its key, or delete the entry")]
    SealedResidue { unit: String, source: RecordError },
    /// `unit` is its place in the batch.
    #[error("column {column} of table {table} does not open")]
    Sealed { unit: usize, table: String, column: String, source: RecordError },
    #[error(transparent)]
    Lens(Box<LensError>),
    #[error("the work was interrupted; the host is stopping")]
    Interrupted,
    #[error("the value is longer than {table}.{column} holds")]
    TooLong { table: String, column: String },
}

impl UnitsError {
    /// Whether the same work, done again from the start of its transaction, may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rows { source, .. } | Self::Residue(source) if crate::database::is_transient(source))
    }

    /// The place in the batch of the one unit at fault, where it is one unit's.
    pub fn unit(&self) -> Option<usize> {
        match self {
            Self::Sealed { unit, .. } => Some(*unit),
            Self::Lens(fault) => Some(fault.unit()),
            Self::Rows { .. }
            | Self::Residue(_)
            | Self::DamagedResidue { .. }
            | Self::SealedResidue { .. }
            | Self::Interrupted
            | Self::TooLong { .. } => None,
        }
    }
}
