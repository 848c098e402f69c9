//! The log of a module: the lines of its `log` import and the failures of its calls, marked with
//! its name. Limited in length, in number per call, and in number per module for as long as the
//! process runs.

use std::sync::Arc;

use bbs_work::causes::with_causes;
use bbs_work::log_sampling::LineLimit;

use super::call::CallError;
use super::limits::Limits;
use super::text::ModuleText;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestLogLevel {
    Debug,
    Info,
    Warn,
}

/// Lines of one module that are logged at once, and the rate of further ones: a migration is called
/// once per batch, and the log must not grow with the table.
const BURST: u32 = 1_000;
const LINES_PER_MINUTE: u32 = 10;

/// Limits of lines about failed calls, each of which a client causes.
const FAILURE_BURST: u32 = 100;
const FAILURES_PER_MINUTE: u32 = 10;

/// The log of all instances of a module; an instance that is discarded leaves the limits as they
/// are.
pub(super) struct ModuleLog {
    module: Arc<str>,
    lines: LineLimit,
    failures: LineLimit,
}

impl ModuleLog {
    pub(super) fn new(module: &Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            module: Arc::clone(module),
            lines: LineLimit::new(BURST, LINES_PER_MINUTE),
            failures: LineLimit::new(FAILURE_BURST, FAILURES_PER_MINUTE),
        })
    }

    /// Logs that a call of a translator failed.
    pub(super) fn write_failure(&self, method: &str, error: &CallError) {
        let Some(left_out) = self.failures.admit() else {
            return;
        };
        let method = ModuleText::reason(method);
        tracing::error!(module = &*self.module, %method, reason = %with_causes(&error), left_out, "a translator failed");
    }

    /// Writes one line; returns whether it was within the limit of the module.
    fn write(&self, level: GuestLogLevel, message: &ModuleText) -> bool {
        // Lines that the log does not take are not counted.
        if level == GuestLogLevel::Debug && !tracing::enabled!(tracing::Level::DEBUG) {
            return false;
        }
        let Some(left_out) = self.lines.admit() else {
            return false;
        };
        let module = &*self.module;
        if left_out > 0 {
            tracing::warn!(
                module,
                left_out,
                "lines of this module were left out, because it logs too many"
            );
        }
        match level {
            GuestLogLevel::Debug => tracing::debug!(module, "{message}"),
            GuestLogLevel::Info => tracing::info!(module, "{message}"),
            GuestLogLevel::Warn => tracing::warn!(module, "{message}"),
        }
        true
    }
}

impl Drop for ModuleLog {
    fn drop(&mut self) {
        let left_out = self.lines.left_out();
        if left_out > 0 {
            tracing::warn!(
                module = &*self.module,
                left_out,
                "lines of this module were left out"
            );
        }
    }
}

/// The remaining log lines of a call.
pub(super) struct LogBudget {
    log: Arc<ModuleLog>,
    lines: u32,
    remaining: u32,
    line_bytes: usize,
    /// The last warning of this call, also if it is not written.
    warning: Option<ModuleText>,
}

impl LogBudget {
    pub(super) fn new(log: &Arc<ModuleLog>, limits: &Limits) -> Self {
        Self {
            log: Arc::clone(log),
            lines: limits.log_lines,
            remaining: limits.log_lines,
            line_bytes: limits.log_line_bytes,
            warning: None,
        }
    }

    pub(super) fn last_warning(&self) -> Option<&ModuleText> {
        self.warning.as_ref()
    }

    pub(super) fn refill(&mut self) {
        self.remaining = self.lines;
        self.warning = None;
    }

    /// Writes one line. The last line that the limit allows is followed by a warning.
    pub(super) fn write(&mut self, level: GuestLogLevel, message: &str) {
        if level == GuestLogLevel::Warn {
            self.warning = Some(ModuleText::reason(message));
        }
        let Some(remaining) = self.remaining.checked_sub(1) else {
            return;
        };
        self.remaining = remaining;
        let written = self
            .log
            .write(level, &ModuleText::cut(message, self.line_bytes));
        if written && remaining == 0 {
            tracing::warn!(
                module = &*self.log.module,
                "this module has logged {} lines in one call; the rest of the call's lines are dropped",
                self.lines
            );
        }
    }
}
