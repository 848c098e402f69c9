//! The wait for the migrations of a host's database. Owns the difference between one that goes on
//! and one that is stopped. The running host reports its own; those of other hosts are in the
//! history of the database.

use std::time::Duration;

use anyhow::Context;
use bbs_database::Database;
use bbs_work::progress::{CLEAN_UP, ENDED, FAILED, LOCK, ROTATION, SERVING, STOPPED, Snapshot};

use super::super::migrate::stopped;
use super::super::output;
use super::super::progress::{WithoutReader, follow, line};
use crate::admin::{AdminClient, AdminClientError, Command};
use crate::config::{Config, Lock};
use crate::lock::{LockPurpose, MasterLock};
use crate::migrate::{self, MigrationRun, RunState};

/// Pause before the host, or the history, is examined again.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time after the end of the wait for which a host or a database may leave a request
/// unanswered.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// The migrations of a host's database at one moment, with the reason if they are not complete.
enum MigrationState {
    Complete,
    /// They go on, or are about to begin.
    Pending(String),
    /// No host answers, which a supervisor may be about to start.
    Absent(String),
    /// The host has failed, and a supervisor may start it again.
    Failed(String),
    /// Nothing goes on without an operator.
    Stopped(String),
}

/// Waits until the migrations are complete, at most for the time that is left.
///
/// # Errors
/// The reason why they are not: at once if one is stopped, or if the host has failed twice, which
/// it will do again when it is started again.
pub(super) async fn wait(config: &Config, left: impl Fn() -> Duration) -> Result<(), String> {
    let is_over = || left().is_zero();
    let mut failure = None;
    let mut shown = String::new();
    loop {
        let longest = left().saturating_add(LAST_ANSWER);
        let state = tokio::time::timeout(longest, examine(config, &is_over)).await;
        let state = state.unwrap_or_else(|_| {
            MigrationState::Pending("the host, or its database, does not answer".to_owned())
        });
        let Some(reason) = reason_to_wait(&mut failure, state)? else {
            return Ok(());
        };
        if is_over() {
            return Err(reason);
        }
        if reason != shown {
            output::note(&reason);
            shown = reason;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The reason to examine the migrations again; none if they are complete. `failure` is that of the
/// host so far.
///
/// # Errors
/// Another examination would find nothing else.
fn reason_to_wait(
    failure: &mut Option<String>,
    state: MigrationState,
) -> Result<Option<String>, String> {
    match state {
        MigrationState::Complete => Ok(None),
        MigrationState::Stopped(reason) => Err(reason),
        MigrationState::Failed(reason) if failure.is_some() => Err(reason),
        MigrationState::Failed(reason) => Ok(Some(failure.insert(reason).clone())),
        MigrationState::Absent(reason) => Ok(Some(failure.clone().unwrap_or(reason))),
        MigrationState::Pending(reason) => Ok(Some(reason)),
    }
}

/// The state, after the progress of a host that works was followed to its end.
async fn examine(config: &Config, is_over: &impl Fn() -> bool) -> MigrationState {
    let followed = async {
        let mut host = AdminClient::send(&config.admin_socket, Command::Watch).await?;
        let last = follow(&mut host, false, WithoutReader::Continue, |now| {
            now.phase == ROTATION || waits_for_others(now, &config.lock) || is_over()
        });
        anyhow::Ok(last.await?.context(AdminClientError::Ended)?.progress)
    };
    let now = match followed.await {
        Ok(now) => now,
        Err(error) => return MigrationState::Absent(format!("{error:#}")),
    };
    match &*now.phase {
        SERVING => MigrationState::Complete,
        STOPPED => MigrationState::Stopped(stopped(&now.detail)),
        FAILED => MigrationState::Failed(format!("the host has failed: {}", now.detail)),
        ENDED => MigrationState::Absent("the host has ended, as was requested".to_owned()),
        // A host serves while it rotates keys, also beside a migration that is stopped.
        ROTATION => in_database(config, &now).await,
        _ if waits_for_others(&now, &config.lock) => in_database(config, &now).await,
        _ => MigrationState::Pending(format!("the host is at work: {}", line(&now))),
    }
}

/// Whether a host has waited in a phase for longer than it does without others: for the lock of a
/// master that goes on renewing it, or for what another session keeps from being removed.
fn waits_for_others(now: &Snapshot, lock: &Lock) -> bool {
    let longest = lock.ttl + lock.retry_interval;
    [LOCK, CLEAN_UP].contains(&now.phase.as_str()) && now.elapsed_seconds >= longest.as_secs_f64()
}

/// The state according to the database, for a host that does not migrate now.
async fn in_database(config: &Config, now: &Snapshot) -> MigrationState {
    let state = async {
        let database = Database::open(&config.database).await?;
        let state = in_history(config, &database, now).await;
        database.close().await;
        state
    };
    let state = state.await;
    state.unwrap_or_else(|error| MigrationState::Pending(format!("{error:#}")))
}

/// The state according to the migrations that hosts have begun. A standby is not to wait for one
/// that it will begin itself, since the master of the older release is replaced after it.
async fn in_history(
    config: &Config,
    database: &Database,
    now: &Snapshot,
) -> anyhow::Result<MigrationState> {
    if now.phase == LOCK {
        let purpose = LockPurpose::Command;
        let lock = MasterLock::new(&config.lock, &config.database, database, purpose).await?;
        // A host also waits while Locket is away, and migrates after that.
        lock.holder()
            .await
            .context("the host waits for the lock, and no host is known to have it")?;
    }
    Ok(after(migrate::runs(database).await?.last()))
}

/// The state after the last migration that has begun.
fn after(last: Option<&MigrationRun>) -> MigrationState {
    let unfinished = last.filter(|run| run.state == RunState::Unfinished);
    unfinished.map_or(MigrationState::Complete, |run| {
        MigrationState::Pending(format!(
            "the migration {} from {} to {}, which {} has begun, has not ended; `bbs migrate status` has its state, and the log of \
             the host with the lock why it is stopped, if it is",
            run.direction,
            run.from,
            run.to,
            run.host.escape_debug()
        ))
    })
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::manifest::Direction;
    use bbs_work::progress::Progress;

    use super::*;

    #[test]
    fn migration_that_has_begun_and_not_ended_is_named() {
        let run = |state| MigrationRun {
            number: 1,
            from: 4,
            to: 5,
            direction: Direction::Up,
            state,
            began_at_ns: 0,
            ended_at_ns: None,
            host: "z1".to_owned(),
            release: "0.1".to_owned(),
        };
        let reason = match after(Some(&run(RunState::Unfinished))) {
            MigrationState::Pending(reason) => reason,
            _ => String::new(),
        };
        assert!(
            reason.starts_with("the migration up from 4 to 5, which z1 has begun"),
            "{reason}"
        );
        for ended in [
            None,
            Some(run(RunState::Completed)),
            Some(run(RunState::GivenUp)),
        ] {
            assert!(matches!(after(ended.as_ref()), MigrationState::Complete));
        }
    }

    #[test]
    fn second_failure_of_a_host_ends_the_wait() {
        let mut failure = None;
        let mut next = |state| reason_to_wait(&mut failure, state);
        let failed = || MigrationState::Failed("no table".to_owned());
        let absent = MigrationState::Absent("no host".to_owned());
        assert_eq!(next(failed()), Ok(Some("no table".to_owned())));
        assert_eq!(next(absent), Ok(Some("no table".to_owned())));
        assert_eq!(next(failed()), Err("no table".to_owned()));
    }

    #[test]
    fn host_that_has_just_begun_to_take_the_lock_is_no_standby() {
        let lock = Lock {
            ttl: Duration::from_secs(15),
            retry_interval: Duration::from_secs(5),
            ..Lock::default()
        };
        let progress = Progress::default();
        for (phase, seconds, waits) in [
            (LOCK, 19.0, false),
            (LOCK, 20.0, true),
            (CLEAN_UP, 20.0, true),
            ("copy", 3600.0, false),
        ] {
            progress.enter(phase, "", None);
            let now = Snapshot {
                elapsed_seconds: seconds,
                ..progress.snapshot()
            };
            assert_eq!(waits_for_others(&now, &lock), waits, "{phase} {seconds}");
        }
    }
}
