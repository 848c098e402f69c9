//! What a host that is told to end does before it gives up the lock: with `rollback_on_drain_to_version` it takes the
//! database back, so that the older host that follows finds what it knows. Nobody writes meanwhile.

use std::time::Duration;

use super::signals::Signals;
use super::{DRAIN, Prepared, StartupError};
use crate::lock::fence::Fence;
use crate::migrate::{Intent, Reason};

/// How often to look whether the requests under way have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Takes the database back, until it is there or a second signal ends the host at once.
pub(super) async fn roll_back(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    let Some(to) = prepared.config.migration.rollback_on_drain_to else { return Ok(()) };
    prepared.gate.close();
    // Being told to end is the later word.
    prepared.pace.resume();
    let work = async {
        prepared.progress.enter("drain", "waiting for the requests under way", None);
        requests_end(prepared).await;
        tracing::info!(name: "drain.going-back", to, "taking the database back before this host ends");
        match prepared.bring_to(fence, Intent::Down { to }).await {
            Ok(decision) => {
                tracing::info!(name: "drain.went-back", to, ?decision, "the database is where the older host expects it")
            }
            Err(StartupError::ShutDown(Reason::NothingBelow { current, .. })) => {
                tracing::info!(to, current, "the database is below that already");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    };
    tokio::select! {
        outcome = work => outcome,
        () = signals.reach(2) => Err(StartupError::RollbackCutShort { to }),
    }
}

/// Answers under way may still write, and the copy must not miss it. A client that does not take its answer is
/// waited for no longer than any other drain.
async fn requests_end(prepared: &Prepared) {
    let ended = async {
        while prepared.gate.has_calls() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        tracing::warn!("a client takes longer over its answer than this host waits");
    }
}
