//! Events: every change that was committed, to everyone who listens. Owns the queues, and that one subscriber cannot
//! hold up another.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::model::change::Change;

/// Changes that wait for a subscriber before it is dropped as too slow, as many as Diego keeps.
const QUEUE: usize = 1024;

/// Where changes are told. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Arc<Change>>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(QUEUE))
    }
}

impl Events {
    /// Tells of a change that was committed. Those of one key have to be told in the order of their commits: whoever
    /// calls this still has the key's turn.
    pub fn publish(&self, change: Change) {
        // Nobody may be listening.
        let _ = self.0.send(Arc::new(change));
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Change>> {
        self.0.subscribe()
    }
}
