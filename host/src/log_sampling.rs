//! Log sampling: of many similar events, the first ten are logged, and then one each time their number has doubled. The
//! number of lines stays small whatever the number of events, which metrics and status report.

/// Enough to show what the events have in common.
const FIRST: u64 = 10;

/// Whether the event that brings the count to `count` is logged.
pub fn is_sampled(count: u64) -> bool {
    count <= FIRST || count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_events_make_26_lines() {
        assert_eq!((1..=1_000_000).filter(|count| is_sampled(*count)).count(), 26);
        assert!((1..=10).all(is_sampled) && !is_sampled(11) && is_sampled(16));
    }
}
