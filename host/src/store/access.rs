//! The way in which the store accesses the tables: directly or through a lens, with or without dual writes. Replaced as a
//! whole, under the store's exclusive lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TABLES;
use super::dual_write::DualWrite;
use super::lensed::Lenses;
use crate::database::Dialect;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::rows::residue::Places;
use crate::rows::{Capacity, RECORD_VERSION, RecordVersions};

/// The way in which the store accesses the tables at the present data version.
#[derive(Debug, Default)]
pub struct TableAccess {
    /// By table and column.
    capacities: BTreeMap<(String, String), Capacity>,
    /// The record version of new rows, for tables with the column [`RECORD_VERSION`].
    record_versions: BTreeMap<String, DataVersion>,
    /// The places at which residue of a table's units may be stored.
    residue_places: BTreeMap<String, Places>,
    pub(super) lenses: Option<Arc<Lenses>>,
    pub(super) dual_write: Option<Arc<dyn DualWrite>>,
}

impl TableAccess {
    /// Direct access. Values are limited to the column capacities of `layout`, that of the database. New records are stamped
    /// with the record version of their table.
    pub fn direct(layout: &Layout, dialect: Dialect, record_versions: &RecordVersions) -> Self {
        let mut access = Self::default();
        for (name, table) in &layout.tables {
            for column in &table.columns {
                if let Some(capacity) = Capacity::of(column.kind, dialect) {
                    access.capacities.insert((name.clone(), column.name.clone()), capacity);
                }
            }
            if table.column(RECORD_VERSION).is_some()
                && let Some(version) = record_versions.of(name)
            {
                access.record_versions.insert(name.clone(), version);
            }
        }
        access
    }

    /// Access through lenses. Values are limited to the capacities of the native columns, and when written, to those of the
    /// stored columns.
    pub fn through_lenses(lenses: Lenses, dialect: Dialect) -> Self {
        let Self { capacities, .. } = Self::direct(lenses.native(), dialect, &RecordVersions::default());
        Self { capacities, lenses: Some(Arc::new(lenses)), ..Self::default() }
    }

    /// Deletes the residue of a unit of this table at these places when the unit is deleted.
    #[must_use]
    pub fn with_residue_places(mut self, table: &str, places: Places) -> Self {
        self.residue_places.insert(table.to_owned(), places);
        self
    }

    /// Carries every change over to the copies of an online migration.
    #[must_use]
    pub fn with_dual_write(mut self, dual_write: Arc<dyn DualWrite>) -> Self {
        self.dual_write = Some(dual_write);
        self
    }

    /// The stored tables that a change may affect.
    pub(super) fn stored_tables(&self) -> Vec<&str> {
        self.lenses.as_ref().map_or_else(|| TABLES.to_vec(), |lenses| lenses.stored_tables())
    }

    pub(super) fn residue_places(&self, table: &str) -> Option<&Places> {
        self.residue_places.get(table)
    }

    pub(super) fn capacity(&self, table: &str, column: &str) -> Option<Capacity> {
        self.capacities.get(&(table.to_owned(), column.to_owned())).copied()
    }

    /// The column and value of the record version of a new row, if its table has that column.
    pub(super) fn stamp(&self, table: &str) -> Option<(&'static str, i64)> {
        let version = *self.record_versions.get(table)?;
        Some((RECORD_VERSION, i64::try_from(version).unwrap_or(i64::MAX)))
    }
}
