//! Counts requests in flight, from their head to the last byte of their answer. Event streams are
//! not counted: they do not end by themselves, and a drain does not wait for them.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::Response;
use http_body_util::BodyExt;
use tokio_util::task::TaskTracker;

/// The routes of `router`, with their requests counted in `in_flight`.
pub(super) fn counted(router: Router, in_flight: TaskTracker) -> Router {
    router.layer(middleware::from_fn_with_state(in_flight, count))
}

async fn count(State(in_flight): State<TaskTracker>, request: Request, next: Next) -> Response {
    let counted = in_flight.token();
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
