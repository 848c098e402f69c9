//! The database, whichever of the three it is: connections, transactions, statements and rows. The only module
//! that knows sqlx. Owns every difference between the databases that is not a caller's business; which statements are
//! run, and why, belongs to the layer that has a reason for them.
//!
//! SQLite has one writer at a time, so writes take turns on one connection: they queue in the process instead of failing
//! as busy. Its readers have a pool of their own and, thanks to write-ahead logging, never wait for the
//! writer. PostgreSQL and MySQL have one pool for both.

mod address;
pub mod bulk;
mod mysql;
mod postgres;
mod row;
pub mod schema;
mod sqlite;
mod statement;
mod statistics;
mod transaction;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnectionMetadata;
use sqlx::{Connection, MySqlPool, PgPool, SqlitePool};

pub use address::{Address, Limits, Server, Tls};
pub use row::{At, Row};
/// What a statement can fail with.
pub use sqlx::Error as SqlError;
pub use statement::{IntoStatement, Sql, Statement, sql, upsert};
pub use statistics::Statistics;
pub use transaction::Transaction;

use statistics::Counters;
use transaction::{Inner as Begun, Kept};
use turn::Turns;

/// The language a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    Sqlite,
    Postgres,
    /// MariaDB and MySQL.
    Mysql,
}

impl Dialect {
    /// What a sum of integers is cast to, to come back as an integer and not as a decimal.
    pub fn integer_cast(self) -> &'static str {
        match self {
            Self::Sqlite => "INTEGER",
            Self::Postgres => "BIGINT",
            Self::Mysql => "SIGNED",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        })
    }
}

/// A host that is told to end has given its requests their time already.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// A shared handle; clones use the same connections.
#[derive(Debug, Clone)]
pub struct Database(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Pools,
    /// For people: a path, or where the server is. Never with a password.
    name: String,
    counters: Arc<Counters>,
}

#[derive(Debug)]
enum Pools {
    Sqlite { readers: SqlitePool, writer: Turns, writer_at_ease: SqlitePool },
    Postgres(PgPool),
    Mysql(MySqlPool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Look,
    Write,
    WriteAtEase,
}

impl Pools {
    async fn begin(&self, purpose: Purpose) -> Result<(Begun, Option<Kept>), SqlError> {
        let begun = match (self, purpose) {
            (Self::Sqlite { readers, .. }, Purpose::Read | Purpose::Look) => readers.begin().await?.into(),
            (Self::Sqlite { writer, .. }, Purpose::Write) => writer.begin().await?.into(),
            (Self::Sqlite { writer, writer_at_ease, .. }, Purpose::WriteAtEase) => {
                // In turn with the other one: SQLite itself would let both try again and again.
                let turn = writer.pool().acquire().await?;
                return Ok((writer_at_ease.begin_with(sqlite::WRITE).await?.into(), Some(Box::new(turn))));
            }
            (Self::Postgres(pool), Purpose::Look) => pool.acquire().await?.into(),
            (Self::Postgres(pool), Purpose::Read) => pool.begin_with(postgres::READ).await?.into(),
            (Self::Postgres(pool), Purpose::Write) => pool.begin().await?.into(),
            (Self::Postgres(pool), Purpose::WriteAtEase) => pool.begin_with(postgres::WRITE_AT_EASE).await?.into(),
            (Self::Mysql(pool), Purpose::Look) => pool.acquire().await?.into(),
            (Self::Mysql(pool), Purpose::Read) => pool.begin_with(mysql::READ).await?.into(),
            (Self::Mysql(pool), Purpose::Write | Purpose::WriteAtEase) => pool.begin().await?.into(),
        };
        Ok((begun, None))
    }

    /// Whether whoever begins now waits until somebody else has ended.
    fn is_exhausted(&self, purpose: Purpose) -> bool {
        match (self, purpose) {
            (Self::Sqlite { readers, .. }, Purpose::Read | Purpose::Look) => is_exhausted(readers),
            (Self::Sqlite { writer, .. }, Purpose::Write | Purpose::WriteAtEase) => is_exhausted(writer.pool()),
            (Self::Postgres(pool), _) => is_exhausted(pool),
            (Self::Mysql(pool), _) => is_exhausted(pool),
        }
    }

    fn open_connections(&self) -> u64 {
        let open = match self {
            Self::Sqlite { readers, writer, writer_at_ease } => {
                readers.size() + writer.pool().size() + writer_at_ease.size()
            }
            Self::Postgres(pool) => pool.size(),
            Self::Mysql(pool) => pool.size(),
        };
        open.into()
    }
}

fn is_exhausted<D: sqlx::Database>(pool: &sqlx::Pool<D>) -> bool {
    pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections()
}

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("cannot open the SQLite database {name}; check that its folder exists and can be written to")]
    OpenFile { name: String, source: SqlError },
    #[error(
        "cannot connect to {name}; check that the server runs, and host, user, password, database and certificates in \
         the configuration"
    )]
    Connect { name: String, source: SqlError },
    #[error("cannot begin a transaction on {name}")]
    Begin { name: String, source: SqlError },
}

impl Database {
    /// Connects, once at least, so that a wrong address shows at once. An SQLite file is created where there is none.
    pub async fn open(address: &Address) -> Result<Self, DatabaseError> {
        let name = address.to_string();
        let pools = match address {
            Address::Sqlite(path) => sqlite::open(path).await,
            Address::Server(server) => match server.dialect {
                Dialect::Postgres => postgres::open(server).await.map(Pools::Postgres),
                Dialect::Mysql | Dialect::Sqlite => mysql::open(server).await.map(Pools::Mysql),
            },
        };
        match (pools, address) {
            (Ok(pools), _) => Ok(Self(Arc::new(Inner { pools, name, counters: Arc::default() }))),
            (Err(source), Address::Sqlite(_)) => Err(DatabaseError::OpenFile { name, source }),
            (Err(source), Address::Server(_)) => Err(DatabaseError::Connect { name, source }),
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self.0.pools {
            Pools::Sqlite { .. } => Dialect::Sqlite,
            Pools::Postgres(_) => Dialect::Postgres,
            Pools::Mysql(_) => Dialect::Mysql,
        }
    }

    /// For people: a path, or where the server is.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A short transaction that sees one state of the database and changes nothing.
    pub async fn read(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Read).await
    }

    /// For a single statement that changes nothing: it sees one state of the database by itself. A second one may see
    /// another.
    pub async fn look(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Look).await
    }

    /// A transaction that may change something. On SQLite it holds the write lock from its first moment, so that it
    /// cannot fail later for having read first. State-changing work under the master lock begins with
    /// `lock::Fence::begin` instead.
    pub async fn write(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Write).await
    }

    /// The same with a commit that does not wait for the disk, where the database has such. A crash of the machine may
    /// undo it, whole and with everything that came after it, and never what is written by a commit that waits after it.
    pub async fn write_at_ease(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::WriteAtEase).await
    }

    /// In a task of its own, which goes on when nobody waits for it any more: the drivers take a connection whose
    /// `BEGIN` was abandoned halfway for one without a transaction.
    async fn begin(&self, purpose: Purpose) -> Result<Transaction, DatabaseError> {
        let inner = Arc::clone(&self.0);
        let begun = tokio::spawn(async move { inner.begin(purpose).await }).await;
        let failed = |source| DatabaseError::Begin { name: self.0.name.clone(), source };
        begun.map_err(|_| failed(SqlError::WorkerCrashed))?.map_err(failed)
    }

    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        self.0.counters.read(self.0.pools.open_connections())
    }

    /// The same, with what is the most of a window ended here: from now on it is that of the next one.
    pub fn end_statistics_window(&self) -> Statistics {
        self.0.counters.end_window(self.0.pools.open_connections())
    }

    /// Waits until every connection is back, but not for one whose answer nobody will take any more: what is left ends
    /// with the process.
    pub async fn close(&self) {
        let closed = async {
            match &self.0.pools {
                Pools::Sqlite { readers, writer, writer_at_ease } => {
                    readers.close().await;
                    writer_at_ease.close().await;
                    writer.pool().close().await;
                }
                Pools::Postgres(pool) => pool.close().await,
                Pools::Mysql(pool) => pool.close().await,
            }
        };
        if tokio::time::timeout(LONGEST_CLOSE, closed).await.is_err() {
            tracing::warn!(name = self.0.name, "a connection did not come back and is left to the server to end");
        }
    }
}

/// A connection that was of use just now is taken to be there still: asking takes as long as a statement.
const FRESH: Duration = Duration::from_millis(100);

async fn still_there(connection: &mut impl Connection, known: PoolConnectionMetadata) -> Result<bool, SqlError> {
    if known.idle_for > FRESH {
        connection.ping().await?;
    }
    Ok(true)
}

impl Inner {
    async fn begin(&self, purpose: Purpose) -> Result<Transaction, SqlError> {
        // Where a statement is all there is, nothing is begun that would count as one.
        let query = (purpose != Purpose::Look).then(|| self.counters.begin());
        let (waits, began) = (self.pools.is_exhausted(purpose), Instant::now());
        let begun = self.pools.begin(purpose).await;
        let (begun, kept) = match query {
            Some(query) => query.end(begun)?,
            None => begun?,
        };
        if waits {
            self.counters.waited(began.elapsed());
        }
        Ok(Transaction::new(begun, kept, Arc::clone(&self.counters)))
    }
}

/// Whether a statement failed because a row of that key is there already.
pub fn is_unique_violation(error: &SqlError) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Whether a statement failed because of what a row would hold: a constraint forbids it, or a column has no place for it.
pub fn is_refused_row(error: &SqlError) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // Data exceptions and violations of constraints, as the SQL standard classes them. SQLite has codes of its own, which
    // are numbers of another length.
    let is_class = |code: &str| code.len() == 5 && (code.starts_with("22") || code.starts_with("23"));
    !matches!(error.kind(), sqlx::error::ErrorKind::Other) || error.code().is_some_and(|code| is_class(&code))
}

/// Whether a statement failed because a table that should be there is not.
pub fn is_missing_table(error: &SqlError) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        Some(mysql) => mysql.number() == MYSQL_NO_SUCH_TABLE,
        // SQLite has no code of its own for it.
        None => error.code().is_some_and(|code| code == "42P01") || error.message().starts_with("no such table"),
    }
}

const MYSQL_NO_SUCH_TABLE: u16 = 1146;

/// A Galera node outside its cluster's majority; a lock wait that took too long; a deadlock, or a write set that another
/// Galera node was ahead of.
const MYSQL_TRANSIENT: [u16; 3] = [1047, 1205, 1213];

/// Whether the same work may succeed when it is done again from the start: it lost to another transaction, and
/// nothing of it was kept.
pub fn is_transient(error: &SqlError) -> bool {
    let Some(code) = error.as_database_error().and_then(|error| error.code()) else { return false };
    // PostgreSQL: serialization failure, deadlock, lock not available.
    if let Some(mysql) =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>())
    {
        return MYSQL_TRANSIENT.contains(&mysql.number());
    }
    ["40001", "40P01", "55P03"].contains(&code.as_ref())
}

#[cfg(test)]
mod tests;
