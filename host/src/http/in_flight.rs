//! Counts requests in flight, from their head to the last byte of their answer. Event streams are
//! not counted: they do not end by themselves, and a drain does not wait for them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

#[derive(Debug, Clone, Default)]
pub(super) struct InFlight(Arc<AtomicUsize>);

/// A request in flight; dropping it ends the count.
struct InFlightRequest(Arc<AtomicUsize>);

impl InFlight {
    /// The routes of `router`, with their requests counted.
    pub(super) fn counting(&self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self.clone(), count))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn begin(&self) -> InFlightRequest {
        self.0.fetch_add(1, Ordering::SeqCst);
        InFlightRequest(Arc::clone(&self.0))
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn count(State(in_flight): State<InFlight>, request: Request, next: Next) -> Response {
    let counted = in_flight.begin();
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    guarded(response, counted)
}

/// The response, whose body drops `guard` when it has been sent or abandoned.
pub(super) fn guarded<T: Send + Unpin + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| Body::new(GuardedBody { body, guard }))
}

/// A body that drops its guard when it has been sent or abandoned.
pub(super) struct GuardedBody<T> {
    pub(super) body: Body,
    #[expect(dead_code, reason = "held for its destructor")]
    pub(super) guard: T,
}

impl<T: Send + Unpin> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
