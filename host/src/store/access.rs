//! How the store gets at the tables as they are now: directly or through the lens, with or without a migration that
//! follows along. It changes as a whole, when nobody is reading or writing.

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

#[derive(Debug, Default)]
pub struct Access {
    capacities: BTreeMap<(String, String), Capacity>,
    /// Tables with the column that a row function has gone over, and what new records put there.
    stamped: BTreeMap<String, DataVersion>,
    /// By table, where something may have been kept of its units.
    kept: BTreeMap<String, Places>,
    pub(super) lenses: Option<Arc<Lenses>>,
    pub(super) dual_write: Option<Arc<dyn DualWrite>>,
}

impl Access {
    /// Holds values to what the columns of `layout`, that of the database, can hold, and marks each new record as
    /// having gone through the migrations up to here, where its table has the column.
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
                access.stamped.insert(name.clone(), version);
            }
        }
        access
    }

    /// The same through a lens. Values are held to the handlers' columns, and to those of the database when written.
    pub fn through(lenses: Lenses, dialect: Dialect) -> Self {
        let Self { capacities, .. } = Self::direct(lenses.native(), dialect, &RecordVersions::default());
        Self { capacities, lenses: Some(Arc::new(lenses)), ..Self::default() }
    }

    /// Forgets what was kept of a unit of this table at these places when the unit is removed.
    #[must_use]
    pub fn forgetting(mut self, table: &str, places: Places) -> Self {
        self.kept.insert(table.to_owned(), places);
        self
    }

    /// Lets a migration follow along.
    #[must_use]
    pub fn writing_also(mut self, dual_write: Arc<dyn DualWrite>) -> Self {
        self.dual_write = Some(dual_write);
        self
    }

    /// The tables that a change can touch, at the layout of the database.
    pub(super) fn stored_tables(&self) -> Vec<&str> {
        self.lenses.as_ref().map_or_else(|| TABLES.to_vec(), |lenses| lenses.stored_tables())
    }

    pub(super) fn kept(&self, table: &str) -> Option<&Places> {
        self.kept.get(table)
    }

    pub(super) fn capacity(&self, table: &str, column: &str) -> Option<Capacity> {
        self.capacities.get(&(table.to_owned(), column.to_owned())).copied()
    }

    /// The record version of a new row, where its table has one.
    pub(super) fn stamp(&self, table: &str) -> Option<(&'static str, i64)> {
        let version = *self.stamped.get(table)?;
        Some((RECORD_VERSION, i64::try_from(version).unwrap_or(i64::MAX)))
    }
}
