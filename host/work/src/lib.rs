//! Long work, and what is reported of it: batches, their rate and progress; the pauses between
//! attempts; log lines, errors and foreign text in the form in which people read them. Knows no
//! database and no module.

pub mod batches;
pub mod blocking;
pub mod causes;
pub mod log_sampling;
pub mod pauses;
pub mod printable;
pub mod progress;
pub mod throttle;

use std::fmt::Display;

/// The texts of some values, separated by commas, for messages.
pub fn joined(values: impl IntoIterator<Item = impl Display>) -> String {
    let texts: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    texts.join(", ")
}
