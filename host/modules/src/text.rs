//! Text that a module made: reasons, log lines, and what an error quotes of it; and that of
//! catalogs, artifacts and registries, which bring modules. Owns its bounds. Every such text passes
//! through here where it enters the host, so that a log, a terminal and a client receive one line
//! of limited length.

use std::fmt;

use bbs_work::causes::with_causes;
use bbs_work::printable;

/// Largest length of a reason in bytes.
const REASON_BYTES: usize = 1_000;

/// One line of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleText(String);

impl ModuleText {
    /// A reason or a description, up to 1,000 bytes.
    pub fn reason(text: &str) -> Self {
        Self::cut(text, REASON_BYTES)
    }

    /// An error with its sources, separated by colons, as a reason.
    pub fn of_error(error: &dyn std::error::Error) -> Self {
        Self::reason(&with_causes(error).to_string())
    }

    /// The reason why a text is no TOML of the expected form, with the number of its line. The text
    /// itself is not quoted.
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map_or(1, |span| {
            text.bytes()
                .take(span.start)
                .filter(|byte| *byte == b'\n')
                .count()
                + 1
        });
        Self::reason(&format!("line {line}: {}", error.message()))
    }

    /// The text up to about `bytes` bytes. What is omitted is replaced by `…`, and control
    /// characters by their escapes.
    pub fn cut(text: &str, bytes: usize) -> Self {
        let mut line = String::with_capacity(text.len().min(bytes));
        for c in text.chars() {
            if line.len() + c.len_utf8() > bytes {
                line.push('…');
                break;
            }
            printable::push(&mut line, c);
        }
        Self(line)
    }
}

impl fmt::Display for ModuleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ModuleText> for String {
    fn from(text: ModuleText) -> Self {
        text.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, bytes: usize) -> String {
        ModuleText::cut(text, bytes).into()
    }

    #[test]
    fn long_text_is_cut_between_characters_and_marked() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("exact", 5), "exact");
        assert_eq!(cut("longer", 5), "longe…");
        assert_eq!(cut("äöü", 3), "ä…");
        assert_eq!(cut("ä", 1), "…");
        assert!(String::from(ModuleText::reason(&"\u{1b}".repeat(20 << 20))).len() < 1_020);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            cut("good\n2026 ERROR forged\u{1b}[31m", 100),
            "good\\n2026 ERROR forged\\u{1b}[31m"
        );
    }
}
