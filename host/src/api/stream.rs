//! Event streams: translates the events of changes to older versions, and renders them as
//! server-sent events, filtered for each subscriber. Independent of HTTP.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_model::Text;
use bbs_model::change::RecordChange;
use bbs_modules::translate::{ChangedRecord, TranslateError, TranslatedEvent};
use bbs_proto::models::EventsByCellId;
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::LineLimit;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prost::Message;
use tokio::sync::{Semaphore, watch};

use super::chain::{StreamTarget, TranslatorChain};
use super::methods::{NativeVersion, Stream};
use super::{FAILED_BURST, FAILED_PER_MINUTE, wire};
use crate::events::{Events, PublishedChange, Rendered, Subscription, Topic};

/// Why a subscription was rejected.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error("the request for events cannot be decoded")]
    Undecodable(#[source] prost::DecodeError),
    #[error("the host is stopping and publishes no more events")]
    Closed,
}

/// Renders changes for the streams of all versions. A change is translated once for all subscribers
/// of a stream.
pub(super) struct Streams {
    /// Distinguishes them from those before a reload, whose modules may translate the same change
    /// in another way.
    generation: u64,
    chain: Arc<TranslatorChain>,
    /// For each translator, taken while it translates events: a slow one keeps one of its instances
    /// from calls, and delays no stream but its own.
    runs: Vec<Semaphore>,
    /// Log lines about events that cannot be translated: each subscriber that connects again causes
    /// one.
    failures: LineLimit,
}

/// Ends when its subscriber is too slow, when its events cannot be translated, or when the host
/// stops.
pub struct EventStream {
    streams: Arc<Streams>,
    target: StreamTarget,
    /// Identifies the stream among those of all versions.
    key: Arc<str>,
    subscription: Subscription,
    /// Sends only events of this cell; empty sends all.
    cell_id: Text,
    sent: u64,
    /// The events of a change that are being sent, and how many of them have been examined.
    current: Option<(Arc<[Rendered]>, usize)>,
    /// The text of a large event whose number has been sent.
    unsent: Option<Bytes>,
}

/// Events above this size are sent without a copy of their text for each subscriber.
const LARGE_EVENT: usize = 64 << 10;

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("target", &self.target)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    pub(super) fn begin(
        events: &Events,
        streams: &Arc<Streams>,
        target: StreamTarget,
        body: &[u8],
    ) -> Result<Self, SubscribeError> {
        let (stream, _) = target.native();
        let (topic, cell_id) = match stream {
            Stream::LrpInstances => (
                Topic::Lrps,
                EventsByCellId::decode(body)
                    .map_err(SubscribeError::Undecodable)?
                    .cell_id,
            ),
            // The body of a task subscription is ignored.
            Stream::Tasks => (Topic::Tasks, Text::new()),
        };
        let key = match &target {
            StreamTarget::Native { stream, version } => {
                format!("{} {}", version.number(), stream.name()).into()
            }
            StreamTarget::Translated { step, method, .. } => {
                format!("{} {step} {method}", streams.generation).into()
            }
        };
        let subscription = events.subscribe(topic).ok_or(SubscribeError::Closed)?;
        Ok(Self {
            streams: Arc::clone(streams),
            target,
            key,
            subscription,
            cell_id,
            sent: 0,
            current: None,
            unsent: None,
        })
    }

    /// Becomes true when the subscriber is so slow that it has to be disconnected.
    pub fn cut(&self) -> watch::Receiver<bool> {
        self.subscription.cut()
    }

    /// The next event, numbered on this stream, or a part of a large one; `None` when the stream
    /// has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(text) = self.unsent.take() {
            return Some(text);
        }
        loop {
            let Some((events, examined)) = &mut self.current else {
                let change = self.subscription.next().await?;
                let rendered = change
                    .rendered(&self.key, async || {
                        self.streams.render(&self.target, &change).await
                    })
                    .await?;
                self.current = Some((rendered, 0));
                continue;
            };
            let Some(event) = events.get(*examined) else {
                self.current = None;
                continue;
            };
            *examined += 1;
            if is_for(event.cells.as_deref(), &self.cell_id) {
                let id = self.sent;
                self.sent += 1;
                if event.text.len() <= LARGE_EVENT {
                    return Some(numbered(id, &event.text));
                }
                self.unsent = Some(event.text.clone());
                return Some(numbered(id, &Bytes::new()));
            }
        }
    }
}

impl Streams {
    pub(super) fn new(chain: Arc<TranslatorChain>) -> Arc<Self> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let runs = (0..chain.steps()).map(|_| Semaphore::new(1)).collect();
        Arc::new(Self {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            chain,
            runs,
            failures: LineLimit::new(FAILED_BURST, FAILED_PER_MINUTE),
        })
    }

    /// The events of a change, in order; `None` if they cannot be translated, which ends the
    /// streams that wait for them.
    async fn render(
        &self,
        target: &StreamTarget,
        change: &Arc<PublishedChange>,
    ) -> Option<Vec<Rendered>> {
        let (_, version) = target.native();
        if !is_known(&change.change, version) {
            return Some(Vec::new());
        }
        let StreamTarget::Translated { step, method, .. } = target else {
            return Some(native_events(change, version).map(rendered).collect());
        };
        let _run = self.runs[*step]
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let records = wire::changed_records_to(&change.change, version).into();
        let translated = self.translated(target, change, &records).await;
        let events = translated.and_then(|events| {
            let events: Vec<_> = events.into_iter().map(rendered).collect();
            if change.may_have(&events) {
                return Ok(events);
            }
            let reason = format!(
                "translator {:?} returned events far larger than the records that have changed",
                self.chain.translator(*step).manifest().name
            );
            Err(TranslateError::new(reason))
        });
        let logged = events.inspect_err(|error| {
            let Some(left_out) = self.failures.admit() else { return };
            tracing::error!(
                name: "event_stream_failed",
                stream = method,
                reason = %with_causes(&error),
                left_out,
                "events cannot be translated; the subscribers of this stream are disconnected, and miss the events \
                 until they connect again"
            );
        });
        logged.ok()
    }

    fn translated<'a>(
        &'a self,
        target: &'a StreamTarget,
        change: &'a PublishedChange,
        records: &'a Arc<[ChangedRecord]>,
    ) -> BoxFuture<'a, Result<Vec<TranslatedEvent>, TranslateError>> {
        let translated = async move {
            match target {
                StreamTarget::Native { version, .. } => {
                    Ok(native_events(change, *version).collect())
                }
                StreamTarget::Translated {
                    step,
                    method,
                    newer,
                } => {
                    let newer = self.translated(newer, change, records).await?;
                    self.chain
                        .translator(*step)
                        .events(method, records, newer)
                        .await
                }
            }
        };
        translated.boxed()
    }
}

/// Whether an event is for the subscriber to a cell; an empty id is that of one to all cells.
fn is_for(cells: Option<&[Text]>, cell_id: &[u8]) -> bool {
    cell_id.is_empty() || cells.is_none_or(|cells| cells.iter().any(|id| id == cell_id))
}

/// Whether a version has events for a change: Diego's has none for the state of an update.
fn is_known(change: &RecordChange, version: NativeVersion) -> bool {
    match version {
        NativeVersion::Diego => !matches!(change, RecordChange::UpdateHalt { .. }),
        NativeVersion::Definitions => true,
    }
}

/// The events of a change as a native version has them.
fn native_events(
    change: &PublishedChange,
    version: NativeVersion,
) -> impl Iterator<Item = TranslatedEvent> {
    let events = change.events().into_iter();
    events.map(move |event| TranslatedEvent {
        name: wire::event_name(&event).to_owned(),
        payload: wire::encoded_event(&event, version),
        cells: event.cells(),
    })
}

/// An event without its number, which differs by subscriber.
fn rendered(
    TranslatedEvent {
        name,
        payload,
        cells,
    }: TranslatedEvent,
) -> Rendered {
    let text = format!("event: {name}\ndata: {}\n\n", STANDARD.encode(payload));
    Rendered {
        text: text.into(),
        cells,
    }
}

/// One buffer, so that the event is one HTTP chunk.
fn numbered(id: u64, text: &Bytes) -> Bytes {
    let mut whole = BytesMut::with_capacity("id: \n".len() + 20 + text.len());
    writeln!(whole, "id: {id}").expect("writing to a buffer does not fail");
    whole.put_slice(text);
    whole.freeze()
}
