//! What modules say: bounded in length and number, and marked with who said it. Owns no subscriber.

use std::sync::Arc;

use super::limits::Limits;
use crate::quiet::gets_a_line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Debug,
    Info,
    Warn,
}

/// Lines of one instance, after which only now and then one is kept: a migration calls it once for each batch, and the
/// log is not to grow with the table.
const PLENTY: u64 = 1000;

/// What is left of one call's lines.
pub(super) struct LogBudget {
    module: Arc<str>,
    lines: u32,
    left: u32,
    /// In all calls.
    said: u64,
    line_bytes: usize,
}

impl LogBudget {
    pub(super) fn new(module: &Arc<str>, limits: &Limits) -> Self {
        Self {
            module: Arc::clone(module),
            lines: limits.log_lines,
            left: limits.log_lines,
            said: 0,
            line_bytes: limits.log_line_bytes,
        }
    }

    pub(super) fn refill(&mut self) {
        self.left = self.lines;
    }

    /// Writes one line; the last that the budget allows says that the rest is left out.
    pub(super) fn write(&mut self, level: Level, message: &str) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        self.said += 1;
        if self.said > PLENTY && !gets_a_line(self.said) {
            return;
        }
        let module = &*self.module;
        let message = cut(message, self.line_bytes);
        match level {
            Level::Debug => tracing::debug!(module, "{message}"),
            Level::Info => tracing::info!(module, "{message}"),
            Level::Warn => tracing::warn!(module, "{message}"),
        }
        if self.said == PLENTY {
            tracing::warn!(module, "said {PLENTY} lines; from now on only a few of its lines are kept");
        }
        if left == 0 {
            tracing::warn!(module, "said {} lines in one call; the rest of them is left out", self.lines);
        }
    }
}

/// The beginning of a line, at most so many bytes, and without anything that would make it look like two.
fn cut(message: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    let mut line: String = message[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if end < message.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("exact", 5), "exact");
        assert_eq!(cut("longer", 5), "longe…");
        assert_eq!(cut("äöü", 3), "ä…");
        assert_eq!(cut("ä", 1), "…");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(cut("all good\n2026-01-01 ERROR forged\u{1b}[31m", 100), "all good 2026-01-01 ERROR forged [31m");
    }
}
