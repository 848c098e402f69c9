//! Failures of a call into a module. Owns the messages, each of which ends with what to do.

use std::time::Duration;

use wasmtime::Trap;

use super::limits::Limits;
use super::text::ModuleText;

/// Why a call into a module failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "it computed for longer than {limit:?} and was stopped; look for a loop that does not end on this input"
    )]
    Overrun { limit: Duration },
    #[error(
        "it requested {wanted} bytes of memory, and an instance has at most {limit}; hold less of a batch in memory"
    )]
    Memory { wanted: usize, limit: usize },
    #[error(
        "it requested {wanted} bytes of memory, and the {limit} of all translators together are in use or kept for others; send the \
         request again, or fewer at once"
    )]
    SharedMemory { wanted: usize, limit: usize },
    #[error(
        "it used up its stack of {limit} bytes; look for a recursion that does not end on this input"
    )]
    Stack { limit: usize },
    #[error("it returned more than {limit} bytes; write less for each unit")]
    Answer { limit: usize },
    #[error(
        "its manifest has more than {limit} bytes; declare fewer changes or methods, and spread them over modules"
    )]
    Manifest { limit: usize },
    #[error("it trapped ({trap}); run the SDK's tests on this input")]
    Trap { trap: String },
    #[error("it refused: {reason}")]
    Fault { reason: ModuleText },
    #[error(
        "its result does not match its input: {flaw}; correct the module (the host has used no part of the result)"
    )]
    Flaw { flaw: ModuleText },
    #[error(
        "all its {instances} instances are busy; try again, or lower the number of concurrent requests"
    )]
    Busy { instances: usize },
    #[error("it could not be instantiated: {reason}; check it with `bbs module check`")]
    Start { reason: ModuleText },
}

impl CallError {
    /// Classifies the error of a failed call. `refused_memory` is set if the instance requested
    /// memory in vain, `warning` is the last one that it logged.
    pub(super) fn from_wasmtime(
        error: &wasmtime::Error,
        refused_memory: Option<&Self>,
        warning: Option<&ModuleText>,
        limits: &Limits,
    ) -> Self {
        // That of a module made with the SDK is the text of its panic.
        let trapped = |trap: String| match warning {
            Some(warning) => Self::Trap {
                trap: format!("{trap}, after this warning: {warning}"),
            },
            None => Self::Trap { trap },
        };
        match (error.downcast_ref::<Trap>(), refused_memory) {
            (Some(Trap::Interrupt), _) => Self::Overrun {
                limit: limits.call_time,
            },
            (Some(Trap::StackOverflow), _) => Self::Stack {
                limit: limits.stack_bytes,
            },
            // A guest that is denied memory traps as for any other reason, or cannot start; the
            // recorded request distinguishes these from others.
            (_, Some(refused)) => refused.clone(),
            // A guest keeps part of its stack in linear memory, whose end is reached first if
            // frames are large.
            (Some(trap @ Trap::MemoryOutOfBounds), None) => trapped(format!(
                "{trap}, which may also be caused by an endless recursion"
            )),
            (Some(trap), None) => trapped(trap.to_string()),
            (None, _) => Self::from_message(format!("{error:#}"), limits),
        }
    }

    /// The error of a call of `describe`, whose result has at most `limit` bytes.
    pub(super) fn of_manifest(self, limit: usize) -> Self {
        match self {
            Self::Answer { .. } => Self::Manifest { limit },
            other => other,
        }
    }

    /// Classifies errors that wasmtime has no type for.
    fn from_message(message: String, limits: &Limits) -> Self {
        if message.contains("fuel allocated for hostcalls has been exhausted") {
            return Self::Answer {
                limit: limits.answer_bytes,
            };
        }
        Self::flaw(&message)
    }

    /// The result does not match its input. The description may quote the module.
    pub(super) fn flaw(description: &str) -> Self {
        Self::Flaw {
            flaw: ModuleText::reason(description),
        }
    }
}
