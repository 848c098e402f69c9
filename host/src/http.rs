//! The API over HTTP: the gate that answers 503 until the host serves, the version of a request, and answers as bodies.
//! Decides status codes and headers; knows no resource.

mod access;
mod body;
mod debug;
mod gate;
mod in_flight;
mod listener;
mod refusal;
mod request;
mod stream;

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use access::{AccessLog, AccessLogError, logged};
pub use debug::serve_debug;
pub use gate::Gate;
pub use listener::serve_clients;

use crate::api::{self, Answer, Api, CallTarget, NATIVE, StreamTarget};
use crate::metrics::{self, Measures, Metrics};
use crate::model::TraceId;
use crate::modules::translate::{ApiVersion, Verb};
use in_flight::GuardedBody;
use listener::Peer;
use refusal::HttpError;
use request::{Trace, VersionedPath};

/// The largest body that is read, in bytes. Diego's own requests stay far below it.
pub const LARGEST_BODY: usize = 64 * 1024 * 1024;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const TRACE_ID: &str = "x-vcap-request-id";
/// Response header: the version of the API that answered.
const ANSWERED_VERSION: HeaderName = HeaderName::from_static(request::VERSION_HEADER);
/// The method name in metrics for requests that reach no method.
const NO_METHOD: &str = "none";

/// Serves until `stop`, then finishes the requests in flight.
///
/// # Errors
/// Accepting connections fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// Answers every request with 200: liveness, independent of mastership.
///
/// # Errors
/// Accepting connections fails.
pub async fn serve_health(listener: TcpListener) -> io::Result<()> {
    axum::serve(listener, Router::new().fallback(|| async { StatusCode::OK })).await
}

/// Serves metrics at `/metrics`, on a listener of its own: they are not for the API's clients.
///
/// # Errors
/// Accepting connections fails.
pub async fn serve_metrics(listener: TcpListener, metrics: Metrics, gate: Gate) -> io::Result<()> {
    let text = move || async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text(gate.left_out())) };
    axum::serve(listener, Router::new().route("/metrics", get(text))).await
}

/// One handler for every path, because the set of paths depends on the translators behind the gate.
pub fn router(gate: Gate, metrics: Metrics) -> Router {
    Router::new().fallback(handle).with_state((gate, metrics))
}

/// Response extension: the method that a response answers.
#[derive(Clone)]
struct AnsweredMethod(CallTarget);

/// Measures a request until its body is sent or its client disconnects, which is what Diego's latency covers.
struct Answering {
    route: Cow<'static, str>,
    measures: Measures,
    began: Instant,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.measures.answered(&self.route, self.began.elapsed());
    }
}

async fn handle(State((gate, metrics)): State<(Gate, Metrics)>, request: Request) -> Response {
    let began = Instant::now();
    let trace_id = request.headers().get(TRACE_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let trace = Trace::of(&trace_id);
    let (id, span_id) = (trace.as_ref().map(|trace| &*trace.id), trace.as_ref().map(|trace| &*trace.span_id));
    let span = tracing::info_span!("request", path = request.uri().path(), trace_id = id, span_id);
    let response = respond(gate, request, TraceId(trace_id), &metrics).instrument(span).await;
    let response = response.unwrap_or_else(IntoResponse::into_response);
    let (status, spent) = (response.status().as_u16(), began.elapsed());
    let guard = match response.extensions().get::<AnsweredMethod>() {
        // A stream is counted when it ends.
        Some(AnsweredMethod(CallTarget::Stream(_))) => return response,
        Some(AnsweredMethod(target)) => {
            metrics.answered(target.name(), status, spent);
            Answering { route: target.diego_name(), measures: metrics.measures().clone(), began }
        }
        None => {
            metrics.answered(NO_METHOD, status, spent);
            return response;
        }
    };
    response.map(|body| Body::new(GuardedBody { body, guard }))
}

async fn respond(gate: Gate, request: Request, trace_id: TraceId, metrics: &Metrics) -> Result<Response, HttpError> {
    let api = gate.api().map_err(HttpError::NotServing)?;
    let (version, target) = find(&api, &request)?;
    if version != NATIVE {
        let client = request.extensions().get::<Peer>().map(Peer::common_name).unwrap_or_default();
        metrics.called_older_version(&version.to_string(), target.name(), client);
    }
    let route = AnsweredMethod(target.clone());
    let version = HeaderValue::try_from(version.to_string()).expect("a version is header text");
    if let CallTarget::Stream(stream) = target {
        let mut response = subscribe(&api, stream, request, metrics).await?;
        response.extensions_mut().insert(route);
        response.headers_mut().insert(ANSWERED_VERSION, version);
        return Ok(response);
    }
    let abandoned = CancellationToken::new();
    let client = abandoned.clone().drop_guard();
    let answer = match read(request).await {
        Ok(body) => run_detached(api, target, api::Request { body, trace_id, abandoned }).await?,
        Err(BodyError::TooLarge) => return Err(HttpError::BodyTooLarge),
        Err(BodyError::Interrupted(_)) => api.interrupted_body(),
    };
    let response =
        Response::builder().header(header::CONTENT_TYPE, PROTOBUF).header(ANSWERED_VERSION, version).extension(route);
    let body = match answer {
        Answer::Whole(answer) => Body::from(answer),
        Answer::Pages(pages) => body::streamed(pages, gate, client),
        Answer::NotHeld(refused) => return Err(HttpError::NotHeld(refused)),
        Answer::Busy => return Err(HttpError::Busy),
    };
    Ok(response.body(body).expect("constant headers are valid"))
}

/// Keeps no reference to the API once the stream has started, so that open streams do not delay the host's exit.
async fn subscribe(
    api: &Api,
    stream: StreamTarget,
    request: Request,
    metrics: &Metrics,
) -> Result<Response, HttpError> {
    let body = read(request).await.map_err(|error| match error {
        BodyError::TooLarge => HttpError::BodyTooLarge,
        BodyError::Interrupted(error) => HttpError::NoEventStream(Box::new(error)),
    })?;
    let route = stream.name().to_owned();
    let events = api.subscribe(stream, &body).map_err(|reason| HttpError::NoEventStream(Box::new(reason)))?;
    Ok(stream::response(events, route, metrics.clone()))
}

/// Why a body was not read.
enum BodyError {
    TooLarge,
    Interrupted(axum::Error),
}

/// Reads a body. One whose announced size is too large is rejected before its first byte.
async fn read(request: Request) -> Result<Bytes, BodyError> {
    let body = request.into_body();
    if body.size_hint().lower() > LARGEST_BODY as u64 {
        return Err(BodyError::TooLarge);
    }
    axum::body::to_bytes(body, LARGEST_BODY).await.map_err(|error| {
        let too_large = error.source().is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large { BodyError::TooLarge } else { BodyError::Interrupted(error) }
    })
}

/// The method of a request, and the version that has it.
fn find(api: &Api, request: &Request) -> Result<(ApiVersion, CallTarget), HttpError> {
    let VersionedPath { version, path } = VersionedPath::of(request)?;
    if let Some(version) = version.filter(|version| !api.served().contains(version)) {
        return Err(HttpError::NotAcceptable { version, served: api.served().to_vec() });
    }
    let target = |verb: Verb| api.find(version, verb, path);
    let verb = Verb::ALL.into_iter().find(|verb| verb.name() == request.method().as_str());
    verb.and_then(target).ok_or_else(|| {
        let allowed: Vec<_> = Verb::ALL.into_iter().filter(|verb| target(*verb).is_some()).map(Verb::name).collect();
        if allowed.is_empty() { HttpError::NotFound } else { HttpError::WrongVerb { allowed } }
    })
}

/// Runs the call in a task of its own: a client that disconnects does not cancel a change half way.
async fn run_detached(api: Arc<Api>, target: CallTarget, request: api::Request) -> Result<Answer, HttpError> {
    let call = async move { api.call(target, request).await };
    tokio::spawn(call.in_current_span()).await.map_err(HttpError::Panicked)
}
