//! Entities over rows: get, put, scan. Owns which column holds what and how records are sealed and
//! opened; decides nothing about what a call means.
//!
//! A record that cannot be read is left out of lists, counted and logged; it is never deleted.

mod actual_lrps;
mod cells;
mod desired_lrps;
mod direct;
mod domains;
mod filter;
mod reader;
mod record;
mod tasks;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use reader::{Key, Range, Reader};
pub use record::RecordProblem;
pub use writer::Writer;

use crate::clock::Clock;
use crate::database::{self, Database, DatabaseError, Dialect, SqlError};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::lock::fence::{Fence, FenceError};
use crate::record::Keyring;
use crate::units::{Capacity, RECORD_VERSION};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the record already exists")]
    Exists,
    #[error("the record {key:?} in {table} cannot be read; it is left as it is")]
    Unreadable { table: &'static str, key: String, source: RecordProblem },
    #[error("the value for {table}.{column} is not UTF-8, or holds a NUL, which this column cannot hold")]
    NotText { table: &'static str, column: &'static str },
    #[error("the value for {table}.{column} is longer than the column holds")]
    TooLong { table: &'static str, column: &'static str },
    #[error("a value is longer than its column holds")]
    DoesNotFit { source: SqlError },
    #[error("the value for {table}.{column} is not JSON")]
    NotJson { table: &'static str, column: &'static str, source: crate::model::json::Malformed },
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot {what}; see the database's own log")]
    Statement { what: &'static str, source: SqlError },
    #[error("cannot tell whether the change was kept: the database did not confirm it; read the record to find out")]
    Commit { source: SqlError },
}

impl StoreError {
    /// Whether the same work, done again from its start, may succeed: it lost to another transaction, and nothing of
    /// it was kept.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Statement { source, .. } | Self::Commit { source } => database::is_transient(source),
            Self::Fence(FenceError::Read(source)) => database::is_transient(source),
            Self::Exists
            | Self::Unreadable { .. }
            | Self::NotText { .. }
            | Self::TooLong { .. }
            | Self::DoesNotFit { .. }
            | Self::NotJson { .. }
            | Self::Fence(_)
            | Self::Database(_) => false,
        }
    }
}

/// For `map_err`: what a failed statement means to a caller.
fn failed(what: &'static str) -> impl Fn(SqlError) -> StoreError {
    move |source| {
        if database::is_unique_violation(&source) {
            return StoreError::Exists;
        }
        // "String data, right truncation", as PostgreSQL and MySQL both have it.
        let code = source.as_database_error().and_then(|error| error.code());
        if code.is_some_and(|code| code == "22001") {
            return StoreError::DoesNotFit { source };
        }
        StoreError::Statement { what, source }
    }
}

/// The data version whose tables and columns the entities are written for: Diego's newest.
pub const NATIVE: DataVersion = 1_772_581_987;

/// A table as the entities know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    name: &'static str,
    /// What its rows belong together by.
    key: &'static str,
    primary_key: &'static [&'static str],
    /// The columns that may be large.
    heavy: &'static [&'static str],
}

/// The entities of one database, as the host that holds the lock reads and writes them.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    fence: Fence,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    capacities: BTreeMap<(String, String), Capacity>,
    /// The tables that have the column, and what new records put there.
    stamped: BTreeMap<String, DataVersion>,
    left_out: AtomicU64,
}

impl Store {
    pub fn new(database: Database, fence: Fence, keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Self {
        let (capacities, stamped, left_out) = (BTreeMap::new(), BTreeMap::new(), AtomicU64::new(0));
        Self(Arc::new(Inner { database, fence, keyring, clock, capacities, stamped, left_out }))
    }

    /// Holds values to what the columns of `layout` can hold, and marks each new record as having gone
    /// through `record_version`, the newest migration that transforms rows, where its table has the column.
    pub fn with_layout(self, layout: &Layout, record_version: DataVersion) -> Self {
        let mut capacities = BTreeMap::new();
        let mut stamped = BTreeMap::new();
        for (name, table) in &layout.tables {
            for column in &table.columns {
                if let Some(capacity) = Capacity::of(column.kind, self.dialect()) {
                    capacities.insert((name.clone(), column.name.clone()), capacity);
                }
            }
            if table.column(RECORD_VERSION).is_some() {
                stamped.insert(name.clone(), record_version);
            }
        }
        let Inner { database, fence, keyring, clock, .. } = &*self.0;
        let (database, fence) = (database.clone(), fence.clone());
        let (keyring, clock) = (Arc::clone(keyring), Arc::clone(clock));
        let left_out = AtomicU64::new(self.left_out());
        Self(Arc::new(Inner { database, fence, keyring, clock, capacities, stamped, left_out }))
    }

    pub fn now_ns(&self) -> i64 {
        self.0.clock.now_ns()
    }

    /// How often a record was left out of an answer because it could not be read.
    pub fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }

    /// Sees one state of the database for as long as it lives; keep it short.
    pub async fn reader(&self) -> Result<Reader, StoreError> {
        Reader::begin(self.clone(), self.0.database.read().await?).await
    }

    /// Writes as the master, or not at all.
    pub async fn writer(&self) -> Result<Writer, StoreError> {
        Ok(Writer::new(self.clone(), self.0.fence.begin().await?))
    }

    fn dialect(&self) -> Dialect {
        self.0.database.dialect()
    }

    fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    fn capacity(&self, table: &str, column: &str) -> Option<Capacity> {
        self.0.capacities.get(&(table.to_owned(), column.to_owned())).copied()
    }

    /// The record version of a new row, where its table has one.
    fn stamp(&self, table: &str) -> Option<(&'static str, i64)> {
        let version = *self.0.stamped.get(table)?;
        Some((RECORD_VERSION, i64::try_from(version).unwrap_or(i64::MAX)))
    }

    /// Keeps the records that could be read.
    fn readable<T>(&self, records: impl Iterator<Item = Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
        let mut kept = Vec::new();
        for record in records {
            match record {
                Ok(record) => kept.push(record),
                Err(StoreError::Unreadable { table, key, source }) => {
                    self.0.left_out.fetch_add(1, Ordering::Relaxed);
                    let reason = with_sources(&source);
                    tracing::warn!(table, key, reason, "a record cannot be read and is left out of a list");
                }
                Err(other) => return Err(other),
            }
        }
        Ok(kept)
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
