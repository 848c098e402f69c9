//! Waits for lock waits, so that a test knows that a session is blocked without guessing a time.

use std::net::SocketAddr;
use std::time::Duration;

use bbs::testing::database::{Address, ConnectionLimits, Database, Dialect, sql};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

use super::super::engine::{PASSWORD, USER};
use super::super::mariadb::OBSERVER;
use super::super::{PATIENCE, pause};
use super::{Kind, Location, TestDatabase, execute};

impl TestDatabase {
    /// Opens the database with another limit of idle transactions.
    ///
    /// # Panics
    /// On SQLite, which has no such limit.
    pub async fn open_with_idle_limit(&self, limit: Duration) -> Database {
        self.open_limited(|limits| limits.idle_in_transaction_timeout = limit)
            .await
    }

    /// Opens the database with other limits.
    ///
    /// # Panics
    /// On SQLite, which has none.
    pub async fn open_limited(&self, change: impl FnOnce(&mut ConnectionLimits)) -> Database {
        let Address::Server(mut server) = self.address() else {
            panic!("not a server")
        };
        change(&mut server.limits);
        Database::open(&Address::Server(server))
            .await
            .expect("the server runs")
    }

    /// Waits until a session of this database waits for a lock of another session.
    ///
    /// # Panics
    /// After [`PATIENCE`] without one, or on SQLite, which has no such wait.
    pub async fn wait_for_lock_wait(&self) {
        let (address, name) = match &*self.location {
            Location::File { path, .. } => panic!("{} is a file", path.display()),
            Location::Server { address, name, .. } => (*address, name.clone()),
        };
        let waiting = async {
            let mut observer = LockObserver::connect(self.kind, address, &name)
                .await
                .expect("the server accepts another session");
            loop {
                match observer.waiting_sessions(&name).await {
                    Ok(0) => {}
                    Ok(_) => return,
                    Err(error) => assert!(
                        is_unprintable(&error),
                        "the sessions cannot be listed: {error}"
                    ),
                }
                pause().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("a session waits for a lock within the patience");
    }
}

/// A session that lists those which wait for locks.
enum LockObserver {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl LockObserver {
    async fn connect(kind: Kind, address: SocketAddr, name: &str) -> Result<Self, sqlx::Error> {
        if kind.dialect() == Dialect::Mysql {
            let url = format!("mysql://{OBSERVER}:{PASSWORD}@{address}/");
            return MySqlConnection::connect(&url).await.map(Self::Mysql);
        }
        let url = format!("postgres://{USER}:{PASSWORD}@{address}/{name}");
        PgConnection::connect(&url).await.map(Self::Postgres)
    }

    /// The number of sessions of the database `name` that wait for a lock.
    async fn waiting_sessions(&mut self, name: &str) -> Result<i64, sqlx::Error> {
        let connection = match self {
            Self::Postgres(connection) => {
                let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
                return sqlx::query_scalar(query).fetch_one(&mut *connection).await;
            }
            Self::Mysql(connection) => connection,
        };
        let query = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{name}' AND state LIKE 'Waiting for table%'"
        );
        let for_tables: i64 = sqlx::query_scalar(AssertSqlSafe(query))
            .fetch_one(&mut *connection)
            .await?;
        // Not from `innodb_trx`, a copy that InnoDB renews only after 100 ms without a query.
        let status = sqlx::raw_sql("SHOW ENGINE INNODB STATUS")
            .fetch_one(&mut *connection)
            .await?;
        Ok(for_tables + waiting_transactions(status.try_get("Status")?, name))
    }
}

/// Whether MySQL cannot list its sessions, because a statement that runs has a character outside of
/// utf8mb3. It can once that statement has ended.
fn is_unprintable(error: &sqlx::Error) -> bool {
    const CANNOT_CONVERT: u16 = 3854;
    let error = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == CANNOT_CONVERT)
}

/// The transactions in InnoDB's status that wait for a lock of a table in the database `name`, each
/// with one line about it: ``RECORD LOCKS .. of table `name`.`table` .. waiting``.
fn waiting_transactions(status: &str, name: &str) -> i64 {
    // Sections before this one describe the last deadlock, with lines of the same form.
    let (_, transactions) = status
        .split_once("LIST OF TRANSACTIONS")
        .expect("the status lists transactions");
    let table = format!("table `{name}`.");
    i64::try_from(
        transactions
            .lines()
            .filter(|line| line.contains(&table) && line.trim_end().ends_with("waiting"))
            .count(),
    )
    .expect("there are few")
}

/// A lock for which a session of this test waits in vain, so that a test knows when the server's
/// lock timeout has passed for others.
pub struct LockTimeout {
    /// Its sessions may be idle for longer than any lock timeout.
    holder: Database,
    waiter: Database,
    /// Removed when it is dropped.
    _test_database: TestDatabase,
}

impl LockTimeout {
    /// Uses a database of its own, on a server with a lock timeout.
    pub async fn on(kind: Kind, server: SocketAddr) -> Self {
        let test_database = TestDatabase::on(kind, server);
        let holder = test_database.open_with_idle_limit(PATIENCE * 2).await;
        let waiter = test_database.open().await;
        execute(&waiter, "CREATE TABLE held (a INT PRIMARY KEY)").await;
        execute(&waiter, "INSERT INTO held (a) VALUES (1)").await;
        Self {
            holder,
            waiter,
            _test_database: test_database,
        }
    }

    /// Waits until the server has ended a wait for a lock that begins now, and so each that began
    /// before.
    pub async fn pass(&self) {
        let mut holding = self.holder.write().await.unwrap();
        holding.execute(sql("UPDATE held SET a = 2")).await.unwrap();
        let mut waiting = self.waiter.write().await.unwrap();
        waiting
            .execute(sql("UPDATE held SET a = 3"))
            .await
            .expect_err("the server has a lock timeout");
    }
}
