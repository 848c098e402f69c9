//! Database statistics: queries, their durations, and waits for a connection. Owns the counting,
//! which costs a few atomic additions; `metrics` publishes the numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counters since the database was opened. `BEGIN` and `COMMIT` count as queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub open_connections: u64,
    /// How often a caller had to wait for a connection.
    pub waits: u64,
    /// Total time spent waiting for connections.
    pub waited: Duration,
    pub queries: u64,
    pub succeeded: u64,
    pub failed: u64,
    /// Most concurrent queries in the current window.
    pub most_in_flight: u64,
    /// Longest query of the current window.
    pub longest: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Transactions, and connections for single statements, that were begun and that are open.
    begun: AtomicU64,
    open: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: Peak,
    longest_ns: Peak,
}

/// The maximum over the current and the previous window, so that a reader right after a window's
/// start sees a value.
#[derive(Debug, Default)]
struct Peak {
    now: AtomicU64,
    before: AtomicU64,
}

impl Peak {
    fn reach(&self, value: u64) {
        self.now.fetch_max(value, Relaxed);
    }

    fn get(&self) -> u64 {
        self.now.load(Relaxed).max(self.before.load(Relaxed))
    }

    /// Ends the window and returns its maximum; the next window starts at `present`.
    fn end(&self, present: u64) -> u64 {
        let peak = self.now.swap(present, Relaxed);
        self.before.store(peak, Relaxed);
        peak
    }
}

impl Counters {
    pub(super) fn begin_transaction(self: &Arc<Self>) -> OpenTransaction {
        self.begun.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        OpenTransaction(Arc::clone(self))
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    pub(super) fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    pub(super) fn begin(self: &Arc<Self>) -> Query {
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.most_in_flight.reach(in_flight);
        Query {
            counters: Arc::clone(self),
            began: Instant::now(),
            has_succeeded: false,
        }
    }

    pub(super) fn waited(&self, waited: Duration) {
        self.waits.fetch_add(1, Relaxed);
        self.waited_ns.fetch_add(nanoseconds(waited), Relaxed);
    }

    pub(super) fn read(&self, open_connections: u64) -> Statistics {
        self.with_peaks(
            open_connections,
            self.most_in_flight.get(),
            self.longest_ns.get(),
        )
    }

    pub(super) fn end_window(&self, open_connections: u64) -> Statistics {
        let most_in_flight = self.most_in_flight.end(self.in_flight.load(Relaxed));
        self.with_peaks(open_connections, most_in_flight, self.longest_ns.end(0))
    }

    fn with_peaks(
        &self,
        open_connections: u64,
        most_in_flight: u64,
        longest_ns: u64,
    ) -> Statistics {
        let succeeded = self.succeeded.load(Relaxed);
        let failed = self.failed.load(Relaxed);
        Statistics {
            open_connections,
            waits: self.waits.load(Relaxed),
            waited: Duration::from_nanos(self.waited_ns.load(Relaxed)),
            queries: succeeded + failed,
            succeeded,
            failed,
            most_in_flight,
            longest: Duration::from_nanos(longest_ns),
        }
    }
}

/// A transaction that has begun, until this is dropped.
#[derive(Debug)]
pub(super) struct OpenTransaction(Arc<Counters>);

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// A query in progress, which ends when this is dropped. A query whose caller was cancelled counts
/// as failed.
#[derive(Debug)]
pub(super) struct Query {
    counters: Arc<Counters>,
    began: Instant,
    has_succeeded: bool,
}

impl Query {
    /// Counts as succeeded unless [`fail`](Self::fail) is called.
    pub(super) fn trusted(mut self) -> Self {
        self.has_succeeded = true;
        self
    }

    pub(super) fn fail(&mut self) {
        self.has_succeeded = false;
    }

    /// Records the outcome and returns it.
    pub(super) fn end<T, E>(mut self, outcome: Result<T, E>) -> Result<T, E> {
        self.has_succeeded = outcome.is_ok();
        outcome
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        let counters = &self.counters;
        counters.in_flight.fetch_sub(1, Relaxed);
        counters.longest_ns.reach(nanoseconds(self.began.elapsed()));
        let outcome = if self.has_succeeded {
            &counters.succeeded
        } else {
            &counters.failed
        };
        outcome.fetch_add(1, Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_and_failures_are_counted_separately() {
        let counters = Arc::new(Counters::default());
        assert_eq!(counters.begin().end(Ok::<_, ()>(1)), Ok(1));
        assert_eq!(counters.begin().end(Err::<(), _>(2)), Err(2));
        drop(counters.begin());
        let counted = counters.read(7);
        assert_eq!(
            (
                counted.queries,
                counted.succeeded,
                counted.failed,
                counted.open_connections
            ),
            (3, 1, 2, 7)
        );
    }

    #[test]
    fn window_starts_with_the_queries_in_flight() {
        let counters = Arc::new(Counters::default());
        let one = counters.begin();
        let two = counters.begin();
        drop(two);
        assert_eq!(counters.end_window(0).most_in_flight, 2);
        assert_eq!(
            counters.read(0).most_in_flight,
            2,
            "the previous window still counts"
        );
        assert_eq!(counters.end_window(0).most_in_flight, 1);
        drop(one);
        assert!(counters.read(0).longest > Duration::ZERO);
        assert_eq!(counters.end_window(0).most_in_flight, 1);
        assert_eq!(
            counters.end_window(0),
            Statistics {
                queries: 2,
                failed: 2,
                ..Statistics::default()
            }
        );
    }
}
