//! Units of rows between the database and memory: loaded as columns, taken through a lens,
//! compared, and written. Used alike by migrations, reads and writes through a lens, checks and
//! quarantine.
//!
//! Owns loading, opening, sealing and writing whole units and their residue. Decides neither which
//! units, nor when, nor what changes.
//!
//! A row has four representations on its way: a [`bbs_database::Row`] as the driver returns it;
//! columns of [`TableRows`], sealed as stored or plain, from there through a lens to the statement
//! that writes them; columns of a [`bbs_lens::layout::columns::Batch`], the plain ones that a
//! module reads, with an [`bbs_lens::layout::columns::Outcome`] back; and the bytes of that
//! statement ([`bbs_database::bulk`]).

mod batch;
mod capacity;
mod diff;
mod index;
mod key;
mod load;
mod paging;
pub mod residue;
mod storable;
mod transform;
mod write;

use std::collections::BTreeMap;

use bbs_encryption::EncryptionError;
use bbs_lens::LensError;
use bbs_lens::layout::manifest::{Change, DataVersion, Manifest};
use bbs_lens::layout::schema::Layout;

use bbs_database::{SqlError, is_repeatable};
pub use bbs_lens::layout::schema::RECORD_VERSION;

pub use batch::{UnitBatch, opened, sealed};
pub use bbs_lens::{BatchColumn, OwnedValue, TableRows};
pub use capacity::Capacity;
pub use diff::{Difference, differences, matched, same};
pub use index::{places_among, units_among, units_where};
pub use key::{
    KeyColumn, UnitKey, collation_class, is_one_of, is_unit, key_columns, operand, unit_column,
    unit_key, within,
};
pub use load::{ByteLimits, KeyRange, RowLock, WantedColumns, load, load_range, load_within};
pub use paging::{Bounds, Measure, UnitPage, UnitSource, next_units, select_units, text_length};
pub use storable::{Unstorable, flaws, refused_residue, refused_row};
pub use transform::{Passage, Transformed, halves, whole};
pub use write::{copy_range, replace};

/// A layout, and the names of its tables in the database.
#[derive(Debug, Clone)]
pub struct Place {
    pub layout: Layout,
    /// Only names that differ from the layout's.
    names: BTreeMap<String, String>,
    /// The record version of rows that are written, by table.
    record_versions: RecordVersions,
}

/// The newest migration whose row function ran over each table: the record version of its new rows.
/// By table, so that a migration leaves no mark in tables that it does not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordVersions(BTreeMap<String, DataVersion>);

impl RecordVersions {
    /// At a version, where the migrations of these manifests ran, oldest first.
    pub fn at<'a>(manifests: impl IntoIterator<Item = &'a Manifest>, version: DataVersion) -> Self {
        let mut versions = BTreeMap::new();
        for manifest in manifests
            .into_iter()
            .take_while(|manifest| manifest.version <= version)
        {
            for change in &manifest.changes {
                if let Change::RenameTable { from, to } = change
                    && let Some(version) = versions.remove(from)
                {
                    versions.insert(to.clone(), version);
                }
            }
            let transformed = manifest
                .up
                .iter()
                .filter(|access| !access.writes.is_empty() || access.reshapes);
            versions.extend(transformed.map(|access| (access.table.clone(), manifest.version)));
        }
        Self(versions)
    }

    /// The record version of new rows of a table; none if no row function has run over it.
    pub fn of(&self, table: &str) -> Option<DataVersion> {
        self.0.get(table).copied()
    }
}

impl FromIterator<(String, DataVersion)> for RecordVersions {
    fn from_iter<T: IntoIterator<Item = (String, DataVersion)>>(versions: T) -> Self {
        Self(versions.into_iter().collect())
    }
}

impl Place {
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            names: BTreeMap::new(),
            record_versions: RecordVersions::default(),
        }
    }

    /// Marks each row that is written with these record versions.
    #[must_use]
    pub fn stamping(mut self, record_versions: RecordVersions) -> Self {
        self.record_versions = record_versions;
        self
    }

    /// Its layout in tables with other names, such as those that a migration fills.
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
pub enum RowsError {
    #[error("cannot read or write the rows of {table}")]
    Rows { table: String, source: SqlError },
    #[error("cannot read or write the residue of records in bbs_residue")]
    Residue(#[source] SqlError),
    #[error(
        "bbs_residue has a damaged entry for unit {unit:?}; delete that row to continue without its residue"
    )]
    DamagedResidue { unit: String },
    #[error(
        "the residue of unit {unit:?} in bbs_residue cannot be decrypted; add its key to `encryption_keys`, or delete its rows there to \
         continue without it"
    )]
    SealedResidue {
        unit: String,
        source: EncryptionError,
    },
    #[error("the residue of {units} units in bbs_residue has more than {limit} bytes")]
    ResidueTooLarge { units: usize, limit: usize },
    #[error("column {column} of table {table} does not open")]
    Sealed {
        table: String,
        column: String,
        source: EncryptionError,
    },
    #[error(transparent)]
    Lens(Box<LensError>),
    #[error("the work was interrupted; the host is stopping")]
    Interrupted,
    #[error(transparent)]
    Unstorable(Box<Unstorable>),
    #[error("the value is longer than {table}.{column} holds")]
    TooLong { table: String, column: String },
    #[error(
        "unit {unit:?} has {bytes} bytes, above the limit of {limit}; make it smaller, then start again"
    )]
    UnitTooLarge {
        unit: String,
        bytes: u64,
        limit: u64,
    },
    #[error("{units} units have more than {limit} bytes together")]
    UnitsTooLarge { units: usize, limit: u64 },
    #[error(
        "the units of table {table} are not in order: {next:?} comes after {key:?}. Look for keys of another type than their column"
    )]
    Unordered {
        table: String,
        key: String,
        next: String,
    },
    #[error(
        "table {table} was written to while it was copied; stop what writes to it, then start again"
    )]
    WrittenMeanwhile { table: String },
}

impl RowsError {
    /// Whether it is not known which of several units is at fault: the same work for fewer of them
    /// succeeds, or shows it.
    pub fn is_of_several_units(&self) -> bool {
        match self {
            Self::Lens(fault) => fault.is_of_several_units(),
            Self::ResidueTooLarge { .. } | Self::UnitsTooLarge { .. } => true,
            _ => false,
        }
    }

    /// Whether a module is at fault, whatever the units.
    pub fn is_of_module(&self) -> bool {
        matches!(self, Self::Lens(fault) if fault.is_of_module())
    }

    /// Whether the same work may succeed if it is retried from the start of its transaction.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rows { source, .. } | Self::Residue(source) if is_repeatable(source))
    }
}

fn failed(table: &str) -> impl FnOnce(SqlError) -> RowsError {
    move |source| RowsError::Rows {
        table: table.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
