//! Connections to PostgreSQL: the pool, session settings, TLS.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Executor, Row};
use tokio::time::timeout;
use uuid::Uuid;

use super::demotion::Demotion;
use super::{ClientCertificate, Server, SqlError, Tls, is_usable};

/// Reads from one snapshot, whatever other transactions commit meanwhile.
pub(super) const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The commit does not wait for the disk. The log is ordered: a later durable commit flushes it too.
pub(super) const WRITE_RELAXED: &str = "BEGIN; SET LOCAL synchronous_commit = off";

/// The planner relies on statistics, and a table that grew since its last `ANALYZE` has outdated ones: it would scan the
/// whole table for a list of keys, or keep a plan made for an empty table.
pub(super) const BY_KEY: &str = "SET LOCAL enable_seqscan = off";

/// A policy that hides rows from this user is an error of the statement that it would affect. Otherwise a migration would copy
/// what it sees, and drop the rest with the original.
const ALL_ROWS: &str = "SET row_security = off";

pub(super) async fn open(server: &Server, demotion: &Arc<Demotion>) -> Result<PgPool, SqlError> {
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
            let mode = if *identity { PgSslMode::VerifyFull } else { PgSslMode::VerifyCa };
            let options = options.ssl_mode(mode);
            ca_file.iter().fold(options, |options, file| options.ssl_root_cert(file))
        }
    };
    if let Some(ClientCertificate { certificate, key }) = &server.client_certificate {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    let limits = &server.limits;
    let session = session(server);
    let demotion = Arc::clone(demotion);
    PgPoolOptions::new()
        .max_connections(limits.max_connections)
        .min_connections(limits.min_connections)
        .max_lifetime(limits.max_lifetime)
        .acquire_timeout(limits.connect_timeout)
        .test_before_acquire(false)
        .before_acquire(move |connection, known| {
            let demotion = Arc::clone(&demotion);
            Box::pin(async move { Ok(is_usable(connection, &known, &demotion).await) })
        })
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move { connection.execute(sqlx::raw_sql(AssertSqlSafe(session))).await.map(drop) })
        })
        .connect_with(options)
        .await
}

/// A parameter without a meaning to the server, by which a session is recognised.
const MARK: &str = "bbs.session";
/// Longest wait for a second session: a pooler in session mode may have none left.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Whether a setting of one session stays there and is not seen in another. True if there is no second session to compare with.
///
/// Behind a pooler that gives every transaction another session of the server, one client finds the setting of the other, or none:
/// the pooler gives it the session that was used last, or, if it takes turns, one of two successive looks is at another session.
/// Nothing is prepared, which would fail there for another reason.
pub(super) async fn keeps_settings(pool: &PgPool) -> Result<bool, SqlError> {
    let mut one = pool.acquire().await?;
    let Ok(Ok(mut other)) = timeout(LONGEST_WAIT, pool.acquire()).await else { return Ok(true) };
    let [first, second] = [Uuid::new_v4(), Uuid::new_v4()].map(|mark| mark.to_string());
    set_mark(&mut one, &first).await?;
    set_mark(&mut other, &second).await?;
    let found = [mark(&mut one).await?, mark(&mut one).await?, mark(&mut other).await?];
    Ok(found == [first.clone(), first, second])
}

async fn set_mark(connection: &mut PgConnection, value: &str) -> Result<(), SqlError> {
    let statement = format!("SELECT set_config('{MARK}', '{value}', false)");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.map(drop)
}

async fn mark(connection: &mut PgConnection) -> Result<String, SqlError> {
    let statement = format!("SELECT COALESCE(current_setting('{MARK}', true), '')");
    connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(statement))).await?.try_get_unchecked(0)
}

/// The statements that begin a session. By statement and not as start-up parameters: connection poolers reject unknown ones.
fn session(server: &Server) -> String {
    let limits = &server.limits;
    let mut session = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; {ALL_ROWS}",
        limits.statement_timeout.as_millis(),
        limits.idle_in_transaction_timeout.as_millis()
    );
    for (name, value) in &server.settings {
        let [name, value] = [name, value].map(|text| text.replace('\\', r"\\").replace('\'', "''"));
        session += &format!("; SELECT set_config(E'{name}', E'{value}', false)");
    }
    session
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::database::{ConnectionLimits, Dialect};

    /// The parameters that PgBouncer accepts by default.
    const ACCEPTED: [&str; 6] = ["user", "database", "application_name", "client_encoding", "DateStyle", "TimeZone"];

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
        let connecting = tokio::spawn(async move { open(&server, &Arc::default()).await.map(drop) });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = vec![0; stream.read_u32().await.unwrap() as usize - 4];
        stream.read_exact(&mut message).await.unwrap();
        connecting.abort();
        let texts: Vec<_> =
            message[4..].split(|byte| *byte == 0).map(|text| std::str::from_utf8(text).unwrap()).collect();
        for pair in texts.chunks(2).filter(|pair| !pair[0].is_empty()) {
            assert!(ACCEPTED.contains(&pair[0]), "{texts:?}");
        }
        assert!(texts.contains(&"diego"), "{texts:?}");
    }
}
