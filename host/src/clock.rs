//! The clock. A leaf: code that needs the time receives a [`Clock`], so that a test can stop it;
//! nothing else reads the system's time.

mod stopped;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

const DAY_S: i64 = 24 * 60 * 60;

/// Seconds since 1970 as RFC 3339 writes a time, without fraction and zone: `2016-07-27T18:23:49`.
pub fn date_and_time(seconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let second = seconds.rem_euclid(DAY_S);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day number since 1970. Years are counted from March, so that a leap day
/// is the last day.
fn date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 400 * 365 + 97;
    // Days since 0000-03-01.
    let days = days + 719_468;
    let era = days.div_euclid(ERA);
    let day_of_era = days.rem_euclid(ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
