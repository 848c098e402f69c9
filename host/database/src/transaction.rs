//! A transaction on one of the three databases. Dropping it rolls it back.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use sea_query_sqlx::SqlxValues;
use sqlx::{AssertSqlSafe, Sqlite};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::group_commit::GroupMember;
use super::mysql::MysqlDriver;
use super::opener::Driver;
use super::postgres::PostgresDriver;
use super::replacement::SessionReplacement;
use super::session::{ServerSession, no_end_within};
use super::statement::{IntoStatement, Statement, StatementLimits};
use super::statistics::{Counters, OpenTransaction, Query};
use super::{Dialect, Row, SqlError};

/// A transaction, or for [`Database::look`](super::Database::look) a connection in autocommit mode.
#[derive(Debug)]
pub struct Transaction {
    pub(super) inner: Inner,
    attachment: Option<Attachment>,
    counters: Arc<Counters>,
    replacement: Arc<SessionReplacement>,
    pub(super) limits: StatementLimits,
    /// Counts it until it ends.
    open: OpenTransaction,
}

/// A guard that is dropped when the transaction ends.
pub(super) type Attachment = Box<dyn Any + Send + Sync>;

pub(super) enum Inner {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// A member of a commit group of SQLite's single writer.
    Grouped(GroupMember),
    Postgres(Box<ServerSession<PostgresDriver>>),
    Mysql(Box<ServerSession<MysqlDriver>>),
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite",
            Self::Grouped(_) => "Grouped",
            Self::Postgres(_) => "Postgres",
            Self::Mysql(_) => "Mysql",
        })
    }
}

impl Inner {
    /// Longest run time of a statement; none on SQLite, where no other process delays it for long.
    pub(super) fn limit(&self) -> Option<Duration> {
        match self {
            Self::Postgres(session) => Some(session.limit()),
            Self::Mysql(session) => Some(session.limit()),
            Self::Sqlite(_) | Self::Grouped(_) => None,
        }
    }

    /// Ends the session, in which a statement runs longer than its limit.
    pub(super) async fn overdue(&mut self) -> SqlError {
        match self {
            Self::Postgres(session) => session.overdue().await,
            Self::Mysql(session) => session.overdue().await,
            Self::Sqlite(_) | Self::Grouped(_) => SqlError::WorkerCrashed,
        }
    }
}

/// The result of a statement; none if it runs longer than its limit.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    statement: impl Future<Output = T>,
) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, statement).await.ok(),
        None => Some(statement.await),
    }
}

/// Fails a stream whose next row does not arrive within `limit`. The answer is not read to its end
/// then, so that the session is settled or ended with its transaction.
fn with_limited_waits<'a>(
    mut rows: BoxStream<'a, Result<Row, SqlError>>,
    limit: Duration,
) -> impl Stream<Item = Result<Row, SqlError>> + 'a {
    let mut expiry = Box::pin(tokio::time::sleep(limit));
    let mut waits = false;
    stream::poll_fn(move |context| {
        if let Poll::Ready(row) = rows.poll_next_unpin(context) {
            waits = false;
            return Poll::Ready(row);
        }
        if !waits {
            expiry.as_mut().reset(Instant::now() + limit);
            waits = true;
        }
        expiry
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(no_end_within(limit))))
    })
}

impl Transaction {
    pub(super) fn new(
        inner: Inner,
        attachment: Option<Attachment>,
        counters: &Arc<Counters>,
        replacement: &Arc<SessionReplacement>,
        limits: StatementLimits,
    ) -> Self {
        let open = counters.begin_transaction();
        Self {
            inner,
            attachment,
            counters: Arc::clone(counters),
            replacement: Arc::clone(replacement),
            limits,
            open,
        }
    }

    /// Starts the statistics of one query.
    pub(super) fn query(&self) -> Query {
        self.counters.begin()
    }

    /// The dialect of the database.
    pub fn dialect(&self) -> Dialect {
        match self.inner {
            Inner::Sqlite(_) | Inner::Grouped(_) => Dialect::Sqlite,
            Inner::Postgres(_) => Dialect::Postgres,
            Inner::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Holds a guard until the transaction ends.
    pub fn keep(&mut self, attachment: impl Any + Send + Sync) {
        self.attachment = Some(Box::new(attachment));
    }

    /// Limits each wait for a lock until the transaction ends, in milliseconds on PostgreSQL, in
    /// seconds on MySQL. SQLite has one writer, which waits for no other.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn limit_waits(&mut self, limit: Duration) -> Result<(), SqlError> {
        match &mut self.inner {
            Inner::Postgres(session) => session.limit_waits(limit).await,
            Inner::Mysql(session) => session.limit_waits(limit).await,
            Inner::Sqlite(_) | Inner::Grouped(_) => Ok(()),
        }
    }

    /// Lets each statement run for `times` its limit until the transaction ends. Only MariaDB and
    /// MySQL have statements that do the work of several.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn extend_limit(&mut self, times: u32) -> Result<(), SqlError> {
        match &mut self.inner {
            Inner::Mysql(session) => {
                let setting = session.driver().extended_limit(times);
                session.extend_limit(times, setting).await
            }
            Inner::Postgres(_) | Inner::Sqlite(_) | Inner::Grouped(_) => Ok(()),
        }
    }

    /// Runs a statement and returns the number of affected rows. Without values the text is sent
    /// unprepared, since not every kind of statement can be prepared.
    ///
    /// # Errors
    /// If the statement fails or the connection is lost.
    pub async fn execute(&mut self, statement: impl IntoStatement) -> Result<u64, SqlError> {
        let Statement { text, values } = statement.into_statement(self.dialect());
        let text = AssertSqlSafe(text);
        macro_rules! execute {
            ($connection:expr) => {
                if values.0.is_empty() {
                    sqlx::raw_sql(text)
                        .execute($connection)
                        .await
                        .map(|done| done.rows_affected())
                } else {
                    let query = sqlx::query_with(text, SqlxValues(values));
                    query
                        .execute($connection)
                        .await
                        .map(|done| done.rows_affected())
                }
            };
        }
        let query = self.query();
        let limit = self.inner.limit();
        let executing = async {
            match &mut self.inner {
                Inner::Sqlite(tx) => execute!(&mut **tx),
                Inner::Grouped(tx) => execute!(&mut **tx),
                Inner::Postgres(session) => {
                    let (connection, reading) = session.statement()?;
                    reading.ended(execute!(connection))
                }
                Inner::Mysql(session) => {
                    let (connection, reading) = session.statement()?;
                    reading.ended(execute!(connection))
                }
            }
        };
        let executed = within(limit, executing).await;
        let executed = match executed {
            Some(executed) => executed,
            None => Err(self.inner.overdue().await),
        };
        query
            .end(executed)
            .inspect_err(|error| self.replacement.note(error))
    }

    /// Streams the rows of a query, in bounded memory. A wait for the server ends with an error
    /// after the limit of a statement.
    pub fn stream(
        &mut self,
        statement: impl IntoStatement,
    ) -> BoxStream<'_, Result<Row, SqlError>> {
        let limit = self.inner.limit();
        self.rows(statement, limit)
    }

    /// The rows of a query, each of which the server has this time to send.
    fn rows(
        &mut self,
        statement: impl IntoStatement,
        limit: Option<Duration>,
    ) -> BoxStream<'_, Result<Row, SqlError>> {
        let Statement { text, values } = statement.into_statement(self.dialect());
        let text = AssertSqlSafe(text);
        let values = SqlxValues(values);
        // The caller may stop early: only an error counts as a failure.
        let mut query = self.query().trusted();
        let replacement = Arc::clone(&self.replacement);
        let rows = match &mut self.inner {
            Inner::Sqlite(tx) => sqlx::query_with(text, values)
                .fetch(&mut **tx)
                .map_ok(Row::Sqlite)
                .boxed(),
            Inner::Grouped(tx) => sqlx::query_with(text, values)
                .fetch(&mut **tx)
                .map_ok(Row::Sqlite)
                .boxed(),
            Inner::Postgres(session) => session
                .rows(|connection| sqlx::query_with(text, values).fetch(connection))
                .map_ok(Row::Postgres)
                .boxed(),
            Inner::Mysql(session) => session
                .rows(|connection| {
                    // Without values it is not prepared, as a statement that returns no rows: the
                    // server limits prepared statements.
                    if values.0.0.is_empty() {
                        sqlx::raw_sql(text).fetch(connection)
                    } else {
                        sqlx::query_with(text, values).fetch(connection)
                    }
                })
                .map_ok(Row::Mysql)
                .boxed(),
        };
        let rows = match limit {
            Some(limit) => with_limited_waits(rows, limit).boxed(),
            None => rows,
        };
        rows.inspect_err(move |error| {
            query.fail();
            replacement.note(error);
        })
        .boxed()
    }

    /// Returns all rows of a query.
    ///
    /// # Errors
    /// If the statement fails or the connection is lost.
    pub async fn fetch(&mut self, statement: impl IntoStatement) -> Result<Vec<Row>, SqlError> {
        let limit = self.inner.limit();
        let fetched = within(limit, self.rows(statement, None).try_collect()).await;
        match fetched {
            Some(fetched) => fetched,
            None => Err(self.inner.overdue().await),
        }
    }

    /// Returns all rows of a query, each as `read` returns it.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); those of `read`.
    pub async fn fetch_as<T, C: FromIterator<T>>(
        &mut self,
        statement: impl IntoStatement,
        read: impl FnMut(&Row) -> Result<T, SqlError>,
    ) -> Result<C, SqlError> {
        self.fetch(statement).await?.iter().map(read).collect()
    }

    /// Returns the first row of a query, or `None`.
    ///
    /// # Errors
    /// If the statement fails or the connection is lost.
    pub async fn fetch_optional(
        &mut self,
        statement: impl IntoStatement,
    ) -> Result<Option<Row>, SqlError> {
        // Reads to the end: a result that is left halfway would be in the way of the next
        // statement.
        let mut rows = self.fetch(statement).await?;
        Ok(if rows.is_empty() {
            None
        } else {
            Some(rows.swap_remove(0))
        })
    }

    /// Returns the first row of a query.
    ///
    /// # Errors
    /// [`SqlError::RowNotFound`] without a row; otherwise as [`fetch`](Self::fetch).
    pub async fn fetch_one(&mut self, statement: impl IntoStatement) -> Result<Row, SqlError> {
        self.fetch_optional(statement)
            .await?
            .ok_or(SqlError::RowNotFound)
    }

    /// Returns the number that a query computes, in the first column of its row; 0 for NULL.
    ///
    /// # Errors
    /// As [`fetch_one`](Self::fetch_one); if the value is not an integer.
    pub async fn fetch_number(&mut self, statement: impl IntoStatement) -> Result<i64, SqlError> {
        let row = self.fetch_one(statement).await?;
        row.integer_or_zero(0)
    }

    /// Commits. Completes even if the caller is cancelled.
    ///
    /// # Errors
    /// If the commit fails or the connection is lost; in the latter case it may have been
    /// committed.
    pub async fn commit(self) -> Result<(), SqlError> {
        let query = self.query();
        let Self {
            inner,
            attachment,
            replacement,
            open,
            ..
        } = self;
        let committed = query.end(match inner {
            Inner::Sqlite(tx) => tx.commit().await,
            Inner::Grouped(member) => member.commit().await,
            Inner::Postgres(session) => Commit::of(*session, attachment).await,
            Inner::Mysql(session) => Commit::of(*session, attachment).await,
        });
        drop(open);
        committed.inspect_err(|error| replacement.note(error))
    }
}

/// A commit in progress on a server, which completes even if it is abandoned: `drop` moves the rest
/// into a task of its own.
struct Commit(Option<BoxFuture<'static, Result<(), SqlError>>>);

impl Commit {
    fn of(session: ServerSession<impl Driver>, attachment: Option<Attachment>) -> Self {
        Self(Some(Box::pin(async move {
            let _attachment = attachment;
            session.commit().await
        })))
    }
}

impl Future for Commit {
    type Output = Result<(), SqlError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(commit) = &mut self.0 else {
            return Poll::Ready(Err(SqlError::WorkerCrashed));
        };
        let done = commit.as_mut().poll(context);
        if done.is_ready() {
            self.0 = None;
        }
        done
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}
