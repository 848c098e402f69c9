//! Connections to an SQLite file: pools and pragmas.

use std::path::Path;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::group_commit::GroupCommit;
use super::{Pools, SqlError};

/// A third of them for each kind of call that keeps its reader (`store.rs` of the host), so that
/// each version of the default modules has one that is kept for it, and the oldest several.
const READERS: u32 = 24;
/// In KiB. The system has the file in memory as well.
const READER_CACHE: &str = "-1024";
/// Rows that the connection's thread buffers ahead of the reader; a full buffer costs a thread
/// switch.
const ROWS_AHEAD: usize = 512;
/// In KiB, for which SQLite expects a negative number. The writer of a migration alternates
/// between two large tables.
const WRITER_CACHE: &str = "-32768";
/// Pages of write-ahead log between checkpoints: 32 MiB. Each checkpoint waits for the disk.
const CHECKPOINT_PAGES: &str = "8192";
/// For the relaxed writer, 256 MiB: pages that a migration rewrites often, such as those of an
/// index, are copied into the file less often.
const CHECKPOINT_PAGES_RELAXED: &str = "65536";
/// `SQLITE_BUSY`.
const BUSY: u32 = 5;
/// `SQLITE_CORRUPT`.
const CORRUPT: u32 = 11;
/// `SQLITE_NOTADB`.
const NOT_A_DATABASE: u32 = 26;

pub(super) async fn open(path: &Path) -> Result<Pools, SqlError> {
    protect(path);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(10))
        .row_buffer_size(ROWS_AHEAD);
    let writing = options
        .clone()
        .pragma("cache_size", WRITER_CACHE)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
    // Its commits reach the log at once, and the disk with the next durable commit or checkpoint.
    let relaxed = writing
        .clone()
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES_RELAXED);
    // The writer opens first and creates the file. `test_before_acquire` is off: a file cannot
    // disconnect. But after SQLite rolled a transaction back by itself, such as on a full disk, the
    // driver still counts the connection as in a transaction and would never begin another on it.
    let pool = || {
        SqlitePoolOptions::new()
            .test_before_acquire(false)
            .before_acquire(|connection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
    };
    let writer = GroupCommit::new(pool().max_connections(1).connect_with(writing).await?);
    let writer_relaxed = pool().max_connections(1).connect_with(relaxed).await?;
    let readers = pool()
        .max_connections(READERS)
        .connect_with(
            options
                .create_if_missing(false)
                .read_only(true)
                .pragma("cache_size", READER_CACHE),
        )
        .await?;
    Ok(Pools::Sqlite {
        readers,
        writer,
        writer_relaxed,
    })
}

/// Whether a file could not be opened because it is not a database.
pub(super) fn is_other_file(error: &SqlError) -> bool {
    code(error) == Some(NOT_A_DATABASE)
}

/// Whether the content of a file contradicts itself, such as that of a truncated one.
pub(super) fn is_damaged_file(error: &SqlError) -> bool {
    code(error) == Some(CORRUPT)
}

/// Whether another connection had the write lock for as long as this one waits.
pub(super) fn is_locked(error: &SqlError) -> bool {
    code(error) == Some(BUSY)
}

/// The result code, without the upper bits, which have its circumstances.
fn code(error: &SqlError) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Makes the database and the files beside it private. SQLite gives new files beside it the
/// permissions of the database.
fn protect(path: &Path) {
    // Fails if the file exists; SQLite reports every other reason.
    let _ = bbs_files::private().write(true).create_new(true).open(path);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        bbs_files::make_private(Path::new(&name));
    }
}

#[cfg(test)]
mod tests {
    use sqlx::SqliteConnection;

    use super::*;
    use crate::{Address, Database, DatabaseError, sql};

    #[tokio::test]
    async fn write_lock_of_another_program_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bbs.db");
        let database = Database::open(&Address::Sqlite(path.clone()))
            .await
            .unwrap();
        let _tx = database.write().await.unwrap();
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(Duration::ZERO);
        let mut other = SqliteConnection::connect_with(&options).await.unwrap();
        let begin = sqlx::query("BEGIN IMMEDIATE");
        let refused = begin.execute(&mut other).await.unwrap_err();
        assert!(is_locked(&refused), "{refused}");
        let malformed = sqlx::query("BEGIN NOTHING").execute(&mut other).await;
        let malformed = malformed.unwrap_err();
        assert!(!is_locked(&malformed), "{malformed}");
    }

    #[tokio::test]
    async fn truncated_file_is_damaged() {
        const PAGE: u64 = 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bbs.db");
        let address = Address::Sqlite(path.clone());
        let database = Database::open(&address).await.unwrap();
        let mut tx = database.write().await.unwrap();
        tx.execute(sql("CREATE TABLE t (body BLOB)")).await.unwrap();
        tx.commit().await.unwrap();
        database.close().await;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        assert!(file.metadata().unwrap().len() > PAGE);
        file.set_len(PAGE).unwrap();
        let error = Database::open(&address).await.unwrap_err();
        assert!(
            matches!(error, DatabaseError::DamagedFile { .. }),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn checkpoint_moves_the_log_into_the_file_beside_a_reader() {
        const BYTES: i64 = 1_000_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bbs.db");
        let database = Database::open(&Address::Sqlite(path.clone()))
            .await
            .unwrap();
        let mut tx = database.write_relaxed().await.unwrap();
        for statement in [
            "CREATE TABLE t (body BLOB)".to_owned(),
            format!("INSERT INTO t VALUES (zeroblob({BYTES}))"),
        ] {
            tx.execute(sql(statement)).await.unwrap();
        }
        tx.commit().await.unwrap();
        let file_holds_all = || std::fs::metadata(&path).unwrap().len() > BYTES.unsigned_abs();
        assert!(!file_holds_all());
        let mut reader = database.read().await.unwrap();
        let length = sql("SELECT LENGTH(body) FROM t");
        reader.fetch(length.clone()).await.unwrap();
        database.checkpoint().await.unwrap();
        assert!(file_holds_all());
        let rows = reader.fetch(length).await.unwrap();
        assert_eq!(rows[0].integer(0).unwrap(), Some(BYTES));
    }
}
