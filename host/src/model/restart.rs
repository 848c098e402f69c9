//! When an instance that crashed is started again: at once at first, then after ever longer waits, in the end never.
//! Owns the numbers; they are Diego's and cannot be configured.

const SECOND_NS: i64 = 1_000_000_000;

/// Crashes that are forgiven at once.
const AT_ONCE: i32 = 3;
/// With so many, nobody tries again.
const GIVEN_UP: i32 = 200;
const FIRST_WAIT_NS: i64 = 30 * SECOND_NS;
/// The first wait is doubled so often, which makes 16 minutes, and no more.
const MOST_DOUBLINGS: i32 = 5;
/// Having run for longer than this, an instance crashes as if for the first time.
const FORGIVEN_AFTER_NS: i64 = 5 * 60 * SECOND_NS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Now,
    /// Not before this time.
    AtNs(i64),
    Never,
}

/// What is due for an instance that crashed so often, and has been so since a time.
pub fn restart(crash_count: i32, since_ns: i64, now_ns: i64) -> Restart {
    if crash_count < AT_ONCE {
        return Restart::Now;
    }
    if crash_count >= GIVEN_UP {
        return Restart::Never;
    }
    let wait_ns = FIRST_WAIT_NS << (crash_count - AT_ONCE).min(MOST_DOUBLINGS);
    let due_ns = since_ns.saturating_add(wait_ns);
    if now_ns >= due_ns { Restart::Now } else { Restart::AtNs(due_ns) }
}

/// How often an instance has crashed, with one more crash after having run for so long, if it was running.
pub fn crash_count(before: i32, ran_ns: Option<i64>) -> i32 {
    match ran_ns {
        Some(ran_ns) if ran_ns > FORGIVEN_AFTER_NS => 1,
        Some(_) | None => before.saturating_add(1),
    }
}

/// Whether an instance is started again without having to wait.
pub fn is_at_once(crash_count: i32) -> bool {
    crash_count < AT_ONCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_sixteen_minutes_and_end() {
        let waits = [(3, 30), (4, 60), (5, 120), (6, 240), (7, 480), (8, 960), (9, 960), (100, 960), (199, 960)];
        for (count, wait_s) in waits {
            let due_ns = 1_000 + wait_s * SECOND_NS;
            assert_eq!(restart(count, 1_000, due_ns - 1), Restart::AtNs(due_ns), "{count}");
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
    fn a_time_at_the_end_of_all_times_does_not_come() {
        assert_eq!(restart(3, i64::MAX, 0), Restart::AtNs(i64::MAX));
    }

    #[test]
    fn five_minutes_of_running_are_forgiven() {
        assert_eq!(crash_count(0, None), 1);
        assert_eq!(crash_count(7, None), 8);
        assert_eq!(crash_count(7, Some(FORGIVEN_AFTER_NS)), 8);
        assert_eq!(crash_count(7, Some(FORGIVEN_AFTER_NS + 1)), 1);
        assert_eq!(crash_count(7, Some(-1)), 8, "a clock that went back");
        assert_eq!(crash_count(i32::MAX, None), i32::MAX);
    }
}
