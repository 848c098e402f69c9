//! What time it is. A leaf: everything that needs the time is handed a clock, so that a test can
//! stop it, and nothing else reads the system's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since 1970, as Diego keeps times.
    fn now_ns(&self) -> i64;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where the system's clock is read")]
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct StoppedClock(AtomicI64);

impl StoppedClock {
    pub fn at(now_ns: i64) -> Self {
        Self(AtomicI64::new(now_ns))
    }

    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for StoppedClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
