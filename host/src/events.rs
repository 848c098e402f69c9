//! Events: publishes every committed change to the subscribers. Owns the queues and their bounds,
//! so that a slow subscriber delays neither another one nor the publisher. `derive` maps changes to
//! events; subscribers choose how an event is rendered.

mod derive;
mod queue;
mod size;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, watch};

pub use derive::Event;

use bbs_model::Text;
use bbs_model::change::RecordChange;
use bbs_model::task::Task;
use queue::Queue;

/// Changes that wait for a subscriber, per kind of record of its topic, before the subscriber is
/// dropped as too slow. Those that are published together count as one.
pub const QUEUE: usize = 1024;

/// Bytes of the events of any change, which a subscriber may keep for itself alone.
const SMALL_RENDERING: usize = 16 << 10;

/// The records that a subscription is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Desired LRPs and their instances, in one order.
    Lrps,
    /// Tasks, in an order of their own.
    Tasks,
}

/// One change, as it is queued for every subscriber of its topic.
#[derive(Debug)]
pub struct PublishedChange {
    pub change: RecordChange,
    /// Whether it was published together with the change before it.
    continues: bool,
    /// Estimated memory of the change and its events.
    bytes: usize,
    /// Its events as each stream sends them, rendered for the first subscriber that reads them.
    renderings: Mutex<Vec<(Arc<str>, Rendering)>>,
}

type Rendering = Arc<OnceCell<Option<Arc<[Rendered]>>>>;

/// A rendered event, the same for every subscriber of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub text: Bytes,
    /// As [`Event::cells`].
    pub cells: Option<Vec<Text>>,
}

impl Rendered {
    /// The memory that it takes.
    fn bytes(&self) -> usize {
        let of_cell = |cell: &Text| size_of::<Text>() + cell.len();
        let of_cells: usize = self.cells.iter().flatten().map(of_cell).sum();
        self.text.len() + of_cells
    }
}

fn bytes_of(events: &[Rendered]) -> usize {
    events.iter().map(Rendered::bytes).sum()
}

/// The event hub. Clones are the same hub.
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
    queue: Arc<Queue>,
}

/// Receives every change published after it was created, until it is too slow or the hub is closed.
/// Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription(Arc<Queue>);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Topic {
    const fn of(change: &RecordChange) -> Self {
        match change {
            RecordChange::DesiredLrp { .. }
            | RecordChange::UpdateHalt { .. }
            | RecordChange::Slot { .. } => Self::Lrps,
            RecordChange::Task { .. } => Self::Tasks,
        }
    }

    const fn queue(self) -> usize {
        match self {
            Self::Lrps => 2 * QUEUE,
            Self::Tasks => QUEUE,
        }
    }
}

impl PublishedChange {
    fn new(change: RecordChange, continues: bool) -> Self {
        Self {
            bytes: size::bytes(&change),
            change,
            continues,
            renderings: Mutex::default(),
        }
    }

    /// The events of the change, in order.
    pub fn events(&self) -> Vec<Event<'_>> {
        derive::events(&self.change)
    }

    /// The events of the change as a stream sends them, in order; `None` if they cannot be
    /// rendered. Rendered once for all subscribers of the stream.
    pub async fn rendered(
        &self,
        stream: &Arc<str>,
        render: impl AsyncFnOnce() -> Option<Vec<Rendered>>,
    ) -> Option<Arc<[Rendered]>> {
        let rendering = self.rendering(stream);
        let rendered = rendering
            .get_or_init(async || render().await.map(Arc::from))
            .await
            .clone();
        // The queues count an estimate from the records, in which there is one rendering. Those of
        // further streams are kept, too: without them, each subscriber would cost a run of the
        // translator. A translator may return more than the estimate, which is not kept.
        if rendered.as_deref().map_or(0, bytes_of) > self.bytes {
            self.renderings
                .lock()
                .retain(|(_, known)| !Arc::ptr_eq(known, &rendering));
        }
        rendered
    }

    /// Whether these events of the change may be sent. Those above the estimate are rendered for
    /// each subscriber, and one that does not read keeps them, so that they have to be small.
    pub fn may_have(&self, events: &[Rendered]) -> bool {
        bytes_of(events) <= self.bytes.max(SMALL_RENDERING)
    }

    fn rendering(&self, stream: &Arc<str>) -> Rendering {
        let mut renderings = self.renderings.lock();
        if let Some((_, rendering)) = renderings.iter().find(|(known, _)| known == stream) {
            return Arc::clone(rendering);
        }
        let rendering = Rendering::default();
        renderings.push((Arc::clone(stream), Arc::clone(&rendering)));
        rendering
    }
}

impl Events {
    /// Publishes a committed change. The caller holds the key lock, so that events keep commit
    /// order. Never blocks, and returns at once without subscribers.
    pub fn publish(&self, change: RecordChange) {
        self.publish_all([change]);
    }

    /// Publishes committed changes together, as [`Self::publish`] does. They count as one in the
    /// queues: the removal of one large LRP must not end all subscriptions.
    pub fn publish_all(&self, changes: impl IntoIterator<Item = RecordChange>) {
        let mut continues = false;
        for change in changes {
            self.push(change, continues);
            continues = true;
        }
    }

    /// As [`Self::publish`], of a task, which is copied for subscribers alone.
    pub fn publish_task(&self, before: Option<&Task>, after: Option<&Task>) {
        if self.has_subscribers(Topic::Tasks) {
            let copied = |task: &Task| Box::new(task.clone());
            self.publish(RecordChange::Task {
                before: before.map(copied),
                after: after.map(copied),
            });
        }
    }

    fn has_subscribers(&self, topic: Topic) -> bool {
        self.0
            .lock()
            .subscribers
            .iter()
            .any(|subscriber| subscriber.topic == topic)
    }

    fn push(&self, change: RecordChange, continues: bool) {
        let topic = Topic::of(&change);
        if !self.has_subscribers(topic) {
            return;
        }
        // Not while the hub is locked: its size is found by encoding it.
        let published = Arc::new(PublishedChange::new(change, continues));
        let mut hub = self.0.lock();
        hub.subscribers
            .retain(|subscriber| subscriber.topic != topic || subscriber.queue.push(&published));
    }

    /// Subscribes to a topic; `None` once the hub is closed.
    pub fn subscribe(&self, topic: Topic) -> Option<Subscription> {
        let mut hub = self.0.lock();
        if hub.closed {
            return None;
        }
        hub.subscribers
            .retain(|subscriber| !subscriber.queue.is_ended());
        let queue = Queue::new(topic.queue());
        hub.subscribers.push(Subscriber {
            topic,
            queue: Arc::clone(&queue),
        });
        Some(Subscription(queue))
    }

    /// Closes the hub: every subscription ends after what is queued, and no new ones are accepted.
    pub fn close(&self) {
        let mut hub = self.0.lock();
        hub.closed = true;
        hub.subscribers
            .drain(..)
            .for_each(|subscriber| subscriber.queue.end());
    }

    /// The number of subscriptions.
    pub fn subscribers(&self) -> usize {
        self.0
            .lock()
            .subscribers
            .iter()
            .filter(|subscriber| !subscriber.queue.is_ended())
            .count()
    }
}

impl Subscription {
    /// The next change; `None` when the subscription has ended.
    pub async fn next(&mut self) -> Option<Arc<PublishedChange>> {
        self.0.next().await
    }

    /// Becomes true when the subscriber was so slow that its queue was discarded.
    pub fn cut(&self) -> watch::Receiver<bool> {
        self.0.cut()
    }
}

#[cfg(test)]
mod tests;
