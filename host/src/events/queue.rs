//! The queue of a subscriber, bounded by the number of changes, and by their bytes. Changes that were
//! published together count as one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::PublishedChange;

/// Bytes of the changes that a subscriber has not sent, before it is disconnected. Queues share
/// their changes, so that this is the most that all subscribers of one stream keep, unless one
/// change is larger. A change counts with one rendering of its events; each further stream of the
/// topic keeps its own: 28 MiB as a rule, as many bytes as this at most.
pub(super) const LAG_BYTES: usize = 64 << 20;

/// Bytes of the changes that a subscriber still receives after it has been too slow by their
/// number, as Diego's do.
const LAST_BYTES: usize = 8 << 20;

/// The queue between the publisher and one subscriber.
#[derive(Debug)]
pub(super) struct Queue {
    /// The most changes.
    most: usize,
    state: Mutex<QueueState>,
    changed: Notify,
    /// True once the subscriber is disconnected, whatever it has not sent.
    cut: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Arc<PublishedChange>>,
    /// Their number, in which those that were published together are one.
    count: usize,
    /// Bytes of the changes that wait and of the one that is being sent.
    bytes: usize,
    /// Bytes of the change that is being sent.
    sending: usize,
    /// No further changes are queued.
    is_ended: bool,
}

impl Queue {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
            changed: Notify::new(),
            cut: watch::Sender::new(false),
        })
    }

    /// Queues a change. Returns false if the queue has ended, now if the subscriber is too slow.
    pub(super) fn push(&self, change: &Arc<PublishedChange>) -> bool {
        let mut state = self.state.lock();
        if state.is_ended {
            return false;
        }
        let is_too_large = state.bytes > 0 && state.bytes + change.bytes > LAG_BYTES;
        let is_one_too_many = !change.continues && state.count >= self.most;
        if is_too_large || is_one_too_many {
            state.is_ended = true;
            if is_too_large || state.bytes > LAST_BYTES {
                state.waiting.clear();
                state.bytes = state.sending;
                self.cut.send_replace(true);
            }
        } else {
            state.bytes += change.bytes;
            state.count += usize::from(!change.continues);
            state.waiting.push_back(Arc::clone(change));
        }
        self.changed.notify_one();
        !state.is_ended
    }

    /// Ends the queue after what it holds.
    pub(super) fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_one();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }

    /// The next change; `None` at the end. The one before has been sent.
    pub(super) async fn next(&self) -> Option<Arc<PublishedChange>> {
        loop {
            {
                let mut state = self.state.lock();
                state.bytes -= std::mem::take(&mut state.sending);
                if let Some(change) = state.waiting.pop_front() {
                    state.sending = change.bytes;
                    state.count -= usize::from(!change.continues);
                    return Some(change);
                }
                if state.is_ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Becomes true when the subscriber is disconnected.
    pub(super) fn cut(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }
}
