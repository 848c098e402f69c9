//! Which requests there were: a line when each begins and one when it ends, in a file of their own if an operator wants
//! that, and in the log at debug. Owns when a request has ended: when its last byte was taken, or its client gone.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use serde_json::{Map, Value};

use super::door::Peer;
use super::in_flight::Held;
use crate::clock::{Clock, SystemClock};
use crate::config::TimeFormat;
use crate::logs::line::{Line, Severity};
use crate::logs::writer::Writer;

/// Diego's name for it, whatever the host itself is called.
const SOURCE: &str = "bbs-access";

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the access log {}; check that its folder is there and can be written to, or leave `access_log_path` out",
    .path.display()
)]
pub struct AccessLogError {
    path: PathBuf,
    source: std::io::Error,
}

/// A file of requests, which is appended to.
#[derive(Debug, Clone)]
pub struct AccessLog(Writer);

impl AccessLog {
    pub fn open(path: &Path) -> Result<Self, AccessLogError> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|source| AccessLogError { path: path.to_owned(), source })?;
        Ok(Self(Writer::start("access log", file)))
    }

    /// Waits until what was said so far is written.
    pub fn flush(&self) {
        self.0.flush();
    }

    fn say(&self, message: &str, data: Map<String, Value>) {
        let line = Line { now_ns: SystemClock.now_ns(), source: SOURCE, message, severity: Severity::Info, data };
        self.0.line(line.render(TimeFormat::UnixEpoch));
    }
}

#[derive(Debug)]
struct Requests {
    file: Option<AccessLog>,
    count: AtomicU64,
}

/// The same routes, with every request told of.
pub fn logged(router: Router, file: Option<AccessLog>) -> Router {
    let requests = Arc::new(Requests { file, count: AtomicU64::default() });
    router.layer(middleware::from_fn_with_state(requests, tell))
}

async fn tell(State(requests): State<Arc<Requests>>, request: Request, next: Next) -> Response {
    if requests.file.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
        return next.run(request).await;
    }
    let told = Told::begin(requests, &request);
    next.run(request).await.map(|body| Body::new(Held { body, held: told }))
}

/// A request that has begun. Dropped, it has ended.
struct Told {
    requests: Arc<Requests>,
    began: Instant,
    data: Map<String, Value>,
}

impl Told {
    fn begin(requests: Arc<Requests>, request: &Request) -> Self {
        let session = requests.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut data = Map::new();
        data.insert("session".to_owned(), session.to_string().into());
        data.insert("method".to_owned(), request.method().as_str().into());
        data.insert("request".to_owned(), request.uri().to_string().into());
        if let Some(peer) = request.extensions().get::<Peer>() {
            data.insert("remote_addr".to_owned(), peer.address.to_string().into());
            data.extend(peer.certificate.as_ref().clone());
        }
        let told = Self { requests, began: Instant::now(), data };
        if let Some(file) = &told.requests.file {
            file.say("request.serving", told.data.clone());
        }
        let (session, method, request, remote_addr) = told.parts();
        tracing::debug!(name: "request.serving", session, method, request, remote_addr, "a request");
        told
    }

    fn parts(&self) -> (&str, &str, &str, &str) {
        let text = |key| self.data.get(key).and_then(Value::as_str).unwrap_or_default();
        (text("session"), text("method"), text("request"), text("remote_addr"))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let (session, method, request, remote_addr) = self.parts();
        tracing::debug!(name: "request.done", session, method, request, remote_addr, "a request was answered");
        let mut data = std::mem::take(&mut self.data);
        if let Some(file) = &self.requests.file {
            let spent_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            data.insert("duration".to_owned(), spent_ns.into());
            file.say("request.done", data);
        }
    }
}
