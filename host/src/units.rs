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
use crate::layout::manifest::{Change, DataVersion, Manifest};
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
    record_versions: RecordVersions,
}

/// The newest migration whose row function went over each table: what a new row of it is marked with. Per table, so that
/// going back below a migration leaves no mark of it in a table that it had nothing to do with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordVersions(BTreeMap<String, DataVersion>);

impl RecordVersions {
    /// At a version of the line of these manifests, oldest first.
    pub fn at<'a>(manifests: impl IntoIterator<Item = &'a Manifest>, version: DataVersion) -> Self {
        let mut versions = BTreeMap::new();
        for manifest in manifests.into_iter().take_while(|manifest| manifest.version <= version) {
            for change in &manifest.changes {
                if let Change::RenameTable { from, to } = change
                    && let Some(version) = versions.remove(from)
                {
                    versions.insert(to.clone(), version);
                }
            }
            let transformed = manifest.up.iter().filter(|access| !access.writes.is_empty() || access.reshapes);
            versions.extend(transformed.map(|access| (access.table.clone(), manifest.version)));
        }
        Self(versions)
    }

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
        Self { layout, names: BTreeMap::new(), record_versions: RecordVersions::default() }
    }

    /// Marks each row that is written as having gone through the migrations up to here.
    #[must_use]
    pub fn stamping(mut self, record_versions: RecordVersions) -> Self {
        self.record_versions = record_versions;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::manifest::Access;

    fn manifest(version: DataVersion, changes: Vec<Change>, writes: &[(&str, &[&str])]) -> Manifest {
        let access = |(table, writes): &(&str, &[&str])| Access {
            table: (*table).to_owned(),
            reads: vec!["a".to_owned()],
            writes: writes.iter().map(|&name| name.to_owned()).collect(),
            reshapes: false,
        };
        let up = writes.iter().map(access).collect();
        let (name, summary) = (String::new(), String::new());
        Manifest { version, name, summary, changes, up, down: Vec::new(), reversible: true, leaves_residue: false }
    }

    #[test]
    fn a_table_has_the_version_of_the_last_function_that_wrote_to_it_under_any_name() {
        let renamed = Change::RenameTable { from: "apps".into(), to: "programs".into() };
        let line = [
            manifest(1, Vec::new(), &[]),
            manifest(2, Vec::new(), &[("apps", &["b"]), ("tasks", &[])]),
            manifest(3, Vec::new(), &[("others", &["b"])]),
            manifest(4, vec![renamed], &[]),
        ];
        let at = |version, table| RecordVersions::at(&line, version).of(table);
        assert_eq!([at(1, "apps"), at(2, "apps"), at(3, "apps"), at(4, "apps")], [None, Some(2), Some(2), None]);
        assert_eq!((at(4, "programs"), at(4, "tasks"), at(4, "others")), (Some(2), None, Some(3)));
    }
}
