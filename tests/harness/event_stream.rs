//! A subscriber of the host's event streams. Owns the parsing of events and the check that they are
//! numbered consecutively.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

/// Far above what any event takes: reached only by a hang.
const PATIENCE: Duration = Duration::from_secs(60);

pub const TASKS: &str = "/v1/events/tasks.r1";
pub const INSTANCES: &str = "/v1/events/lrp_instances.r1";
pub const GROUPS: &str = "/v1/events.r1";

pub struct EventStream {
    response: reqwest::Response,
    /// Received text that is not parsed yet.
    text: String,
    /// Number of events so far, which is the next event's id.
    received: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedEvent {
    pub name: String,
    pub message: Vec<u8>,
}

impl ReceivedEvent {
    /// The event's content as a message of this type.
    #[track_caller]
    pub fn message<M: Message + Default>(&self) -> M {
        M::decode(&self.message[..]).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

impl EventStream {
    /// Subscribes; with a non-empty `cell_id`, to the events of that cell only.
    pub async fn open(url: String, cell_id: &str) -> Self {
        Self::requested(super::http_client().post(url), cell_id).await
    }

    /// Opens a stream that is requested by GET.
    pub async fn get(url: String, cell_id: &str) -> Self {
        Self::requested(super::http_client().get(url), cell_id).await
    }

    async fn requested(request: reqwest::RequestBuilder, cell_id: &str) -> Self {
        let body = proto::EventsByCellId {
            cell_id: cell_id.into(),
        }
        .encode_to_vec();
        let response = request.body(body).send().await.expect("the host answers");
        let header = |name| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(response.status(), 200);
        assert_eq!(
            header("content-type").as_deref(),
            Some("text/event-stream; charset=utf-8")
        );
        Self::from_response(response)
    }

    /// Reads the stream of a response.
    pub fn from_response(response: reqwest::Response) -> Self {
        Self {
            response,
            text: String::new(),
            received: 0,
        }
    }

    /// The next event; `None` once the stream has ended cleanly.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        let event = tokio::time::timeout(PATIENCE, self.try_next())
            .await
            .expect("an event arrives within 60 s");
        event.expect("the stream does not break")
    }

    /// [`Self::next`] without a timeout, for a stream that may break.
    pub async fn try_next(&mut self) -> reqwest::Result<Option<ReceivedEvent>> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = parse(event, self.received);
                self.received += 1;
                self.text = rest.to_owned();
                return Ok(Some(event));
            }
            let Some(chunk) = self.response.chunk().await? else {
                assert_eq!(self.text, "", "the stream ended within an event");
                return Ok(None);
            };
            self.text
                .push_str(std::str::from_utf8(&chunk).expect("events are ASCII"));
        }
    }

    /// All further events until the stream ends.
    pub async fn rest(mut self) -> Vec<ReceivedEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn parse(event: &str, number: u64) -> ReceivedEvent {
    let lines: Vec<_> = event.split('\n').collect();
    let [id, name, data] = lines[..] else {
        panic!("an event is three lines, not {event:?}")
    };
    assert_eq!(id, format!("id: {number}"));
    let name = name
        .strip_prefix("event: ")
        .expect("the second line is the name")
        .to_owned();
    let data = data
        .strip_prefix("data: ")
        .expect("the third line is the data");
    ReceivedEvent {
        name,
        message: STANDARD.decode(data).expect("the data is in base64"),
    }
}
