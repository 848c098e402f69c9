//! Why a call of a module gave nothing. Owns the words; every one of them ends with what to do.

use std::time::Duration;

use wasmtime::Trap;

use super::instance::Tenant;
use super::limits::Limits;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("it ran longer than {limit:?} and was stopped; look for a loop that does not end on this input")]
    Overrun { limit: Duration },
    #[error(
        "it asked for {wanted} bytes of memory, and an instance has at most {limit}; keep less of a batch at a time"
    )]
    Memory { wanted: usize, limit: usize },
    #[error("it used up its stack of {limit} bytes; look for a recursion that does not end on this input")]
    Stack { limit: usize },
    #[error("it gave back more than {limit} bytes; write less for each unit")]
    Answer { limit: usize },
    #[error("it called the next version more than {limit} times for one request; ask for more at a time")]
    NextCalls { limit: u32 },
    #[error("it broke off ({trap}); run the SDK's tests on this input to see the panic")]
    Trap { trap: String },
    #[error("it refused: {reason}")]
    Fault { reason: String },
    #[error(
        "what it gave back does not fit what it was given: {flaw}; correct the module, the host took nothing of it"
    )]
    Flaw { flaw: String },
    #[error(
        "all its {instances} instances were busy for {waited:?}; try again, or lower the number of requests at a time"
    )]
    Busy { instances: usize, waited: Duration },
    #[error("it could not be started: {reason}; check it with `bbs module check`")]
    Start { reason: String },
}

/// Ends a call from inside an import.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stopped by the host")]
pub(super) struct Stopped(pub(super) CallError);

impl CallError {
    /// What a failed call comes down to, from the error and what the instance had asked for.
    pub(super) fn from_wasmtime(error: &wasmtime::Error, tenant: &Tenant, limits: &Limits) -> Self {
        if let Some(Stopped(reason)) = error.downcast_ref() {
            return reason.clone();
        }
        match (error.downcast_ref::<Trap>(), tenant.refused_memory()) {
            (Some(Trap::Interrupt), _) => Self::Overrun { limit: limits.call_time },
            (Some(Trap::StackOverflow), _) => Self::Stack { limit: limits.stack_bytes },
            // A guest that gets no memory breaks off like any other; what it asked for tells them apart.
            (Some(_), Some(wanted)) => Self::Memory { wanted, limit: limits.memory_bytes },
            // A guest keeps part of its stack in its memory, whose end comes first where frames are large.
            (Some(trap @ Trap::MemoryOutOfBounds), None) => {
                Self::Trap { trap: format!("{trap}, which is also how a recursion that does not end shows") }
            }
            (Some(trap), None) => Self::Trap { trap: trap.to_string() },
            (None, _) => Self::from_message(format!("{error:#}"), limits),
        }
    }

    /// Errors that wasmtime gives no type to.
    fn from_message(message: String, limits: &Limits) -> Self {
        if message.contains("fuel allocated for hostcalls has been exhausted") {
            return Self::Answer { limit: limits.answer_bytes };
        }
        Self::Flaw { flaw: message }
    }
}
