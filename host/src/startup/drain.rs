//! The end of a host: the signals, and the work between the first of them and the release of the lock. With
//! `rollback_on_drain_to_version` it takes the database back to the version of the older host that takes over, while nothing
//! else writes; without, it completes a key rotation, so that an operator who removes the old key after a clean stop finds
//! it unused.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::keys::is_lost;
use super::{DRAIN, Prepared, StartupError};
use crate::keys::Unfinished;
use crate::lock::fence::Fence;
use crate::migrate::{Intent, Reason};

/// Interval at which the end of requests in flight is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time of a key rotation after the first signal. bpm kills a process 15 s after the signal, and the lock has to be
/// released before that. Some 200,000 rows take 7 s.
const ROTATION: Duration = Duration::from_secs(10);

/// The number of signals received so far: the first starts a graceful shutdown, the second ends the process at once. Clones
/// share it.
#[derive(Debug, Clone)]
pub(super) struct Signals(watch::Receiver<u32>);

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, receiver) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                sender.send_modify(|count| *count += 1);
                if sender.is_closed() {
                    return;
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Returns once `count` signals were received.
    pub(super) async fn reach(&self, count: u32) {
        // The sender outlives every receiver, so the wait cannot fail.
        let _ = self.0.clone().wait_for(|seen| *seen >= count).await;
    }
}

/// Completes a key rotation, unless an operator has paused it, a second signal arrives or it takes too long. An incomplete
/// rotation is no failure: the next start continues it. Until then the old keys are in use, which is logged.
pub(super) async fn finish_rotation(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    match try_to_finish_rotation(prepared, fence, signals).await {
        Err(error) if is_lost(&error) => return Err(error),
        // The next start finishes the migration first.
        Ok(()) | Err(StartupError::MigrationUnderWay) => {}
        Err(error) => warn_of_failure(&error),
    }
    match prepared.unfinished_rotation().await {
        Ok(None) => {}
        Ok(Some(Unfinished { labels, rewritten })) => tracing::warn!(
            name: "encryptor.unfinished",
            keep = ?labels,
            rewritten,
            "the key rotation is not complete: keep these keys in `encryption_keys`. The next start continues it, or \
             `bbs keys rotate`; `bbs keys verify --label LABEL` succeeds once a key may be removed"
        ),
        Err(error) => warn_of_failure(&error.into()),
    }
    Ok(())
}

async fn try_to_finish_rotation(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    if prepared.unfinished_rotation().await?.is_none() || prepared.throttle.settings().paused {
        return Ok(());
    }
    tracing::info!(
        name: "encryptor.finishing",
        "a key rotation is in progress; this host ends when it is complete, or after {ROTATION:?}"
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

/// Takes the database back, unless a second signal ends the host.
pub(super) async fn roll_back(prepared: &Prepared, fence: &Fence, signals: &Signals) -> Result<(), StartupError> {
    let Some(to) = prepared.config.migration.rollback_on_drain_to else { return Ok(()) };
    prepared.gate.close();
    // A signal overrides an earlier pause.
    prepared.throttle.resume();
    let work = async {
        prepared.progress.enter("drain", "waiting for requests in flight", None);
        requests_end(prepared).await;
        tracing::info!(name: "drain.going-back", to, "taking the database back before this host ends");
        match prepared.bring_to(fence, Intent::Down { to }).await {
            Ok(decision) => {
                tracing::info!(name: "drain.went-back", to, ?decision, "the database is where the older host expects it")
            }
            Err(StartupError::ShutDown(Reason::NothingBelow { current, .. })) => {
                tracing::info!(to, current, "the database is already at or below that version");
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

/// Waits until no request is in flight, since it may still write, and the copy must include it. Waits no longer than any
/// other drain for a client that does not read its answer.
async fn requests_end(prepared: &Prepared) {
    let ended = async {
        while prepared.gate.has_calls() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        tracing::warn!("a request was still in flight after the longest wait; continuing without it");
    }
}
