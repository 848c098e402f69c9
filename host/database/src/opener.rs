//! Opens sessions on a server for the pool, and decides which can be used again. Owns what depends
//! on the kind of server, and the closing of connections.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::Retryable;
use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sqlx::{Connection, Database as Sqlx};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::errors::{ServerFull, is_full, may_open_later};
use super::outage::{self, LONGEST_OUTAGE, Outage, no_answer, timed_out};
use super::replacement::SessionReplacement;
use super::{ConnectionLimits, Purpose, SqlError};

/// A connection that was used this recently is assumed to be alive: a ping costs as much as a
/// statement.
const FRESH: Duration = Duration::from_millis(100);
/// Longest wait for the answer to a ping.
const LONGEST_PING: Duration = Duration::from_secs(2);
/// Longest wait for a session to close.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);
/// Most sessions that read the rest of an abandoned answer at once. Each holds one row at a time.
const SKIPPING: usize = 8;
/// Pause after a server had no place for another session. Each attempt costs it a process.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// A server, as far as a session depends on which it is.
pub(super) trait Driver: fmt::Debug + Send + Sync + Sized + 'static {
    type Database: Sqlx;

    /// Whether the driver skips the rest of an answer also where its caller gave up within it.
    const SKIPS_INTERRUPTED: bool;

    /// Logs in and sets what statements depend on.
    fn connect(&self) -> impl Future<Output = Result<Connected<Self>, SqlError>> + Send;

    /// Runs statements without values.
    fn run<'a>(
        connection: &'a mut ConnectionOf<Self>,
        statements: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), SqlError>>;

    /// The statements of transactions.
    fn statements(&self) -> &Statements;

    /// Whether the server itself ends each statement at its limit, so that one without an answer by
    /// then has lost its connection.
    fn ends_long_statements(&self) -> bool;

    /// The statement that ends the session with this number, of the same user.
    fn kill(number: u64) -> String;

    /// The statement that limits each wait for a lock.
    fn limit_waits(limit: Duration) -> WaitLimit;
}

pub(super) type ConnectionOf<D> = <<D as Driver>::Database as Sqlx>::Connection;

/// The statements that begin and end transactions.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) read: Arc<str>,
    pub(super) write: Arc<str>,
    pub(super) write_relaxed: Arc<str>,
    pub(super) commit: Arc<str>,
    pub(super) rollback: Arc<str>,
}

impl Statements {
    /// Absent for a single statement, which is a transaction by itself.
    pub(super) fn begin(&self, purpose: Purpose) -> Option<&Arc<str>> {
        match purpose {
            Purpose::Look => None,
            Purpose::Read => Some(&self.read),
            Purpose::Write => Some(&self.write),
            Purpose::WriteRelaxed => Some(&self.write_relaxed),
        }
    }
}

/// The statement that limits each wait for a lock.
#[derive(Debug)]
pub(super) struct WaitLimit {
    pub(super) statement: String,
    /// Whether the limit stays when the transaction ends.
    pub(super) stays: bool,
}

/// Name of a session at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionName {
    /// Distinguishes the server from others that the same address may lead to.
    pub(super) server: String,
    pub(super) number: u64,
}

/// A session that was opened.
pub(super) struct Connected<D: Driver> {
    pub(super) connection: ConnectionOf<D>,
    pub(super) name: SessionName,
}

/// A session of the pool. Dropping it closes the connection.
pub(super) struct Pooled<D: Driver> {
    /// Absent once it is being closed.
    connection: Option<ConnectionOf<D>>,
    name: SessionName,
    idle_since: Instant,
    outage: Arc<Outage>,
    /// Held until the connection is closed.
    open: TaskTrackerToken,
}

impl<D: Driver> Pooled<D> {
    pub(super) fn name(&self) -> &SessionName {
        &self.name
    }

    pub(super) fn idle_for(&self) -> Duration {
        self.idle_since.elapsed()
    }

    /// To be called when the session returns to the pool with its last statement answered.
    pub(super) fn rest(&mut self) {
        self.idle_since = Instant::now();
        self.outage.answered();
    }
}

const HAS_CONNECTION: &str = "a session has its connection until it is dropped";

impl<D: Driver> Deref for Pooled<D> {
    type Target = ConnectionOf<D>;

    fn deref(&self) -> &ConnectionOf<D> {
        self.connection.as_ref().expect(HAS_CONNECTION)
    }
}

impl<D: Driver> DerefMut for Pooled<D> {
    fn deref_mut(&mut self) -> &mut ConnectionOf<D> {
        self.connection.as_mut().expect(HAS_CONNECTION)
    }
}

impl<D: Driver> Drop for Pooled<D> {
    fn drop(&mut self) {
        if let (Some(connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) {
            let open = self.open.clone();
            runtime.spawn(async move {
                // A server that does not learn of the end notices it.
                let _ = timeout(LONGEST_CLOSE, connection.close()).await;
                drop(open);
            });
        }
    }
}

/// Opens sessions, and decides whether one can be used again.
#[derive(Debug)]
pub(super) struct Opener<D> {
    driver: D,
    replacement: Arc<SessionReplacement>,
    max_lifetime: Option<Duration>,
    /// Longest time for one session of a server that answers others.
    connect_timeout: Duration,
    /// The sessions whose connections are open, and the tasks that end them.
    open: TaskTracker,
    outage: Arc<Outage>,
    skipping: Arc<Semaphore>,
    /// When the server last had no place for another session beside those.
    full_at: Mutex<Option<Instant>>,
}

impl<D: Driver> Opener<D> {
    pub(super) fn new(
        driver: D,
        limits: &ConnectionLimits,
        replacement: &Arc<SessionReplacement>,
        outage: Arc<Outage>,
    ) -> Self {
        Self {
            driver,
            replacement: Arc::clone(replacement),
            max_lifetime: limits.max_lifetime,
            connect_timeout: limits.connect_timeout,
            open: TaskTracker::new(),
            outage,
            skipping: Arc::new(Semaphore::new(SKIPPING)),
            full_at: Mutex::default(),
        }
    }

    /// Longest time until a session is opened, or an error says why not, unless the server answers
    /// others.
    pub(super) fn longest(&self) -> Duration {
        LONGEST_OUTAGE.min(self.connect_timeout)
    }

    pub(super) fn is_away(&self) -> bool {
        self.outage.reason().is_some()
    }

    /// Whether the server had no place for a session, and one of those that are open may become
    /// free.
    fn is_full_beside_others(&self, error: &SqlError) -> bool {
        is_full(error) && !self.open.is_empty()
    }

    /// Whether the server has refused a session beside others a moment ago.
    pub(super) fn is_full(&self) -> bool {
        let full_at = *self.full_at.lock();
        full_at.is_some_and(|at| at.elapsed() < FULL_PAUSE * 2)
    }

    /// Whether this caller may try to open a session: after a refusal one may in each
    /// [`FULL_PAUSE`], and the others look for idle sessions meanwhile.
    fn may_try(&self) -> bool {
        let mut full_at = self.full_at.lock();
        let may_try = full_at.is_none_or(|at| at.elapsed() >= FULL_PAUSE);
        if may_try && full_at.is_some() {
            *full_at = Some(Instant::now());
        }
        may_try
    }

    async fn connect(&self) -> Result<Connected<D>, SqlError> {
        if !self.open.is_empty() && !self.may_try() {
            return Err(timed_out(ServerFull));
        }
        let Some(longest) = self.outage.patience(self.longest()) else {
            return Err(self.unreachable());
        };
        let connecting = (|| self.connect_once())
            .retry(outage::pauses(longest))
            .when(may_open_later);
        let mut connecting = pin!(connecting);
        let began = Instant::now();
        loop {
            let remaining = self.connect_timeout.saturating_sub(began.elapsed());
            let limit = self.longest().min(remaining);
            if let Ok(connected) = timeout(limit, &mut connecting).await {
                if connected.as_ref().is_err_and(may_open_later) {
                    self.outage.given_up();
                }
                return connected;
            }
            // Where other sessions are answered, the server is there, and slow to begin one.
            if !self.outage.has_answered_within(self.longest()) {
                let error = self.no_session();
                self.outage.note(&error);
                self.outage.given_up();
                return Err(error);
            }
            if began.elapsed() >= self.connect_timeout {
                return Err(timed_out(format!(
                    "the server began no session within {:?}",
                    self.connect_timeout
                )));
            }
        }
    }

    async fn connect_once(&self) -> Result<Connected<D>, SqlError> {
        let connected = self.driver.connect().await;
        match &connected {
            Ok(_) => {
                self.outage.end();
                *self.full_at.lock() = None;
            }
            Err(error) if self.is_full_beside_others(error) => {
                if self.full_at.lock().replace(Instant::now()).is_none() {
                    tracing::warn!(
                        name: "database.full",
                        reason = %error,
                        "the server accepts no further connection, so calls share those that are open; raise its limit, or \
                         lower `max_open_database_connections`"
                    );
                }
                return Err(timed_out(ServerFull));
            }
            Err(error) if may_open_later(error) => self.outage.note(error),
            Err(_) => {}
        }
        connected
    }

    /// The error of a caller that gets no session in time.
    pub(super) fn unreachable(&self) -> SqlError {
        self.outage.given_up();
        self.no_session()
    }

    fn no_session(&self) -> SqlError {
        self.outage.no_session(self.longest())
    }

    /// Ends a session at the server, so that what it has locked is free at once. The address may
    /// lead to several servers; a session of another one is left alone. Returns whether the session
    /// was ended.
    pub(super) async fn kill(&self, name: &SessionName) -> Result<bool, SqlError> {
        let mut connected = self.driver.connect().await?;
        let is_on_this_server = connected.name.server == name.server;
        if is_on_this_server {
            D::run(&mut connected.connection, &D::kill(name.number).into()).await?;
        }
        connected.connection.close().await?;
        Ok(is_on_this_server)
    }

    /// A permit to read the rest of an abandoned answer; none if all are in use.
    pub(super) fn skip_rows(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.skipping).try_acquire_owned().ok()
    }

    /// Runs a task that [`Self::closed`] waits for.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.open.spawn(task);
    }

    /// Waits until all connections are closed and all tasks have ended.
    pub(super) async fn closed(&self) {
        self.open.close();
        self.open.wait().await;
    }

    /// Notes that a transaction could not begin.
    pub(super) fn note_begin(&self, error: &SqlError) {
        self.replacement.note_begin(error);
    }

    pub(super) fn driver(&self) -> &D {
        &self.driver
    }

    pub(super) fn statements(&self) -> &Statements {
        self.driver.statements()
    }
}

impl<D: Driver> Manager for Opener<D> {
    type Type = Pooled<D>;
    type Error = SqlError;

    async fn create(&self) -> Result<Pooled<D>, SqlError> {
        let Connected { connection, name } = self.connect().await?;
        Ok(Pooled {
            connection: Some(connection),
            name,
            idle_since: Instant::now(),
            outage: Arc::clone(&self.outage),
            open: self.open.token(),
        })
    }

    async fn recycle(&self, session: &mut Pooled<D>, known: &Metrics) -> RecycleResult<SqlError> {
        let age = known.age();
        if self.replacement.outdates(age) || self.max_lifetime.is_some_and(|most| age > most) {
            return Err(RecycleError::message("it is to be replaced"));
        }
        if session.idle_for() <= FRESH {
            return Ok(());
        }
        let pinged = Instant::now();
        let Ok(answered) = timeout(LONGEST_PING, session.ping()).await else {
            let error = no_answer(LONGEST_PING);
            if !self.outage.has_answered_within(LONGEST_PING) {
                self.outage.note(&error);
                // The other idle ones would each take as long.
                self.replacement.replace_from_before(pinged);
            }
            return Err(RecycleError::Backend(error));
        };
        answered.map_err(RecycleError::Backend)?;
        self.outage.end();
        Ok(())
    }
}
