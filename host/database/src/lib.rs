//! Access to the database, whichever of the three it is: connections, transactions, statements and
//! rows. The only module that uses sqlx. Owns every difference between the databases that callers
//! need not know; which statements run, and why, is decided by the layers above.
//!
//! SQLite allows one writer at a time, so writes share one connection: they queue in the process
//! instead of failing with `SQLITE_BUSY`, and are committed in groups (`group_commit.rs`). Its
//! readers have a pool of their own and, with write-ahead logging, never wait for the writer.
//! PostgreSQL and MySQL have one pool for both.

mod address;
pub mod bulk;
mod connection_check;
mod errors;
mod group_commit;
mod lock_holders;
mod mysql;
mod opener;
mod outage;
mod pool;
mod postgres;
mod replacement;
mod row;
pub mod schema;
mod session;
mod sqlite;
mod statement;
mod statistics;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::SqlitePool;

pub use address::{Address, ClientCertificate, ConnectionLimits, Server, Tls};
pub use connection_check::ConnectionCheck;
pub use errors::{
    READ_ONLY, StatementError, StatementResult, first_write_advice, is_deadlock, is_denied,
    is_missing_table, is_not_at_once, is_outage, is_read_only, is_refused_row, is_repeatable,
    is_transient, is_unique_violation, message_of_server, refusal, refused_characters,
};
pub use lock_holders::{end_holders_of_rows, lock_holders};
pub use row::Row;
/// The error of a statement.
pub use sqlx::Error as SqlError;
pub use statement::{IntoStatement, Sql, of_few_lengths, signed, sql, upsert};
pub use statistics::Statistics;
pub use transaction::Transaction;

use group_commit::GroupCommit;
use mysql::MysqlConnections;
use pool::SessionPool;
use postgres::PostgresDriver;
use replacement::SessionReplacement;
use statement::StatementLimits;
use statistics::Counters;
use transaction::{Attachment, Inner as Begun};

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SQLite, with the database in a file.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
    /// MariaDB and MySQL.
    Mysql,
}

impl Dialect {
    /// The type to cast a sum of integers to, so that the database returns an integer and not a
    /// decimal.
    pub fn integer_cast(self) -> &'static str {
        match self {
            Self::Sqlite => "INTEGER",
            Self::Postgres => "BIGINT",
            Self::Mysql => "SIGNED",
        }
    }

    /// Whether a text may have a NUL character. PostgreSQL handles texts as C strings, which end at
    /// one, and refuses it.
    pub fn stores_nul(self) -> bool {
        self != Self::Postgres
    }
}

/// The properties of a server on which it depends how a table is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerKind {
    /// Its SQL dialect.
    pub dialect: Dialect,
    /// Whether it is MariaDB, whose dialect is that of MySQL.
    pub is_mariadb: bool,
    /// Whether it is a node of a Galera cluster: all commits in the cluster wait until each node
    /// has run a statement that changes the schema.
    pub is_in_cluster: bool,
}

impl ServerKind {
    /// A server of this dialect about which no more is known.
    pub fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            is_mariadb: false,
            is_in_cluster: false,
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

/// How long closing waits for connections. Requests have had their own time to finish before.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// A handle to the database; clones share the same connections.
#[derive(Debug, Clone)]
pub struct Database(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Pools,
    /// For log lines and messages: a path or the server's address. Never contains a password.
    name: String,
    counters: Arc<Counters>,
    replacement: Arc<SessionReplacement>,
}

#[derive(Debug)]
enum Pools {
    Sqlite {
        readers: SqlitePool,
        writer: GroupCommit,
        writer_relaxed: SqlitePool,
    },
    Postgres(SessionPool<PostgresDriver>),
    Mysql(Box<MysqlConnections>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Look,
    Write,
    WriteRelaxed,
}

impl Pools {
    fn statement_limits(&self) -> StatementLimits {
        match self {
            Self::Sqlite { .. } | Self::Postgres(_) => StatementLimits::default(),
            Self::Mysql(connections) => connections.statements,
        }
    }

    async fn begin(&self, purpose: Purpose) -> Result<(Begun, Option<Attachment>), SqlError> {
        let begun = match (self, purpose) {
            (Self::Sqlite { readers, .. }, Purpose::Read | Purpose::Look) => {
                Begun::Sqlite(readers.begin().await?)
            }
            (Self::Sqlite { writer, .. }, Purpose::Write) => Begun::Grouped(writer.begin().await?),
            (
                Self::Sqlite {
                    writer,
                    writer_relaxed,
                    ..
                },
                Purpose::WriteRelaxed,
            ) => {
                // Queues behind the other writer here: in SQLite itself both would poll for the
                // lock.
                let waiting = writer.pool().acquire().await?;
                return Ok((
                    Begun::Sqlite(writer_relaxed.begin_with(group_commit::WRITE).await?),
                    Some(Box::new(waiting)),
                ));
            }
            (Self::Postgres(pool), purpose) => {
                Begun::Postgres(Box::new(pool.begin(purpose).await?))
            }
            (Self::Mysql(connections), purpose) => {
                Begun::Mysql(Box::new(connections.pool.begin(purpose).await?))
            }
        };
        Ok((begun, None))
    }

    /// Whether a transaction that begins now has to wait for a connection.
    fn is_exhausted(&self, purpose: Purpose) -> bool {
        match (self, purpose) {
            (Self::Sqlite { readers, .. }, Purpose::Read | Purpose::Look) => is_exhausted(readers),
            (Self::Sqlite { writer, .. }, Purpose::Write | Purpose::WriteRelaxed) => {
                is_exhausted(writer.pool())
            }
            (Self::Postgres(pool), _) => pool.is_exhausted(),
            (Self::Mysql(connections), _) => connections.pool.is_exhausted(),
        }
    }

    fn open_connections(&self) -> u64 {
        match self {
            Self::Sqlite {
                readers,
                writer,
                writer_relaxed,
            } => u64::from(readers.size() + writer.pool().size() + writer_relaxed.size()),
            Self::Postgres(pool) => pool.open_sessions(),
            Self::Mysql(connections) => connections.pool.open_sessions(),
        }
    }
}

fn capacity(pool: &SqlitePool) -> u32 {
    pool.options().get_max_connections()
}

fn is_exhausted(pool: &SqlitePool) -> bool {
    pool.num_idle() == 0 && pool.size() >= capacity(pool)
}

/// Why no transaction could be begun.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(
        "the SQLite database {name} cannot be opened: {what}; correct `database_connection_string`"
    )]
    NoPlace { name: String, what: &'static str },
    #[error(
        "{name} is not a database of SQLite; correct `database_connection_string`, or restore the file from a backup"
    )]
    OtherFile { name: String, source: SqlError },
    #[error("the SQLite database {name} is damaged; restore the file from a backup")]
    DamagedFile { name: String, source: SqlError },
    #[error(
        "cannot open the SQLite database {name}; check that this user may read and write it and its folder, and that the disk has \
         space"
    )]
    OpenFile { name: String, source: SqlError },
    #[error(
        "cannot connect to {name}; check that the server runs, and host, user, password, database and certificates in \
         the configuration"
    )]
    Connect { name: String, source: SqlError },
    #[error("cannot begin a transaction on {name}")]
    Begin { name: String, source: SqlError },
    #[error(
        "cannot begin a transaction on {name}: another program has locked the file; end its transaction, and start again"
    )]
    LockedFile { name: String, source: SqlError },
    #[error(
        "{name} is behind a pooler that gives each transaction another session, such as PgBouncer with `pool_mode = \
         transaction`, and this host keeps settings and prepared statements in its sessions. Nothing was written; set \
         `pool_mode = session` for this database, or connect to the server directly"
    )]
    SharedSessions { name: String },
    #[error(
        "{name} is in a group of MySQL's group replication with several primaries, where a row that this host locks to prove that \
         it is the master is locked on one member only. Nothing was written; give the group a single primary with `SELECT \
         group_replication_switch_to_single_primary_mode()`"
    )]
    SeveralPrimaries { name: String },
}

impl DatabaseError {
    /// Whether the server is away, or has ended a session.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Connect { source, .. } => errors::is_outage(source),
            // The beginning of a transaction waits for no other one.
            Self::Begin { source, .. } => errors::is_outage(source) || errors::is_transient(source),
            Self::NoPlace { .. }
            | Self::OtherFile { .. }
            | Self::DamagedFile { .. }
            | Self::OpenFile { .. }
            | Self::LockedFile { .. }
            | Self::SharedSessions { .. }
            | Self::SeveralPrimaries { .. } => false,
        }
    }

    /// Whether a transaction may begin when it is tried again: the next one gets another session,
    /// which may be on another server.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Begin { source, .. } if errors::is_transient(source))
    }
}

impl Database {
    /// Checks that a file of SQLite can be where its address says. Opens and connects nothing.
    ///
    /// # Errors
    /// [`DatabaseError::NoPlace`].
    pub fn check_place(address: &Address) -> Result<(), DatabaseError> {
        let Address::Sqlite(path) = address else {
            return Ok(());
        };
        match bbs_files::obstacle(path) {
            None => Ok(()),
            Some(what) => Err(DatabaseError::NoPlace {
                name: address.to_string(),
                what,
            }),
        }
    }

    /// Opens the database with at least one connection, so that a wrong address fails at once.
    /// Creates an SQLite file that does not exist.
    ///
    /// # Errors
    /// As [`Database::check_place`]; [`DatabaseError::OtherFile`],
    /// [`DatabaseError::DamagedFile`], [`DatabaseError::OpenFile`] or [`DatabaseError::Connect`],
    /// naming the database.
    pub async fn open(address: &Address) -> Result<Self, DatabaseError> {
        Self::check_place(address)?;
        let name = address.to_string();
        let replacement = Arc::default();
        let pools = match address {
            Address::Sqlite(path) => sqlite::open(path).await,
            Address::Server(server) => match server.dialect {
                Dialect::Postgres => postgres::open(server, &replacement)
                    .await
                    .map(Pools::Postgres),
                Dialect::Mysql | Dialect::Sqlite => MysqlConnections::open(server, &replacement)
                    .await
                    .map(|opened| Pools::Mysql(Box::new(opened))),
            },
        };
        // The address does not show which of the two it is.
        let name = match &pools {
            Ok(Pools::Mysql(connections)) if connections.kind.is_mariadb => {
                name.replacen(&Dialect::Mysql.to_string(), "MariaDB", 1)
            }
            _ => name,
        };
        match (pools, address) {
            (Ok(pools), _) => Ok(Self(Arc::new(Inner {
                pools,
                name,
                counters: Arc::default(),
                replacement,
            }))),
            (Err(source), Address::Sqlite(_)) if sqlite::is_other_file(&source) => {
                Err(DatabaseError::OtherFile { name, source })
            }
            (Err(source), Address::Sqlite(_)) if sqlite::is_damaged_file(&source) => {
                Err(DatabaseError::DamagedFile { name, source })
            }
            (Err(source), Address::Sqlite(_)) => Err(DatabaseError::OpenFile { name, source }),
            (Err(source), Address::Server(_)) => Err(DatabaseError::Connect { name, source }),
        }
    }

    /// Checks that a session is this host's alone: that its settings stay, and those of another are
    /// not seen in it; and that one server accepts writes, so that the fence holds. Changes nothing
    /// in the database.
    ///
    /// # Errors
    /// [`DatabaseError::SharedSessions`], [`DatabaseError::SeveralPrimaries`], or
    /// [`DatabaseError::Connect`] if a statement fails.
    pub async fn check_sessions(&self) -> Result<(), DatabaseError> {
        let name = || self.0.name.clone();
        let failed = |source| DatabaseError::Connect {
            name: name(),
            source,
        };
        match &self.0.pools {
            Pools::Sqlite { .. } => Ok(()),
            Pools::Postgres(pool) => {
                let is_own = postgres::keeps_settings(pool).await.map_err(failed)?;
                if is_own {
                    Ok(())
                } else {
                    Err(DatabaseError::SharedSessions { name: name() })
                }
            }
            Pools::Mysql(connections) => {
                let variables = connections.variables().await.map_err(failed)?;
                if variables.has_several_primaries() {
                    Err(DatabaseError::SeveralPrimaries { name: name() })
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Whether the database is in a Galera cluster, where a locked row is locked on one node only.
    ///
    /// # Errors
    /// If a statement fails.
    pub async fn is_in_cluster(&self) -> Result<bool, SqlError> {
        let Pools::Mysql(connections) = &self.0.pools else {
            return Ok(false);
        };
        Ok(connections.variables().await?.is_in_cluster())
    }

    /// The kind of its server, as it was when the database was opened.
    pub fn server_kind(&self) -> ServerKind {
        match &self.0.pools {
            Pools::Mysql(connections) => connections.kind,
            Pools::Sqlite { .. } | Pools::Postgres(_) => ServerKind::of(self.dialect()),
        }
    }

    /// The database's dialect.
    pub fn dialect(&self) -> Dialect {
        match self.0.pools {
            Pools::Sqlite { .. } => Dialect::Sqlite,
            Pools::Postgres(_) => Dialect::Postgres,
            Pools::Mysql(_) => Dialect::Mysql,
        }
    }

    /// The most transactions that can read at once; further ones wait.
    pub fn readers(&self) -> usize {
        let most = match &self.0.pools {
            Pools::Sqlite { readers, .. } => capacity(readers),
            Pools::Postgres(pool) => pool.capacity(),
            Pools::Mysql(connections) => connections.pool.capacity(),
        };
        most as usize
    }

    /// For log lines and messages: a path or the server's address. Never contains a password.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Begins a read-only transaction on one snapshot of the database. Keep it short.
    ///
    /// # Errors
    /// [`DatabaseError::Begin`] if no connection can be had or the transaction cannot begin.
    pub async fn read(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Read).await
    }

    /// A connection for a single read-only statement, which sees one snapshot by itself. A second
    /// statement may see a later one. Saves the round trips of `BEGIN` and `COMMIT`.
    ///
    /// # Errors
    /// [`DatabaseError::Begin`] if no connection can be had.
    pub async fn look(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Look).await
    }

    /// Begins a transaction that may write. On SQLite it takes the write lock at once, since
    /// upgrading a read transaction later could fail. Writes under the master lock begin with
    /// `lock::Fence::begin` instead.
    ///
    /// # Errors
    /// [`DatabaseError::Begin`] if no connection can be had or the transaction cannot begin;
    /// [`DatabaseError::LockedFile`] if another program writes to an SQLite file for too long.
    pub async fn write(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::Write).await
    }

    /// Like [`write`](Self::write), with a commit that does not wait for the disk where the
    /// database supports it. A crash of the machine may undo the commit, as a whole and together
    /// with every later relaxed one; a later durable commit makes it durable too.
    ///
    /// # Errors
    /// [`DatabaseError::Begin`] if no connection can be had or the transaction cannot begin.
    pub async fn write_relaxed(&self) -> Result<Transaction, DatabaseError> {
        self.begin(Purpose::WriteRelaxed).await
    }

    /// Moves what SQLite's write-ahead log has into the file, so that a commit that must not take
    /// long does not have to. Others read and write meanwhile.
    ///
    /// # Errors
    /// The log or the file cannot be read or written.
    pub async fn checkpoint(&self) -> Result<(), SqlError> {
        if let Pools::Sqlite { writer_relaxed, .. } = &self.0.pools {
            sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)")
                .execute(writer_relaxed)
                .await?;
        }
        Ok(())
    }

    /// Runs in a task of its own, which completes even if the caller is cancelled: the drivers
    /// treat a connection whose `BEGIN` was abandoned halfway as one without a transaction.
    async fn begin(&self, purpose: Purpose) -> Result<Transaction, DatabaseError> {
        let inner = Arc::clone(&self.0);
        let begun = tokio::spawn(async move { inner.begin(purpose).await }).await;
        let failed = |source| {
            let name = self.0.name.clone();
            if matches!(self.0.pools, Pools::Sqlite { .. }) && sqlite::is_locked(&source) {
                DatabaseError::LockedFile { name, source }
            } else {
                DatabaseError::Begin { name, source }
            }
        };
        begun
            .map_err(|_| failed(SqlError::WorkerCrashed))?
            .map_err(failed)
    }

    /// The counters since the database was opened; peaks are those of the current window.
    pub fn statistics(&self) -> Statistics {
        self.0.counters.read(self.0.pools.open_connections())
    }

    /// Like [`statistics`](Self::statistics), and ends the current window: later peaks belong to
    /// the next one.
    pub fn end_statistics_window(&self) -> Statistics {
        self.0.counters.end_window(self.0.pools.open_connections())
    }

    /// Closes all connections, and waits up to 5 s for those in use. Connections that remain end
    /// with the process.
    pub async fn close(&self) {
        let closed = async {
            match &self.0.pools {
                Pools::Sqlite {
                    readers,
                    writer,
                    writer_relaxed,
                } => {
                    readers.close().await;
                    writer_relaxed.close().await;
                    writer.pool().close().await;
                }
                Pools::Postgres(pool) => pool.close().await,
                Pools::Mysql(connections) => connections.pool.close().await,
            }
        };
        if tokio::time::timeout(LONGEST_CLOSE, closed).await.is_err() {
            tracing::warn!(
                name = self.0.name,
                "a connection is still in use after the longest wait; it ends with the process"
            );
        }
    }
}

impl Inner {
    async fn begin(&self, purpose: Purpose) -> Result<Transaction, SqlError> {
        // A single statement without `BEGIN` has no transaction to count as a query.
        let query = (purpose != Purpose::Look).then(|| self.counters.begin());
        let waits = self.pools.is_exhausted(purpose);
        let began = Instant::now();
        let begun = self.pools.begin(purpose).await;
        let (begun, attachment) = match query {
            Some(query) => query.end(begun)?,
            None => begun?,
        };
        if waits {
            self.counters.waited(began.elapsed());
        }
        Ok(Transaction::new(
            begun,
            attachment,
            &self.counters,
            &self.replacement,
            self.pools.statement_limits(),
        ))
    }
}
