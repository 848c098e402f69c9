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
        causes(self.0, |_| None)
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// The texts of an error's causes, outermost first, each once: some libraries repeat that of the
/// next one. A cause for which `in_own_words` has a text is the last, with that text.
pub fn causes(
    error: &dyn Error,
    in_own_words: impl for<'a> Fn(&'a (dyn Error + 'static)) -> Option<&'a str>,
) -> Vec<String> {
    let mut texts = Vec::new();
    let mut before = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let words = in_own_words(cause);
        let text = words.map_or_else(|| cause.to_string(), str::to_owned);
        if !before.ends_with(&text) {
            texts.push(text.clone());
        }
        if words.is_some() {
            break;
        }
        before = text;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("effect")]
    struct Effect(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("repeats: {0}")]
    struct Repeating(#[source] Effect);

    #[test]
    fn each_cause_follows_its_effect() {
        let cause = std::io::Error::other("cause");
        assert_eq!(with_causes(&cause).to_string(), "cause");
        let effect = Effect(cause);
        assert_eq!(with_causes(&effect).to_string(), "effect: cause");
        assert_eq!(
            with_causes(&Repeating(effect)).to_string(),
            "repeats: effect: cause"
        );
    }
}
