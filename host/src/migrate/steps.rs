//! The steps of a migration, in their order, each durable and safe to repeat. Owns what they have
//! in common whether clients are served meanwhile or not: `migrate` runs them one after the other,
//! and `online` with dual writes and a cut-over for which clients wait.

use std::sync::Arc;

use super::copy::{self, UnitBudget};
use super::{
    Context, Job, MigrateError, Work, copied_units, cut_over, examine, fault, prepare, quarantine,
    verify,
};
use crate::lock::fence::Fence;

/// Records the migration and creates the tables that rows are copied into, unless an earlier run
/// did.
pub(super) async fn begin(
    context: &Context,
    fence: &Fence,
    work: Work,
    going_down: bool,
) -> Result<Arc<Job>, MigrateError> {
    let (job, resumed) = prepare::begin(context, fence, work, going_down).await?;
    if !resumed {
        prepare::prepare(context, fence, &job, going_down).await?;
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
        if !copy::copy(context, fence, job, budget).await? {
            return Ok(false);
        }
        copied_units::copy_postponed(context, fence, job).await?;
        fault::point(fault::AFTER_COPY);
        cut_over::build_indexes(context, fence, job).await?;
        cut_over::change_ahead(context, fence, job).await?;
        Ok(true)
    };
    match copied.await {
        Err(fault) => Err(quarantine::stopped(context, fence, job, fault).await),
        complete => complete,
    }
}

/// Copies what the writes of clients have postponed since all units were copied.
///
/// # Errors
/// As [`copy()`].
pub(super) async fn copy_postponed(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
) -> Result<(), MigrateError> {
    match copied_units::copy_postponed(context, fence, job).await {
        Err(fault) => Err(quarantine::stopped(context, fence, job, fault).await),
        Ok(()) => Ok(()),
    }
}

/// Verifies finished copies, and that nothing is in the way of the cut-over by now.
///
/// # Errors
/// [`MigrateError::Verify`] if a copy is not what it has to be; there are reasons against the
/// migration, or the database fails.
pub(super) async fn verify(context: &Context, job: &Arc<Job>) -> Result<(), MigrateError> {
    verify::verify(context, job).await?;
    fault::point(fault::AFTER_VERIFY);
    examine::examine_again(context, job).await
}
