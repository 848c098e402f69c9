//! The gate: until this host is the master of a database at the right version, every request is answered with 503,
//! `Retry-After` and the progress of the work.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::api::Api;
use crate::progress::{Progress, Snapshot};

/// A shared handle; clones control the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    progress: Progress,
    open: Arc<RwLock<Option<Arc<Api>>>>,
    /// The API behind the closed gate, while calls still hold it.
    closed: Arc<RwLock<Weak<Api>>>,
}

impl Gate {
    /// A closed gate that answers with this progress.
    pub fn new(progress: Progress) -> Self {
        Self { progress, open: Arc::default(), closed: Arc::default() }
    }

    /// Opens the gate to this API.
    pub fn open(&self, api: Arc<Api>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(api);
    }

    /// Ends event streams and rejects new ones; calls continue.
    pub fn end_streams(&self) {
        if let Ok(api) = self.api() {
            api.end_streams();
        }
    }

    /// Closes the gate at once: lists in flight are aborted, streams end, and pending writes fail at the fence.
    pub fn close(&self) {
        let api = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(api) = api {
            api.end_streams();
            *self.closed.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&api);
        }
    }

    /// Whether calls that passed the gate before it was closed are still running.
    pub fn has_calls(&self) -> bool {
        self.closed.read().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
    }

    /// The number of times that a record was left out of an answer since the gate opened.
    pub(super) fn left_out(&self) -> u64 {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or(0, |api| api.left_out())
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn api(&self) -> Result<Arc<Api>, Box<Snapshot>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| Box::new(self.progress.snapshot()))
    }
}
