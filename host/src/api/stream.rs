//! One subscriber's event stream: filters events and renders them as server-sent events. Independent of HTTP.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_proto::models::EventsByCellId;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::methods::Stream;
use super::wire;
use crate::events::{Audience, Event, Events, PublishedChange, Rendered, Subscription, Topic};
use crate::model::Text;

/// Why a subscription was rejected.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error("the request for events cannot be decoded")]
    Undecodable(#[source] prost::DecodeError),
    #[error("the host is stopping and publishes no more events")]
    Closed,
}

/// Ends when its subscriber is too slow, or when the host stops.
#[derive(Debug)]
pub struct EventStream {
    subscription: Subscription,
    /// Sends only events of this cell; empty sends all.
    cell_id: Text,
    sent: u64,
    /// The change being sent, and how many of its events have been examined.
    current: Option<(Arc<PublishedChange>, usize)>,
}

impl EventStream {
    pub(super) fn begin(events: &Events, stream: Stream, body: &[u8]) -> Result<Self, SubscribeError> {
        let (topic, cell_id) = match stream {
            Stream::LrpInstances => {
                (Topic::Lrps, EventsByCellId::decode(body).map_err(SubscribeError::Undecodable)?.cell_id)
            }
            // The body of a task subscription is ignored.
            Stream::Tasks => (Topic::Tasks, Text::new()),
        };
        let subscription = events.subscribe(topic).ok_or(SubscribeError::Closed)?;
        Ok(Self { subscription, cell_id, sent: 0, current: None })
    }

    /// The next event, numbered on this stream; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some((change, examined)) = &mut self.current else {
                self.current = Some((self.subscription.next().await?, 0));
                continue;
            };
            let Some(event) = change.rendered(rendered).get(*examined) else {
                self.current = None;
                continue;
            };
            *examined += 1;
            if is_for(&event.audience, &self.cell_id) {
                let text = numbered(self.sent, &event.text);
                self.sent += 1;
                return Some(text);
            }
        }
    }
}

fn is_for(audience: &Audience, cell_id: &[u8]) -> bool {
    match audience {
        Audience::Everyone => true,
        Audience::Cell(concerned) => cell_id.is_empty() || concerned == cell_id,
    }
}

/// Renders an event without its number, which differs by stream.
fn rendered(event: &Event<'_>) -> Rendered {
    let (name, message) = wire::event_to(event);
    let text = format!("event: {name}\ndata: {}\n\n", STANDARD.encode(message));
    Rendered { text: text.into(), audience: event.audience() }
}

/// One buffer, so that the event is one HTTP chunk.
fn numbered(id: u64, text: &Bytes) -> Bytes {
    let mut whole = BytesMut::with_capacity("id: \n".len() + 20 + text.len());
    writeln!(whole, "id: {id}").expect("writing to a buffer does not fail");
    whole.put_slice(text);
    whole.freeze()
}
