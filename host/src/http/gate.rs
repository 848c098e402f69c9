//! The gate: until this host is the master of a database at the right version, every request is
//! answered with 503, `Retry-After` and the progress of the work.

use std::sync::{Arc, Weak};

use bbs_work::progress::{Progress, Snapshot};
use parking_lot::{Mutex, RwLock};

use crate::api::Api;

/// A shared handle; clones control the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    progress: Progress,
    open: Arc<RwLock<Option<Arc<Api>>>>,
    /// Every API that the gate was open to, while calls still hold it.
    former: Arc<Mutex<Vec<Weak<Api>>>>,
}

impl Gate {
    /// A closed gate that answers with this progress.
    pub fn new(progress: Progress) -> Self {
        Self {
            progress,
            open: Arc::default(),
            former: Arc::default(),
        }
    }

    /// Opens the gate to this API. Calls that have begun continue with the one of before.
    pub fn open(&self, api: Arc<Api>) {
        let before = self.open.write().replace(api);
        self.remember(before);
    }

    fn remember(&self, api: Option<Arc<Api>>) {
        let mut former = self.former.lock();
        former.retain(|api| api.strong_count() > 0);
        former.extend(api.as_ref().map(Arc::downgrade));
    }

    /// Ends event streams and rejects new ones; calls continue.
    pub fn end_streams(&self) {
        if let Ok(api) = self.api() {
            api.end_streams();
        }
    }

    /// Closes the gate at once: lists in flight are aborted, streams end, and pending writes fail
    /// at the fence.
    pub fn close(&self) {
        let api = self.open.write().take();
        if let Some(api) = &api {
            api.end_streams();
        }
        self.remember(api);
    }

    /// Whether calls that passed the gate before it was closed are still running.
    pub fn has_calls(&self) -> bool {
        let former = self.former.lock();
        former.iter().any(|api| api.strong_count() > 0)
    }

    /// The number of times that a record was left out of an answer since the gate opened.
    pub(super) fn left_out(&self) -> u64 {
        let open = self.open.read();
        open.as_ref().map_or(0, |api| api.left_out())
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.read().is_some()
    }

    pub(super) fn api(&self) -> Result<Arc<Api>, Box<Snapshot>> {
        let open = self.open.read();
        open.clone()
            .ok_or_else(|| Box::new(self.progress.snapshot()))
    }
}
