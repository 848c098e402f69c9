//! Entities over rows: get, put, scan. Owns which column holds what and how records are sealed and
//! opened; decides nothing about what a call means.
//!
//! A record that cannot be read is left out of lists, counted and logged; it is never deleted.

mod access;
mod actual_lrps;
mod column_values;
mod desired_lrps;
mod direct;
mod domains;
mod dual_write;
mod filter;
mod lensed;
mod reader;
mod record;
mod tasks;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use access::Access;
pub use actual_lrps::Seen;
pub use dual_write::{DualWrite, DualWriteError};
pub use lensed::Lenses;
pub use reader::{Key, Listed, Range, Reader};
pub use record::RecordProblem;
pub use writer::Writer;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::clock::Clock;
use crate::database::{self, Database, DatabaseError, SqlError};
use crate::layout::manifest::DataVersion;
use crate::lock::fence::{Fence, FenceError};
use crate::quiet::gets_a_line;
use crate::record::Keyring;
use crate::rows::RowsError;

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
    #[error("cannot {what}")]
    Units { what: &'static str, source: Box<RowsError> },
    #[error(
        "the database is at data version {version}, which has no place for {fields}; leave it out, or ask again once \
         the pin is raised or the migration is done"
    )]
    NotHeld { fields: String, version: DataVersion },
    #[error("another transaction wrote the same record first")]
    Raced,
    #[error(transparent)]
    DualWrite(#[from] DualWriteError),
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
            Self::Units { source, .. } => source.is_transient(),
            Self::DualWrite(fault) => fault.is_transient,
            Self::Raced => true,
            Self::Exists
            | Self::Unreadable { .. }
            | Self::NotText { .. }
            | Self::TooLong { .. }
            | Self::DoesNotFit { .. }
            | Self::NotJson { .. }
            | Self::NotHeld { .. }
            | Self::Fence(_)
            | Self::Database(_) => false,
        }
    }
}

impl StoreError {
    /// What the database said, where a table is gone: nothing that this host does can succeed any more.
    pub fn missing_table(&self) -> Option<&SqlError> {
        let source = match self {
            Self::Statement { source, .. } | Self::Commit { source } | Self::Fence(FenceError::Read(source)) => source,
            Self::Units { source, .. } => match &**source {
                RowsError::Rows { source, .. } | RowsError::Residue(source) => source,
                _ => return None,
            },
            _ => return None,
        };
        database::is_missing_table(source).then_some(source)
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

/// The tables of the entities.
const TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];

/// The entities of one database, as the host that holds the lock reads and writes them.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    fence: Fence,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    access: Arc<RwLock<Access>>,
    left_out: AtomicU64,
}

impl Store {
    pub fn new(database: Database, fence: Fence, keyring: Arc<Keyring>, clock: Arc<dyn Clock>, access: Access) -> Self {
        let (access, left_out) = (Arc::new(RwLock::new(access)), AtomicU64::new(0));
        Self(Arc::new(Inner { database, fence, keyring, clock, access, left_out }))
    }

    /// Waits until nobody reads or writes, and keeps it so until the guard is dropped: for changing the tables, and
    /// with them how they are got at.
    pub async fn switch(&self) -> OwnedRwLockWriteGuard<Access> {
        Arc::clone(&self.0.access).write_owned().await
    }

    async fn access(&self) -> OwnedRwLockReadGuard<Access> {
        Arc::clone(&self.0.access).read_owned().await
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
        let access = self.access().await;
        Reader::begin(self.clone(), access, self.0.database.read().await?).await
    }

    /// For one look at one record, for which most databases need no transaction.
    pub async fn look(&self) -> Result<Reader, StoreError> {
        let access = self.access().await;
        let tx = match &access.lenses {
            None => self.0.database.look().await?,
            Some(_) => self.0.database.read().await?,
        };
        Reader::begin(self.clone(), access, tx).await
    }

    /// Writes as the master, or not at all, what belongs together by this key.
    pub async fn writer(&self, key: &[u8]) -> Result<Writer, StoreError> {
        let access = self.access().await;
        let held = match &access.dual_write {
            Some(dual_write) => Some(dual_write.hold(access.stored_tables(), key).await),
            None => None,
        };
        Ok(Writer::new(self.clone(), access, held, self.0.fence.begin().await?))
    }

    fn keyring(&self) -> &Arc<Keyring> {
        &self.0.keyring
    }

    /// Keeps the records that could be read.
    fn readable<T>(&self, records: impl Iterator<Item = Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
        let mut kept = Vec::new();
        for record in records {
            match record {
                Ok(record) => kept.push(record),
                Err(StoreError::Unreadable { table, key, source }) => {
                    let left_out = self.0.left_out.fetch_add(1, Ordering::Relaxed) + 1;
                    if gets_a_line(left_out) {
                        let reason = with_sources(&source);
                        tracing::warn!(
                            table,
                            key,
                            reason,
                            left_out,
                            "a record cannot be read and is left out of a list; not each is logged"
                        );
                    }
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
