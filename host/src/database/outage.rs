//! Recognition of a server that cannot be reached. Owns the reason, for callers that wait for others to connect, how long a caller
//! tries to connect, and the log lines.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::SqlError;
use super::errors::is_full;

/// Pause between two attempts to connect once an outage has lasted for as long as a caller tries.
const PROBE: Duration = Duration::from_millis(500);
/// After this time without an attempt, the next failure begins another outage.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The outage that goes on, if one does.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<ConnectFailures>>);

/// Attempts to connect that failed, without one between them that succeeded.
#[derive(Debug)]
struct ConnectFailures {
    /// Why the last one failed.
    reason: String,
    first: Instant,
    last: Instant,
}

/// How a caller connects.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectAttempt {
    /// Tries again for this long.
    For(Duration),
    /// Tries once.
    Once,
    /// Fails at once, as another caller has just failed.
    No,
}

impl ConnectFailures {
    /// When the outage began, unless the last attempt is long ago.
    fn begun(&self) -> Option<Instant> {
        (self.last.elapsed() < FORGOTTEN).then_some(self.first)
    }
}

impl Outage {
    fn lock(&self) -> MutexGuard<'_, Option<ConnectFailures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.lock().as_ref().map(|failures| failures.reason.clone())
    }

    /// How a caller connects that has `longest` for a server to come back. The time counts from the beginning of the outage: calls
    /// that wait for each other would add theirs.
    pub(super) fn attempt(&self, longest: Duration) -> ConnectAttempt {
        let failures = self.lock();
        let Some(first) = failures.as_ref().and_then(ConnectFailures::begun) else {
            return ConnectAttempt::For(longest);
        };
        match longest.checked_sub(first.elapsed()) {
            Some(remaining) if !remaining.is_zero() => ConnectAttempt::For(remaining),
            _ if failures.as_ref().is_some_and(|failures| failures.last.elapsed() < PROBE) => ConnectAttempt::No,
            _ => ConnectAttempt::Once,
        }
    }

    pub(super) fn note(&self, error: &SqlError) {
        let (reason, now) = (error.to_string(), Instant::now());
        let mut failures = self.lock();
        // Where a server has no place for another connection, those that are open go on, and one may become free.
        let begun = failures.as_ref().filter(|_| !is_full(error)).and_then(ConnectFailures::begun);
        let first = begun.unwrap_or(now);
        let is_new = failures.replace(ConnectFailures { reason: reason.clone(), first, last: now }).is_none();
        drop(failures);
        if is_new {
            tracing::warn!(name: "database.unreachable", %reason, "the database cannot be reached; trying again");
        }
    }

    pub(super) fn end(&self) {
        if self.lock().take().is_some() {
            tracing::info!(name: "database.reached", "the database can be reached again");
        }
    }
}

/// An error of a time limit.
pub(super) fn timed_out(reason: String) -> SqlError {
    SqlError::Io(io::Error::new(io::ErrorKind::TimedOut, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    /// An outage whose first and last failure are this long ago.
    fn outage(first: Duration, last: Duration) -> Outage {
        let ago = |time| Instant::now().checked_sub(time).expect("a machine that has run for a while");
        Outage(Mutex::new(Some(ConnectFailures { reason: "refused".into(), first: ago(first), last: ago(last) })))
    }

    #[test]
    fn callers_share_the_time_in_which_a_server_has_to_come_back() {
        assert_eq!(Outage::default().attempt(LONGEST), ConnectAttempt::For(LONGEST));
        let begun = outage(Duration::from_secs(3), Duration::ZERO).attempt(LONGEST);
        assert!(matches!(begun, ConnectAttempt::For(remaining) if remaining <= Duration::from_secs(2)), "{begun:?}");
        assert_eq!(outage(LONGEST, Duration::ZERO).attempt(LONGEST), ConnectAttempt::No);
        assert_eq!(outage(LONGEST * 2, PROBE).attempt(LONGEST), ConnectAttempt::Once);
        assert_eq!(outage(FORGOTTEN * 2, FORGOTTEN).attempt(LONGEST), ConnectAttempt::For(LONGEST));
    }

    #[test]
    fn outage_goes_on_from_its_first_failure_to_a_success() {
        let outage = outage(LONGEST, PROBE);
        outage.note(&timed_out("still refused".into()));
        assert_eq!(outage.attempt(LONGEST), ConnectAttempt::No);
        assert!(outage.reason().is_some_and(|reason| reason.ends_with("still refused")));
        outage.end();
        assert_eq!((outage.attempt(LONGEST), outage.reason()), (ConnectAttempt::For(LONGEST), None));
    }
}
