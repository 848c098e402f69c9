//! Recognition of a server that cannot be reached. Owns the reason, for callers that wait for others to connect, and its log lines.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SqlError;

/// Why the last attempt to connect failed; none after one that succeeded.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<String>>);

impl Outage {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(super) fn note(&self, error: &SqlError) {
        let reason = error.to_string();
        if self.lock().replace(reason.clone()).is_none() {
            tracing::warn!(name: "database.unreachable", reason, "the database cannot be reached; trying again");
        }
    }

    pub(super) fn end(&self) {
        if self.lock().take().is_some() {
            tracing::info!(name: "database.reached", "the database can be reached again");
        }
    }
}

/// An error of a time limit.
pub(super) fn timed_out(reason: String) -> SqlError {
    SqlError::Io(io::Error::new(io::ErrorKind::TimedOut, reason))
}
