//! Log sampling, so that the number of lines stays small whatever the number of events, which
//! metrics and status report. Of similar events, either the first ten are logged, and then one each
//! time that their number has doubled ([`is_sampled`]); or a burst, and then a number each minute
//! ([`LineLimit`]).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Enough to show what the events have in common.
const FIRST: u32 = 10;

/// Whether the event that brings the count to `count` is logged. Only for a count that begins anew
/// with a run or an outage: after months, the next line would be months away.
pub fn is_sampled(count: u64) -> bool {
    count <= u64::from(FIRST) || count.is_power_of_two()
}

/// Limits the lines about events of one kind to a burst and a rate (a token bucket).
#[derive(Debug)]
pub struct LineLimit {
    burst: u32,
    /// Time in which one more line is allowed.
    interval: Duration,
    state: Mutex<LineLimitState>,
}

#[derive(Debug)]
struct LineLimitState {
    allowed: u32,
    /// The time up to which lines have been allowed.
    until: Instant,
    left_out: u64,
}

impl Default for LineLimit {
    /// Allows ten lines at once and one a minute later.
    fn default() -> Self {
        Self::new(FIRST, 1)
    }
}

impl LineLimit {
    /// Allows `burst` lines at once and `per_minute` later.
    pub fn new(burst: u32, per_minute: u32) -> Self {
        let state = LineLimitState {
            allowed: burst,
            until: Instant::now(),
            left_out: 0,
        };
        Self {
            burst,
            interval: Duration::from_secs(60) / per_minute,
            state: Mutex::new(state),
        }
    }

    /// Counts an event. If it is logged, returns the number of those before it that were left out
    /// since the last line.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    /// The number of events that were left out since the last line.
    pub fn left_out(&self) -> u64 {
        self.state.lock().left_out
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let passed =
            now.saturating_duration_since(state.until).as_nanos() / self.interval.as_nanos();
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        state.until = if more < self.burst {
            state.until + self.interval * more
        } else {
            now
        };
        state.allowed = state.allowed.saturating_add(more).min(self.burst);
        match state.allowed.checked_sub(1) {
            Some(left) => {
                state.allowed = left;
                Some(std::mem::take(&mut state.left_out))
            }
            None => {
                state.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_events_make_26_lines() {
        assert_eq!(
            (1..=1_000_000).filter(|count| is_sampled(*count)).count(),
            26
        );
        assert!((1..=10).all(is_sampled) && !is_sampled(11) && is_sampled(16));
    }

    #[test]
    fn lines_are_limited_to_a_burst_and_a_rate() {
        let limit = LineLimit::new(3, 2);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let admitted: Vec<_> = (0..5).map(|_| limit.admit_at(at(1))).collect();
        assert_eq!(admitted, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(limit.left_out(), 2);
        assert_eq!(
            (limit.admit_at(at(31)), limit.admit_at(at(31))),
            (Some(2), None)
        );
        assert_eq!(
            (limit.admit_at(at(59)), limit.admit_at(at(61))),
            (None, Some(2))
        );
        // A long pause allows a burst again, and no more.
        let admitted: Vec<_> = (0..5)
            .map(|_| limit.admit_at(at(100_000)).is_some())
            .collect();
        assert_eq!(admitted, [true, true, true, false, false]);
    }

    #[test]
    fn default_limit_admits_a_line_each_minute_whatever_the_number_before() {
        let limit = LineLimit::default();
        let begin = Instant::now();
        let lines_of_hour = |hour: u64| {
            (hour * 3600..(hour + 1) * 3600)
                .filter(|second| {
                    let now = begin + Duration::from_secs(*second);
                    limit.admit_at(now).is_some()
                })
                .count()
        };
        let lines: Vec<_> = (0..24).map(lines_of_hour).collect();
        // The first hour has the burst, too.
        assert_eq!(lines[1..], [60; 23]);
    }
}
