//! Entities over rows: get, put, scan. Owns which column holds what and how records are sealed and
//! opened; decides nothing about what a call means.
//!
//! A record that cannot be read is left out of lists, counted and logged; it is never deleted.

mod actual_lrps;
mod desired_lrps;
mod domains;
mod reader;
mod record;
mod tasks;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use reader::{Key, Range, Reader, Table};
pub use record::RecordProblem;
pub use writer::Writer;

use crate::clock::Clock;
use crate::database::{Database, DatabaseError, SqlError};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::{ColumnType, Layout};
use crate::lock::fence::{Fence, FenceError};
use crate::record::Keyring;

/// The column, added by a migration of ours, that names the last migration a record went through.
const RECORD_VERSION: &str = "record_version";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the record already exists")]
    Exists,
    #[error("the record {key:?} in {table} cannot be read; it is left as it is")]
    Unreadable { table: &'static str, key: String, source: RecordProblem },
    #[error("the value for {table}.{column} is not UTF-8, which this column cannot hold")]
    NotUtf8 { table: &'static str, column: &'static str },
    #[error("the value for {table}.{column} is longer than the {most} characters that the column holds")]
    TooLong { table: &'static str, column: &'static str, most: u32 },
    #[error("the value for {table}.{column} is not JSON")]
    NotJson { table: &'static str, column: &'static str, source: crate::model::json::Malformed },
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot {what}; see the database's own log")]
    Statement { what: &'static str, source: SqlError },
}

/// The data version whose tables and columns the entities are written for: Diego's newest.
pub const NATIVE: DataVersion = 1_772_581_987;

/// The entities of one database, as the host that holds the lock reads and writes them.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    fence: Fence,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    limits: BTreeMap<(String, String), u32>,
    /// The tables that have the column, and what new records put there.
    stamped: BTreeMap<String, DataVersion>,
    left_out: AtomicU64,
}

impl Store {
    pub fn new(database: Database, fence: Fence, keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Self {
        let (limits, stamped, left_out) = (BTreeMap::new(), BTreeMap::new(), AtomicU64::new(0));
        Self(Arc::new(Inner { database, fence, keyring, clock, limits, stamped, left_out }))
    }

    /// Holds values to what the columns of `layout` can hold, and marks each new record as having gone
    /// through `record_version`, the newest migration that transforms rows, where its table has the column.
    pub fn with_layout(self, layout: &Layout, record_version: DataVersion) -> Self {
        let mut limits = BTreeMap::new();
        let mut stamped = BTreeMap::new();
        for (name, table) in &layout.tables {
            for column in &table.columns {
                if let ColumnType::Varchar(most) = column.kind {
                    limits.insert((name.clone(), column.name.clone()), most);
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
        Self(Arc::new(Inner { database, fence, keyring, clock, limits, stamped, left_out }))
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

    fn keyring(&self) -> &Keyring {
        &self.0.keyring
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

    /// The text that a plain column is to hold, if it can.
    fn plain(&self, table: &'static str, column: &'static str, text: &[u8]) -> Result<String, StoreError> {
        let text = std::str::from_utf8(text).map_err(|_| StoreError::NotUtf8 { table, column })?;
        match self.0.limits.get(&(table.to_owned(), column.to_owned())) {
            Some(&most) if text.chars().count() > most as usize => Err(StoreError::TooLong { table, column, most }),
            Some(_) | None => Ok(text.to_owned()),
        }
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
