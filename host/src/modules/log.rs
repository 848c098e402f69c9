//! The `log` import: log lines of modules, limited in length and number, and marked with the module's name.

use std::sync::Arc;

use super::limits::Limits;
use crate::log_sampling::is_sampled;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestLogLevel {
    Debug,
    Info,
    Warn,
}

/// Lines of one instance after which lines are sampled: a migration is called once per batch, and the log must not grow
/// with the table.
const SAMPLED_AFTER: u64 = 1000;

/// The remaining log lines of a call.
pub(super) struct LogBudget {
    module: Arc<str>,
    lines: u32,
    left: u32,
    /// Lines of all calls.
    total: u64,
    line_bytes: usize,
}

impl LogBudget {
    pub(super) fn new(module: &Arc<str>, limits: &Limits) -> Self {
        Self {
            module: Arc::clone(module),
            lines: limits.log_lines,
            left: limits.log_lines,
            total: 0,
            line_bytes: limits.log_line_bytes,
        }
    }

    pub(super) fn refill(&mut self) {
        self.left = self.lines;
    }

    /// Writes one line. The last line that the limit allows is followed by a warning.
    pub(super) fn write(&mut self, level: GuestLogLevel, message: &str) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        self.total += 1;
        if self.total > SAMPLED_AFTER && !is_sampled(self.total) {
            return;
        }
        let module = &*self.module;
        let message = cut(message, self.line_bytes);
        match level {
            GuestLogLevel::Debug => tracing::debug!(module, "{message}"),
            GuestLogLevel::Info => tracing::info!(module, "{message}"),
            GuestLogLevel::Warn => tracing::warn!(module, "{message}"),
        }
        if self.total == SAMPLED_AFTER {
            tracing::warn!(module, "this module has logged {SAMPLED_AFTER} lines; from now on its lines are sampled");
        }
        if left == 0 {
            tracing::warn!(
                module,
                "this module has logged {} lines in one call; the rest of the call's lines are dropped",
                self.lines
            );
        }
    }
}

/// Truncates a line to `bytes`, and replaces control characters, so that a message cannot forge further lines.
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
    fn long_line_is_truncated_between_characters_and_marked() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("exact", 5), "exact");
        assert_eq!(cut("longer", 5), "longe…");
        assert_eq!(cut("äöü", 3), "ä…");
        assert_eq!(cut("ä", 1), "…");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(cut("all good\n2026-01-01 ERROR forged\u{1b}[31m", 100), "all good 2026-01-01 ERROR forged [31m");
    }
}
