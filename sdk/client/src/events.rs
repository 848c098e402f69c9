//! Event streams: subscribes to one, and reads typed events from it. Owns the framing of
//! server-sent events; a stream that ends is the caller's to open again, because events in between
//! are lost.

use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_proto::models;
use bbs_proto::prost::{DecodeError, Message};
use reqwest::Response;

use crate::connection::Client;
use crate::error::CallError;
use crate::method::Route;

const LRP_INSTANCES: Route = Route {
    name: "LRPInstanceEventStream_r1",
    path: "events/lrp_instances.r1",
    only: None,
};
const TASKS: Route = Route {
    name: "TaskEventStream_r1",
    path: "events/tasks.r1",
    only: None,
};
pub(crate) const STREAMS: [Route; 2] = [LRP_INSTANCES, TASKS];

/// The largest event that is read, in bytes: above that of two LRPs as large as a BBS accepts, in
/// base64.
const LARGEST_EVENT: usize = 32 << 20;

/// An event of a stream.
pub trait Event: Sized {
    /// Decodes the event of a name; `None` for a name that this client does not know.
    ///
    /// # Errors
    /// The content is not the message of the name.
    fn decode(name: &str, content: &[u8]) -> Result<Option<Self>, DecodeError>;
}

macro_rules! events {
    ($(#[$doc:meta])* $event:ident { $($name:literal => $variant:ident($message:ident),)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $event {
            $(
                #[doc = concat!("`", $name, "`")]
                $variant(Box<models::$message>),
            )*
        }

        impl $event {
            /// The name of the event in the stream.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }
        }

        impl Event for $event {
            fn decode(name: &str, content: &[u8]) -> Result<Option<Self>, DecodeError> {
                Ok(match name {
                    $($name => Some(Self::$variant(Box::new(models::$message::decode(content)?))),)*
                    _ => None,
                })
            }
        }
    };
}

events! {
    /// A change of a desired LRP, or of one of its instances.
    LrpInstanceEvent {
        "desired_lrp_created" => DesiredLrpCreated(DesiredLrpCreatedEvent),
        "desired_lrp_changed" => DesiredLrpChanged(DesiredLrpChangedEvent),
        "desired_lrp_removed" => DesiredLrpRemoved(DesiredLrpRemovedEvent),
        "actual_lrp_instance_created" => InstanceCreated(ActualLrpInstanceCreatedEvent),
        "actual_lrp_instance_changed" => InstanceChanged(ActualLrpInstanceChangedEvent),
        "actual_lrp_instance_removed" => InstanceRemoved(ActualLrpInstanceRemovedEvent),
        "actual_lrp_crashed" => Crashed(ActualLrpCrashedEvent),
    }
}

events! {
    /// A change of a task.
    TaskEvent {
        "task_created" => Created(TaskCreatedEvent),
        "task_changed" => Changed(TaskChangedEvent),
        "task_removed" => Removed(TaskRemovedEvent),
    }
}

impl Client {
    /// Subscribes to the events of LRPs and their instances; with a cell id, to those of instances
    /// on that cell.
    ///
    /// # Errors
    /// The stream is not opened at any attempt.
    pub async fn lrp_instance_events(
        &self,
        cell_id: impl Into<Vec<u8>>,
    ) -> Result<EventStream<LrpInstanceEvent>, CallError> {
        let body = models::EventsByCellId {
            cell_id: cell_id.into(),
        }
        .encode_to_vec();
        Ok(EventStream::new(
            self.subscribe(LRP_INSTANCES.path, &body).await?,
        ))
    }

    /// Subscribes to the events of tasks.
    ///
    /// # Errors
    /// As [`Self::lrp_instance_events`].
    pub async fn task_events(&self) -> Result<EventStream<TaskEvent>, CallError> {
        Ok(EventStream::new(self.subscribe(TASKS.path, &[]).await?))
    }
}

/// An open event stream.
#[derive(Debug)]
pub struct EventStream<E> {
    response: Response,
    /// Received text that is not parsed yet.
    received: Vec<u8>,
    /// Bytes of it that have no end of an event.
    searched: usize,
    events: PhantomData<fn() -> E>,
}

impl<E: Event> EventStream<E> {
    fn new(response: Response) -> Self {
        Self {
            response,
            received: Vec::new(),
            searched: 0,
            events: PhantomData,
        }
    }

    /// The next event, without those whose names this client does not know; `None` once the BBS has
    /// ended the stream. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The connection breaks, the stream ends within an event, or an event cannot be read. The
    /// stream cannot be used any more.
    pub async fn next(&mut self) -> Result<Option<E>, CallError> {
        loop {
            while let Some(text) = self.take_event() {
                let fault = |reason| CallError::Event {
                    url: self.response.url().to_string(),
                    reason,
                };
                if let Some(event) = parse(&text).map_err(fault)? {
                    return Ok(Some(event));
                }
            }
            if self.received.len() > LARGEST_EVENT {
                let reason = format!("it is larger than {LARGEST_EVENT} bytes");
                return Err(CallError::Event {
                    url: self.response.url().to_string(),
                    reason,
                });
            }
            let url = self.response.url().to_string();
            match self
                .response
                .chunk()
                .await
                .map_err(|source| CallError::NoAnswer { url, source })?
            {
                Some(chunk) => self.received.extend_from_slice(&chunk),
                None if self.received.iter().all(|byte| b"\r\n".contains(byte)) => {
                    return Ok(None);
                }
                None => {
                    return Err(CallError::Event {
                        url: self.response.url().to_string(),
                        reason: "the stream ends within it".to_owned(),
                    });
                }
            }
        }
    }

    /// The text of the next event, if all of it was received.
    fn take_event(&mut self) -> Option<Vec<u8>> {
        // The end may be divided between two chunks.
        let from = self.searched.saturating_sub(1);
        let Some(at) = self.received[from..]
            .windows(2)
            .position(|pair| pair == b"\n\n")
        else {
            self.searched = self.received.len();
            return None;
        };
        let rest = self.received.split_off(from + at + 2);
        self.searched = 0;
        Some(std::mem::replace(&mut self.received, rest))
    }
}

/// The event of a text; `None` if its name is not known, or it is a comment.
fn parse<E: Event>(text: &[u8]) -> Result<Option<E>, String> {
    let text = std::str::from_utf8(text).map_err(|fault| fault.to_string())?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let Some(name) = field("event") else {
        return Ok(None);
    };
    let content = STANDARD
        .decode(field("data").unwrap_or_default())
        .map_err(|fault| format!("{name}: {fault}"))?;
    if content.is_empty() {
        return Err(format!("{name} has no content"));
    }
    E::decode(name, &content).map_err(|fault| format!("{name}: {fault}"))
}
