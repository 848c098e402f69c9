//! The connection to the database. Owns opening and the pools; every statement belongs to the
//! layer that has a reason for it.
//!
//! SQLite has one writer at a time, so writes go through a pool of one connection: they queue in
//! the process instead of failing as busy. Readers have a pool of their own and, thanks to
//! write-ahead logging, never wait for the writer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, Transaction};

const READERS: u32 = 8;
/// In KiB, hence negative, as SQLite has it. The writer of a migration goes back and forth between two large tables.
const WRITER_CACHE: &str = "-32768";
/// Pages of write-ahead log between checkpoints: 32 MiB. Each costs a wait for the disk.
const CHECKPOINT_PAGES: &str = "8192";

#[derive(Debug, Clone)]
pub struct Database {
    readers: SqlitePool,
    writer: SqlitePool,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("cannot open the SQLite database {}; check that its folder exists and can be written to", .path.display())]
    Open { path: PathBuf, source: sqlx::Error },
    #[error("cannot begin a transaction on {}", .path.display())]
    Begin { path: PathBuf, source: sqlx::Error },
}

impl Database {
    /// Opens the file, creating it where there is none.
    pub async fn open(path: &Path) -> Result<Self, DatabaseError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(false)
            .busy_timeout(Duration::from_secs(10));
        let failed = |source| DatabaseError::Open { path: path.to_owned(), source };
        let writing = options.clone().pragma("cache_size", WRITER_CACHE).pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
        // The writer opens first: it creates the file that the readers then find.
        let writer = SqlitePoolOptions::new().max_connections(1).connect_with(writing).await.map_err(failed)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.create_if_missing(false).read_only(true))
            .await
            .map_err(failed)?;
        Ok(Self { readers, writer, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For reading only.
    pub fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// A short transaction that sees one state of the database.
    pub async fn read(&self) -> Result<Transaction<'static, Sqlite>, DatabaseError> {
        self.readers.begin().await.map_err(|source| DatabaseError::Begin { path: self.path.clone(), source })
    }

    /// A transaction that holds the write lock from its first moment, so that it cannot fail later for
    /// having read first. State-changing work under the master lock begins with `lock::Fence::begin` instead.
    pub async fn write(&self) -> Result<Transaction<'static, Sqlite>, DatabaseError> {
        self.writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(|source| DatabaseError::Begin { path: self.path.clone(), source })
    }

    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
