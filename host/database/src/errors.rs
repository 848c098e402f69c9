//! Meaning of the errors of statements, in the codes of each database. Owns the codes; what follows
//! from them is decided by callers.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::SqlError;

/// The error of a statement, with the name of what the statement reads or writes.
#[derive(Debug)]
pub struct StatementError {
    /// A table, or a description for people.
    pub what: String,
    /// The error.
    pub source: SqlError,
}

/// The result of a statement, whose error can be named before it becomes that of a caller.
pub trait StatementResult<T> {
    /// Adds the name of what the statement reads or writes to its error.
    ///
    /// # Errors
    /// That of the statement.
    fn about(self, what: impl Display) -> Result<T, StatementError>;
}

impl<T> StatementResult<T> for Result<T, SqlError> {
    fn about(self, what: impl Display) -> Result<T, StatementError> {
        self.map_err(|source| StatementError {
            what: what.to_string(),
            source,
        })
    }
}

/// Errors of connections to a server that is not there.
const PASSING: [ErrorKind; 9] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkDown,
    ErrorKind::NetworkUnreachable,
    ErrorKind::TimedOut,
    ErrorKind::UnexpectedEof,
];

/// A statement ran longer than its limit, on a server that answers others. It would do so again.
#[derive(Debug, thiserror::Error)]
#[error("a statement ran longer than {0:?}; see db_read_timeout and db_write_timeout")]
pub(super) struct RanTooLong(pub(super) Duration);

/// The server has refused another session beside those of the pool.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has no place for another connection, and none of those that are open is free; raise its limit"
)]
pub(super) struct ServerFull;

/// Whether an error has this type of the host as its cause.
fn is_own<T: std::error::Error + 'static>(error: &SqlError) -> bool {
    matches!(error, SqlError::Io(io) if io.get_ref().is_some_and(|inner| inner.is::<T>()))
}

/// Whether a connection failed for a reason that passes: the server is not there, starts or ends,
/// has no place for another one, or is outside of its cluster.
fn is_unreachable(error: &SqlError) -> bool {
    match error {
        SqlError::Io(io) => PASSING.contains(&io.kind()) && !is_own::<RanTooLong>(error),
        _ => {
            is_shutdown(error)
                || is_full(error)
                || is_out_of_cluster(error)
                || is_of_pooler_without_server(error)
        }
    }
}

/// Whether a session may be opened a moment later. A new one waits for no row, so what looks like a
/// lost conflict is a node of Galera that is cut off: its first statement waits for the cluster.
/// Where the server is full beside sessions of the pool, the next one is one of those.
pub(super) fn may_open_later(error: &SqlError) -> bool {
    !is_server_full(error) && (is_unreachable(error) || is_transient(error))
}

/// An unknown command, in Galera any that needs the cluster.
const MYSQL_UNKNOWN_COMMAND: u16 = 1047;
/// A failed commit, in Galera also a part of a transaction that the cluster did not receive.
const MYSQL_DURING_COMMIT: u16 = 1180;

/// Whether a node of Galera is outside of the primary component of its cluster, or has not joined
/// it yet. Such a node accepts connections and answers pings.
pub(super) fn is_out_of_cluster(error: &SqlError) -> bool {
    mysql_error(error).is_some_and(|mysql| match mysql.number() {
        MYSQL_UNKNOWN_COMMAND => mysql.message().contains("WSREP"),
        MYSQL_DURING_COMMIT => {
            let message = mysql.message();
            message.contains("Primary Component") || message.starts_with("Got error 6 ")
        }
        _ => false,
    })
}

pub(super) fn is_server_full(error: &SqlError) -> bool {
    is_own::<ServerFull>(error)
}

/// MySQL and MariaDB: too many connections, of all users or of one. PostgreSQL: the same.
pub(super) fn is_full(error: &SqlError) -> bool {
    is_server_full(error) || has_code(error, &[1040, 1203, 1226], &["53300"])
}

/// MySQL and MariaDB: the server shuts down; the connection is closed, killed, idle for too long; a
/// proxy has lost the one to the server (two numbers of clients), or could make none (ProxySQL);
/// MySQL is in offline mode, as a member that has left its group (alone, with the reason, or with
/// the user that has set it).
/// PostgreSQL: the session is ended or was idle for too long; the server crashed, or starts.
fn is_shutdown(error: &SqlError) -> bool {
    has_code(
        error,
        &[1053, 1080, 1927, 4031, 2006, 2013, 9001, 3032, 6142, 6143],
        &["57P01", "57P02", "57P03", "57P05", "25P03"],
    )
}

/// PgBouncer's code for all of its own errors; the server's for a message that breaks the protocol.
const POSTGRES_PROTOCOL: &str = "08P01";
/// Exceptions of a connection: it failed, cannot be made, does not exist, or was lost.
const POSTGRES_CONNECTION: [&str; 5] = ["08000", "08001", "08003", "08006", POSTGRES_PROTOCOL];

/// Whether a pooler between this host and PostgreSQL has ended the session, which it does when that
/// of the server is lost. With the severity of an error of a statement these codes mean something
/// else, and the session stays: a function could not connect to another server, or the message
/// would break the protocol each time.
fn is_ended_by_pooler(error: &SqlError) -> bool {
    postgres_error(error).is_some_and(|postgres| {
        postgres.severity() == PgSeverity::Fatal && POSTGRES_CONNECTION.contains(&postgres.code())
    })
}

/// Whether a pooler cannot reach its server. PgBouncer has the same code where it refuses a user, a
/// database or a parameter, which does not pass.
fn is_of_pooler_without_server(error: &SqlError) -> bool {
    is_ended_by_pooler(error)
        && postgres_error(error).is_some_and(|postgres| {
            postgres.code() != POSTGRES_PROTOCOL || postgres.message().contains("server")
        })
}

fn postgres_error(error: &SqlError) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether an error has one of these numbers of MySQL and MariaDB, or, if it is another database's,
/// one of these codes.
fn has_code(error: &SqlError, mysql: &[u16], others: &[&str]) -> bool {
    match mysql_number(error) {
        Some(number) => mysql.contains(&number),
        None => code(error).is_some_and(|code| others.contains(&code.as_ref())),
    }
}

fn code(error: &SqlError) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

/// Whether a statement failed because its session ended, other than by a time limit. What it did in
/// a transaction is rolled back, unless it was the commit.
pub(crate) fn is_lost(error: &SqlError) -> bool {
    match error {
        SqlError::Io(io) => io.kind() != ErrorKind::TimedOut,
        SqlError::Tls(_) => true,
        _ => is_shutdown(error) || is_ended_by_pooler(error),
    }
}

/// Whether the transaction of a failed statement may succeed when it is repeated: it lost a
/// conflict or its session.
pub fn is_repeatable(error: &SqlError) -> bool {
    is_transient(error) || is_lost(error)
}

/// Whether the server is away, or has ended the session.
pub fn is_outage(error: &SqlError) -> bool {
    is_lost(error) || is_unreachable(error)
}

/// The text of an error that a server has answered, without what the driver adds, such as the line
/// in the server's source.
pub fn message_of_server<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let error = match error.downcast_ref::<SqlError>()? {
        // The fault of a group of writes, which each of its members has.
        SqlError::AnyDriverError(shared) => &**shared.downcast_ref::<Arc<SqlError>>()?,
        error => error,
    };
    Some(error.as_database_error()?.message())
}

/// Whether MySQL or MariaDB refuses a change of a table because it cannot make it at once.
pub fn is_not_at_once(error: &SqlError) -> bool {
    has_code(error, &MYSQL_NOT_AT_ONCE, &[])
}

/// The algorithm is not supported, without a reason or with one; the table has been changed at once
/// too often.
const MYSQL_NOT_AT_ONCE: [u16; 3] = [1845, 1846, 4092];

/// Whether a statement failed because a row with that key exists.
pub fn is_unique_violation(error: &SqlError) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation())
}

/// The number of an error of MariaDB or MySQL.
pub(super) fn mysql_number(error: &SqlError) -> Option<u16> {
    Some(mysql_error(error)?.number())
}

fn mysql_error(error: &SqlError) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Access to a database; a privilege on a table, and on a column; a privilege on the server.
const MYSQL_DENIED: [u16; 4] = [1044, 1142, 1143, 1227];

/// Whether the database user lacks a privilege for a statement, or a policy would hide rows from
/// it.
pub fn is_denied(error: &SqlError) -> bool {
    has_code(error, &MYSQL_DENIED, &["42501"])
}

/// Advice about an error of the statements with which a host makes its first table.
pub fn first_write_advice(error: &SqlError) -> &'static str {
    if is_denied(error) {
        "the database user must be allowed to create and change tables"
    } else {
        "see the database's own log"
    }
}

/// Advice about an error for which [`is_read_only`] holds.
pub const READ_ONLY: &str = "the server of this database accepts no writes: it is a standby or a replica, or it is set to \
                             read-only. Connect to the primary server, or end its read-only mode";

/// An option of the server prevents the statement, such as `read_only`; the transaction is
/// read-only; the storage is.
const MYSQL_READ_ONLY: [u16; 3] = [1290, 1792, 1836];

/// Whether a statement failed because the server accepts no writes: a standby, a replica, or one
/// that is set to read-only.
pub fn is_read_only(error: &SqlError) -> bool {
    match mysql_error(error) {
        // The first of the numbers is also that of other options.
        Some(mysql) => {
            MYSQL_READ_ONLY.contains(&mysql.number())
                && mysql.message().to_lowercase().contains("read")
        }
        None => code(error).is_some_and(|code| code == "25006"),
    }
}

/// A row that a server does not accept in one statement, so it was not sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "the row takes {bytes} bytes in a statement, above the `max_allowed_packet` of the server, {packet}"
)]
pub(super) struct RowTooLarge {
    pub(super) bytes: usize,
    pub(super) packet: usize,
}

fn row_too_large(error: &SqlError) -> Option<&RowTooLarge> {
    match error {
        SqlError::Encode(source) => source.downcast_ref(),
        _ => None,
    }
}

/// A row of more bytes than a page holds.
const MYSQL_ROW_SIZE: u16 = 1118;
/// MySQL: a text that is too long for its column, in an `INSERT … SELECT`. Its SQLSTATE is that of
/// a warning.
const MYSQL_TRUNCATED: u16 = 1265;
/// Errors whose messages name a column, and have no value: its range, its length, and the size of a
/// row.
const MYSQL_WITHOUT_VALUES: [u16; 4] = [1264, MYSQL_TRUNCATED, 1406, MYSQL_ROW_SIZE];
/// PostgreSQL: a row, or an entry of an index, of more bytes than a page holds.
const POSTGRES_ROW_SIZE: &str = "54000";

/// Whether a statement failed because of the values of a row: a constraint forbids them, or a
/// column, an index or the table cannot hold them.
pub fn is_refused_row(error: &SqlError) -> bool {
    if refused_characters(error).is_some() || row_too_large(error).is_some() {
        return true;
    }
    if mysql_number(error).is_some_and(|number| [MYSQL_ROW_SIZE, MYSQL_TRUNCATED].contains(&number))
    {
        return true;
    }
    let Some(error) = error.as_database_error() else {
        return false;
    };
    // SQLSTATE classes 22 (data exception) and 23 (constraint violation). SQLite's codes are
    // numbers of another length.
    let is_class =
        |code: &str| code.len() == 5 && (code.starts_with("22") || code.starts_with("23"));
    !matches!(error.kind(), sqlx::error::ErrorKind::Other)
        || error
            .code()
            .is_some_and(|code| is_class(&code) || code == POSTGRES_ROW_SIZE)
}

/// The flaw of a row that a statement was refused for ([`is_refused_row`]), without its values,
/// which the messages of MariaDB and MySQL have.
pub fn refusal(error: &SqlError) -> String {
    if let Some(column) = refused_characters(error) {
        let column = column.map_or_else(|| "a text".to_owned(), |column| format!("`{column}`"));
        return format!(
            "{column} has characters that the character set of its column does not have"
        );
    }
    if let Some(row) = row_too_large(error) {
        return row.to_string();
    }
    if is_unique_violation(error) {
        return "the database has a row with the same key, or compares the key as the same"
            .to_owned();
    }
    match (mysql_number(error), error.as_database_error()) {
        (Some(number), _) if !MYSQL_WITHOUT_VALUES.contains(&number) => {
            format!("error {number} of the server")
        }
        (_, Some(error)) => error.message().to_owned(),
        (_, None) => "the database refuses a value".to_owned(),
    }
}

/// The column whose character set cannot hold a text, if a statement failed for that; the inner
/// value is absent where the server does not name it. Only MySQL and MariaDB, whose `utf8` has no
/// characters of four bytes.
pub fn refused_characters(error: &SqlError) -> Option<Option<String>> {
    let mysql = mysql_error(error)?;
    let message = mysql.message();
    // The first of the numbers is also that of other values, such as a text in a column of
    // integers.
    let is_text =
        mysql.number() != MYSQL_CHARACTERS[0] || message.starts_with("Incorrect string value");
    (is_text && MYSQL_CHARACTERS.contains(&mysql.number()))
        .then(|| column_in(message).map(str::to_owned))
}

/// Incorrect value for a column; illegal mix of collations; MariaDB's and MySQL's impossible
/// conversion.
const MYSQL_CHARACTERS: [u16; 4] = [1366, 1267, 1977, 3988];

/// The column that a message of MySQL or MariaDB names: `for column 'c' at row 1`, with or without
/// schema and table.
fn column_in(message: &str) -> Option<&str> {
    let (_, named) = message.rsplit_once("for column ")?;
    let (named, _) = named.rsplit_once(" at row ")?;
    named
        .rsplit('.')
        .next()
        .map(|name| name.trim_matches(['`', '\'']))
}

/// Whether a statement failed because the table does not exist.
pub fn is_missing_table(error: &SqlError) -> bool {
    // SQLite has no specific code for this. The codes of other databases are longer.
    let is_of_sqlite = error.as_database_error().is_some_and(|error| {
        error.code().is_some_and(|code| code == SQLITE_ERROR)
            && error.message().starts_with("no such table")
    });
    is_of_sqlite || has_code(error, &[MYSQL_NO_SUCH_TABLE], &["42P01"])
}

/// The code of SQLite's errors that have no other.
const SQLITE_ERROR: &str = "1";
const MYSQL_NO_SUCH_TABLE: u16 = 1146;

/// A row that has changed since a snapshot of MariaDB's; a Galera node outside the primary
/// component; lock wait timeout; deadlock, or a certification conflict between Galera nodes; a
/// table that was changed after a snapshot, or after a statement was prepared; a conflict between
/// members of MySQL's group replication.
const MYSQL_TRANSIENT: [u16; 7] = [
    1020,
    MYSQL_UNKNOWN_COMMAND,
    1205,
    MYSQL_DEADLOCK,
    1412,
    1615,
    3101,
];

/// Whether the same work may succeed if the whole transaction is repeated: it lost a conflict with
/// another transaction, and the database has rolled it back.
pub fn is_transient(error: &SqlError) -> bool {
    if let Some(number) = mysql_number(error) {
        return MYSQL_TRANSIENT.contains(&number);
    }
    // PostgreSQL: serialization failure, deadlock, lock not available.
    code(error).is_some_and(|code| ["40001", "40P01", "55P03"].contains(&code.as_ref()))
        || is_outdated(error)
}

const MYSQL_DEADLOCK: u16 = 1213;

/// Whether a deadlock of MySQL or MariaDB is a cause of an error.
pub fn is_deadlock(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .filter_map(|cause| cause.downcast_ref())
        .any(|source| mysql_number(source) == Some(MYSQL_DEADLOCK))
}

/// The routine of PostgreSQL that finds a column of another type. Its message is in the language of
/// the server, and its code that of anything that is not supported.
const POSTGRES_CHANGED_TYPE: &str = "RevalidateCachedQuery";

/// Whether a statement that the session has prepared cannot be used any more: PostgreSQL has
/// forgotten it, or the type of a column has changed.
pub(super) fn is_outdated(error: &SqlError) -> bool {
    postgres_error(error).is_some_and(|postgres| {
        postgres.code() == "26000" || postgres.routine() == Some(POSTGRES_CHANGED_TYPE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_that_breaks_at_a_log_in_may_be_opened_later() {
        let may_open = |kind: ErrorKind| may_open_later(&SqlError::Io(kind.into()));
        assert!(may_open(ErrorKind::ConnectionReset));
        assert!(may_open(ErrorKind::BrokenPipe));
        // A certificate that is not trusted.
        assert!(!may_open(ErrorKind::InvalidData));
    }
}
