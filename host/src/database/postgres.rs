//! Connections to PostgreSQL: the pool, session settings, TLS.

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Executor};

use super::{Server, SqlError, Tls, still_there};

/// Reads from one snapshot, whatever other transactions commit meanwhile.
pub(super) const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The commit does not wait for the disk. The log is ordered: a later durable commit flushes it too.
pub(super) const WRITE_RELAXED: &str = "BEGIN; SET LOCAL synchronous_commit = off";

/// The planner relies on statistics, and a table that grew since its last `ANALYZE` has outdated ones: it would scan the
/// whole table for a list of keys, or keep a plan made for an empty table.
pub(super) const BY_KEY: &str = "SET LOCAL enable_seqscan = off";

pub(super) async fn open(server: &Server) -> Result<PgPool, SqlError> {
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&server.host)
        .port(server.port)
        .username(&server.user)
        .password(&server.password)
        .database(&server.database)
        .application_name("bbs");
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
    let limits = &server.limits;
    // By statement and not as start-up parameters: connection poolers reject unknown ones.
    let session = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        limits.statement_timeout.as_millis(),
        limits.idle_in_transaction_timeout.as_millis()
    );
    PgPoolOptions::new()
        .max_connections(limits.max_connections)
        .min_connections(limits.min_connections)
        .max_lifetime(limits.max_lifetime)
        .acquire_timeout(limits.connect_timeout)
        .test_before_acquire(false)
        .before_acquire(|connection, known| Box::pin(still_there(connection, known)))
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move { connection.execute(sqlx::raw_sql(AssertSqlSafe(session))).await.map(drop) })
        })
        .connect_with(options)
        .await
}
