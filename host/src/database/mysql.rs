//! Connections to MariaDB and MySQL: the pool, session settings, TLS.

use std::collections::BTreeMap;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions, MySqlRow, MySqlSslMode};
use sqlx::{AssertSqlSafe, Executor, Row};

use super::{ConnectionLimits, Server, SqlError, Tls, still_there};

/// Reads from one snapshot, whatever other transactions commit meanwhile.
pub(super) const READ: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// The SQL mode that the statements of this host are written for: double quotes enclose text, backslashes escape, an empty text
/// is not NULL, and a value that its column cannot hold is an error.
const SQL_MODE: &str = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

pub(super) async fn open(server: &Server) -> Result<MySqlPool, SqlError> {
    // Keeps the server's time zone, on which no statement here depends. `begin_session` sets the SQL mode.
    let mut options = MySqlConnectOptions::new()
        .host(&server.host)
        .port(server.port)
        .username(&server.user)
        .password(&server.password)
        .database(&server.database)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None);
    if let Some(socket) = &server.socket {
        options = options.socket(socket);
    }
    options = match &server.tls {
        Tls::Off => options.ssl_mode(MySqlSslMode::Disabled),
        Tls::Preferred => options.ssl_mode(MySqlSslMode::Preferred),
        Tls::Required => options.ssl_mode(MySqlSslMode::Required),
        Tls::Verified { ca_file, identity } => {
            let mode = if *identity { MySqlSslMode::VerifyIdentity } else { MySqlSslMode::VerifyCa };
            let options = options.ssl_mode(mode);
            ca_file.iter().fold(options, |options, file| options.ssl_ca(file))
        }
    };
    let limits = server.limits.clone();
    MySqlPoolOptions::new()
        .max_connections(limits.max_connections)
        .min_connections(limits.min_connections)
        .max_lifetime(limits.max_lifetime)
        .acquire_timeout(limits.connect_timeout)
        .test_before_acquire(false)
        .before_acquire(|connection, known| Box::pin(still_there(connection, known)))
        .after_connect(move |connection, _| {
            let limits = limits.clone();
            Box::pin(async move { begin_session(connection, &limits).await })
        })
        .connect_with(options)
        .await
}

/// The most bytes that the server accepts at once, with everything that belongs to a statement.
pub(super) async fn packet_bytes(pool: &MySqlPool) -> Result<usize, SqlError> {
    let text: String = pool.fetch_one("SELECT CAST(@@max_allowed_packet AS CHAR)").await?.try_get_unchecked(0)?;
    text.parse().map_err(|fault| SqlError::Decode(Box::new(fault)))
}

/// Sets what statements depend on, whatever the server's own settings are. Safe updates would refuse changes by other columns
/// than keys.
///
/// MariaDB takes seconds and ends an idle transaction; MySQL takes milliseconds, limits only reading statements, and ends
/// an idle connection whether or not it is in a transaction (the pool replaces it when it is needed).
async fn begin_session(connection: &mut MySqlConnection, limits: &ConnectionLimits) -> Result<(), SqlError> {
    let version: String = connection.fetch_one("SELECT VERSION()").await?.try_get_unchecked(0)?;
    let idle_s = limits.idle_in_transaction_timeout.as_secs().max(1);
    let limits = if version.contains("MariaDB") {
        let statement_s = limits.statement_timeout.as_secs_f64();
        format!("idle_transaction_timeout = {idle_s}, SESSION max_statement_time = {statement_s}")
    } else {
        let statement_ms = limits.statement_timeout.as_millis();
        format!("wait_timeout = {idle_s}, SESSION max_execution_time = {statement_ms}")
    };
    let server = replication(connection).await?;
    let isolation = server.isolation();
    let settings = format!(
        "SET SESSION sql_mode = '{SQL_MODE}', SESSION sql_safe_updates = 0, SESSION {limits}; \
         SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(settings))).await?;
    if server.is("wsrep_on", "ON") {
        // Galera: connections of one host may reach different nodes; a read waits until the node has applied every write set
        // that any node has acknowledged.
        connection.execute("SET SESSION wsrep_sync_wait = 1").await?;
    }
    Ok(())
}

/// The variables of a server that say how it replicates, as far as it has them.
struct Replication(BTreeMap<String, String>);

impl Replication {
    fn is(&self, variable: &str, value: &str) -> bool {
        self.0.get(variable).is_some_and(|found| found == value)
    }

    /// The isolation of transactions that write. Repeatable reads would lock the gap in which a record does not exist yet, so that
    /// two calls that make records deadlock; but InnoDB demands them of a server whose binary log has statements.
    fn isolation(&self) -> &'static str {
        if self.is("log_bin", "ON") && self.is("binlog_format", "STATEMENT") {
            "REPEATABLE READ"
        } else {
            "READ COMMITTED"
        }
    }
}

async fn replication(connection: &mut MySqlConnection) -> Result<Replication, SqlError> {
    let query = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'log_bin', 'binlog_format')";
    let rows = connection.fetch_all(query).await?;
    let variable = |row: &MySqlRow| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?));
    rows.iter().map(variable).collect::<Result<_, SqlError>>().map(Replication)
}
