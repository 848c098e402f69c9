//! Convergence again and again, for as long as this host is the master.

use std::convert::Infallible;
use std::time::Duration;

use tracing::Instrument;

use crate::domain::{Service, convergence};

/// The first run comes one interval after the start, each other one interval after the end of the one before.
pub(super) async fn repeatedly(service: &Service, interval: Duration) -> Infallible {
    tracing::info!(name: "converger-process.started", ?interval, "convergence begins");
    loop {
        tokio::time::sleep(interval).await;
        // What is said meanwhile has this in its name.
        let session = tracing::info_span!("executing-convergence");
        if let Err(fault) = convergence::run(service).instrument(session).await {
            let cause = std::error::Error::source(&fault).map(tracing::field::display);
            tracing::error!(reason = %fault, cause, "this run of convergence failed; the next comes after the interval");
        }
    }
}
