//! The sessions of other clients that hold locks on tables, as far as the server shows them to this user.

use super::{Database, Dialect, sql};

const POSTGRES: &str = "SELECT DISTINCT format('session %s of %s (%s)', a.pid, a.usename, a.application_name) FROM pg_locks l \
     JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.granted AND a.datname = \
     current_database() AND c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND \
     a.application_name <> 'bbs' ORDER BY 1";

const MYSQL: &str = "SELECT DISTINCT CONCAT('session ', t.processlist_id, ' of ', t.processlist_user) FROM \
     performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id WHERE \
     m.lock_status = 'GRANTED' AND m.object_type = 'TABLE' AND m.object_schema = DATABASE() AND m.lock_duration = 'TRANSACTION' \
     AND t.processlist_id <> CONNECTION_ID() ORDER BY 1";

/// One text for each session. None where the server does not show them: only administrators of MySQL and MariaDB see the locks of
/// others, and SQLite names no clients.
pub async fn lock_holders(database: &Database) -> Vec<String> {
    let query = match database.dialect() {
        Dialect::Sqlite => return Vec::new(),
        Dialect::Postgres => POSTGRES,
        Dialect::Mysql => MYSQL,
    };
    let Ok(mut reader) = database.look().await else { return Vec::new() };
    let rows = reader.fetch(sql(query)).await.unwrap_or_default();
    rows.iter().filter_map(|row| row.text(0).ok().flatten().map(str::to_owned)).collect()
}
