//! Waits for lock waits, so that a test knows that a session is blocked without guessing a time.

use std::net::SocketAddr;
use std::time::Duration;

use bbs::testing::database::Dialect;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use super::super::engine::{PASSWORD, USER};
use super::super::mariadb::OBSERVER;
use super::super::{PATIENCE, outlast, pause};
use super::{Kind, Location, TestDatabase};

impl TestDatabase {
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
            while waiting_sessions(self.kind, address, &name).await.expect("the sessions can be listed") == 0 {
                pause().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("a session waits for a lock within the patience");
    }
}

/// InnoDB answers queries for its transactions from a copy, which it renews only after this time without such a query.
const TRANSACTIONS_CACHED: Duration = Duration::from_millis(100);

/// The number of sessions of a database that wait for a lock.
async fn waiting_sessions(kind: Kind, address: SocketAddr, name: &str) -> Result<i64, sqlx::Error> {
    if kind.dialect() == Dialect::Mysql {
        let query = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p \
             ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = '{name}') \
             + (SELECT COUNT(*) FROM information_schema.processlist \
             WHERE db = '{name}' AND state LIKE 'Waiting for table%')"
        );
        static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _turn = ONE_AT_A_TIME.lock().await;
        outlast(TRANSACTIONS_CACHED).await;
        let mut connection = MySqlConnection::connect(&format!("mysql://{OBSERVER}:{PASSWORD}@{address}/")).await?;
        return sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await;
    }
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut connection = PgConnection::connect(&format!("postgres://{USER}:{PASSWORD}@{address}/{name}")).await?;
    sqlx::query_scalar(query).fetch_one(&mut connection).await
}
