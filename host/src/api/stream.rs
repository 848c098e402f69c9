//! One subscriber's stream of events: which of them it is sent, and each as its text. Knows no HTTP.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_proto::models::EventsByCellId;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::methods::Stream;
use super::wire;
use crate::events::{Audience, Event, Events, Rendered, Subscription, Told, Topic};
use crate::model::Text;

/// Why a subscriber is not sent anything.
#[derive(Debug, thiserror::Error)]
pub enum NoStream {
    #[error("the request for events cannot be decoded")]
    Undecodable(#[source] prost::DecodeError),
    #[error("no events are told any more")]
    Closed,
}

/// Ends when its subscriber is too slow, or with the service.
#[derive(Debug)]
pub struct EventStream {
    subscription: Subscription,
    /// The only cell of interest; empty for all.
    cell_id: Text,
    sent: u64,
    /// The operation that is being told, and how many of its events have been looked at.
    current: Option<(Arc<Told>, usize)>,
}

impl EventStream {
    pub(super) fn begin(events: &Events, stream: Stream, body: &[u8]) -> Result<Self, NoStream> {
        let (topic, cell_id) = match stream {
            Stream::LrpInstances => (Topic::Lrps, EventsByCellId::decode(body).map_err(NoStream::Undecodable)?.cell_id),
            // Whatever the body is.
            Stream::Tasks => (Topic::Tasks, Text::new()),
        };
        let subscription = events.subscribe(topic).ok_or(NoStream::Closed)?;
        Ok(Self { subscription, cell_id, sent: 0, current: None })
    }

    /// The next event, with its number on this stream.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some((told, looked_at)) = &mut self.current else {
                self.current = Some((self.subscription.next().await?, 0));
                continue;
            };
            let Some(event) = told.rendered(rendered).get(*looked_at) else {
                self.current = None;
                continue;
            };
            *looked_at += 1;
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

/// The text of an event but for its number, which is each stream's own.
fn rendered(event: &Event<'_>) -> Rendered {
    let (name, message) = wire::event_to(event);
    let text = format!("event: {name}\ndata: {}\n\n", STANDARD.encode(message));
    Rendered { text: text.into(), audience: event.audience() }
}

/// One piece, so that it travels as one chunk.
fn numbered(id: u64, text: &Bytes) -> Bytes {
    let mut whole = BytesMut::with_capacity("id: \n".len() + 20 + text.len());
    writeln!(whole, "id: {id}").expect("a buffer takes all that is written");
    whole.put_slice(text);
    whole.freeze()
}
