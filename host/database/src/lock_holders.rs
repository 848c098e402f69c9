//! The sessions that hold locks on tables, as far as the server shows them to this user.

use super::{Database, Dialect, SqlError, Transaction, sql};

const POSTGRES: &str = "SELECT DISTINCT format('session %s of %s (%s)', a.pid, a.usename, a.application_name) FROM pg_locks l \
     JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.granted AND a.datname = \
     current_database() AND c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND \
     a.application_name <> 'bbs' ORDER BY 1";

const MYSQL: &str = "SELECT DISTINCT CONCAT('session ', t.processlist_id, ' of ', t.processlist_user) FROM \
     performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id WHERE \
     m.lock_status = 'GRANTED' AND (m.object_type = 'TABLE' AND m.object_schema = DATABASE() AND m.lock_duration = 'TRANSACTION' \
     OR m.object_type IN ('BACKUP', 'BACKUP LOCK') AND m.lock_duration = 'EXPLICIT') \
     AND t.processlist_id <> CONNECTION_ID() ORDER BY 1";

/// One text for each session. None where the server does not show them: only administrators of
/// MySQL and MariaDB see the locks of others, and SQLite names no clients.
pub async fn lock_holders(database: &Database) -> Vec<String> {
    let query = match database.dialect() {
        Dialect::Sqlite => return Vec::new(),
        Dialect::Postgres => POSTGRES,
        Dialect::Mysql => MYSQL,
    };
    let Ok(mut reader) = database.look().await else {
        return Vec::new();
    };
    let rows = reader.fetch(sql(query)).await.unwrap_or_default();
    rows.iter()
        .filter_map(|row| row.text(0).ok().flatten().map(str::to_owned))
        .collect()
}

/// The statement for this user's sessions in this database, which a user without further rights may
/// end. A session that waits for a row itself has no lock of this mode.
const END: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a \
     ON a.pid = l.pid WHERE l.granted AND l.relation = to_regclass(?) AND l.mode = 'RowShareLock' AND a.usename = current_user \
     AND a.datname = current_database()) h";

/// Ends the sessions of this user that have locked rows of a table to prove that they stay, and
/// returns their number. None but on PostgreSQL: no other server shows these locks to a user
/// without further rights.
///
/// # Errors
/// If the statement fails or the connection is lost.
pub async fn end_holders_of_rows(tx: &mut Transaction, table: &str) -> Result<i64, SqlError> {
    if tx.dialect() != Dialect::Postgres {
        return Ok(0);
    }
    tx.fetch_number(sql(END).bind(table)).await
}
