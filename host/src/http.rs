//! The API over HTTP: the gate that answers 503 until the host serves, the version of a request,
//! and answers as bodies. Decides status codes and headers; knows no resource.

mod access;
mod answers;
mod bodies;
mod body;
mod connections;
mod debug;
mod gate;
mod health;
mod in_flight;
mod listener;
mod peer;
mod refusal;
mod request;
mod stream;
mod timed;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use access::{AccessLog, AccessLogError, logged};
pub use debug::serve_debug;
pub use gate::Gate;
pub use health::{Health, serve_health};
pub use listener::{Port, serve_clients};

use bbs_model::TraceId;
use bbs_modules::translate::{ApiVersion, Verb};

use crate::api::{self, Answer, Api, CallTarget, NativeVersion, StreamTarget};
use crate::metrics::{Exposition, Measures, Metrics};
use answers::Answers;
use bodies::{BodyError, Memory};
use connections::{ConnectionHandle, OpenStream};
use in_flight::guarded;
use peer::Peer;
use refusal::HttpError;
use request::{Trace, VersionedPath};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const TRACE_ID: &str = "x-vcap-request-id";
/// Longest trace id, in bytes; a longer one counts as absent. The queues of subscribers have a copy
/// for each change of a call, so that a long one would fill them with the removal of a large LRP.
/// Cloud Foundry's router sends a UUID.
const LONGEST_TRACE_ID: usize = 256;
/// Response header: the version of the API that answered.
const ANSWERED_VERSION: HeaderName = HeaderName::from_static(request::VERSION_HEADER);
/// The method name in metrics for requests that reach no method.
const NO_METHOD: &str = "none";

/// Serves metrics at `/metrics`, on a port of its own: they are not for the API's clients.
///
/// # Errors
/// As of [`serve_clients`].
pub async fn serve_metrics(port: Port, metrics: Metrics, gate: Gate) -> io::Result<()> {
    let text = move |headers: HeaderMap| async move {
        let exposition = Exposition::accepted(
            headers
                .get(header::ACCEPT)
                .and_then(|accept| accept.to_str().ok()),
        );
        (
            [(header::CONTENT_TYPE, exposition.media_type())],
            metrics.text(gate.left_out(), exposition),
        )
    };
    serve(port, Router::new().route("/metrics", get(text))).await
}

/// Serves plain HTTP as long as the process runs.
async fn serve(port: Port, router: Router) -> io::Result<()> {
    serve_clients(port, None, router, std::future::pending()).await
}

/// One handler for every path, because the set of paths depends on the translators behind the gate.
/// For [`serve_clients`], which adds the connection to each request.
pub fn router(gate: Gate, metrics: Metrics) -> Router {
    Router::new().fallback(handle).with_state(ApiState {
        gate,
        metrics,
        memory: Memory::default(),
        answers: Answers::default(),
    })
}

#[derive(Clone)]
struct ApiState {
    gate: Gate,
    metrics: Metrics,
    memory: Memory,
    answers: Answers,
}

/// Response extension: the method that a response answers.
#[derive(Clone)]
struct AnsweredMethod(CallTarget);

/// Measures a request until its body is sent or its client disconnects, which is what Diego's
/// latency covers.
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

async fn handle(State(state): State<ApiState>, request: Request) -> Response {
    let metrics = state.metrics.clone();
    let began = Instant::now();
    let trace_id = request
        .headers()
        .get(TRACE_ID)
        .and_then(|id| id.to_str().ok())
        .filter(|id| id.len() <= LONGEST_TRACE_ID)
        .unwrap_or_default()
        .to_owned();
    let trace = Trace::of(&trace_id);
    let id = trace.as_ref().map(|trace| &*trace.id);
    let span_id = trace.as_ref().map(|trace| &*trace.span_id);
    let span = tracing::info_span!(
        "request",
        path = request.uri().path(),
        trace_id = id,
        span_id
    );
    let response = respond(state, request, TraceId(trace_id))
        .instrument(span)
        .await;
    let response = response.unwrap_or_else(IntoResponse::into_response);
    let status = response.status().as_u16();
    let spent = began.elapsed();
    let guard = match response.extensions().get::<AnsweredMethod>() {
        // A stream is counted when it ends.
        Some(AnsweredMethod(CallTarget::Stream(_))) => return response,
        Some(AnsweredMethod(target)) => {
            metrics.answered(target.name(), status, spent);
            Answering {
                route: target.diego_name(),
                measures: metrics.measures().clone(),
                began,
            }
        }
        None => {
            metrics.answered(NO_METHOD, status, spent);
            return response;
        }
    };
    guarded(response, guard)
}

async fn respond(
    state: ApiState,
    request: Request,
    trace_id: TraceId,
) -> Result<Response, HttpError> {
    let ApiState {
        gate,
        metrics,
        memory,
        answers,
    } = state;
    let arrived = tokio::time::Instant::now();
    let api = gate.api().await.map_err(HttpError::NotServing);
    let held = arrived.elapsed();
    let FoundMethod {
        api,
        version,
        target,
    } = match api.and_then(|api| find(api, &request)) {
        Ok(found) => found,
        Err(refusal) => return Err(refused(&memory, request, refusal).await),
    };
    count_older_version(&metrics, &request, version, &target);
    let route = AnsweredMethod(target.clone());
    let version = HeaderValue::try_from(version.to_string()).expect("a version is header text");
    let connection = request.extensions().get::<ConnectionHandle>().cloned();
    let connection = connection.expect("it is added to each request");
    let body = memory
        .read(request.into_body(), target.largest_body())
        .await;
    // The time in which the client sends the body is its own.
    let waits_until = tokio::time::Instant::now() + api::LONGEST_WAIT.saturating_sub(held);
    if let CallTarget::Stream(stream) = target {
        let open = connection.begin_stream().ok_or(HttpError::TooManyStreams)?;
        let mut response = subscribe(&api, stream, body, &metrics, open)?;
        response.extensions_mut().insert(route);
        response.headers_mut().insert(ANSWERED_VERSION, version);
        return Ok(response);
    }
    let abandoned = CancellationToken::new();
    let client = abandoned.clone().drop_guard();
    let answer = match body {
        Ok(body) => {
            let counted = memory.for_call(&body, waits_until).await?;
            let request = api::Request {
                body,
                trace_id,
                abandoned,
                waits_until,
            };
            run_detached(api, target, request, counted).await?
        }
        Err(BodyError::Interrupted(_)) => api.interrupted_body(&target),
        Err(rejected) => return Err(rejected.into()),
    };
    let response = Response::builder()
        .header(header::CONTENT_TYPE, PROTOBUF)
        .header(ANSWERED_VERSION, version)
        .extension(route);
    let body = match answer {
        Answer::Whole(answer) => Body::from(answers.counted(answer, &connection.connection)),
        Answer::Pages(pages) => body::streamed(pages, gate, client, answers, connection.connection),
        Answer::NotHeld(refused) => return Err(HttpError::NotHeld(refused)),
        Answer::Unavailable(reason) => return Err(HttpError::Unavailable(reason)),
        Answer::Busy => return Err(HttpError::Busy),
    };
    Ok(response.body(body).expect("constant headers are valid"))
}

/// Counts a call of a version that translators serve.
fn count_older_version(
    metrics: &Metrics,
    request: &Request,
    version: ApiVersion,
    target: &CallTarget,
) {
    if NativeVersion::of(version).is_some() {
        return;
    }
    let peer = request.extensions().get::<Peer>();
    let client = peer.map(Peer::common_name).unwrap_or_default();
    metrics.called_older_version(&version.to_string(), target.name(), client);
}

/// Keeps no reference to the API once the stream has started, so that open streams do not delay the
/// host's exit.
fn subscribe(
    api: &Api,
    stream: StreamTarget,
    body: Result<Bytes, BodyError>,
    metrics: &Metrics,
    open: OpenStream,
) -> Result<Response, HttpError> {
    let body = body.map_err(|error| match error {
        BodyError::Interrupted(error) => HttpError::NoEventStream(Box::new(error)),
        rejected => rejected.into(),
    })?;
    let route = stream.name().to_owned();
    let events = api
        .subscribe(stream, &body)
        .map_err(|reason| HttpError::NoEventStream(Box::new(reason)))?;
    Ok(stream::response(events, route, metrics.clone(), open))
}

/// The method of a request.
struct FoundMethod {
    api: Arc<Api>,
    /// The version that has it.
    version: ApiVersion,
    target: CallTarget,
}

fn find(api: Arc<Api>, request: &Request) -> Result<FoundMethod, HttpError> {
    let VersionedPath { version, path } = VersionedPath::of(request)?;
    if let Some(version) = version.filter(|version| !api.served().contains(version)) {
        return Err(HttpError::NotAcceptable {
            version,
            served: api.served().to_vec(),
        });
    }
    let target = |verb: Verb| api.find(version, verb, path);
    let verb = Verb::ALL
        .into_iter()
        .find(|verb| verb.name() == request.method().as_str());
    if let Some((version, target)) = verb.and_then(target) {
        return Ok(FoundMethod {
            api,
            version,
            target,
        });
    }
    let allowed: Vec<_> = Verb::ALL
        .into_iter()
        .filter(|verb| target(*verb).is_some())
        .map(Verb::name)
        .collect();
    Err(if allowed.is_empty() {
        HttpError::NotFound
    } else {
        HttpError::WrongVerb { allowed }
    })
}

/// Reads the body of a request that is refused, so that the client reads the answer.
async fn refused(memory: &Memory, request: Request, refusal: HttpError) -> HttpError {
    // With `Expect`, a client sends no body before the answer.
    if !request.headers().contains_key(header::EXPECT) {
        memory.discard_refused(request.into_body()).await;
    }
    refusal
}

/// Runs the call in a task of its own: a client that disconnects does not cancel a change half way.
/// `counted` is the memory of the call.
async fn run_detached(
    api: Arc<Api>,
    target: CallTarget,
    request: api::Request,
    counted: OwnedSemaphorePermit,
) -> Result<Answer, HttpError> {
    let call = async move {
        let answer = api.call(target, request).await;
        drop(counted);
        answer
    };
    tokio::spawn(call.in_current_span())
        .await
        .map_err(HttpError::Panicked)
}
