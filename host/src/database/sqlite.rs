//! Opening an SQLite file: its pools and pragmas.

use std::path::Path;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::turn::Turns;
use super::{Pools, SqlError};

/// Takes the write lock at once.
pub(super) const WRITE: &str = "BEGIN IMMEDIATE";

const READERS: u32 = 8;
/// Rows that a connection's thread is ahead of whoever reads them: each time it waits, two threads take turns.
const ROWS_AHEAD: usize = 512;
/// In KiB, hence negative, as SQLite has it. The writer of a migration goes back and forth between two large tables.
const WRITER_CACHE: &str = "-32768";
/// Pages of write-ahead log between checkpoints: 32 MiB. Each costs a wait for the disk.
const CHECKPOINT_PAGES: &str = "8192";
/// For the writer at ease, 256 MiB: what a migration writes again and again, such as pages of an index, is written into
/// the file less often.
const CHECKPOINT_PAGES_AT_EASE: &str = "65536";

pub(super) async fn open(path: &Path) -> Result<Pools, SqlError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(10))
        .row_buffer_size(ROWS_AHEAD);
    let writing = options.clone().pragma("cache_size", WRITER_CACHE).pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
    // Its commits are in the log at once and on disk with the next one of the other writer, or a checkpoint.
    let at_ease =
        writing.clone().synchronous(SqliteSynchronous::Normal).pragma("wal_autocheckpoint", CHECKPOINT_PAGES_AT_EASE);
    // The writer opens first: it creates the file that the others then find.
    // A file does not go away. But where SQLite undid a transaction by itself, such as on a full disk, the driver still
    // takes the connection for one with a transaction, and would never begin another on it.
    let pool = || {
        SqlitePoolOptions::new().test_before_acquire(false).before_acquire(|connection, _| {
            let is_free = !connection.is_in_transaction();
            Box::pin(async move { Ok(is_free) })
        })
    };
    let writer = Turns::new(pool().max_connections(1).connect_with(writing).await?);
    let writer_at_ease = pool().max_connections(1).connect_with(at_ease).await?;
    let readers =
        pool().max_connections(READERS).connect_with(options.create_if_missing(false).read_only(true)).await?;
    Ok(Pools::Sqlite { readers, writer, writer_at_ease })
}
