//! The access log: a line when a request starts and one when it ends, in a file of its own if
//! configured, and in the log at debug. A request ends when its last byte was sent or its client
//! disconnected.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::Response;
use bbs_work::log_sampling::LineLimit;
use serde_json::{Map, Value};

use super::in_flight::guarded;
use super::peer::Peer;
use crate::clock::{Clock, SystemClock};
use crate::config::{LogLevel, TimeFormat};
use crate::logs::line::LagerLine;
use crate::logs::writer::LineWriter;

/// Diego's name of the access log, whatever the host itself is called.
const SOURCE: &str = "bbs-access";
const REPORTS_PER_MINUTE: u32 = 1;
/// Longest path and query in a line, in bytes: those of Diego's clients are far shorter, and lines
/// that wait for a slow disk are bounded by their number.
const LONGEST_TARGET: usize = 2 << 10;

/// The access log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the access log {}; check that its folder is there and can be written to, or leave `access_log_path` out",
    .path.display()
)]
pub struct AccessLogError {
    path: PathBuf,
    source: std::io::Error,
}

/// The access log file, opened for appending.
#[derive(Debug, Clone)]
pub struct AccessLog {
    lines: LineWriter,
    /// The limit of reports about lines that are not in the file.
    reports: Arc<LineLimit>,
}

impl AccessLog {
    /// Checks that there may be a log at this path, without opening one.
    ///
    /// # Errors
    /// Its folder does not exist, or it is a folder itself.
    pub fn check_place(path: &Path) -> Result<(), AccessLogError> {
        match bbs_files::obstacle(path) {
            None => Ok(()),
            Some(what) => Err(AccessLogError {
                path: path.to_owned(),
                source: std::io::Error::other(what),
            }),
        }
    }

    /// Opens or creates the file.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(path: &Path) -> Result<Self, AccessLogError> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|source| AccessLogError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            lines: LineWriter::start("access log", file),
            reports: Arc::new(LineLimit::new(1, REPORTS_PER_MINUTE)),
        })
    }

    /// Blocks until the lines written so far are in the file.
    pub fn flush(&self) {
        self.lines.flush();
    }

    fn write(&self, message: &str, data: Map<String, Value>) {
        let line = LagerLine {
            now_ns: SystemClock.now_ns(),
            source: SOURCE,
            message,
            severity: LogLevel::Info,
            data,
        };
        self.lines.line(line.render(TimeFormat::UnixEpoch));
        if self.lines.has_left_out() && self.reports.admit().is_some() {
            let left_out = self.lines.take_left_out();
            tracing::warn!(
                name: "access-log.lines-left-out",
                left_out,
                "lines are missing from the access log: its disk is full, or too slow for the requests"
            );
        }
    }
}

#[derive(Debug)]
struct RequestLog {
    file: Option<AccessLog>,
    count: AtomicU64,
}

/// The routes of `router`, with every request logged.
pub fn logged(router: Router, file: Option<AccessLog>) -> Router {
    let requests = Arc::new(RequestLog {
        file,
        count: AtomicU64::default(),
    });
    router.layer(middleware::from_fn_with_state(requests, log_request))
}

async fn log_request(
    State(requests): State<Arc<RequestLog>>,
    request: Request,
    next: Next,
) -> Response {
    if requests.file.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
        return next.run(request).await;
    }
    let logged = LoggedRequest::begin(requests, &request);
    guarded(next.run(request).await, logged)
}

/// The target of a request, up to about [`LONGEST_TARGET`] bytes.
fn target(uri: &Uri) -> String {
    let mut target = uri.to_string();
    if target.len() > LONGEST_TARGET {
        target.truncate(target.floor_char_boundary(LONGEST_TARGET));
        target.push('…');
    }
    target
}

/// A request in flight. Dropping it logs the end of the request.
struct LoggedRequest {
    requests: Arc<RequestLog>,
    began: Instant,
    data: Map<String, Value>,
}

impl LoggedRequest {
    fn begin(requests: Arc<RequestLog>, request: &Request) -> Self {
        let session = requests.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut data = Map::new();
        data.insert("session".to_owned(), session.to_string().into());
        data.insert("method".to_owned(), request.method().as_str().into());
        data.insert("request".to_owned(), target(request.uri()).into());
        if let Some(peer) = request.extensions().get::<Peer>() {
            data.insert("remote_addr".to_owned(), peer.address.to_string().into());
            data.extend(peer.certificate.as_ref().clone());
        }
        let logged = Self {
            requests,
            began: Instant::now(),
            data,
        };
        if let Some(file) = &logged.requests.file {
            file.write("request.serving", logged.data.clone());
        }
        let (session, method, request, remote_addr) = logged.parts();
        tracing::debug!(name: "request.serving", session, method, request, remote_addr, "a request");
        logged
    }

    fn parts(&self) -> (&str, &str, &str, &str) {
        let text = |key| {
            self.data
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (
            text("session"),
            text("method"),
            text("request"),
            text("remote_addr"),
        )
    }
}

impl Drop for LoggedRequest {
    fn drop(&mut self) {
        let (session, method, request, remote_addr) = self.parts();
        tracing::debug!(name: "request.done", session, method, request, remote_addr, "a request was answered");
        let mut data = std::mem::take(&mut self.data);
        if let Some(file) = &self.requests.file {
            let spent_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            data.insert("duration".to_owned(), spent_ns.into());
            file.write("request.done", data);
        }
    }
}
