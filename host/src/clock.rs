//! The clock. A leaf: code that needs the time receives a [`Clock`], so that a test can stop it; nothing else reads the
//! system's time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of the current time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since 1970-01-01 UTC, the unit in which Diego stores times.
    fn now_ns(&self) -> i64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where the system's clock is read")]
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// A clock for tests: stands still until it is set.
#[derive(Debug, Default)]
pub struct StoppedClock(AtomicI64);

impl StoppedClock {
    /// Creates a clock that shows `now_ns`, in nanoseconds since 1970.
    pub fn at(now_ns: i64) -> Self {
        Self(AtomicI64::new(now_ns))
    }

    /// Sets the time, in nanoseconds since 1970.
    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for StoppedClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
