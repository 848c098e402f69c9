//! Recognition of a server that cannot be reached. Owns the reason, for callers that wait for
//! others to connect, how long a caller tries to connect, and the log lines.

use std::io;
use std::time::{Duration, Instant};

use backon::ExponentialBuilder;
use parking_lot::Mutex;

use super::SqlError;
use super::errors::is_full;

/// The time in which a server that cannot be reached has to come back for a caller that waits for a
/// session.
pub(super) const LONGEST_OUTAGE: Duration = Duration::from_secs(5);
/// Shortest and longest pause between two attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// Pause between two attempts to connect once an outage has lasted for as long as a caller tries.
const PROBE: Duration = Duration::from_millis(500);
/// After this time without an attempt, the next failure begins another outage.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Pauses between the attempts to connect, for at most this time.
pub(super) fn pauses(longest: Duration) -> ExponentialBuilder {
    let [shortest_pause, longest_pause] = PAUSES;
    ExponentialBuilder::new()
        .with_min_delay(shortest_pause)
        .with_max_delay(longest_pause)
        .without_max_times()
        .with_total_delay(Some(longest))
}

/// The outage that goes on, if one does.
#[derive(Debug, Default)]
pub(super) struct Outage {
    failures: Mutex<Option<ConnectFailures>>,
    /// When the server last answered an open session.
    last_answer: Mutex<Option<Instant>>,
}

/// Attempts to connect that failed, without one between them that succeeded.
#[derive(Debug)]
struct ConnectFailures {
    /// Why the last one failed.
    reason: String,
    /// Whether the last one got no answer, which takes long to find.
    is_silent: bool,
    first: Instant,
    last: Instant,
    /// The callers that got no session.
    given_up: u64,
}

impl ConnectFailures {
    /// When the outage began, unless the last attempt is long ago.
    fn begun(&self) -> Option<Instant> {
        (self.last.elapsed() < FORGOTTEN).then_some(self.first)
    }
}

impl Outage {
    pub(super) fn reason(&self) -> Option<String> {
        self.failures
            .lock()
            .as_ref()
            .map(|failures| failures.reason.clone())
    }

    /// The time for which a caller tries again that gives a server `longest` to come back: none if
    /// it tries once, absent if it does not try, as another caller has just got no answer. It
    /// counts from the beginning of the outage: calls that wait for each other would add theirs.
    pub(super) fn patience(&self, longest: Duration) -> Option<Duration> {
        let failures = self.failures.lock();
        let Some(first) = failures.as_ref().and_then(ConnectFailures::begun) else {
            return Some(longest);
        };
        let remaining = longest.saturating_sub(first.elapsed());
        let is_silent = failures
            .as_ref()
            .is_some_and(|failures| failures.is_silent && failures.last.elapsed() < PROBE);
        (!remaining.is_zero() || !is_silent).then_some(remaining)
    }

    pub(super) fn note(&self, error: &SqlError) {
        let reason = error.to_string();
        let now = Instant::now();
        let mut failures = self.failures.lock();
        // Where a server has no place for another connection, those that are open go on, and one
        // may become free.
        let begun = failures
            .as_ref()
            .filter(|_| !is_full(error))
            .and_then(ConnectFailures::begun);
        let first = begun.unwrap_or(now);
        let given_up = failures.as_ref().map_or(0, |failures| failures.given_up);
        let is_silent = matches!(error, SqlError::Io(io) if io.kind() == io::ErrorKind::TimedOut);
        let is_new = failures
            .replace(ConnectFailures {
                reason: reason.clone(),
                is_silent,
                first,
                last: now,
                given_up,
            })
            .is_none();
        drop(failures);
        if is_new {
            tracing::warn!(name: "database.unreachable", %reason, "the database cannot be reached; trying again");
        }
    }

    /// The error of a caller that gets no session within this time.
    pub(super) fn no_session(&self, longest: Duration) -> SqlError {
        self.reason().map_or_else(|| no_answer(longest), timed_out)
    }

    /// To be called when a caller gets no session, because the server is away.
    pub(super) fn given_up(&self) {
        if let Some(failures) = &mut *self.failures.lock() {
            failures.given_up += 1;
        }
    }

    /// To be called when a session returns to the pool with its last statement answered.
    pub(super) fn answered(&self) {
        *self.last_answer.lock() = Some(Instant::now());
    }

    /// Whether a session was answered in the last `time`, so that one which was not is slow alone.
    pub(super) fn has_answered_within(&self, time: Duration) -> bool {
        let last_answer = *self.last_answer.lock();
        last_answer.is_some_and(|answered| answered.elapsed() < time)
    }

    pub(super) fn end(&self) {
        if let Some(ConnectFailures { given_up, .. }) = self.failures.lock().take() {
            tracing::info!(name: "database.reached", given_up, "the database can be reached again");
        }
    }
}

/// The error of a server that is silent for this long.
pub(super) fn no_answer(longest: Duration) -> SqlError {
    timed_out(format!("the server did not answer within {longest:?}"))
}

/// An error of a time limit.
pub(super) fn timed_out(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SqlError {
    SqlError::Io(io::Error::new(io::ErrorKind::TimedOut, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    /// An outage whose first and last failure are this long ago.
    fn outage(first: Duration, last: Duration) -> Outage {
        let ago = |time| {
            Instant::now()
                .checked_sub(time)
                .expect("a machine that has run for a while")
        };
        let reason = "no answer".to_owned();
        let failures = ConnectFailures {
            reason,
            is_silent: true,
            first: ago(first),
            last: ago(last),
            given_up: 0,
        };
        Outage {
            failures: Mutex::new(Some(failures)),
            ..Outage::default()
        }
    }

    #[test]
    fn callers_share_the_time_in_which_a_server_has_to_come_back() {
        assert_eq!(Outage::default().patience(LONGEST), Some(LONGEST));
        let begun = outage(Duration::from_secs(3), Duration::ZERO).patience(LONGEST);
        assert!(
            matches!(begun, Some(remaining) if remaining <= Duration::from_secs(2)),
            "{begun:?}"
        );
        assert_eq!(outage(LONGEST, Duration::ZERO).patience(LONGEST), None);
        assert_eq!(
            outage(LONGEST * 2, PROBE).patience(LONGEST),
            Some(Duration::ZERO)
        );
        assert_eq!(
            outage(FORGOTTEN * 2, FORGOTTEN).patience(LONGEST),
            Some(LONGEST)
        );
    }

    #[test]
    fn outage_goes_on_from_its_first_failure_to_a_success() {
        let outage = outage(LONGEST, PROBE);
        outage.note(&timed_out("still refused"));
        assert_eq!(outage.patience(LONGEST), None);
        assert!(
            outage
                .reason()
                .is_some_and(|reason| reason.ends_with("still refused"))
        );
        outage.note(&SqlError::Io(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(
            outage.patience(LONGEST),
            Some(Duration::ZERO),
            "a server that refuses answers at once"
        );
        outage.given_up();
        outage.note(&SqlError::Io(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(outage.failures.lock().as_ref().unwrap().given_up, 1);
        outage.end();
        assert_eq!(
            (outage.patience(LONGEST), outage.reason()),
            (Some(LONGEST), None)
        );
    }
}
