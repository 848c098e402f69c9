//! Whoever listens to a stream of events. Owns how an event is read from the stream, and that events are numbered.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

/// Far above what anything here takes: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

pub const TASKS: &str = "/v1/events/tasks.r1";
pub const INSTANCES: &str = "/v1/events/lrp_instances.r1";

pub struct Listener {
    response: reqwest::Response,
    text: String,
    heard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub name: String,
    pub message: Vec<u8>,
}

impl Heard {
    #[track_caller]
    pub fn message<M: Message + Default>(&self) -> M {
        M::decode(&self.message[..]).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

impl Listener {
    /// From now on; with a cell, to what concerns it.
    pub async fn begin(url: String, cell_id: &str) -> Self {
        let body = proto::EventsByCellId { cell_id: cell_id.into() }.encode_to_vec();
        let response = super::http_client().post(url).body(body).send().await.expect("the host is there");
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(response.status(), 200);
        assert_eq!(header("content-type").as_deref(), Some("text/event-stream; charset=utf-8"));
        Self::to(response)
    }

    /// To a stream that has begun.
    pub fn to(response: reqwest::Response) -> Self {
        Self { response, text: String::new(), heard: 0 }
    }

    /// The next event; none once the stream has ended as it should.
    pub async fn next(&mut self) -> Option<Heard> {
        let heard = tokio::time::timeout(PATIENCE, self.try_next()).await.expect("something comes");
        heard.expect("the stream is whole")
    }

    /// The same of a stream that may break, and be silent for long.
    pub async fn try_next(&mut self) -> reqwest::Result<Option<Heard>> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = parsed(event, self.heard);
                self.heard += 1;
                self.text = rest.to_owned();
                return Ok(Some(event));
            }
            let Some(chunk) = self.response.chunk().await? else {
                assert_eq!(self.text, "", "the stream ended within an event");
                return Ok(None);
            };
            self.text.push_str(std::str::from_utf8(&chunk).expect("events are ASCII"));
        }
    }

    /// What there is until the stream ends.
    pub async fn rest(mut self) -> Vec<Heard> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn parsed(event: &str, number: u64) -> Heard {
    let lines: Vec<_> = event.split('\n').collect();
    let [id, name, data] = lines[..] else { panic!("an event is three lines, not {event:?}") };
    assert_eq!(id, format!("id: {number}"));
    let name = name.strip_prefix("event: ").expect("the second line is the name").to_owned();
    let data = data.strip_prefix("data: ").expect("the third line is the data");
    Heard { name, message: STANDARD.decode(data).expect("the data is in base64") }
}
