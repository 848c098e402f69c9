//! Stubs of the components that the host calls, over the real protocols and mutual TLS: an
//! auctioneer, one rep for all cells, a receiver of callbacks, Locket. They record the host's
//! requests and reply as the test sets; they do none of the component's work.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bbs::testing::clients::Clients;
use bbs::testing::config;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::diego::fault_switch::cut_body;
use super::diego::trust::{self, HttpServer, Trust};
use super::locket::Locket;

/// Default of the host's communication timeout.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that a stub received.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    pub trace_id: Option<String>,
    /// Null if the body is not JSON.
    pub body: Value,
}

/// How a stub replies to a request.
#[derive(Debug, Clone, Copy)]
pub enum StubReply {
    Status(u16),
    /// Keeps the connection open without a reply.
    Never,
    /// Status 202 and a body that breaks off.
    Truncated,
    /// Closes the connection without a reply.
    HangUp,
    /// Status 202 after [`StubServer::release`].
    OnceReleased,
    /// Status 500 after [`StubServer::release`].
    FailsOnceReleased,
}

impl StubReply {
    const ACCEPTED: Self = Self::Status(202);
}

struct StubState {
    requests: Vec<ReceivedRequest>,
    next: VecDeque<StubReply>,
    /// The reply when `next` is empty.
    default: StubReply,
    released: watch::Sender<bool>,
}

/// A stub of an HTTP component. Stops and closes its connections when dropped.
pub struct StubServer {
    state: Arc<Mutex<StubState>>,
    http: HttpServer,
}

impl StubServer {
    /// Starts a stub that replies 202 to every request until it is set otherwise.
    pub fn start(trust: &Trust) -> Self {
        let state = new_state();
        let http = trust.listen(router(Arc::clone(&state)));
        Self { state, http }
    }

    /// [`Self::start`] without TLS.
    pub fn start_plain() -> Self {
        let state = new_state();
        let http = trust::listen_plain(router(Arc::clone(&state)));
        Self { state, http }
    }

    pub fn url(&self) -> String {
        self.http.url()
    }

    fn state(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().expect("no request panics")
    }

    /// Appends to the replies to the next requests.
    pub fn reply_next(&self, next: &[StubReply]) {
        self.state().next.extend(next);
    }

    /// Removes the replies set by [`Self::reply_next`].
    pub fn clear_replies(&self) {
        self.state().next.clear();
    }

    /// Sets the default reply.
    pub fn reply_always(&self, reply: StubReply) {
        self.state().default = reply;
    }

    /// Completes all [`StubReply::OnceReleased`] and [`StubReply::FailsOnceReleased`] replies,
    /// current and future.
    pub fn release(&self) {
        self.state().released.send_replace(true);
    }

    /// Takes the requests received since the last call.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.state().requests)
    }

    /// Waits until at least `count` requests were received, and takes them.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<ReceivedRequest> {
        super::until(|| self.state().requests.len() >= count).await;
        self.take_requests()
    }
}

fn new_state() -> Arc<Mutex<StubState>> {
    let released = watch::Sender::new(false);
    Arc::new(Mutex::new(StubState {
        requests: Vec::new(),
        next: VecDeque::new(),
        default: StubReply::ACCEPTED,
        released,
    }))
}

fn router(state: Arc<Mutex<StubState>>) -> Router {
    Router::new().fallback(receive).with_state(state)
}

async fn receive(
    State(state): State<Arc<Mutex<StubState>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let trace_id = headers
        .get("X-Vcap-Request-Id")
        .map(|id| id.to_str().expect("text").to_owned());
    if headers
        .get("content-type")
        .is_none_or(|kind| kind != "application/json")
    {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let (reply, mut released) = {
        let mut state = state.lock().expect("no request panics");
        state.requests.push(ReceivedRequest {
            method: method.to_string(),
            path: uri.path().to_owned(),
            trace_id,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        });
        (
            state.next.pop_front().unwrap_or(state.default),
            state.released.subscribe(),
        )
    };
    match reply {
        StubReply::Status(status) => StatusCode::from_u16(status)
            .expect("a status")
            .into_response(),
        StubReply::Never => std::future::pending().await,
        StubReply::Truncated => cut_body().into_response(),
        StubReply::OnceReleased | StubReply::FailsOnceReleased => {
            released
                .wait_for(|released| *released)
                .await
                .expect("the stub outlives its server");
            let status = if matches!(reply, StubReply::OnceReleased) {
                StatusCode::ACCEPTED
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            status.into_response()
        }
        // Unwinds the connection's task without a panic message.
        StubReply::HangUp => std::panic::resume_unwind(Box::new("hung up")),
    }
}

/// All stubs, with certificates of one authority except Locket, which has the fixture's.
pub struct Neighbours {
    pub auctioneer: StubServer,
    pub rep: StubServer,
    /// Receiver of task completion callbacks.
    pub receiver: StubServer,
    pub locket: Locket,
    trust: Trust,
}

impl Neighbours {
    /// Starts all stubs, with the presence of one cell, `cell-a`.
    pub fn start() -> Self {
        let trust = Trust::new();
        let [auctioneer, rep, receiver] = [(); 3].map(|()| StubServer::start(&trust));
        let neighbours = Self {
            auctioneer,
            rep,
            receiver,
            locket: Locket::start(),
            trust,
        };
        neighbours.add_cell("cell-a");
        neighbours
    }

    pub fn clients(&self) -> Clients {
        self.clients_with_timeout(PATIENCE)
    }

    /// [`Self::clients`] with another communication timeout.
    pub fn clients_with_timeout(&self, communication_timeout: Duration) -> Clients {
        let tls = self.trust.client_tls();
        let auctioneer = config::AuctioneerConfig {
            address: self.auctioneer.url(),
            tls: Some(tls.clone()),
            require_tls: true,
        };
        let config = config::ClientsConfig {
            communication_timeout,
            auctioneer: Some(auctioneer),
            rep: config::RepConfig {
                tls: Some(tls.clone()),
                require_tls: true,
                session_cache_size: None,
            },
            ..config::ClientsConfig::default()
        };
        Clients::new(&config, Some(&self.locket.lookup_config()), Some(&tls))
            .expect("the configuration is valid")
    }

    /// Adds the presence of a cell whose rep is [`Self::rep`].
    pub fn add_cell(&self, cell_id: &str) {
        self.add_cell_at(cell_id, &self.rep.url());
    }

    /// Adds the presence of a cell whose rep is at `rep_url`.
    pub fn add_cell_at(&self, cell_id: &str, rep_url: &str) {
        let presence =
            json!({ "cell_id": cell_id, "rep_address": "http://127.0.0.1:1", "rep_url": rep_url });
        self.locket.add_presence(cell_id, &presence.to_string());
    }

    /// The LRP auctions requested since the last call: process guid and indices.
    pub fn auctions(&self) -> Vec<(String, Value)> {
        let requests = self
            .auctioneer
            .take_requests()
            .into_iter()
            .filter(|request| request.path == "/v1/lrps");
        let starts = requests.flat_map(|request| request.body.as_array().expect("a list").clone());
        starts
            .map(|start| {
                (
                    start["process_guid"].as_str().expect("text").to_owned(),
                    start["indices"].clone(),
                )
            })
            .collect()
    }
}
