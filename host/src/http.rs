//! The API over HTTP: the gate that is shut until there is something to serve, which version a
//! request is in, and answers as bodies. Owns status codes and headers; knows no resource.

mod access;
mod body;
mod debug;
mod door;
mod gate;
mod in_flight;
mod refusal;
mod request;
mod stream;
mod tls;

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tracing::Instrument;

pub use access::{AccessLog, AccessLogError, logged};
pub use debug::serve_debug;
pub use door::serve_clients;
pub use gate::Gate;
pub use tls::{Certificates, TlsError};

use crate::api::{self, Answer, Api, Stream, Target};
use crate::metrics::{self, Measures, Metrics};
use crate::model::TraceId;
use in_flight::Held;
use refusal::Refusal;
use request::{Asked, Trace};

/// The greatest body that is read. Diego's own requests stay far below it.
pub const LARGEST_BODY: usize = 64 * 1024 * 1024;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const TRACE_ID: &str = "x-vcap-request-id";
/// What requests that reach no method are counted as.
const NO_METHOD: &str = "none";

/// Answers until `stop`, and then finishes what has begun.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// 200 to everything: that the process lives, be it the master or not.
pub async fn serve_health(listener: TcpListener) -> io::Result<()> {
    axum::serve(listener, Router::new().fallback(|| async { StatusCode::OK })).await
}

/// Metrics at `/metrics`, for a listener of their own: what they tell is not for the API's clients.
pub async fn serve_metrics(listener: TcpListener, metrics: Metrics, gate: Gate) -> io::Result<()> {
    let text = move || async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text(gate.left_out())) };
    axum::serve(listener, Router::new().route("/metrics", get(text))).await
}

/// Everything is one handler: which paths there are depends on the translators behind the gate.
pub fn router(gate: Gate, metrics: Metrics) -> Router {
    Router::new().fallback(handle).with_state((gate, metrics))
}

/// The method that a response answers.
#[derive(Clone)]
struct Route(Target);

/// An answer on its way. Dropped, it is with its client, or the client is gone: to Diego that is a request's end.
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
    let held = match response.extensions().get::<Route>() {
        // Counted when it ends.
        Some(Route(Target::Stream(_))) => return response,
        Some(Route(target)) => {
            metrics.answered(target.name(), status, spent);
            Answering { route: target.diego_name(), measures: metrics.measures().clone(), began }
        }
        None => {
            metrics.answered(NO_METHOD, status, spent);
            return response;
        }
    };
    response.map(|body| Body::new(Held { body, held }))
}

async fn respond(gate: Gate, request: Request, trace_id: TraceId, metrics: &Metrics) -> Result<Response, Refusal> {
    let api = gate.api().map_err(Refusal::NotServing)?;
    let target = find(&api, &request)?;
    let route = Route(target.clone());
    if let Target::Stream(stream) = target {
        let mut response = listen(&api, stream, request, metrics).await?;
        response.extensions_mut().insert(route);
        return Ok(response);
    }
    let answer = match read(request).await {
        Ok(body) => run_to_the_end(api, target, api::Request { body, trace_id }).await?,
        Err(Unread::TooLarge) => return Err(Refusal::BodyTooLarge),
        Err(Unread::BrokenOff(_)) => api.broken_off(),
    };
    let response = Response::builder().header(header::CONTENT_TYPE, PROTOBUF).extension(route);
    let body = match answer {
        Answer::Whole(answer) => Body::from(answer),
        Answer::Pages(pages) => body::streamed(pages, gate),
        Answer::NotHeld(refused) => return Err(Refusal::NotHeld(refused)),
    };
    Ok(response.body(body).expect("constant headers are valid"))
}

/// Holds nothing of the API once the stream has begun: those who listen do not keep this host from ending.
async fn listen(api: &Api, stream: Stream, request: Request, metrics: &Metrics) -> Result<Response, Refusal> {
    let body = read(request).await.map_err(|unread| match unread {
        Unread::TooLarge => Refusal::BodyTooLarge,
        Unread::BrokenOff(error) => Refusal::NotListening(Box::new(error)),
    })?;
    let events = api.subscribe(stream, &body).map_err(|reason| Refusal::NotListening(Box::new(reason)))?;
    Ok(stream::response(events, stream.name(), metrics.clone()))
}

/// Why there is no body.
enum Unread {
    TooLarge,
    BrokenOff(axum::Error),
}

/// A body that says beforehand that it is too large is not begun with.
async fn read(request: Request) -> Result<Bytes, Unread> {
    let body = request.into_body();
    if body.size_hint().lower() > LARGEST_BODY as u64 {
        return Err(Unread::TooLarge);
    }
    axum::body::to_bytes(body, LARGEST_BODY).await.map_err(|error| {
        let too_large = error.source().is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large { Unread::TooLarge } else { Unread::BrokenOff(error) }
    })
}

fn find(api: &Api, request: &Request) -> Result<Target, Refusal> {
    let Asked { version, path } = Asked::of(request)?;
    let version = version.unwrap_or(api.newest());
    if !api.served().contains(&version) {
        return Err(Refusal::NotAcceptable { version, served: api.served().to_vec() });
    }
    let target = api.find(version, path).ok_or(Refusal::NotFound)?;
    if request.method() == Method::POST { Ok(target) } else { Err(Refusal::WrongVerb) }
}

/// A client that goes away does not stop what it has begun: changes are made whole.
async fn run_to_the_end(api: Arc<Api>, target: Target, request: api::Request) -> Result<Answer, Refusal> {
    let call = async move { api.call(target, request).await };
    tokio::spawn(call.in_current_span()).await.map_err(Refusal::Panicked)
}
