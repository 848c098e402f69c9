//! Opening an SQLite file: its pools and pragmas.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::{Pools, SqlError};

/// Takes the write lock at once.
pub(super) const WRITE: &str = "BEGIN IMMEDIATE";

const READERS: u32 = 8;
/// In KiB, hence negative, as SQLite has it. The writer of a migration goes back and forth between two large tables.
const WRITER_CACHE: &str = "-32768";
/// Pages of write-ahead log between checkpoints: 32 MiB. Each costs a wait for the disk.
const CHECKPOINT_PAGES: &str = "8192";

pub(super) async fn open(path: &Path) -> Result<Pools, SqlError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(10));
    let writing = options.clone().pragma("cache_size", WRITER_CACHE).pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
    // The writer opens first: it creates the file that the readers then find.
    let writer = SqlitePoolOptions::new().max_connections(1).connect_with(writing).await?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .connect_with(options.create_if_missing(false).read_only(true))
        .await?;
    Ok(Pools::Sqlite { readers, writer })
}
