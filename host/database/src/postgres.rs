//! Connections to PostgreSQL: the pool, session settings, TLS.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, TryFutureExt};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};
use tokio::time::timeout;
use uuid::Uuid;

use super::opener::{Connected, Driver, SessionName, Statements, WaitLimit};
use super::pool::SessionPool;
use super::replacement::SessionReplacement;
use super::session::ServerSession;
use super::{ClientCertificate, Server, SqlError, Tls};

/// Reads from one snapshot, whatever other transactions commit meanwhile.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The commit does not wait for the disk. The log is ordered: a later durable commit flushes it
/// too.
const RELAXED: &str = "SET LOCAL synchronous_commit = off";

/// Settings with which rows are found by key and read in the order of keys, by index. The planner
/// relies on statistics, and a table that grew since its last `ANALYZE` has outdated ones: it would
/// scan or sort the whole table for a page, and keep a plan made for an empty table. A condition
/// without an index is scanned for all the same, at a nominal cost that would have the plan
/// compiled.
const BY_KEY: &str =
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off";

/// A policy that hides rows from this user is an error of the statement that it would affect.
/// Otherwise a migration would copy what it sees, and drop the rest with the original.
const ALL_ROWS: &str = "SET row_security = off";

/// The server notices within a second that the host of a statement has ended, and ends the
/// statement. Not every system can.
const NOTICE_END: &str = "client_connection_check_interval = 1000";

/// From PostgreSQL 17 on, the limit of a server may end sessions that keep to those of this host,
/// such as one that builds an index.
const ANY_TRANSACTION_TIME: &str = "transaction_timeout = 0";

/// Distinguishes a server from others by its start.
const NAME: &str = "SELECT pg_backend_pid()::bigint, pg_postmaster_start_time()::text";

/// A PostgreSQL server.
#[derive(Debug)]
pub(super) struct PostgresDriver {
    options: PgConnectOptions,
    session: Arc<str>,
    statements: Statements,
}

pub(super) async fn open(
    server: &Server,
    replacement: &Arc<SessionReplacement>,
) -> Result<SessionPool<PostgresDriver>, SqlError> {
    // A transaction that writes holds the fence. So its waits for locks are as long as one of a
    // host that froze may be idle.
    let longest_wait_ms = server.limits.idle_in_transaction_timeout.as_millis();
    // The default isolation is the owner's.
    let write =
        format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {longest_wait_ms}");
    let statements = Statements {
        read: READ.into(),
        write_relaxed: format!("{write}; {RELAXED}").into(),
        write: write.into(),
        commit: "COMMIT".into(),
        rollback: "ROLLBACK".into(),
    };
    let driver = PostgresDriver {
        options: options(server),
        session: session(server).into(),
        statements,
    };
    SessionPool::open(driver, &server.limits, replacement, Arc::default()).await
}

impl Driver for PostgresDriver {
    type Database = Postgres;

    const SKIPS_INTERRUPTED: bool = true;

    async fn connect(&self) -> Result<Connected<Self>, SqlError> {
        let mut connection = self.options.connect().await?;
        Self::run(&mut connection, &self.session).await?;
        let row = connection.fetch_one(sqlx::raw_sql(NAME)).await?;
        let number: i64 = row.try_get_unchecked(0)?;
        let name = SessionName {
            server: row.try_get_unchecked(1)?,
            number: number.cast_unsigned(),
        };
        Ok(Connected { connection, name })
    }

    fn run<'a>(
        connection: &'a mut PgConnection,
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

    fn ends_long_statements(&self) -> bool {
        true
    }

    fn kill(number: u64) -> String {
        format!("SELECT pg_terminate_backend({number})")
    }

    fn limit_waits(limit: Duration) -> WaitLimit {
        WaitLimit {
            statement: format!("SET LOCAL lock_timeout = {}", limit.as_millis()),
            stays: false,
        }
    }
}

fn options(server: &Server) -> PgConnectOptions {
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&server.host)
        .port(server.port)
        .username(&server.user)
        .password(&server.password)
        .database(&server.database)
        .application_name("bbs")
        // For numbers that no column here has. PgBouncer refuses a connection for it.
        .extra_float_digits(None);
    if let Some(socket) = &server.socket {
        options = options.socket(socket);
    }
    options = match &server.tls {
        Tls::Off => options.ssl_mode(PgSslMode::Disable),
        Tls::Preferred => options.ssl_mode(PgSslMode::Prefer),
        Tls::Required => options.ssl_mode(PgSslMode::Require),
        Tls::Verified { ca_file, identity } => {
            let mode = if *identity {
                PgSslMode::VerifyFull
            } else {
                PgSslMode::VerifyCa
            };
            let options = options.ssl_mode(mode);
            ca_file
                .iter()
                .fold(options, |options, file| options.ssl_root_cert(file))
        }
    };
    if let Some(ClientCertificate { certificate, key }) = &server.client_certificate {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    options
}

/// A parameter without a meaning to the server, by which a session is recognised.
const MARK: &str = "bbs.session";
/// Longest wait for a second session: a pooler in session mode may have none left.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Whether a setting of one session stays there and is not seen in another. True if there is no
/// second session to compare with.
///
/// Behind a pooler that gives every transaction another session of the server, one client finds the
/// setting of the other, or none: the pooler gives it the session that was used last, or, if it
/// takes turns, one of two successive looks is at another session. Nothing is prepared, which would
/// fail there for another reason.
pub(super) async fn keeps_settings(pool: &SessionPool<PostgresDriver>) -> Result<bool, SqlError> {
    let mut one = pool.session().await?;
    let Ok(Ok(mut other)) = timeout(LONGEST_WAIT, pool.session()).await else {
        return Ok(true);
    };
    let [first, second] = [Uuid::new_v4(), Uuid::new_v4()].map(|value| value.to_string());
    let marks = async {
        set_session_mark(&mut one, &first).await?;
        set_session_mark(&mut other, &second).await?;
        Ok([
            session_mark(&mut one).await?,
            session_mark(&mut one).await?,
            session_mark(&mut other).await?,
        ])
    };
    let found = pool.answered(marks).await?;
    Ok(found == [first.clone(), first, second])
}

async fn set_session_mark(
    session: &mut ServerSession<PostgresDriver>,
    value: &str,
) -> Result<(), SqlError> {
    let statement = format!("SELECT set_config('{MARK}', '{value}', false)");
    let (connection, reading) = session.statement()?;
    let set = connection
        .execute(sqlx::raw_sql(AssertSqlSafe(statement)))
        .await;
    reading.ended(set).map(drop)
}

async fn session_mark(session: &mut ServerSession<PostgresDriver>) -> Result<String, SqlError> {
    let statement = format!("SELECT COALESCE(current_setting('{MARK}', true), '')");
    let (connection, reading) = session.statement()?;
    let row = connection
        .fetch_one(sqlx::raw_sql(AssertSqlSafe(statement)))
        .await;
    reading.ended(row)?.try_get_unchecked(0)
}

/// The statements that begin a session. By statement and not as start-up parameters: connection
/// poolers reject unknown ones.
fn session(server: &Server) -> String {
    let limits = &server.limits;
    let mut session = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; {}; {}; {ALL_ROWS}; {BY_KEY}",
        limits.statement_timeout.as_millis(),
        limits.idle_in_transaction_timeout.as_millis(),
        set_if_known(NOTICE_END),
        set_if_known(ANY_TRANSACTION_TIME)
    );
    for (name, value) in &server.settings {
        let [name, value] = [name, value].map(|text| text.replace('\\', r"\\").replace('\'', "''"));
        session += &format!("; SELECT set_config(E'{name}', E'{value}', false)");
    }
    session
}

/// The statement that changes a setting which not every server has.
fn set_if_known(setting: &str) -> String {
    format!("DO $$ BEGIN SET {setting}; EXCEPTION WHEN OTHERS THEN NULL; END $$")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::{ConnectionLimits, Dialect};

    /// The parameters that PgBouncer accepts by default.
    const ACCEPTED: [&str; 6] = [
        "user",
        "database",
        "application_name",
        "client_encoding",
        "DateStyle",
        "TimeZone",
    ];

    #[tokio::test]
    async fn startup_message_has_only_parameters_that_poolers_accept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            dialect: Dialect::Postgres,
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            socket: None,
            user: "diego".to_owned(),
            password: String::new().into(),
            database: "cf".to_owned(),
            tls: Tls::Off,
            client_certificate: None,
            settings: vec![("search_path".to_owned(), "diego".to_owned())],
            limits: ConnectionLimits::default(),
        };
        let connecting =
            tokio::spawn(async move { open(&server, &Arc::default()).await.map(drop) });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = vec![0; stream.read_u32().await.unwrap() as usize - 4];
        stream.read_exact(&mut message).await.unwrap();
        connecting.abort();
        let texts: Vec<_> = message[4..]
            .split(|byte| *byte == 0)
            .map(|text| std::str::from_utf8(text).unwrap())
            .collect();
        for pair in texts.chunks(2).filter(|pair| !pair[0].is_empty()) {
            assert!(ACCEPTED.contains(&pair[0]), "{texts:?}");
        }
        assert!(texts.contains(&"diego"), "{texts:?}");
    }
}
