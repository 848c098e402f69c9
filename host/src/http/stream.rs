//! Streams of events as responses that go on: the head at once, then a chunk for each event.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::unfold;

use crate::api::EventStream;
use crate::metrics::Metrics;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const NOT_KEPT: HeaderValue = HeaderValue::from_static("no-cache, no-store, must-revalidate");
const KEEP_ALIVE: HeaderValue = HeaderValue::from_static("keep-alive");

/// A stream on its way. However it ends, it is counted as one request then: it has no latency.
struct Counted {
    events: EventStream,
    route: &'static str,
    metrics: Metrics,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.stream_ended(self.route);
    }
}

pub(super) fn response(events: EventStream, route: &'static str, metrics: Metrics) -> Response {
    let next = |mut stream: Counted| async {
        let event = stream.events.next().await?;
        Some((Ok::<Bytes, Infallible>(event), stream))
    };
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, EVENT_STREAM)
        .header(header::CACHE_CONTROL, NOT_KEPT)
        .header(header::CONNECTION, KEEP_ALIVE)
        .body(Body::from_stream(unfold(Counted { events, route, metrics }, next)))
        .expect("constant headers are valid")
}
