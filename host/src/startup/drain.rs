//! The end of a host: the work between the first request to end and the release of the lock. With
//! `rollback_on_drain_to_version` it takes the database back to the version of the older host that
//! takes over, while nothing else writes. Then it completes a key rotation, so that an operator who
//! removes the old key after a clean stop finds it unused.

use std::time::Duration;

use bbs_lens::layout::manifest::DataVersion;
use bbs_work::causes::with_causes;

use super::{Prepared, StartupError};
use crate::keys::Unfinished;
use crate::lock::fence::Fence;
use crate::migrate::{Intent, Reason};
use crate::shutdown::Shutdown;
use crate::store::Store;

/// Interval at which the end of requests in flight is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time of a key rotation after the first signal. bpm grants a process 15 s after the
/// signal, and the lock has to be released before that. Some 200,000 rows take 7 s.
pub(super) const ROTATION: Duration = Duration::from_secs(10);

/// Longest time that the database has to say whether a rotation is complete, or to finish a
/// takeover. One that does not answer must not keep the lock until bpm kills the process, or until
/// the lock expires.
const LOOK: Duration = Duration::from_secs(2);

/// Longest such time once the host has to end at once: bpm kills a process 2 s after SIGQUIT.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Longest time that requests in flight may take after the first request to end: a minute, as in
/// Diego's BBS.
const REQUESTS: Duration = Duration::from_secs(60);

/// Longest such time after a signal in a BOSH job. Of the 15 s that bpm's documentation promises
/// (its code grants 20 s), the rest is for the key rotation and the release of the lock.
const REQUESTS_BEFORE_KILL: Duration = Duration::from_secs(8);

/// Longest time that requests in flight may take after the first request to end. Nothing limits a
/// drain.
pub(super) fn request_drain(is_bosh_job: bool, shutdown: &Shutdown) -> Duration {
    if is_bosh_job && !shutdown.is_drain() {
        REQUESTS_BEFORE_KILL
    } else {
        REQUESTS
    }
}

/// Completes a key rotation, unless an operator has paused it, a second signal arrives or it takes
/// longer than `longest`. An incomplete rotation is no failure: the next start continues it. Until
/// then the old keys are in use, which is logged.
///
/// # Errors
/// The fence is lost.
pub(super) async fn finish_rotation(
    prepared: &Prepared,
    fence: &Fence,
    shutdown: &Shutdown,
    longest: Option<Duration>,
) -> Result<(), StartupError> {
    let mut found = look(prepared, shutdown).await;
    if found.is_some() && !prepared.throttle.settings().paused {
        let limit = longest.map_or_else(String::new, |longest| format!(", or after {longest:?}"));
        tracing::info!(
            name: "encryptor.finishing",
            "a key rotation is in progress; this host ends when it is complete{limit}"
        );
        let rotated = tokio::select! {
            rotated = prepared.rotate(fence) => rotated.map(drop),
            () = tokio::time::sleep(longest.unwrap_or(Duration::MAX)) => Ok(()),
            () = shutdown.reach(2) => Ok(()),
        };
        match rotated {
            Err(error) if error.is_fence_lost() => return Err(error),
            // The next start finishes the migration first.
            Ok(()) | Err(StartupError::MigrationUnderWay) => {}
            Err(error) => warn_of_failure(&error),
        }
        found = look(prepared, shutdown).await;
    }
    if let Some(Unfinished { labels, rewritten }) = found {
        tracing::warn!(
            name: "encryptor.unfinished",
            keep = ?labels,
            rewritten,
            "the key rotation is not complete: keep these keys in `encryption_keys`. The next start continues it, or \
             `bbs keys rotate`; `bbs keys verify --label LABEL` succeeds once a key may be removed"
        );
    }
    Ok(())
}

/// The rotation that is not complete. `None`, and a warning, if the database does not answer.
async fn look(prepared: &Prepared, shutdown: &Shutdown) -> Option<Unfinished> {
    let is_urgent = async {
        shutdown.reach(2).await;
        tokio::time::sleep(LAST_LOOK).await;
    };
    let found = tokio::select! {
        found = prepared.unfinished_rotation() => Some(found),
        () = tokio::time::sleep(LOOK) => None,
        () = is_urgent => None,
    };
    match found {
        Some(Ok(found)) => found,
        Some(Err(error)) => {
            warn_of_failure(&error.into());
            None
        }
        None => {
            tracing::warn!(
                name: "encryptor.unknown",
                "the state of a key rotation could not be read in time: keep all keys in \
                 `encryption_keys` until `bbs keys verify --label LABEL` succeeds"
            );
            None
        }
    }
}

fn warn_of_failure(error: &StartupError) {
    tracing::warn!(error = %with_causes(error), "the key rotation failed while this host was stopping");
}

/// The version to take the database back to. In a BOSH job only a drain does that: bpm kills the
/// host soon after a signal, and a signal without a drain is a restart.
pub(super) fn rolls_back_to(prepared: &Prepared, shutdown: &Shutdown) -> Option<DataVersion> {
    let permitted = shutdown.is_drain() || !prepared.config.is_bosh_job;
    prepared
        .config
        .migration
        .rollback_on_drain_to
        .filter(|_| permitted)
}

/// Returns once a takeover or a rollback has to end: at the second request, or soon after the first
/// if that one does not let the host take the database back.
pub(super) async fn ends_the_work(prepared: &Prepared, shutdown: &Shutdown) {
    shutdown.reach(1).await;
    match rolls_back_to(prepared, shutdown) {
        Some(_) => shutdown.reach(2).await,
        // Either way it ends.
        None => drop(tokio::time::timeout(LOOK, shutdown.reach(2)).await),
    }
}

/// The result of a host whose takeover or rollback a request has ended: a failure if that request
/// was to take the database back.
pub(super) fn cut_short(
    prepared: &Prepared,
    shutdown: &Shutdown,
) -> Result<Option<DataVersion>, StartupError> {
    rolls_back_to(prepared, shutdown)
        .map_or(Ok(None), |to| Err(StartupError::RollbackCutShort { to }))
}

/// Takes the database back, unless a request ends the host, and then completes a key rotation.
/// Returns the version of the database, as [`take_back`] does.
///
/// `store` is the one that the API uses; `None` if this host did not serve yet.
pub(super) async fn roll_back(
    prepared: &Prepared,
    fence: &Fence,
    store: Option<&Store>,
    to: DataVersion,
    shutdown: &Shutdown,
) -> Result<Option<DataVersion>, StartupError> {
    prepared.gate.close();
    // A signal overrides an earlier pause.
    prepared.throttle.resume();
    let work = async {
        requests_end(prepared, shutdown).await;
        // A request that has not ended, a callback or an update in the background would write
        // records that are copied already.
        if let Some(store) = store {
            store.switch().await.close();
        }
        take_back(prepared, fence, to).await
    };
    let version = tokio::select! {
        outcome = work => outcome?,
        // A signal to a BOSH job, which completes a rollback that an earlier host had begun.
        () = ends_the_work(prepared, shutdown) => return cut_short(prepared, shutdown),
    };
    // No supervisor limits a drain, and the older host may lack a key that texts are still under.
    let longest = (!shutdown.is_drain()).then_some(ROTATION);
    finish_rotation(prepared, fence, shutdown, longest).await?;
    Ok(version)
}

/// Takes the database back while nothing else writes, if it is above that version. Returns the
/// version that it is at, if it has one.
async fn take_back(
    prepared: &Prepared,
    fence: &Fence,
    to: DataVersion,
) -> Result<Option<DataVersion>, StartupError> {
    // Tables that an import is filling have rows and no version, which no migration takes down.
    if prepared.is_import_due().await? {
        tracing::info!(
            to,
            "the import from etcd has not ended, and etcd has every record: there is nothing to take back"
        );
        return Ok(None);
    }
    tracing::info!(name: "drain.going-back", to, "taking the database back before this host ends");
    match prepared.bring_to(fence, Intent::Down { to }).await {
        Ok(_) => {
            tracing::info!(name: "drain.went-back", to, "the database is where the older host expects it");
            Ok(Some(to))
        }
        Err(StartupError::ShutDown(Reason::NothingBelow { current, .. })) => {
            tracing::info!(
                to,
                current,
                "the database is already at or below that version"
            );
            Ok(Some(current))
        }
        Err(StartupError::ShutDown(Reason::NothingThere)) => {
            tracing::info!(to, "the database is empty: there is nothing to take back");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Waits until no request is in flight, since it may still write, and the copy must include it.
/// Waits no longer than any other drain for a client that does not read its answer.
async fn requests_end(prepared: &Prepared, shutdown: &Shutdown) {
    let ended = async {
        while prepared.gate.has_calls() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    let longest = request_drain(prepared.config.is_bosh_job, shutdown);
    if tokio::time::timeout(longest, ended).await.is_err() {
        tracing::warn!(
            "a request was still in flight after the longest wait; what it has begun to read or write is waited for"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_to_a_bosh_job_shortens_the_time_of_requests() {
        let signalled = Shutdown::default();
        let drained = Shutdown::default();
        drained.drain();
        assert_eq!(request_drain(true, &signalled), REQUESTS_BEFORE_KILL);
        assert_eq!(request_drain(true, &drained), REQUESTS);
        assert_eq!(request_drain(false, &signalled), REQUESTS);
        assert_eq!(request_drain(false, &drained), REQUESTS);
    }
}
