//! Event streams as chunked responses: the head at once, then a chunk for each event, two for a
//! large one.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::unfold;
use tokio::sync::watch;

use super::connections::{Connection, OpenStream};
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
    open: OpenStream,
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.metrics.stream_ended(&self.route);
    }
}

/// `open` is the stream's share of the connections. A subscriber that is too slow is disconnected
/// at once, since its last events may never be taken.
pub(super) fn response(
    events: EventStream,
    route: String,
    metrics: Metrics,
    open: OpenStream,
) -> Response {
    let connection = Arc::clone(&open.connection);
    tokio::spawn(close_when_cut(events.cut(), connection));
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, EVENT_STREAM)
        .header(header::CACHE_CONTROL, NO_CACHE)
        .header(header::CONNECTION, KEEP_ALIVE)
        .body(Body::from_stream(unfold(
            CountedStream {
                events,
                route,
                metrics,
                open,
            },
            |mut stream| async {
                let event = stream.events.next().await?;
                Some((Ok::<Bytes, Infallible>(event), stream))
            },
        )))
        .expect("constant headers are valid")
}

async fn close_when_cut(mut cut: watch::Receiver<bool>, connection: Arc<Connection>) {
    // An error means that the subscription has ended.
    if cut.wait_for(|is_cut| *is_cut).await.is_ok() {
        tracing::info!(name: "event_stream_cut", "a subscriber that reads too slowly was disconnected");
        connection.close();
    }
}
