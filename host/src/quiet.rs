//! Which of many like events get a line in the log: the first ones, and then one each time that their number has doubled.
//! However many records there are, the lines stay few; how many events there were is for metrics and status to say.

/// Enough to see what they have in common.
const FIRST: u64 = 10;

/// Whether the event that makes it this many gets a line.
pub fn gets_a_line(count: u64) -> bool {
    count <= FIRST || count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_events_are_a_few_lines() {
        assert_eq!((1..=1_000_000).filter(|count| gets_a_line(*count)).count(), 26);
        assert!((1..=10).all(gets_a_line) && !gets_a_line(11) && gets_a_line(16));
    }
}
