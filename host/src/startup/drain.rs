//! What a host that was asked to stop does before it releases the lock: with `rollback_on_drain_to_version` it takes the
//! database back to the version of the older host that follows, while nothing else writes; without, it completes a key
//! rotation, so that an operator who removes the old key after a clean stop finds it unused.

use std::time::Duration;

use super::keys::is_lost;
use super::signals::Signals;
use super::{DRAIN, Prepared, StartupError};
use crate::keys::Unfinished;
use crate::lock::fence::Fence;
use crate::migrate::{Intent, Reason};

/// How often to look whether the requests under way have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long a key rotation may go on after the first signal. bpm kills a process 15 s after it, and the lock has to be
/// released before that. Some 200,000 rows take 7 s.
const ROTATION: Duration = Duration::from_secs(10);

/// Completes a key rotation, unless an operator has paused it, a second signal comes or it takes too long. What is left
/// is no failure: the next start goes on with it. Until then the other keys are in use, which the log says.
pub(super) async fn finish_rotation(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    match try_to_finish_rotation(prepared, fence, signals).await {
        Err(error) if is_lost(&error) => return Err(error),
        // The next start goes on with the migration first.
        Ok(()) | Err(StartupError::MigrationUnderWay) => {}
        Err(error) => warn_of_failure(&error),
    }
    match prepared.unfinished_rotation().await {
        Ok(None) => {}
        Ok(Some(Unfinished { labels, rewritten })) => tracing::warn!(
            name: "encryptor.unfinished",
            keep = ?labels,
            rewritten,
            "the key rotation is not complete: keep these keys in `encryption_keys`. The next start goes on with it, or \
             `bbs keys rotate`; `bbs keys verify --label LABEL` succeeds once a key may be removed"
        ),
        Err(error) => warn_of_failure(&error.into()),
    }
    Ok(())
}

async fn try_to_finish_rotation(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    if prepared.unfinished_rotation().await?.is_none() || prepared.pace.wanted().paused {
        return Ok(());
    }
    tracing::info!(
        name: "encryptor.finishing",
        "a key rotation is under way; this host ends when it is complete, or after {ROTATION:?}"
    );
    tokio::select! {
        rotated = prepared.rotate(fence) => rotated.map(drop),
        () = tokio::time::sleep(ROTATION) => Ok(()),
        () = signals.reach(2) => Ok(()),
    }
}

fn warn_of_failure(error: &StartupError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, source, "the key rotation failed while this host was stopping");
}

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
