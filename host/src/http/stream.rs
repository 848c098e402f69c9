//! Event streams as chunked responses: the head at once, then a chunk for each event.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::unfold;

use super::connections::OpenStream;
use crate::api::EventStream;
use crate::metrics::Metrics;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, no-store, must-revalidate");
const KEEP_ALIVE: HeaderValue = HeaderValue::from_static("keep-alive");

/// A stream in flight. Its end, for whatever reason, counts as one request without latency.
struct CountedStream {
    events: EventStream,
    route: String,
    metrics: Metrics,
    #[expect(dead_code, reason = "held for its destructor")]
    open: Option<OpenStream>,
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.metrics.stream_ended(&self.route);
    }
}

/// `open` is the stream's share of the connections.
pub(super) fn response(events: EventStream, route: String, metrics: Metrics, open: Option<OpenStream>) -> Response {
    let next = |mut stream: CountedStream| async {
        let event = stream.events.next().await?;
        Some((Ok::<Bytes, Infallible>(event), stream))
    };
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, EVENT_STREAM)
        .header(header::CACHE_CONTROL, NO_CACHE)
        .header(header::CONNECTION, KEEP_ALIVE)
        .body(Body::from_stream(unfold(CountedStream { events, route, metrics, open }, next)))
        .expect("constant headers are valid")
}
