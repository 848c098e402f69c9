//! The gate: until this host is the master of a database at the right version, every request is
//! told to come back, and how far things are.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::api::Api;
use crate::progress::{Progress, Snapshot};

/// A shared handle; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    progress: Progress,
    open: Arc<RwLock<Option<Arc<Api>>>>,
    /// What was behind the gate when it was closed, for as long as calls hold it.
    closed: Arc<RwLock<Weak<Api>>>,
}

impl Gate {
    /// Closed, telling how far this work has come.
    pub fn new(progress: Progress) -> Self {
        Self { progress, open: Arc::default(), closed: Arc::default() }
    }

    pub fn open(&self, api: Arc<Api>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(api);
    }

    /// Streams of events end and none begins; all else goes on.
    pub fn end_streams(&self) {
        if let Ok(api) = self.api() {
            api.end_streams();
        }
    }

    /// At once: lists on their way are cut off, streams end, and what is being written fails at the fence.
    pub fn close(&self) {
        let api = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(api) = api {
            api.end_streams();
            *self.closed.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&api);
        }
    }

    /// Whether calls that came through before the gate was closed are still under way.
    pub fn has_calls(&self) -> bool {
        self.closed.read().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
    }

    /// How often a record was left out of an answer since the gate opened.
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
