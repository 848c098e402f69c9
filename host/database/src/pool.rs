//! The pool of sessions on a server. Owns who gets a session and when, and what a caller learns
//! while the server cannot be reached.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::Retryable;
use deadpool::Runtime;
use deadpool::managed::{Object, Pool, PoolError, QueueMode, Timeouts, WeakPool};
use tokio::time::{sleep, timeout};

use super::errors::{ServerFull, is_lost, is_server_full, is_transient, may_open_later};
use super::opener::{Driver, Opener};
use super::outage::{self, Outage, no_answer, timed_out};
use super::replacement::SessionReplacement;
use super::session::ServerSession;
use super::{ConnectionLimits, Purpose, SqlError};

/// How much later than the server this host ends a statement.
const MARGIN: Duration = Duration::from_secs(1);
/// Sessions that are idle for longer are closed, but for those that are to stay.
const LONGEST_IDLE: Duration = Duration::from_secs(600);
/// Pause between two searches for them.
const SEARCH: Duration = Duration::from_secs(60);
/// Pause between two searches for an idle session where the server has no place for another one.
const NEXT_RETURN: Duration = Duration::from_millis(20);
/// Pause after a session in which no transaction begins, such as on a node outside of its cluster.
const NEXT_NODE: Duration = Duration::from_millis(100);
/// Such sessions before a caller gets the error, if each takes long to refuse.
const MOST_REFUSALS: u32 = 3;

/// The sessions of one server.
pub(super) struct SessionPool<D: Driver> {
    pool: Pool<Opener<D>>,
    limits: ConnectionLimits,
}

impl<D: Driver> fmt::Debug for SessionPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPool")
            .field("status", &self.pool.status())
            .finish_non_exhaustive()
    }
}

impl<D: Driver> SessionPool<D> {
    /// A pool with one session, so that a wrong address fails at once. Waits for a server that
    /// starts.
    pub(super) async fn open(
        driver: D,
        limits: &ConnectionLimits,
        replacement: &Arc<SessionReplacement>,
        outage: Arc<Outage>,
    ) -> Result<Self, SqlError> {
        let opener = Opener::new(driver, limits, replacement, outage);
        let pool = Pool::builder(opener)
            .max_size(limits.max_connections as usize)
            // Those that are not needed rest, and are closed.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a pool with a runtime");
        let opened = Self {
            pool,
            limits: limits.clone(),
        };
        let pauses = outage::pauses(limits.connect_timeout);
        let begun = (|| opened.session()).retry(pauses).when(may_open_later);
        timeout(limits.connect_timeout, begun)
            .await
            .map_err(|_| opened.opener().unreachable())??;
        tokio::spawn(close_idle(
            opened.pool.weak(),
            limits.min_connections as usize,
        ));
        Ok(opened)
    }

    fn opener(&self) -> &Opener<D> {
        self.pool.manager()
    }

    /// A session, as soon as one is free or can be opened.
    pub(super) async fn session(&self) -> Result<ServerSession<D>, SqlError> {
        let began = Instant::now();
        let longest = self.limits.connect_timeout;
        let got = loop {
            let got = self.pooled(longest.saturating_sub(began.elapsed())).await;
            let is_full = matches!(
                &got,
                Err(PoolError::Backend(error)) if is_server_full(error)
            );
            if !is_full || began.elapsed() >= longest {
                break got;
            }
            // Each search looks once for a session that has returned, before it opens another.
            sleep(NEXT_RETURN).await;
        };
        let limit = self.limits.statement_timeout + MARGIN;
        got.map(|pooled| ServerSession::new(pooled, self.pool.clone(), limit))
            .map_err(|error| self.error(error))
    }

    /// An idle session, or if there is none, a new one. Waits for this long while all are in use.
    async fn pooled(&self, wait: Duration) -> Result<Object<Opener<D>>, PoolError<SqlError>> {
        let limits = Timeouts {
            wait: Some(wait),
            create: None,
            recycle: None,
        };
        let mut waiting = pin!(self.pool.timeout_get(&limits));
        // A call does not wait behind others for a server that is away.
        match timeout(self.opener().longest(), &mut waiting).await {
            Ok(got) => got,
            Err(_) if self.opener().is_away() => {
                Err(PoolError::Backend(self.opener().unreachable()))
            }
            Err(_) => waiting.await,
        }
    }

    /// Begins a transaction. A session that turns out to be lost is replaced, and so is one in which
    /// none begins, as on a node outside of its cluster.
    pub(super) async fn begin(&self, purpose: Purpose) -> Result<ServerSession<D>, SqlError> {
        let began = Instant::now();
        let mut refusals = 0;
        loop {
            let session = self.session().await?;
            let Some(statements) = self.opener().statements().begin(purpose) else {
                return Ok(session);
            };
            let is_early = began.elapsed() < self.opener().longest();
            let limit = self.limits.connect_timeout;
            let begun = timeout(limit, session.begin(statements)).await;
            match begun.unwrap_or_else(|_| Err(no_transaction(limit))) {
                Err(error) if is_early && is_lost(&error) => {}
                // Behind a balancer, the next session may be on another node.
                Err(error) if is_transient(&error) && (is_early || refusals < MOST_REFUSALS) => {
                    refusals += 1;
                    self.opener().note_begin(&error);
                    sleep(NEXT_NODE).await;
                }
                begun => return begun.inspect_err(|error| self.opener().note_begin(error)),
            }
        }
    }

    /// Limits a look at the server at a start. The limit of a statement is that of long work, and a
    /// start waits for a silent server no longer than for one that cannot be reached.
    pub(super) async fn answered<T>(
        &self,
        look: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let longest = self.limits.connect_timeout;
        timeout(longest, look)
            .await
            .unwrap_or_else(|_| Err(no_answer(longest)))
    }

    fn error(&self, error: PoolError<SqlError>) -> SqlError {
        match error {
            PoolError::Backend(error) => error,
            PoolError::Closed => SqlError::PoolClosed,
            _ if self.opener().is_away() => self.opener().unreachable(),
            _ if self.opener().is_full() => timed_out(ServerFull),
            PoolError::Timeout(_)
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => timed_out(format!(
                "all {} connections are in use, and none became free within {:?}; look for what holds them, or raise \
                 max_open_database_connections",
                self.limits.max_connections, self.limits.connect_timeout
            )),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.limits.max_connections
    }

    pub(super) fn open_sessions(&self) -> u64 {
        self.pool.status().size as u64
    }

    pub(super) fn is_exhausted(&self) -> bool {
        let status = self.pool.status();
        status.available == 0 && status.size >= status.max_size
    }

    /// Closes the sessions, and waits for those in use.
    pub(super) async fn close(&self) {
        self.pool.close();
        self.opener().closed().await;
    }
}

/// The error of a session in which no transaction begins, such as one whose server has died without
/// closing its connections.
fn no_transaction(limit: Duration) -> SqlError {
    let reason = format!("the server began no transaction within {limit:?}");
    SqlError::Io(io::Error::new(ErrorKind::ConnectionAborted, reason))
}

/// Closes sessions that are idle for long, but for `stay` of them, as long as the pool exists.
async fn close_idle<D: Driver>(pool: WeakPool<Opener<D>>, stay: usize) {
    let mut searches = tokio::time::interval(SEARCH);
    loop {
        searches.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.is_closed() {
            return;
        }
        let mut closable = pool.status().size.saturating_sub(stay);
        // Those that rest for the longest come first.
        pool.retain(|session, _| {
            let closes = closable > 0 && session.idle_for() > LONGEST_IDLE;
            closable -= usize::from(closes);
            !closes
        });
    }
}
