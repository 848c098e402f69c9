//! The entry of a unit at which a migration stopped: a copy of it, with the failed step and the
//! reason, for `bbs module replay`. The unit is in its tables. The entry is pending, as no version
//! is durable that lacks the unit, and has no counts of rows, as none is left out. The next run of
//! a migration removes it, and so does giving the migration up.

use bbs_database::{StatementResult, Transaction};
use bbs_units::UnitKey;
use bbs_work::causes::with_causes;
use sea_query::{Cond, Expr, ExprTrait, Query};

use super::{QUARANTINE, deleted, entry, is_present, pending, put, unit, whole_unit};
use crate::lock::fence::Fence;
use crate::migrate::{Context, Job, MigrateError};

/// The counts of rows of an entry that leaves none out.
const NO_ROWS: &str = "{}";

/// The entries of such units, among those that are pending.
pub(super) fn is_stopped() -> Cond {
    Cond::all().add(Expr::col("row_counts").eq(NO_ROWS))
}

/// Removes the entries of an earlier run.
pub(in crate::migrate) async fn remove_stopped(tx: &mut Transaction) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete
        .from_table(QUARANTINE)
        .cond_where(pending().add(is_stopped()));
    deleted(tx, &delete).await
}

/// Stores the unit at which a migration stops, if a unit is the reason, and returns the error with
/// what to do. If the unit cannot be stored, that is logged, and the error of the unit is returned.
pub(in crate::migrate) async fn stopped(
    context: &Context,
    fence: &Fence,
    job: &Job,
    fault: MigrateError,
) -> MigrateError {
    let MigrateError::Refused { group, key, source } = fault else {
        return fault.stopping(job.lens.direction, job.to, None);
    };
    let stored = store(context, fence, job, group, &key, &source).await;
    let is_stored = stored.unwrap_or_else(|error| {
        let unit = key.name();
        let reason = with_causes(&error);
        tracing::warn!(unit, %reason, "the unit at which the migration stops has no entry in quarantine");
        false
    });
    let unit = is_stored.then(|| key.name());
    source.stopping(job.lens.direction, job.to, unit)
}

/// Returns whether it was stored.
async fn store(
    context: &Context,
    fence: &Fence,
    job: &Job,
    group: usize,
    key: &UnitKey,
    error: &MigrateError,
) -> Result<bool, MigrateError> {
    let mut tx = fence.begin().await?;
    let entry = entry(job, group, key, error, context.now_ns);
    // An earlier unit of the same key may be in quarantine, and nowhere else.
    if is_present(&mut tx, &entry).await? {
        return Ok(false);
    }
    let unit = whole_unit(&mut tx, job, group, key).await?;
    let content = unit::encode(&unit, &job.lens.source, &job.keyring);
    put(&mut tx, &job.keyring, &entry, key, &content).await?;
    tx.commit().await.about(QUARANTINE)?;
    Ok(true)
}
