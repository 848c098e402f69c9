//! One transaction on one of the three databases. Dropping it undoes it.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sea_query_sqlx::SqlxValues;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Database as Sqlx, MySql, Postgres, Sqlite};
use tokio::runtime::Handle;

use super::statement::{IntoStatement, Statement};
use super::statistics::{Counters, Query};
use super::turn::Turn;
use super::{Dialect, Row, SqlError, postgres, sql};

#[derive(Debug)]
pub struct Transaction {
    pub(super) inner: Inner,
    kept: Option<Kept>,
    counters: Arc<Counters>,
}

/// Dropped when the transaction is over.
pub(super) type Kept = Box<dyn Any + Send + Sync>;

pub(super) enum Inner {
    Sqlite(Held<Sqlite>),
    /// Of SQLite's one writer.
    Turn(Turn),
    Postgres(Held<Postgres>),
    Mysql(Held<MySql>),
    /// With a task that did not come to its end: nothing can be done with it any more.
    Lent,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite",
            Self::Turn(_) => "Turn",
            Self::Postgres(_) => "Postgres",
            Self::Mysql(_) => "Mysql",
            Self::Lent => "Lent",
        })
    }
}

/// A connection, for as long as something is done with it.
pub(super) enum Held<DB: Sqlx> {
    Transaction(sqlx::Transaction<'static, DB>),
    /// Without a transaction: each statement is one by itself.
    Connection(PoolConnection<DB>),
}

impl<DB: Sqlx> Deref for Held<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Transaction(tx) => tx,
            Self::Connection(connection) => connection,
        }
    }
}

impl<DB: Sqlx> DerefMut for Held<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Transaction(tx) => tx,
            Self::Connection(connection) => connection,
        }
    }
}

impl<DB: Sqlx> Held<DB> {
    async fn commit(self) -> Result<(), SqlError> {
        match self {
            Self::Transaction(tx) => tx.commit().await,
            Self::Connection(_) => Ok(()),
        }
    }
}

macro_rules! held {
    ($database:ident, $inner:ident) => {
        impl From<sqlx::Transaction<'static, $database>> for Inner {
            fn from(tx: sqlx::Transaction<'static, $database>) -> Self {
                Self::$inner(Held::Transaction(tx))
            }
        }

        impl From<PoolConnection<$database>> for Inner {
            fn from(connection: PoolConnection<$database>) -> Self {
                Self::$inner(Held::Connection(connection))
            }
        }
    };
}

held!(Sqlite, Sqlite);
held!(Postgres, Postgres);
held!(MySql, Mysql);

impl From<Turn> for Inner {
    fn from(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

impl Transaction {
    pub(super) fn new(inner: Inner, kept: Option<Kept>, counters: Arc<Counters>) -> Self {
        Self { inner, kept, counters }
    }

    /// A query that begins.
    pub(super) fn query(&self) -> Query {
        self.counters.begin()
    }

    pub fn dialect(&self) -> Dialect {
        match self.inner {
            Inner::Sqlite(_) | Inner::Turn(_) => Dialect::Sqlite,
            // Only PostgreSQL's are ever lent.
            Inner::Postgres(_) | Inner::Lent => Dialect::Postgres,
            Inner::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Keeps something for as long as the transaction lasts.
    pub fn keep(&mut self, kept: impl Any + Send + Sync) {
        self.kept = Some(Box::new(kept));
    }

    /// From here on, rows are found through an index wherever there is one. For transactions that find rows by their
    /// keys, in tables of any size that nothing may have analysed.
    ///
    /// # Errors
    /// Where the connection is lost.
    pub async fn find_by_key(&mut self) -> Result<(), SqlError> {
        match self.dialect() {
            Dialect::Postgres => self.execute(sql(postgres::BY_KEY)).await.map(drop),
            // MySQL looks into the index for each key of a list; SQLite prefers an index whatever it knows of the table.
            Dialect::Mysql | Dialect::Sqlite => Ok(()),
        }
    }

    /// How many rows the statement touched. Without values it goes as plain text, which every kind of statement may.
    pub async fn execute(&mut self, statement: impl IntoStatement) -> Result<u64, SqlError> {
        let Statement { text, values } = statement.into_statement(self.dialect());
        let text = AssertSqlSafe(text);
        macro_rules! execute {
            ($tx:expr) => {
                if values.0.is_empty() {
                    sqlx::raw_sql(text).execute(&mut **$tx).await.map(|done| done.rows_affected())
                } else {
                    let query = sqlx::query_with(text, SqlxValues(values));
                    query.execute(&mut **$tx).await.map(|done| done.rows_affected())
                }
            };
        }
        let query = self.query();
        query.end(match &mut self.inner {
            Inner::Sqlite(tx) => execute!(tx),
            Inner::Turn(tx) => execute!(tx),
            Inner::Postgres(tx) => execute!(tx),
            Inner::Mysql(tx) => execute!(tx),
            Inner::Lent => Err(SqlError::WorkerCrashed),
        })
    }

    /// Rows one after another, in bounded memory.
    pub fn stream(&mut self, statement: impl IntoStatement) -> BoxStream<'_, Result<Row, SqlError>> {
        let Statement { text, values } = statement.into_statement(self.dialect());
        let (text, values) = (AssertSqlSafe(text), SqlxValues(values));
        // Whoever has seen enough may stop: only an error is a failure.
        let mut query = self.query().trusted();
        let rows = match &mut self.inner {
            Inner::Sqlite(tx) => sqlx::query_with(text, values).fetch(&mut **tx).map_ok(Row::Sqlite).boxed(),
            Inner::Turn(tx) => sqlx::query_with(text, values).fetch(&mut **tx).map_ok(Row::Sqlite).boxed(),
            Inner::Postgres(tx) => sqlx::query_with(text, values).fetch(&mut **tx).map_ok(Row::Postgres).boxed(),
            Inner::Mysql(tx) => sqlx::query_with(text, values).fetch(&mut **tx).map_ok(Row::Mysql).boxed(),
            Inner::Lent => stream::once(async { Err(SqlError::WorkerCrashed) }).boxed(),
        };
        rows.inspect_err(move |_| query.fail()).boxed()
    }

    pub async fn fetch(&mut self, statement: impl IntoStatement) -> Result<Vec<Row>, SqlError> {
        self.stream(statement).try_collect().await
    }

    pub async fn fetch_optional(&mut self, statement: impl IntoStatement) -> Result<Option<Row>, SqlError> {
        // To the end: a statement that is left halfway would be in the way of the next.
        let mut rows = self.fetch(statement).await?;
        Ok(if rows.is_empty() { None } else { Some(rows.swap_remove(0)) })
    }

    pub async fn fetch_one(&mut self, statement: impl IntoStatement) -> Result<Row, SqlError> {
        self.fetch_optional(statement).await?.ok_or(SqlError::RowNotFound)
    }

    /// Carried through to its end, also where the caller stops waiting for it.
    pub async fn commit(self) -> Result<(), SqlError> {
        let query = self.query();
        let Self { inner, kept, .. } = self;
        query.end(match inner {
            Inner::Sqlite(tx) => tx.commit().await,
            Inner::Turn(turn) => turn.commit().await,
            Inner::Postgres(tx) => Commit::of(tx, kept).await,
            Inner::Mysql(tx) => Commit::of(tx, kept).await,
            Inner::Lent => Err(SqlError::WorkerCrashed),
        })
    }
}

/// A commit on its way to a server. The drivers take one that was abandoned after it was sent for a transaction that is
/// still open, and send a `ROLLBACK` after it, of which PostgreSQL warns; so its rest runs in a task of its own.
struct Commit(Option<BoxFuture<'static, Result<(), SqlError>>>);

impl Commit {
    fn of<DB: Sqlx>(tx: Held<DB>, kept: Option<Kept>) -> Self
    where
        Held<DB>: Send + 'static,
    {
        Self(Some(Box::pin(async move {
            let _kept = kept;
            tx.commit().await
        })))
    }
}

impl Future for Commit {
    type Output = Result<(), SqlError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(commit) = &mut self.0 else { return Poll::Ready(Err(SqlError::WorkerCrashed)) };
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
