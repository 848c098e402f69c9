//! The way in which the store accesses the tables: directly or through a lens, with or without a
//! record of what is changed. Replaced as a whole, under the store's exclusive lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bbs_database::{Database, DatabaseError, Dialect, SqlError, Transaction, signed};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::Layout;
use bbs_units::residue::Places;
use bbs_units::{Capacity, RECORD_VERSION, RecordVersions};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::lensed::Lenses;
use super::{EntityTable, Key, Quarantine, StoreError};

/// The way in which the store accesses the tables at the present data version.
#[derive(Debug, Default)]
pub struct TableAccess {
    /// By table and column.
    capacities: BTreeMap<(String, String), Capacity>,
    /// The record version of new rows, for tables with the column [`RECORD_VERSION`].
    record_versions: BTreeMap<String, DataVersion>,
    /// The places at which residue of a table's units may be stored.
    residue_places: BTreeMap<String, Places>,
    pub(super) backend: Backend,
    /// Independent of the backend: receives the stored tables and keys that a transaction changed,
    /// before its commit.
    pub(super) change_recorder: Option<Arc<dyn ChangeRecorder>>,
    pub(super) quarantine: Option<Arc<dyn Quarantine>>,
    /// The keys that rows in quarantine have, each as `Store::lock_class` has it. Read when they
    /// are first needed.
    pub(super) quarantined: OnceCell<Mutex<BTreeSet<Key>>>,
}

/// The implementation of the operations of readers and writers.
#[derive(Debug, Default)]
pub(super) enum Backend {
    /// The native tables are the stored ones: each operation is a statement.
    #[default]
    Direct,
    /// The data has another version: units are transformed in memory, and written at the end of the
    /// transaction.
    Lensed(Arc<Lenses>),
}

impl TableAccess {
    /// Direct access. Values are limited to the column capacities of `layout`, that of the
    /// database. New records are stamped with the record version of their table.
    pub fn direct(layout: &Layout, dialect: Dialect, record_versions: &RecordVersions) -> Self {
        let mut access = Self::default();
        for (name, table) in &layout.tables {
            for column in &table.columns {
                if let Some(capacity) = Capacity::of(column.kind, dialect) {
                    access
                        .capacities
                        .insert((name.clone(), column.name.clone()), capacity);
                }
            }
            if table.find_column(RECORD_VERSION).is_some()
                && let Some(version) = record_versions.of(name)
            {
                access.record_versions.insert(name.clone(), version);
            }
        }
        access
    }

    /// Access through lenses. Values are limited to the capacities of the native columns, and when
    /// written, to those of the stored columns.
    pub fn through_lenses(lenses: Lenses, dialect: Dialect) -> Self {
        let Self { capacities, .. } =
            Self::direct(lenses.native(), dialect, &RecordVersions::default());
        Self {
            capacities,
            backend: Backend::Lensed(Arc::new(lenses)),
            ..Self::default()
        }
    }

    /// Deletes the residue of a unit of this table at these places when the unit is deleted.
    #[must_use]
    pub fn with_residue_places(mut self, table: &str, places: Places) -> Self {
        self.residue_places.insert(table.to_owned(), places);
        self
    }

    /// Records every changed unit for an online migration.
    #[must_use]
    pub fn with_change_recorder(mut self, recorder: Arc<dyn ChangeRecorder>) -> Self {
        self.change_recorder = Some(recorder);
        self
    }

    /// Puts records that cannot be read in this quarantine.
    #[must_use]
    pub fn with_quarantine(mut self, quarantine: Arc<dyn Quarantine>) -> Self {
        self.quarantine = Some(quarantine);
        self
    }

    /// The stored tables that hold the units of native tables.
    pub(super) fn stored<'a>(&'a self, tables: &[&'a str]) -> Vec<&'a str> {
        match &self.backend {
            Backend::Direct => tables.to_vec(),
            Backend::Lensed(lenses) => lenses.stored(tables),
        }
    }

    /// A transaction for a single operation, which through a lens consists of several statements
    /// and needs a snapshot.
    pub(super) async fn look(&self, database: &Database) -> Result<Transaction, DatabaseError> {
        match &self.backend {
            Backend::Direct => database.look().await,
            Backend::Lensed(_) => database.read().await,
        }
    }

    /// The implementation of the operations on a native table; `None` if the stored layout does not
    /// have it. Then it is empty.
    pub(super) fn backend_of(&self, table: EntityTable) -> Option<&Backend> {
        match &self.backend {
            Backend::Lensed(lenses) if !lenses.holds(table.name) => None,
            backend => Some(backend),
        }
    }

    /// Fails with [`StoreError::NotHeld`], naming the field of requests for definitions, unless the
    /// stored layout has a native table of them.
    pub(super) fn require_definitions(&self, table: EntityTable) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Lensed(lenses) if !lenses.holds(table.name) => {
                Err(lenses.not_held("lrp_definition"))
            }
            Backend::Direct | Backend::Lensed(_) => Ok(()),
        }
    }

    pub(super) fn residue_places(&self, table: &str) -> Option<&Places> {
        self.residue_places.get(table)
    }

    pub(super) fn capacity(&self, table: &str, column: &str) -> Option<Capacity> {
        self.capacities
            .get(&(table.to_owned(), column.to_owned()))
            .copied()
    }

    /// The column and value of the record version of a new row, if its table has that column.
    pub(super) fn stamp(&self, table: &str) -> Option<(&'static str, i64)> {
        let version = *self.record_versions.get(table)?;
        Some((RECORD_VERSION, signed(version)))
    }
}

/// The record of an online migration: which units have changed, and have to be copied again.
pub trait ChangeRecorder: Send + Sync + std::fmt::Debug {
    /// Records the stored tables and unit keys that a transaction has changed, in that transaction.
    ///
    /// # Errors
    /// The database fails. The caller then rolls back.
    fn record<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), SqlError>>;
}
