//! Answers that are no message: status, headers and body of each error.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bbs_modules::translate::ApiVersion;
use bbs_work::joined;
use bbs_work::progress::{SERVING, STOPPED, Snapshot};
use serde_json::json;

use super::bodies::{BUSY_RETRY_AFTER_S, BodyError};

/// `Retry-After` in seconds while there is no estimate.
const RETRY_AFTER_S: u64 = 5;
/// Upper bound of `Retry-After` in seconds, so that a waiting client notices soon that the host is
/// ready.
const MAX_RETRY_AFTER_S: u64 = 60;

/// Why a request is answered with a status of HTTP alone.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("the host is not serving yet")]
    NotServing(Box<Snapshot>),
    #[error("404 page not found")]
    NotFound,
    #[error("Method Not Allowed")]
    WrongVerb { allowed: Vec<&'static str> },
    #[error("API version {version} is not served; use one of {}", joined(.served))]
    NotAcceptable {
        version: ApiVersion,
        served: Vec<ApiVersion>,
    },
    #[error("{0}")]
    NotHeld(String),
    #[error("{0}")]
    Unavailable(String),
    #[error(
        "this host runs as many calls of older API versions, or reads or sends as many lists, as it can at once; send the \
         request again in {RETRY_AFTER_S} s"
    )]
    Busy,
    #[error(
        "half of the connections that this port may have are event streams; end some of them, or raise the host's limit of \
         open files"
    )]
    TooManyStreams,
    #[error(
        "{0:?} is not an API version; write it as major.minor or major.minor.patch, such as 1.1"
    )]
    MalformedVersion(String),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the event stream cannot be started")]
    NoEventStream(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the request ended unexpectedly")]
    Panicked(#[source] tokio::task::JoinError),
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let text = |status: StatusCode| (status, self.to_string()).into_response();
        match &self {
            Self::NotServing(progress) => not_serving(progress),
            Self::NotFound => text(StatusCode::NOT_FOUND),
            Self::WrongVerb { allowed } => with(
                text(StatusCode::METHOD_NOT_ALLOWED),
                header::ALLOW.as_str(),
                &allowed.join(", "),
            ),
            Self::NotAcceptable { version, served } => {
                let text = |version: Option<&ApiVersion>| {
                    version.map(ToString::to_string).unwrap_or_default()
                };
                let newest = served.iter().rfind(|version| version.side.is_none());
                let oldest = text(served.first());
                let newest = text(newest);
                let body = json!({
                    "error": self.to_string(),
                    "requested": version.to_string(),
                    "supported": { "min": oldest, "max": newest },
                });
                let response = json_body(StatusCode::NOT_ACCEPTABLE, &body);
                let response = with(response, "x-diego-api-min-version", &oldest);
                with(response, "x-diego-api-max-version", &newest)
            }
            Self::NotHeld(_) => self.json(StatusCode::NOT_ACCEPTABLE),
            Self::Busy | Self::TooManyStreams => self.busy(RETRY_AFTER_S),
            Self::MalformedVersion(_) => self.json(StatusCode::BAD_REQUEST),
            // The rest of the body is not read, so the connection cannot be used again.
            Self::Body(BodyError::TooLarge { .. }) => closing(text(StatusCode::PAYLOAD_TOO_LARGE)),
            Self::Body(BodyError::Slow) => closing(text(StatusCode::REQUEST_TIMEOUT)),
            Self::Body(BodyError::Busy) | Self::Unavailable(_) => self.busy(BUSY_RETRY_AFTER_S),
            Self::Body(BodyError::Interrupted(_)) => text(StatusCode::BAD_REQUEST),
            // The body is empty, as Diego's is.
            Self::NoEventStream(reason) => {
                tracing::info!(%reason, "an event stream was not started");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Panicked(error) => {
                tracing::error!(%error, "a request ended unexpectedly");
                text(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

impl HttpError {
    /// The error as a JSON object.
    fn json(&self, status: StatusCode) -> Response {
        json_body(status, &json!({ "error": self.to_string() }))
    }

    fn busy(&self, retry_after_s: u64) -> Response {
        retry_after(self.json(StatusCode::SERVICE_UNAVAILABLE), retry_after_s)
    }
}

fn closing(response: Response) -> Response {
    with(response, header::CONNECTION.as_str(), "close")
}

fn not_serving(progress: &Snapshot) -> Response {
    let retry_after_s = retry_after_s(progress);
    let mut body = serde_json::to_value(progress).expect("a snapshot is plain data");
    body["message"] = sentence(progress, retry_after_s).into();
    let response = json_body(StatusCode::SERVICE_UNAVAILABLE, &body);
    retry_after(response, retry_after_s)
}

fn retry_after(response: Response, seconds: u64) -> Response {
    with(response, header::RETRY_AFTER.as_str(), &seconds.to_string())
}

/// The progress as a sentence.
fn sentence(progress: &Snapshot, retry_after_s: u64) -> String {
    let Snapshot {
        phase,
        detail,
        done,
        total,
        waiting,
        counted,
        ..
    } = progress;
    let doing = match phase.as_str() {
        "" => "it is starting".to_owned(),
        // The gate was open before and is closed again.
        SERVING | STOPPED => "it is stopping".to_owned(),
        phase if detail.is_empty() => format!("its database is being prepared ({phase})"),
        phase => format!("its database is being prepared ({phase}: {detail})"),
    };
    let noun = counted.map_or_else(String::new, |counted| format!("{counted} "));
    let count = total.map(|total| format!(", {done} of {total} {noun}done"));
    let left = progress
        .eta_seconds
        .filter(|_| *done > 0)
        .map(|seconds| format!(", about {seconds:.0} s left"));
    let waits = waiting.map(|waiting| format!(", {}", waiting.reason));
    let rest = [count, left, waits]
        .into_iter()
        .flatten()
        .collect::<String>();
    format!(
        "This host does not serve requests now: {doing}{rest}. Send the request again in {retry_after_s} s."
    )
}

fn retry_after_s(progress: &Snapshot) -> u64 {
    let estimate = progress.eta_seconds.map(|seconds| seconds.ceil() as u64);
    estimate.map_or(RETRY_AFTER_S, |seconds| seconds.clamp(1, MAX_RETRY_AFTER_S))
}

fn json_body(status: StatusCode, body: &serde_json::Value) -> Response {
    with(
        (status, body.to_string()).into_response(),
        header::CONTENT_TYPE.as_str(),
        "application/json",
    )
}

fn with(mut response: Response, name: &'static str, value: &str) -> Response {
    let value =
        HeaderValue::from_str(value).expect("versions, numbers and constants are header text");
    response.headers_mut().insert(name, value);
    response
}

#[cfg(test)]
mod tests {
    use bbs_work::progress::{Counted, Progress, Wait};

    use super::*;

    #[test]
    fn body_while_not_serving_has_a_sentence_for_people() {
        let progress = Progress::default();
        let shown = || sentence(&progress.snapshot(), 5);
        let begin = "This host does not serve requests now: ";
        let end = ". Send the request again in 5 s.";
        assert_eq!(shown(), format!("{begin}it is starting{end}"));
        progress.enter("clean-up", "", None);
        assert_eq!(
            shown(),
            format!("{begin}its database is being prepared (clean-up){end}")
        );
        progress.enter("copy", "up 1 to 2", Some(Counted::Units.total(10)));
        let _paused = progress.wait(Wait::Paused);
        progress.advance(4);
        assert_eq!(
            shown(),
            format!(
                "{begin}its database is being prepared (copy: up 1 to 2), 4 of 10 units done, paused{end}"
            )
        );
        let estimated = Snapshot {
            eta_seconds: Some(90.2),
            waiting: None,
            ..progress.snapshot()
        };
        let text = sentence(&estimated, 60);
        assert!(
            text.contains("4 of 10 units done, about 90 s left. Send the request again in 60 s."),
            "{text}"
        );
        progress.enter(SERVING, "", None);
        assert!(shown().contains("it is stopping"), "{}", shown());
    }

    #[test]
    fn retry_after_follows_the_estimate_within_bounds() {
        let progress = bbs_work::progress::Progress::default();
        let mut snapshot = progress.snapshot();
        assert_eq!(retry_after_s(&snapshot), 5);
        for (eta, wait) in [(0.0, 1), (0.2, 1), (7.1, 8), (3600.0, 60)] {
            snapshot.eta_seconds = Some(eta);
            assert_eq!(retry_after_s(&snapshot), wait, "{eta}");
        }
    }
}
