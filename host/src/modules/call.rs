//! Failures of a call into a module. Owns the messages, each of which ends with what to do.

use std::time::Duration;

use wasmtime::Trap;

use super::limits::Limits;

/// Why a call into a module failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("it ran longer than {limit:?} and was stopped; look for a loop that does not end on this input")]
    Overrun { limit: Duration },
    #[error(
        "it requested {wanted} bytes of memory, and an instance has at most {limit}; hold less of a batch in memory"
    )]
    Memory { wanted: usize, limit: usize },
    #[error("it used up its stack of {limit} bytes; look for a recursion that does not end on this input")]
    Stack { limit: usize },
    #[error("it returned more than {limit} bytes; write less for each unit")]
    Answer { limit: usize },
    #[error("it called the next version more than {limit} times for one request; request more per call")]
    NextCalls { limit: u32 },
    #[error("it trapped ({trap}); run the SDK's tests on this input to see the panic")]
    Trap { trap: String },
    #[error("it refused: {reason}")]
    Fault { reason: String },
    #[error(
        "its result does not match its input: {flaw}; correct the module (the host has used no part of the result)"
    )]
    Flaw { flaw: String },
    #[error(
        "all its {instances} instances were busy for {waited:?}; try again, or lower the number of concurrent requests"
    )]
    Busy { instances: usize, waited: Duration },
    #[error("it could not be instantiated: {reason}; check it with `bbs module check`")]
    Start { reason: String },
}

/// The error with which an import ends a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stopped by the host")]
pub(super) struct Stopped(pub(super) CallError);

impl CallError {
    /// Classifies the error of a failed call. `refused_memory` is the size that the instance requested in vain.
    pub(super) fn from_wasmtime(error: &wasmtime::Error, refused_memory: Option<usize>, limits: &Limits) -> Self {
        if let Some(Stopped(reason)) = error.downcast_ref() {
            return reason.clone();
        }
        match (error.downcast_ref::<Trap>(), refused_memory) {
            (Some(Trap::Interrupt), _) => Self::Overrun { limit: limits.call_time },
            (Some(Trap::StackOverflow), _) => Self::Stack { limit: limits.stack_bytes },
            // A guest that is denied memory traps as for any other reason; the recorded request distinguishes the two.
            (Some(_), Some(wanted)) => Self::Memory { wanted, limit: limits.memory_bytes },
            // A guest keeps part of its stack in linear memory, whose end is reached first if frames are large.
            (Some(trap @ Trap::MemoryOutOfBounds), None) => {
                Self::Trap { trap: format!("{trap}, which may also be caused by an endless recursion") }
            }
            (Some(trap), None) => Self::Trap { trap: trap.to_string() },
            (None, _) => Self::from_message(format!("{error:#}"), limits),
        }
    }

    /// Classifies errors that wasmtime has no type for.
    fn from_message(message: String, limits: &Limits) -> Self {
        if message.contains("fuel allocated for hostcalls has been exhausted") {
            return Self::Answer { limit: limits.answer_bytes };
        }
        Self::Flaw { flaw: message }
    }
}
