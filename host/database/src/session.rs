//! A session on a server, with or without a transaction. Owns how a transaction begins and ends,
//! also where its caller gives up or a statement takes too long: nothing stays locked for it, and
//! no other caller gets a session in which it goes on.

use std::future;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use deadpool::managed::{Object, Pool};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use sqlx::Connection;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::SqlError;
use super::errors::{RanTooLong, is_lost, is_out_of_cluster};
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
    /// The state of the answer to the last statement.
    answer: AnswerState,
    /// Whether it has other settings than those of the pool.
    is_altered: bool,
    /// Longest run time of one statement.
    limit: Duration,
}

/// How far the answer to a statement was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    /// To its end.
    Read,
    /// Up to an error of the server, which ends it.
    Refused,
    /// Up to the end of a row. The driver reads the other rows before the next statement.
    Partial,
    /// Within a part of it, because its caller gave up.
    Interrupted,
    /// Until the connection was lost, or the driver failed; or the server is of no use.
    Failed,
}

impl AnswerState {
    /// After an error, which is the end of an answer if it is the server's.
    fn after(error: &SqlError) -> Self {
        match error {
            // On a node outside of its cluster the next statement fails, too, and ends sooner than
            // on another one, so that the session would be used first.
            SqlError::Database(_) if !is_lost(error) && !is_out_of_cluster(error) => Self::Refused,
            _ => Self::Failed,
        }
    }
}

const HAS_SESSION: &str = "a session is given back at its end";

impl<D: Driver> ServerSession<D> {
    pub(super) fn new(pooled: Object<Opener<D>>, pool: Pool<Opener<D>>, limit: Duration) -> Self {
        Self {
            pooled: Some(pooled),
            pool,
            is_in_transaction: false,
            answer: AnswerState::Read,
            is_altered: false,
            limit,
        }
    }

    /// Begins a transaction. The last of the statements does.
    pub(super) async fn begin(mut self, statements: &Arc<str>) -> Result<Self, SqlError> {
        self.is_in_transaction = true;
        if let Err(error) = self.run(statements).await {
            // In this session the next transaction would not begin either.
            self.answer = AnswerState::Failed;
            return Err(error);
        }
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
        let (connection, reading) = self.statement()?;
        match timeout(limit, D::run(connection, statements)).await {
            Ok(done) => reading.ended(done),
            Err(_) => Err(self.overdue().await),
        }
    }

    /// Limits each wait for a lock until the transaction ends.
    pub(super) async fn limit_waits(&mut self, limit: Duration) -> Result<(), SqlError> {
        let WaitLimit { statement, stays } = D::limit_waits(limit);
        self.is_altered |= stays;
        self.run(&statement.into()).await
    }

    pub(super) fn driver(&self) -> &D {
        self.pool.manager().driver()
    }

    /// Lets each statement run for `times` its limit until the transaction ends. `setting` does so
    /// at the server, if that has a limit.
    pub(super) async fn extend_limit(
        &mut self,
        times: u32,
        setting: Option<String>,
    ) -> Result<(), SqlError> {
        self.limit = self.limit.saturating_mul(times);
        let Some(setting) = setting else {
            return Ok(());
        };
        self.is_altered = true;
        self.run(&setting.into()).await
    }

    /// Longest run time of one statement.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The connection, for one statement.
    ///
    /// # Errors
    /// If nothing can be read from it, because the last statement was interrupted or overdue.
    pub(super) fn statement(
        &mut self,
    ) -> Result<(&mut ConnectionOf<D>, AnswerReader<'_>), SqlError> {
        if self.pooled.is_none() || self.is_unreadable() {
            return Err(SqlError::Protocol(
                "the last statement of the transaction was interrupted".to_owned(),
            ));
        }
        let Self { pooled, answer, .. } = self;
        *answer = AnswerState::Interrupted;
        Ok((pooled.as_mut().expect(HAS_SESSION), AnswerReader(answer)))
    }

    /// The rows of one statement.
    pub(super) fn rows<'a, T: Send + 'a>(
        &'a mut self,
        fetch: impl FnOnce(&'a mut ConnectionOf<D>) -> BoxStream<'a, Result<T, SqlError>>,
    ) -> BoxStream<'a, Result<T, SqlError>> {
        match self.statement() {
            Ok((connection, reading)) => reading.rows(fetch(connection)).boxed(),
            Err(error) => stream::once(future::ready(Err(error))).boxed(),
        }
    }

    /// Whether the next answer would begin with a part of the last one.
    fn is_unreadable(&self) -> bool {
        self.answer == AnswerState::Interrupted && !D::SKIPS_INTERRUPTED
    }

    /// Ends the session, in which a statement runs longer than its limit.
    pub(super) async fn overdue(&mut self) -> SqlError {
        let is_ended = match self.pooled.take() {
            // On the heap, since it is rare and the futures of all callers would contain it.
            Some(pooled) => Box::pin(kill(Unsettled(Some(pooled)), &self.pool)).await,
            None => false,
        };
        if is_ended && !self.driver().ends_long_statements() {
            // No outage, after which a migration would begin the same statement again, for ever.
            return timed_out(RanTooLong(self.limit));
        }
        no_end_within(self.limit)
    }
}

/// The error of a statement without an answer within its limit, on a server that may be away.
pub(super) fn no_end_within(limit: Duration) -> SqlError {
    timed_out(RanTooLong(limit).to_string())
}

/// The answer to a statement, while it is read.
pub(super) struct AnswerReader<'a>(&'a mut AnswerState);

impl<'a> AnswerReader<'a> {
    /// Notes the result of a statement without rows.
    pub(super) fn ended<T>(self, result: Result<T, SqlError>) -> Result<T, SqlError> {
        *self.0 = match &result {
            Ok(_) => AnswerState::Read,
            Err(error) => AnswerState::after(error),
        };
        result
    }

    /// The rows of a statement. A caller may drop them before their end.
    fn rows<T: 'a>(
        self,
        mut rows: BoxStream<'a, Result<T, SqlError>>,
    ) -> impl Stream<Item = Result<T, SqlError>> + 'a {
        let Self(answer) = self;
        *answer = AnswerState::Partial;
        stream::poll_fn(move |context| {
            // If the caller drops the stream while it waits.
            *answer = AnswerState::Interrupted;
            let next = ready!(rows.poll_next_unpin(context));
            *answer = match &next {
                None => AnswerState::Read,
                Some(Ok(_)) => AnswerState::Partial,
                Some(Err(error)) => AnswerState::after(error),
            };
            Poll::Ready(next)
        })
    }
}

impl<D: Driver> Drop for ServerSession<D> {
    fn drop(&mut self) {
        let Some(mut pooled) = self.pooled.take() else {
            return;
        };
        let is_at_rest = !self.is_in_transaction && self.answer == AnswerState::Read;
        if is_at_rest && !self.is_altered {
            pooled.rest();
            return;
        }
        let unsettled = Unsettled(Some(pooled));
        if self.answer == AnswerState::Failed || Handle::try_current().is_err() {
            // The session is of no use, or the process ends.
            return;
        }
        let pool = self.pool.clone();
        let is_interrupted = self.answer == AnswerState::Interrupted;
        // The rows may be large, and the permit of their reader is returned already.
        let has_rows = is_interrupted || self.answer == AnswerState::Partial;
        let skipping = has_rows.then(|| self.pool.manager().skip_rows()).flatten();
        let has_no_place = has_rows && skipping.is_none();
        if self.is_unreadable() || (is_interrupted && has_no_place) {
            // It may wait for a lock, and would not notice that its connection is closed.
            self.pool.manager().spawn(async move {
                kill(unsettled, &pool).await;
            });
        } else if !self.is_altered && !has_no_place {
            let is_in_transaction = self.is_in_transaction;
            self.pool.manager().spawn(async move {
                settle(unsettled, pool, is_in_transaction).await;
                drop(skipping);
            });
        }
    }
}

/// A session that is closed when this is dropped, also by a panic, unless it was given back.
struct Unsettled<D: Driver>(Option<Object<Opener<D>>>);

impl<D: Driver> Unsettled<D> {
    fn session(&mut self) -> &mut Object<Opener<D>> {
        self.0.as_mut().expect(HAS_SESSION)
    }

    fn give_back(mut self) {
        if let Some(mut pooled) = self.0.take() {
            pooled.rest();
        }
    }
}

impl<D: Driver> Drop for Unsettled<D> {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}

/// Gives a session back without a transaction and without a statement; if the latter does not end,
/// without the session.
async fn settle<D: Driver>(
    mut unsettled: Unsettled<D>,
    pool: Pool<Opener<D>>,
    is_in_transaction: bool,
) {
    let session = unsettled.session();
    let settled = async {
        if is_in_transaction {
            D::run(session, &pool.manager().statements().rollback).await
        } else {
            session.ping().await
        }
    };
    match timeout(GRACE, settled).await {
        Ok(Ok(())) => unsettled.give_back(),
        Ok(Err(_)) => {}
        Err(_) => {
            kill(unsettled, &pool).await;
        }
    }
}

/// Ends a session at the server, which may not notice that its connection is closed while it waits
/// for a lock. Its place in the pool is taken until then. Returns whether the server has ended it.
async fn kill<D: Driver>(mut unsettled: Unsettled<D>, pool: &Pool<Opener<D>>) -> bool {
    let name = unsettled.session().name().clone();
    match timeout(LONGEST_KILL, pool.manager().kill(&name)).await {
        Ok(Ok(is_ended)) => is_ended,
        Ok(Err(reason)) => {
            tracing::warn!(%reason, "a statement that nothing waits for could not be ended at the server");
            false
        }
        Err(_) => false,
    }
}
