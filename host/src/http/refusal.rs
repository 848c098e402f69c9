//! Requests that reach no method, and how each is told so.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::LARGEST_BODY;
use crate::api::{NotHeld, Window};
use crate::modules::translate::ApiVersion;
use crate::progress::Snapshot;

/// Said while nothing can be estimated.
const RETRY_AFTER_S: u64 = 5;
/// A client that waits longer than this would notice too late that the host is ready.
const LONGEST_RETRY_AFTER_S: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the host is not serving yet")]
    NotServing(Box<Snapshot>),
    #[error("404 page not found")]
    NotFound,
    #[error("Method Not Allowed")]
    WrongVerb,
    #[error("API version {version} is not served; use one from {} to {}", .window.oldest, .window.newest)]
    NotAcceptable { version: ApiVersion, window: Window },
    #[error(transparent)]
    NotHeld(NotHeld),
    #[error("{0:?} is not an API version; write it as major.minor, such as 1.1")]
    MalformedVersion(String),
    #[error("the body is larger than the {LARGEST_BODY} bytes that this host reads")]
    BodyTooLarge,
    #[error("the events cannot be listened to")]
    NotListening(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the request ended unexpectedly")]
    Panicked(#[source] tokio::task::JoinError),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = |status: StatusCode| (status, self.to_string()).into_response();
        match &self {
            Self::NotServing(progress) => not_serving(progress),
            Self::NotFound => text(StatusCode::NOT_FOUND),
            Self::WrongVerb => with(text(StatusCode::METHOD_NOT_ALLOWED), header::ALLOW.as_str(), "POST"),
            Self::NotAcceptable { version, window } => {
                let supported = json!({ "min": window.oldest.to_string(), "max": window.newest.to_string() });
                let body =
                    json!({ "error": self.to_string(), "requested": version.to_string(), "supported": supported });
                let response = json_body(StatusCode::NOT_ACCEPTABLE, &body);
                let response = with(response, "x-diego-api-min-version", &window.oldest.to_string());
                with(response, "x-diego-api-max-version", &window.newest.to_string())
            }
            Self::NotHeld(_) => json_body(StatusCode::NOT_ACCEPTABLE, &json!({ "error": self.to_string() })),
            Self::MalformedVersion(_) => json_body(StatusCode::BAD_REQUEST, &json!({ "error": self.to_string() })),
            Self::BodyTooLarge => text(StatusCode::PAYLOAD_TOO_LARGE),
            // Diego's says nothing either.
            Self::NotListening(reason) => {
                tracing::info!(%reason, "a stream of events was not begun");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Panicked(error) => {
                tracing::error!(%error, "a request ended unexpectedly");
                text(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

fn not_serving(progress: &Snapshot) -> Response {
    let body = serde_json::to_value(progress).expect("a snapshot is plain data");
    let response = json_body(StatusCode::SERVICE_UNAVAILABLE, &body);
    with(response, header::RETRY_AFTER.as_str(), &retry_after_s(progress).to_string())
}

fn retry_after_s(progress: &Snapshot) -> u64 {
    let estimate = progress.eta_seconds.map(|seconds| seconds.ceil() as u64);
    estimate.map_or(RETRY_AFTER_S, |seconds| seconds.clamp(1, LONGEST_RETRY_AFTER_S))
}

fn json_body(status: StatusCode, body: &serde_json::Value) -> Response {
    with((status, body.to_string()).into_response(), header::CONTENT_TYPE.as_str(), "application/json")
}

fn with(mut response: Response, name: &'static str, value: &str) -> Response {
    let value = HeaderValue::from_str(value).expect("versions, numbers and constants are header text");
    response.headers_mut().insert(name, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_estimate_within_reason() {
        let progress = crate::progress::Progress::default();
        let mut snapshot = progress.snapshot();
        assert_eq!(retry_after_s(&snapshot), 5);
        for (eta, wait) in [(0.0, 1), (0.2, 1), (7.1, 8), (3600.0, 60)] {
            snapshot.eta_seconds = Some(eta);
            assert_eq!(retry_after_s(&snapshot), wait, "{eta}");
        }
    }
}
