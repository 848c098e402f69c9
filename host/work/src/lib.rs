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

use std::borrow::Cow;
use std::fmt::Display;

/// A text of a record, for messages and logs: with U+FFFD in the place of bytes that are no UTF-8.
pub fn lossy(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// The texts of some values, separated by commas, for messages.
pub fn joined(values: impl IntoIterator<Item = impl Display>) -> String {
    let texts: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    texts.join(", ")
}
