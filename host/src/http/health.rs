//! The health port: 503 while the host prepares its start, and 200 from then on, as a master or as
//! a standby. Decides no health; `startup` reports it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::Port;

/// Whether the host has passed what can fail for the reason of its configuration. Clones share the
/// state.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<AtomicBool>);

impl Health {
    /// Answers 200 from now on.
    pub fn report_healthy(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn answer(&self) -> impl IntoResponse + use<> {
        if self.0.load(Ordering::Relaxed) {
            (StatusCode::OK, "")
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the host starts: it has not reached its database and tried its keys yet\n",
            )
        }
    }
}

/// Answers every request with the health of the host, independent of mastership.
///
/// # Errors
/// As of [`serve_clients`](super::serve_clients).
pub async fn serve_health(port: Port, health: Health) -> io::Result<()> {
    super::serve(port, Router::new().fallback(async move || health.answer())).await
}
