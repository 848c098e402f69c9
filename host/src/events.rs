//! Events: every change that was committed, to everyone who listens. Owns the queues, their bounds, and that one
//! subscriber cannot hold up another or the one who tells. What a change means to subscribers is `derive`'s; how it
//! looks to them is for whoever subscribed.

mod derive;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub use derive::{Audience, Event};

use crate::model::change::Change;

/// Operations that wait for a subscriber before it is dropped as too slow, for each kind of record that it hears of.
/// Diego counts events, of which an operation has at least one.
pub const QUEUE: usize = 1024;

/// What a subscriber wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Desired LRPs and their instances, in one order.
    Lrps,
    Tasks,
}

/// One operation, as it is told to everyone.
#[derive(Debug)]
pub struct Told {
    pub change: Change,
    /// Made by the first subscriber that looks, for all.
    rendered: OnceLock<Vec<Rendered>>,
}

/// An event as every subscriber is sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub text: Bytes,
    pub audience: Audience,
}

/// Where changes are told. Clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    closed: bool,
    subscribers: Vec<Subscriber>,
}

#[derive(Debug)]
struct Subscriber {
    topic: Topic,
    queue: Sender<Arc<Told>>,
}

/// Hears of every change from its beginning on, until it is too slow or the place is closed. Goes when dropped.
#[derive(Debug)]
pub struct Subscription(Receiver<Arc<Told>>);

impl Topic {
    const fn of(change: &Change) -> Self {
        match change {
            Change::DesiredLrp { .. } | Change::Slot { .. } => Self::Lrps,
            Change::Task { .. } => Self::Tasks,
        }
    }

    const fn queue(self) -> usize {
        match self {
            Self::Lrps => 2 * QUEUE,
            Self::Tasks => QUEUE,
        }
    }
}

impl Told {
    fn new(change: Change) -> Self {
        Self { change, rendered: OnceLock::new() }
    }

    /// The events of the operation, in their order. `render` has to be the same for everyone.
    pub fn rendered(&self, render: fn(&Event<'_>) -> Rendered) -> &[Rendered] {
        self.rendered.get_or_init(|| derive::events(&self.change).iter().map(render).collect())
    }
}

impl Events {
    /// Tells of a change that was committed. Those of one key have to be told in the order of their commits: whoever
    /// calls this still has the key's turn. Waits for nobody, and costs next to nothing while nobody listens.
    pub fn publish(&self, change: Change) {
        let mut hub = self.hub();
        let topic = Topic::of(&change);
        if !hub.subscribers.iter().any(|subscriber| subscriber.topic == topic) {
            return;
        }
        let told = Arc::new(Told::new(change));
        // One whose queue is full still gets what is in it, and then its end.
        hub.subscribers
            .retain(|subscriber| subscriber.topic != topic || subscriber.queue.try_send(Arc::clone(&told)).is_ok());
    }

    /// None once the place is closed.
    pub fn subscribe(&self, topic: Topic) -> Option<Subscription> {
        let mut hub = self.hub();
        if hub.closed {
            return None;
        }
        hub.subscribers.retain(|subscriber| !subscriber.queue.is_closed());
        let (queue, receiver) = channel(topic.queue());
        hub.subscribers.push(Subscriber { topic, queue });
        Some(Subscription(receiver))
    }

    /// Ends every subscription, after what it has been told, and takes no more.
    pub fn close(&self) {
        let mut hub = self.hub();
        hub.closed = true;
        hub.subscribers.clear();
    }

    /// How many listen.
    pub fn subscribers(&self) -> usize {
        self.hub().subscribers.iter().filter(|subscriber| !subscriber.queue.is_closed()).count()
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    pub async fn next(&mut self) -> Option<Arc<Told>> {
        self.0.recv().await
    }
}

#[cfg(test)]
mod tests;
