//! Seeds of random tests. A seed repeats the decisions of a test; the line that a test prints says
//! what it does not repeat.

/// The part of a test with real processes that a seed repeats.
pub const OF_PROCESSES: &str = "repeats the decisions of this test and their order, not how the processes and threads of the run interleave";

/// A number from the environment.
///
/// # Panics
/// The variable is set to something else.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {text}"))
    })
}

/// The seed in a variable of the environment, or a random one.
pub fn seed(variable: &str) -> u64 {
    number(variable).unwrap_or_else(|| fastrand::u64(..1 << 32))
}
