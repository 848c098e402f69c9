//! Restarts of crashed instances: at once for the first crashes, then after growing delays, finally
//! never. The numbers are Diego's and not configurable.

const SECOND_NS: i64 = 1_000_000_000;

/// With fewer crashes than this, an instance is restarted at once.
const IMMEDIATE_RESTARTS: i32 = 3;
/// With this many crashes, an instance is not restarted.
const MAX_CRASHES: i32 = 200;
const FIRST_DELAY_NS: i64 = 30 * SECOND_NS;
/// Doublings of the first delay, up to 16 minutes.
const MAX_DOUBLINGS: i32 = 5;
/// After running for longer than this, a crash counts as the first one.
const RESET_AFTER_NS: i64 = 5 * 60 * SECOND_NS;

/// When a crashed instance is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Now,
    /// Not before this time, in nanoseconds since 1970.
    AtNs(i64),
    Never,
}

/// When an instance restarts that has this crash count and entered its state at `since_ns`.
pub fn restart(crash_count: i32, since_ns: i64, now_ns: i64) -> Restart {
    if crash_count < IMMEDIATE_RESTARTS {
        return Restart::Now;
    }
    if crash_count >= MAX_CRASHES {
        return Restart::Never;
    }
    let delay_ns = FIRST_DELAY_NS << (crash_count - IMMEDIATE_RESTARTS).min(MAX_DOUBLINGS);
    let due_ns = since_ns.saturating_add(delay_ns);
    if now_ns >= due_ns {
        Restart::Now
    } else {
        Restart::AtNs(due_ns)
    }
}

/// The crash count after one more crash; `ran_ns` is how long the instance was running, if it was.
pub fn crash_count(before: i32, ran_ns: Option<i64>) -> i32 {
    match ran_ns {
        Some(ran_ns) if ran_ns > RESET_AFTER_NS => 1,
        Some(_) | None => before.saturating_add(1),
    }
}

/// Whether a running instance with this crash count counts as working, although it may have
/// crashed: with more than a few crashes only once a further crash would count as the first one.
pub fn is_stable(crash_count: i32, since_ns: i64, now_ns: i64) -> bool {
    crash_count < IMMEDIATE_RESTARTS || now_ns.saturating_sub(since_ns) > RESET_AFTER_NS
}

/// Whether an instance with this crash count restarts without a delay.
pub fn is_at_once(crash_count: i32) -> bool {
    crash_count < IMMEDIATE_RESTARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_sixteen_minutes_and_end_at_two_hundred_crashes() {
        let waits = [
            (3, 30),
            (4, 60),
            (5, 120),
            (6, 240),
            (7, 480),
            (8, 960),
            (9, 960),
            (100, 960),
            (199, 960),
        ];
        for (count, wait_s) in waits {
            let due_ns = 1_000 + wait_s * SECOND_NS;
            assert_eq!(
                restart(count, 1_000, due_ns - 1),
                Restart::AtNs(due_ns),
                "{count}"
            );
            assert_eq!(restart(count, 1_000, due_ns), Restart::Now, "{count}");
        }
        for count in [-1, 0, 1, 2] {
            assert_eq!(restart(count, i64::MAX, 0), Restart::Now, "{count}");
            assert!(is_at_once(count));
        }
        for count in [200, 201, i32::MAX] {
            assert_eq!(restart(count, 0, i64::MAX), Restart::Never, "{count}");
        }
        assert!(!is_at_once(3) && !is_at_once(200));
    }

    #[test]
    fn due_time_does_not_overflow() {
        assert_eq!(restart(3, i64::MAX, 0), Restart::AtNs(i64::MAX));
    }

    #[test]
    fn five_minutes_of_running_reset_the_crash_count() {
        assert_eq!(crash_count(0, None), 1);
        assert_eq!(crash_count(7, None), 8);
        assert_eq!(crash_count(7, Some(RESET_AFTER_NS)), 8);
        assert_eq!(crash_count(7, Some(RESET_AFTER_NS + 1)), 1);
        assert_eq!(crash_count(7, Some(-1)), 8, "a clock that went back");
        assert_eq!(crash_count(i32::MAX, None), i32::MAX);
    }
}
