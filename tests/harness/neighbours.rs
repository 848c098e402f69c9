//! The components that the host speaks to, as small servers that speak the real protocols over mutual TLS: an
//! auctioneer, a rep for every cell, a receiver of callbacks, Locket. Owns what each was asked and what it answers, which
//! may be nothing; none does what it is asked to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bbs::clients::Clients;
use bbs::config;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::diego::mood::cut_body;
use super::diego::trust::{self, Listening, Trust};
use super::locket::Locket;

/// How long the host waits for an answer, where a test says nothing of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    pub method: String,
    pub path: String,
    pub trace_id: Option<String>,
    /// Null where it is no JSON.
    pub body: Value,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
pub enum Say {
    Status(u16),
    /// Never.
    Nothing,
    /// The head, and then an end in the middle.
    Cut,
    /// The end of the connection, before a word.
    HangUp,
    /// That it accepts, once the test says so.
    OnceReleased,
}

impl Say {
    const ACCEPTED: Self = Self::Status(202);
}

struct Ear {
    heard: Vec<Heard>,
    next: VecDeque<Say>,
    /// Where nothing is said of the next.
    otherwise: Say,
    released: watch::Sender<bool>,
}

/// A server that ends, with all its connections, when dropped.
pub struct StandIn {
    ear: Arc<Mutex<Ear>>,
    listening: Listening,
}

impl StandIn {
    /// Accepts whatever it is asked to do.
    pub fn start(trust: &Trust) -> Self {
        let ear = ear();
        let listening = trust.listen(router(Arc::clone(&ear)));
        Self { ear, listening }
    }

    /// The same without TLS.
    pub fn start_plain() -> Self {
        let ear = ear();
        let listening = trust::listen_plain(router(Arc::clone(&ear)));
        Self { ear, listening }
    }

    pub fn url(&self) -> String {
        self.listening.url()
    }

    fn ear(&self) -> MutexGuard<'_, Ear> {
        self.ear.lock().expect("no request panics")
    }

    /// The next answers.
    pub fn say(&self, next: &[Say]) {
        self.ear().next.extend(next);
    }

    /// Takes back what the next answers were to be.
    pub fn forget_answers(&self) {
        self.ear().next.clear();
    }

    /// Every answer from now on.
    pub fn say_always(&self, say: Say) {
        self.ear().otherwise = say;
    }

    /// Whatever waits for it is answered, and nothing waits any more.
    pub fn release(&self) {
        self.ear().released.send_replace(true);
    }

    /// What it was asked since the last time.
    pub fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.ear().heard)
    }

    /// The same, once it was asked so often.
    pub async fn hears(&self, count: usize) -> Vec<Heard> {
        super::until(|| self.ear().heard.len() >= count).await;
        self.heard()
    }
}

fn ear() -> Arc<Mutex<Ear>> {
    let released = watch::Sender::new(false);
    Arc::new(Mutex::new(Ear { heard: Vec::new(), next: VecDeque::new(), otherwise: Say::ACCEPTED, released }))
}

fn router(ear: Arc<Mutex<Ear>>) -> Router {
    Router::new().fallback(hear).with_state(ear)
}

async fn hear(
    State(ear): State<Arc<Mutex<Ear>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let trace_id = headers.get("X-Vcap-Request-Id").map(|id| id.to_str().expect("text").to_owned());
    if headers.get("content-type").is_none_or(|kind| kind != "application/json") {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let (say, mut released) = {
        let mut ear = ear.lock().expect("no request panics");
        ear.heard.push(Heard {
            method: method.to_string(),
            path: uri.path().to_owned(),
            trace_id,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        });
        (ear.next.pop_front().unwrap_or(ear.otherwise), ear.released.subscribe())
    };
    match say {
        Say::Status(status) => StatusCode::from_u16(status).expect("a status").into_response(),
        Say::Nothing => std::future::pending().await,
        Say::Cut => cut_body().into_response(),
        Say::OnceReleased => {
            released.wait_for(|released| *released).await.expect("the stand-in is there as long as its server");
            StatusCode::ACCEPTED.into_response()
        }
        // Ends the connection's task, and says nothing of it.
        Say::HangUp => std::panic::resume_unwind(Box::new("hung up")),
    }
}

/// Everybody, with one authority but for Locket, which has the fixture's.
pub struct Neighbours {
    pub auctioneer: StandIn,
    pub rep: StandIn,
    /// Of callbacks.
    pub receiver: StandIn,
    pub locket: Locket,
    trust: Trust,
}

impl Neighbours {
    /// `cell-a` is there.
    pub fn start() -> Self {
        let trust = Trust::new();
        let [auctioneer, rep, receiver] = [(); 3].map(|()| StandIn::start(&trust));
        let neighbours = Self { auctioneer, rep, receiver, locket: Locket::start(), trust };
        neighbours.show("cell-a");
        neighbours
    }

    pub fn clients(&self) -> Clients {
        self.clients_that_wait(PATIENCE)
    }

    /// Clients that wait for so long for an answer.
    pub fn clients_that_wait(&self, communication_timeout: Duration) -> Clients {
        let tls = self.trust.client_tls();
        let auctioneer =
            config::Auctioneer { address: self.auctioneer.url(), tls: Some(tls.clone()), require_tls: true };
        let config = config::Clients {
            communication_timeout,
            auctioneer: Some(auctioneer),
            rep: config::Rep { tls: Some(tls.clone()), session_cache_size: None },
            ..config::Clients::default()
        };
        Clients::new(&config, Some(&self.locket.looked_up()), Some(&tls)).expect("everybody can be spoken to")
    }

    /// A cell that is there, with the rep.
    pub fn show(&self, cell_id: &str) {
        self.show_at(cell_id, &self.rep.url());
    }

    /// A cell that says that its rep is there.
    pub fn show_at(&self, cell_id: &str, rep_url: &str) {
        let presence = json!({ "cell_id": cell_id, "rep_address": "http://127.0.0.1:1", "rep_url": rep_url });
        self.locket.show(cell_id, &presence.to_string());
    }

    /// What the auctioneer was asked for since the last time: process guid and indices.
    pub fn auctions(&self) -> Vec<(String, Value)> {
        let asked = self.auctioneer.heard().into_iter().filter(|heard| heard.path == "/v1/lrps");
        let starts = asked.flat_map(|heard| heard.body.as_array().expect("a list").clone());
        starts
            .map(|start| (start["process_guid"].as_str().expect("text").to_owned(), start["indices"].clone()))
            .collect()
    }
}
