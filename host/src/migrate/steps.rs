//! The steps of a migration, in their order, each durable and safe to repeat. Owns what they have
//! in common whether clients are served meanwhile or not: `migrate` runs them one after the other,
//! and `online` while clients write, with a cut-over for which they wait.

use std::sync::Arc;

use bbs_database::StatementResult;

use super::copy::catch_up::{self, Meanwhile};
use super::copy::{self, UnitBudget, verify};
use super::look::examine;
use super::{
    Context, Job, MigrateError, Phase, Work, cut_over, fault, phase, prepare, quarantine, state,
};
use crate::lock::fence::Fence;

/// Records the migration and creates the tables that rows are copied into, unless an earlier run
/// did. If another client has locked a table, [`copy()`] creates those of an online migration: here
/// clients wait.
pub(super) async fn begin(
    context: &Context,
    fence: &Fence,
    work: Work,
) -> Result<Arc<Job>, MigrateError> {
    let job = prepare::begin(context, fence, work).await?;
    if !job.is_resumed {
        match prepare::prepare(&context.before_serving(), fence, &job).await {
            Err(MigrateError::Locked { .. }) if job.is_online => {}
            prepared => prepared?,
        }
    }
    Ok(job)
}

/// Copies units, from where an earlier run stopped up to the limit of units, and completes the
/// copies once they have all units. Returns whether they have; otherwise units remain.
///
/// # Errors
/// [`MigrateError::Stopped`] at a unit that cannot be transformed; another host has raised the
/// fence, or the database fails.
pub(super) async fn copy(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    budget: &Arc<UnitBudget>,
) -> Result<bool, MigrateError> {
    let copied = async {
        if job.is_online {
            if phase(context).await? == Some(Phase::Begun) {
                prepare::prepare(context, fence, job).await?;
            }
            copy_beside_clients(context, fence, job, budget).await?;
        } else if !copy::copy(context, fence, job, budget).await? {
            return Ok(false);
        }
        fault::point(fault::AFTER_COPY);
        cut_over::build_indexes(context, fence, job).await?;
        cut_over::change_ahead(context, fence, job).await?;
        Ok(true)
    };
    or_stopped(context, fence, job, copied.await).await
}

/// Copies all units, and again those that clients have changed meanwhile. Once all are copied, those
/// that clients create are among the changed ones, also if this is done again after a crash.
async fn copy_beside_clients(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    budget: &Arc<UnitBudget>,
) -> Result<(), MigrateError> {
    if !state::has_copied_all(context).await? {
        copy::copy(context, fence, job, budget).await?;
        let mut tx = fence.begin().await?;
        state::record_copied(&mut tx).await?;
        tx.commit().await.about("bbs_copy")?;
    }
    catch_up::catch_up(context, fence, job, Meanwhile::Call).await
}

/// Copies again what clients have changed since.
///
/// # Errors
/// As [`copy()`]; [`MigrateError::Behind`] if clients wait and modules take long.
pub(super) async fn catch_up(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    clients: Meanwhile,
) -> Result<(), MigrateError> {
    let done = catch_up::catch_up(context, fence, job, clients).await;
    or_stopped(context, fence, job, done).await
}

/// The result of a step; the unit at which it stopped is stored in quarantine.
async fn or_stopped<T>(
    context: &Context,
    fence: &Fence,
    job: &Job,
    done: Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    match done {
        Err(fault) => Err(quarantine::stopped(context, fence, job, fault).await),
        done => done,
    }
}

/// Verifies finished copies, and that nothing is in the way of the cut-over by now.
///
/// # Errors
/// [`MigrateError::Verify`] if a copy is not what it has to be; there are reasons against the
/// migration, or the database fails.
pub(super) async fn verify(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
) -> Result<(), MigrateError> {
    let verified = verify::verify(context, fence, job).await;
    or_stopped(context, fence, job, verified).await?;
    fault::point(fault::AFTER_VERIFY);
    examine::examine_again(context, job).await
}
