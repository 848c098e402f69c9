//! An error with its causes, as text. Owns how they are joined, for logs, messages and records.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

/// Shows an error and each of its causes, separated by colons.
#[derive(Debug, Clone, Copy)]
pub struct WithCauses<'a>(&'a dyn Error);

/// The text of an error with its causes.
pub fn with_causes(error: &dyn Error) -> WithCauses<'_> {
    WithCauses(error)
}

impl Display for WithCauses<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self.0, f)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("effect")]
    struct Effect(#[source] std::io::Error);

    #[test]
    fn each_cause_follows_its_effect() {
        let cause = std::io::Error::other("cause");
        assert_eq!(with_causes(&cause).to_string(), "cause");
        assert_eq!(with_causes(&Effect(cause)).to_string(), "effect: cause");
    }
}
