//! The current rate of work, over the last seconds. An average since the start would hide a
//! slowdown and give a wrong estimate of the time left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Long enough to even out batches of a second, short enough to show a change.
const WINDOW: Duration = Duration::from_secs(15);
/// Least distance between two stored points, so that they stay few however small the steps are.
const RESOLUTION: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Counts and when they were reached, oldest first. The first is the latest that is older than
    /// the window, if there is one.
    points: VecDeque<(Instant, u64)>,
    last: Option<u64>,
}

impl Rate {
    pub(super) fn from(count: u64, now: Instant) -> Self {
        Self {
            points: [(now, count)].into(),
            last: Some(count),
        }
    }

    pub(super) fn reached(&mut self, count: u64, now: Instant) {
        self.last = Some(count);
        if self
            .points
            .back()
            .is_none_or(|(then, _)| now.saturating_duration_since(*then) >= RESOLUTION)
        {
            self.points.push_back((now, count));
        }
        while self
            .points
            .get(1)
            .is_some_and(|(then, _)| now.saturating_duration_since(*then) > WINDOW)
        {
            self.points.pop_front();
        }
    }

    /// Units per second over the window; `None` without progress in it.
    pub(super) fn per_second(&self, now: Instant) -> Option<f64> {
        let (then, count) = self.points.front()?;
        let seconds = now.saturating_duration_since(*then).as_secs_f64();
        let done = self.last?.saturating_sub(*count);
        (done > 0 && seconds > 0.0).then(|| done as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_covers_the_last_seconds_only() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut rate = Rate::from(0, start);
        assert_eq!(rate.per_second(at(1)), None);
        for second in 1..=10 {
            rate.reached(second * 1000, at(second));
        }
        assert_eq!(rate.per_second(at(10)), Some(1000.0));
        for second in 11..=40 {
            rate.reached(10_000 + (second - 10) * 10, at(second));
        }
        assert_eq!(rate.per_second(at(40)), Some(10.0));
    }

    #[test]
    fn rate_of_stopped_work_decays() {
        let start = Instant::now();
        let mut rate = Rate::from(0, start);
        rate.reached(100, start + Duration::from_secs(1));
        assert_eq!(rate.per_second(start + Duration::from_secs(10)), Some(10.0));
        assert_eq!(rate.per_second(start + Duration::from_secs(100)), Some(1.0));
    }

    #[test]
    fn work_of_earlier_runs_does_not_count_towards_the_rate() {
        let start = Instant::now();
        let mut rate = Rate::from(1_000_000, start);
        rate.reached(1_000_010, start + Duration::from_secs(1));
        assert_eq!(rate.per_second(start + Duration::from_secs(1)), Some(10.0));
    }

    #[test]
    fn number_of_points_is_bounded() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for step in 0..1_000_000 {
            rate.reached(step, start + Duration::from_millis(step));
        }
        assert!(rate.points.len() <= 62, "{}", rate.points.len());
    }
}
