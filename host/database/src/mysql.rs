//! Connections to MariaDB and MySQL: the pool, session settings, TLS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use futures_util::future::{BoxFuture, FutureExt, TryFutureExt};
use sqlx::mysql::{MySql, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};
use tokio::time::timeout;

use super::errors::{may_open_later, mysql_number};
use super::opener::{Connected, Driver, SessionName, Statements, WaitLimit};
use super::outage::{self, LONGEST_OUTAGE, Outage, no_answer};
use super::pool::SessionPool;
use super::replacement::SessionReplacement;
use super::statement::{STATEMENT_BYTES, StatementLimits};
use super::{ConnectionLimits, Dialect, Server, ServerKind, SqlError, Tls};

/// Reads from one snapshot, whatever other transactions commit meanwhile.
const READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
const WRITE: &str = "START TRANSACTION";

/// The SQL mode that the statements of this host are written for: double quotes enclose text,
/// backslashes escape, an empty text is not NULL, and a value that its column cannot hold is an
/// error.
const SQL_MODE: &str = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/// Settings that every server has and any user may change, beside those of [`Variables::QUERY`].
const SETTINGS: [&str; 4] = [
    // Changes by other columns than keys would be refused.
    "sql_safe_updates = 0",
    // A look would leave a transaction open in its session, in which no other one begins then.
    "autocommit = 1",
    "completion_type = 0",
    // Some errors are recognised by their messages.
    "lc_messages = 'en_US'",
];

/// How long the server keeps an idle connection outside of transactions, in seconds: its own
/// default, which is longer than the pool keeps one.
const IDLE_S: u32 = 28_800;

/// The most statements that one connection keeps prepared.
const MOST_PREPARED: u64 = 100;
/// The host's share of the prepared statements that the server allows all of its clients together.
const SHARE_OF_PREPARED: u64 = 2;

/// The number of the error of a log-in that the server rejects.
const ACCESS_DENIED: u16 = 1045;

/// Distinguishes a server from others by its settings.
const NAME: &str = "SELECT CONNECTION_ID(), CONCAT_WS(':', @@hostname, @@port, @@server_id)";

/// The connections to one server.
#[derive(Debug)]
pub(super) struct MysqlConnections {
    pub(super) pool: SessionPool<MysqlDriver>,
    pub(super) statements: StatementLimits,
    pub(super) kind: ServerKind,
}

/// A MariaDB or MySQL server.
#[derive(Debug)]
pub(super) struct MysqlDriver {
    options: MySqlConnectOptions,
    log_in: LogIn,
    limits: ConnectionLimits,
    is_mariadb: bool,
    statements: Statements,
}

/// The properties of a server that stay while it runs.
struct Properties {
    kind: ServerKind,
    /// The most bytes that it accepts at once, with everything that belongs to a statement.
    packet_bytes: usize,
    /// The most statements that all of its clients together may keep prepared.
    prepared_statements: u64,
}

impl MysqlConnections {
    pub(super) async fn open(
        server: &Server,
        replacement: &Arc<SessionReplacement>,
    ) -> Result<Self, SqlError> {
        let options = options(server);
        let limits = &server.limits;
        let log_in = LogIn::of(server, &options);
        let outage = Arc::<Outage>::default();
        let properties = first_look(&log_in, &options, limits, &outage).await?;
        let driver = MysqlDriver {
            options: options
                .statement_cache_capacity(properties.cached_statements(limits.max_connections)),
            log_in,
            limits: limits.clone(),
            is_mariadb: properties.kind.is_mariadb,
            statements: properties.statements(limits),
        };
        let pool = SessionPool::open(driver, limits, replacement, outage).await?;
        let packet = properties.packet_bytes;
        let statements = StatementLimits {
            rows: STATEMENT_BYTES.min(packet / 2),
            packet,
        };
        Ok(Self {
            pool,
            statements,
            kind: properties.kind,
        })
    }

    pub(super) async fn variables(&self) -> Result<Variables, SqlError> {
        let mut session = self.pool.session().await?;
        let (connection, reading) = session.statement()?;
        let read = self.pool.answered(Variables::read(connection)).await;
        reading.ended(read)
    }
}

impl Driver for MysqlDriver {
    type Database = MySql;

    // It loses what it has read of a packet, and does not know of the answer to a preparation. What
    // it takes for the next answer is the rest of that one, or it panics.
    const SKIPS_INTERRUPTED: bool = false;

    async fn connect(&self) -> Result<Connected<Self>, SqlError> {
        let mut connection = self.log_in.connect(&self.options).await?;
        begin_session(&mut connection, &self.limits, self.is_mariadb).await?;
        let row = connection.fetch_one(NAME).await?;
        let name = SessionName {
            server: row.try_get_unchecked(1)?,
            number: row.try_get_unchecked(0)?,
        };
        Ok(Connected { connection, name })
    }

    fn run<'a>(
        connection: &'a mut MySqlConnection,
        statements: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(Arc::clone(statements))))
            .map_ok(drop)
            .boxed()
    }

    fn statements(&self) -> &Statements {
        &self.statements
    }

    // MySQL has no limit for statements that write, nor for those that change the schema.
    fn ends_long_statements(&self) -> bool {
        self.is_mariadb
    }

    fn kill(number: u64) -> String {
        format!("KILL {number}")
    }

    fn limit_waits(limit: Duration) -> WaitLimit {
        let seconds = limit.as_secs().max(1);
        let names = ["lock_wait_timeout", "innodb_lock_wait_timeout"];
        let settings = names.map(|name| format!("SESSION {name} = {seconds}"));
        WaitLimit {
            statement: format!("SET {}", settings.join(", ")),
            stays: true,
        }
    }
}

impl MysqlDriver {
    /// The setting of a session each of whose statements may run for `times` its limit. MySQL has
    /// no limit for statements that write.
    pub(super) fn extended_limit(&self, times: u32) -> Option<String> {
        let limit = self.limits.statement_timeout.saturating_mul(times);
        self.is_mariadb
            .then(|| format!("SET SESSION max_statement_time = {}", limit.as_secs_f64()))
    }
}

impl Properties {
    fn cached_statements(&self, connections: u32) -> usize {
        let share = self.prepared_statements / SHARE_OF_PREPARED / u64::from(connections.max(1));
        share.min(MOST_PREPARED) as usize
    }

    /// MySQL has no limit for idle transactions, only one for idle connections. So each transaction
    /// begins with that limit and ends without it, in the same round trips.
    fn statements(&self, limits: &ConnectionLimits) -> Statements {
        let mut begins = String::new();
        let mut ends = String::new();
        if !self.kind.is_mariadb {
            begins = format!(
                "SET SESSION wait_timeout = {}; ",
                idle_in_transaction_s(limits)
            );
            ends = format!("; SET SESSION wait_timeout = {IDLE_S}");
        }
        let [read, write] = [READ, WRITE].map(|begin| Arc::from(format!("{begins}{begin}")));
        let [commit, rollback] =
            ["COMMIT", "ROLLBACK"].map(|end| Arc::from(format!("{end}{ends}")));
        Statements {
            read,
            write_relaxed: Arc::clone(&write),
            write,
            commit,
            rollback,
        }
    }
}

fn idle_in_transaction_s(limits: &ConnectionLimits) -> u64 {
    limits.idle_in_transaction_timeout.as_secs().max(1)
}

/// The log-in of a user whose password the server keeps as a digest (`caching_sha2_password`). The
/// driver does its part over TCP, with TLS or RSA, but for two cases, in which the server rejects
/// the password: over a Unix socket, which the server takes for as private as TLS, and after the
/// server has switched from another plugin. But once a user has logged in with TLS, the server
/// remembers the password, and needs neither for the next log-ins; `decisions/0021`.
#[derive(Debug)]
struct LogIn {
    /// Absent if the connections themselves have TLS.
    with_tls: Option<MySqlConnectOptions>,
}

impl LogIn {
    fn of(server: &Server, options: &MySqlConnectOptions) -> Self {
        let is_plain = server.tls == Tls::Off;
        Self {
            with_tls: is_plain.then(|| options.clone().ssl_mode(MySqlSslMode::Required)),
        }
    }

    async fn connect(&self, options: &MySqlConnectOptions) -> Result<MySqlConnection, SqlError> {
        let connected = options.connect().await;
        if connected.as_ref().is_err_and(is_rejected) && self.with_tls().await {
            return options.connect().await;
        }
        connected
    }

    /// Logs in with TLS, if the server offers it; returns whether that succeeded. The certificate
    /// is not verified, as the server's key is not in an exchange with RSA.
    async fn with_tls(&self) -> bool {
        let Some(options) = &self.with_tls else {
            return false;
        };
        let Ok(connection) = options.connect().await else {
            return false;
        };
        // The log-in alone counts.
        let _ = connection.close().await;
        true
    }
}

fn is_rejected(error: &SqlError) -> bool {
    mysql_number(error) == Some(ACCESS_DENIED)
}

fn options(server: &Server) -> MySqlConnectOptions {
    // Keeps the server's time zone, on which no statement here depends. `begin_session` sets the
    // SQL mode.
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
    match &server.tls {
        Tls::Off => options.ssl_mode(MySqlSslMode::Disabled),
        Tls::Preferred => options.ssl_mode(MySqlSslMode::Preferred),
        Tls::Required => options.ssl_mode(MySqlSslMode::Required),
        Tls::Verified { ca_file, identity } => {
            let mode = if *identity {
                MySqlSslMode::VerifyIdentity
            } else {
                MySqlSslMode::VerifyCa
            };
            let options = options.ssl_mode(mode);
            ca_file
                .iter()
                .fold(options, |options, file| options.ssl_ca(file))
        }
    }
}

/// Reads the properties over a connection before those of the pool, whose settings depend on them.
/// Waits for a server that starts, as the pool does.
async fn first_look(
    log_in: &LogIn,
    options: &MySqlConnectOptions,
    limits: &ConnectionLimits,
    outage: &Outage,
) -> Result<Properties, SqlError> {
    let longest = limits.connect_timeout.min(LONGEST_OUTAGE);
    // The driver has no limit, for a server that accepts a connection and stays silent.
    let attempt = || async {
        timeout(longest, log_in.connect(options).and_then(properties))
            .await
            .unwrap_or_else(|_| Err(no_answer(longest)))
    };
    let looking = attempt
        .retry(outage::pauses(limits.connect_timeout))
        .when(may_open_later)
        .notify(|error: &SqlError, _| outage.note(error));
    timeout(limits.connect_timeout, looking)
        .await
        .unwrap_or_else(|_| Err(outage.no_session(limits.connect_timeout)))
}

async fn properties(mut connection: MySqlConnection) -> Result<Properties, SqlError> {
    // First, since it lifts limits with which the next query may have no row.
    let variables = Variables::read(&mut connection).await?;
    let query = "SELECT VERSION(), CAST(@@max_allowed_packet AS CHAR), CAST(@@max_prepared_stmt_count AS CHAR)";
    let row = connection.fetch_one(query).await?;
    let version: String = row.try_get_unchecked(0)?;
    let kind = ServerKind {
        dialect: Dialect::Mysql,
        is_mariadb: version.contains("MariaDB"),
        is_in_cluster: variables.is_in_cluster(),
    };
    let properties = Properties {
        kind,
        packet_bytes: number(&row, 1)?,
        prepared_statements: number(&row, 2)?,
    };
    connection.close().await?;
    Ok(properties)
}

fn number<T: std::str::FromStr<Err = std::num::ParseIntError>>(
    row: &MySqlRow,
    at: usize,
) -> Result<T, SqlError> {
    let text: String = row.try_get_unchecked(at)?;
    text.parse()
        .map_err(|fault| SqlError::Decode(Box::new(fault)))
}

/// Sets what statements depend on, whatever the server's own settings are. Snapshot isolation would
/// end a transaction that waited for a row instead of showing it.
///
/// MariaDB takes seconds and ends an idle transaction; MySQL takes milliseconds, limits only
/// reading statements, and has the limit of [`Properties::statements`]. A wait for a row is as long
/// as a transaction of a host that froze may be idle; one for the definition of a table is as long
/// as a statement.
async fn begin_session(
    connection: &mut MySqlConnection,
    limits: &ConnectionLimits,
    is_mariadb: bool,
) -> Result<(), SqlError> {
    let server = Variables::read(connection).await?;
    let idle_s = idle_in_transaction_s(limits);
    let mut settings = vec![
        format!("sql_mode = '{SQL_MODE}'"),
        format!("wait_timeout = {IDLE_S}"),
        format!(
            "lock_wait_timeout = {}",
            limits.statement_timeout.as_secs().max(1)
        ),
        format!("innodb_lock_wait_timeout = {idle_s}"),
    ];
    settings.extend(SETTINGS.map(str::to_owned));
    if is_mariadb {
        settings.push(format!("idle_transaction_timeout = {idle_s}"));
        settings.push(format!(
            "max_statement_time = {}",
            limits.statement_timeout.as_secs_f64()
        ));
    } else {
        settings.push(format!(
            "max_execution_time = {}",
            limits.statement_timeout.as_millis()
        ));
    }
    if server.is("innodb_snapshot_isolation", "ON") {
        settings.push("innodb_snapshot_isolation = 0".to_owned());
    }
    if server.is_in_cluster() {
        // Galera: connections of one host may reach different nodes; a read waits until the node
        // has applied every write set that any node has acknowledged.
        settings.push("wsrep_sync_wait = 1".to_owned());
    }
    let settings = settings
        .iter()
        .map(|setting| format!("SESSION {setting}"))
        .collect::<Vec<_>>()
        .join(", ");
    let isolation = server.isolation();
    let statement = format!("SET {settings}; SET SESSION TRANSACTION ISOLATION LEVEL {isolation}");
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(statement)))
        .await
        .map(drop)
}

/// The variables of a server that say how it replicates and isolates, as far as it has them.
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Percona XtraDB Cluster has `wsrep_on` in sessions alone, so the query is for those of the
    /// session. Before it, the limits of the rows that a query may return and examine are lifted:
    /// those of the server would hide variables, or refuse the query. `DEFAULT` would restore them.
    const QUERY: &str = "SET SESSION sql_select_limit = 18446744073709551615, SESSION sql_big_selects = 1; \
         SHOW SESSION VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider', 'log_bin', \
         'binlog_format', 'innodb_snapshot_isolation', 'group_replication_group_name', \
         'group_replication_single_primary_mode')";

    pub(super) async fn read(connection: &mut MySqlConnection) -> Result<Self, SqlError> {
        let rows = connection.fetch_all(Self::QUERY).await?;
        rows.iter()
            .map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)))
            .collect::<Result<_, SqlError>>()
            .map(Self)
    }

    fn is(&self, variable: &str, value: &str) -> bool {
        self.0.get(variable).is_some_and(|found| found == value)
    }

    /// Whether this is a node of a Galera cluster. A server that is built for clusters has the
    /// first variable without a provider.
    pub(super) fn is_in_cluster(&self) -> bool {
        let has_provider = self
            .0
            .get("wsrep_provider")
            .is_some_and(|provider| !["", "none"].contains(&provider.as_str()));
        self.is("wsrep_on", "ON") && has_provider
    }

    /// Whether every member of a group of MySQL's group replication accepts writes.
    pub(super) fn has_several_primaries(&self) -> bool {
        let is_member = self
            .0
            .get("group_replication_group_name")
            .is_some_and(|name| !name.is_empty());
        is_member && self.is("group_replication_single_primary_mode", "OFF")
    }

    /// The isolation of transactions that write. Repeatable reads would lock the gap in which a
    /// record does not exist yet, so that two calls that make records deadlock; but InnoDB demands
    /// them of a server whose binary log has statements.
    fn isolation(&self) -> &'static str {
        if self.is("log_bin", "ON") && self.is("binlog_format", "STATEMENT") {
            "REPEATABLE READ"
        } else {
            "READ COMMITTED"
        }
    }
}
