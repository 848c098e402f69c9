//! A session on a server, with or without a transaction. Owns how a transaction begins and ends,
//! also where its caller gives up or a statement takes too long: nothing stays locked for it, and
//! no other caller gets a session in which it goes on.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Object, Pool};
use sqlx::Connection;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::SqlError;
use super::opener::{ConnectionOf, Driver, Opener, WaitLimit};
use super::outage::timed_out;

/// The time in which a statement ends by itself, after its caller has given up.
const GRACE: Duration = Duration::from_secs(1);
/// Longest time to end a session at the server.
const LONGEST_KILL: Duration = Duration::from_secs(5);

/// A session of the pool, for one transaction, or in autocommit mode for one statement. Dropping it
/// rolls back.
pub(super) struct ServerSession<D: Driver> {
    /// Absent once the session is given back.
    pooled: Option<Object<Opener<D>>>,
    pool: Pool<Opener<D>>,
    is_in_transaction: bool,
    /// Whether the answer to a statement may be incomplete.
    is_busy: bool,
    /// Whether it has other settings than those of the pool.
    is_altered: bool,
    /// Longest run time of one statement.
    limit: Duration,
}

const HAS_SESSION: &str = "a session is given back at its end";

impl<D: Driver> ServerSession<D> {
    pub(super) fn new(pooled: Object<Opener<D>>, pool: Pool<Opener<D>>, limit: Duration) -> Self {
        Self {
            pooled: Some(pooled),
            pool,
            is_in_transaction: false,
            is_busy: false,
            is_altered: false,
            limit,
        }
    }

    /// Begins a transaction. The last of the statements does.
    pub(super) async fn begin(mut self, statements: &Arc<str>) -> Result<Self, SqlError> {
        self.is_in_transaction = true;
        self.run(statements).await?;
        Ok(self)
    }

    pub(super) async fn commit(mut self) -> Result<(), SqlError> {
        if self.is_in_transaction {
            let pool = self.pool.clone();
            self.run(&pool.manager().statements().commit).await?;
            self.is_in_transaction = false;
        }
        Ok(())
    }

    async fn run(&mut self, statements: &Arc<str>) -> Result<(), SqlError> {
        let limit = self.limit;
        let (connection, busy) = self.statement();
        match timeout(limit, D::run(connection, statements)).await {
            Ok(done) => done.inspect(|()| busy.end()),
            Err(_) => Err(self.overdue().await),
        }
    }

    /// Limits each wait for a lock until the transaction ends.
    pub(super) async fn limit_waits(&mut self, limit: Duration) -> Result<(), SqlError> {
        let WaitLimit { statement, stays } = D::limit_waits(limit);
        self.is_altered |= stays;
        self.run(&statement.into()).await
    }

    /// Longest run time of one statement.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The connection, for one statement.
    pub(super) fn statement(&mut self) -> (&mut ConnectionOf<D>, Busy<'_>) {
        let Self {
            pooled, is_busy, ..
        } = self;
        *is_busy = true;
        (pooled.as_mut().expect(HAS_SESSION), Busy(is_busy))
    }

    /// The connection, for statements that are not cancelled.
    pub(super) fn connection(&mut self) -> &mut ConnectionOf<D> {
        self.pooled.as_mut().expect(HAS_SESSION)
    }

    /// Ends the session, in which a statement runs longer than its limit.
    pub(super) async fn overdue(&mut self) -> SqlError {
        if let Some(pooled) = self.pooled.take() {
            // On the heap, since it is rare and the futures of all callers would contain it.
            Box::pin(kill(pooled, &self.pool)).await;
        }
        timed_out(format!(
            "a statement ran longer than {:?}; see db_read_timeout and db_write_timeout",
            self.limit
        ))
    }
}

/// A statement whose answer is not complete.
pub(super) struct Busy<'a>(&'a mut bool);

impl Busy<'_> {
    pub(super) fn end(self) {
        *self.0 = false;
    }
}

impl<D: Driver> Drop for ServerSession<D> {
    fn drop(&mut self) {
        let Some(mut pooled) = self.pooled.take() else {
            return;
        };
        if self.is_altered {
            drop(Object::take(pooled));
        } else if !self.is_in_transaction && !self.is_busy {
            pooled.rest();
        } else if Handle::try_current().is_ok() {
            self.pool
                .manager()
                .spawn(settle(pooled, self.pool.clone(), self.is_in_transaction));
        } else {
            // The process ends.
            drop(Object::take(pooled));
        }
    }
}

/// Gives a session back without a transaction and without a statement; if the latter does not end,
/// without the session.
async fn settle<D: Driver>(
    mut pooled: Object<Opener<D>>,
    pool: Pool<Opener<D>>,
    is_in_transaction: bool,
) {
    let settled = async {
        if is_in_transaction {
            D::run(&mut pooled, &pool.manager().statements().rollback).await
        } else {
            pooled.ping().await
        }
    };
    match timeout(GRACE, settled).await {
        Ok(Ok(())) => pooled.rest(),
        Ok(Err(_)) => drop(Object::take(pooled)),
        Err(_) => kill(pooled, &pool).await,
    }
}

/// Ends a session at the server, which may not notice that its connection is closed while it waits
/// for a lock. Its place in the pool is taken until then.
async fn kill<D: Driver>(pooled: Object<Opener<D>>, pool: &Pool<Opener<D>>) {
    let killed = timeout(LONGEST_KILL, pool.manager().kill(pooled.name())).await;
    if let Ok(Err(reason)) = killed {
        tracing::warn!(%reason, "a statement that nothing waits for could not be ended at the server");
    }
    drop(Object::take(pooled));
}
