//! Connecting to PostgreSQL: its pool, its session settings, TLS.

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Executor};

use super::{Server, SqlError, Tls, still_there};

/// One state of the database, whatever others commit meanwhile.
pub(super) const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Does not wait until its commit is on disk. The log keeps the order: a later commit that waits covers it.
pub(super) const WRITE_AT_EASE: &str = "BEGIN; SET LOCAL synchronous_commit = off";

/// The planner goes by statistics, and a table that grew since it was last analysed has none that are true: it then reads
/// the whole table for a list of keys, or keeps a plan made for a table that was empty.
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
    // Set by statement, not when connecting: connection poolers refuse unknown start-up parameters.
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
