//! Counts requests in flight, from their head to the last byte of their answer. Event streams are
//! not counted: they do not end by themselves, and a drain does not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::Response;
use http_body_util::BodyExt;

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
pub(super) fn guarded<T: Send + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            // Held by the body for its destructor.
            let _held = &guard;
            error
        }))
    })
}
