//! The clock. A leaf: code that needs the time receives a [`Clock`], so that a test can stop it;
//! nothing else reads the system's time.

mod stopped;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub use self::stopped::StoppedClock;

/// A source of the current time, which also sleeps.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since 1970-01-01 UTC, the unit in which Diego stores times.
    fn now_ns(&self) -> i64;

    /// The monotonic time. Comparable only with times of the same clock.
    fn instant(&self) -> Instant;

    /// Waits until the monotonic time `wakes`.
    fn sleep_until(&self, wakes: Instant) -> BoxFuture<'_, ()>;

    /// Waits for a time.
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.sleep_until(self.instant() + time)
    }
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the system's clock is read"
    )]
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, wakes: Instant) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep_until(wakes))
    }
}

/// Seconds since 1970 as RFC 3339 writes a time, without fraction and zone: `2016-07-27T18:23:49`.
/// A time after the year 262142 stays a number.
pub fn date_and_time(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).map_or_else(
        || seconds.to_string(),
        |time| time.format("%FT%T").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_by_rfc_3339_and_those_beyond_as_numbers() {
        for (seconds, written) in [
            (951_782_400, "2000-02-29T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(date_and_time(seconds), written);
        }
    }
}
