//! Runs convergence repeatedly while this host is the master.

use std::convert::Infallible;
use std::time::Duration;

use tracing::Instrument;

use crate::domain::{Service, convergence};

/// Waits one interval before the first run, and after the end of each run.
pub(super) async fn repeatedly(service: &Service, interval: Duration) -> Infallible {
    tracing::info!(name: "converger-process.started", ?interval, "convergence begins");
    loop {
        tokio::time::sleep(interval).await;
        // The span's name is part of the log's messages, as in Diego's.
        let session = tracing::info_span!("executing-convergence");
        if let Err(fault) = convergence::run(service).instrument(session).await {
            let cause = std::error::Error::source(&fault).map(tracing::field::display);
            tracing::error!(reason = %fault, cause, "a convergence run failed; the next one follows after the interval");
        }
    }
}
