//! The debug server: changes the log level. Supports what of Go's debug server applies here and
//! answers the rest with an explanation. Plain HTTP, for this machine only.

use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;

use super::Port;
use crate::config::LogLevel;
use crate::logs::LevelHandle;

const NO_PROFILES: &str =
    "this host is no Go program and has no such profile; use `perf record -p PID` and the like";

/// Serves the debug endpoints.
///
/// # Errors
/// As of [`super::serve_clients`].
pub async fn serve_debug(port: Port, level: LevelHandle) -> io::Result<()> {
    let router = Router::new()
        .route("/log-level", any(set_level))
        .route("/block-profile-rate", any(rate))
        .route("/mutex-profile-fraction", any(rate))
        .fallback(|| async { (StatusCode::NOT_FOUND, NO_PROFILES) })
        .with_state(level);
    super::serve(port, router).await
}

/// An unknown level is ignored, and is not an error.
async fn set_level(State(level): State<LevelHandle>, asked: String) -> StatusCode {
    if let Some(asked) = parse(&asked) {
        level.set(asked);
        tracing::info!(name: "log-level.changed", ?asked, "the level of the log was changed");
    }
    StatusCode::OK
}

/// Parses a level by name, first letter or number, in any case.
fn parse(asked: &str) -> Option<LogLevel> {
    match asked.trim().to_ascii_lowercase().as_str() {
        "debug" | "d" | "0" => Some(LogLevel::Debug),
        "info" | "i" | "1" => Some(LogLevel::Info),
        "error" | "e" | "2" => Some(LogLevel::Error),
        "fatal" | "f" | "3" => Some(LogLevel::Fatal),
        _ => None,
    }
}

/// Accepts the rate of a profile that does not exist here.
async fn rate(asked: String) -> (StatusCode, &'static str) {
    match asked.trim().parse::<i64>() {
        Ok(_) => (StatusCode::OK, ""),
        Err(_) => (StatusCode::BAD_REQUEST, "the body has to be a whole number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_parsed_by_name_letter_and_number() {
        for (texts, level) in [
            (["debug", "DEBUG", "d", "0"], LogLevel::Debug),
            (["info", "Info", "I", "1\n"], LogLevel::Info),
            (["error", "ERROR", "e", "2"], LogLevel::Error),
            (["fatal", "FATAL", "F", "3"], LogLevel::Fatal),
        ] {
            assert!(
                texts.iter().all(|text| parse(text) == Some(level)),
                "{texts:?}"
            );
        }
        assert!(
            ["", "warn", "4", "-1", "debugging"]
                .iter()
                .all(|text| parse(text).is_none())
        );
    }
}
