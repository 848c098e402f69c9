//! Units in the copies, before the copies replace the originals: their removal, with what is
//! recorded about their rows.

use bbs_database::{StatementResult, Transaction};
use bbs_units::{ByteLimits, RowLock, UnitKey, WantedColumns, residue};
use sea_query::{Alias, Query};

use super::checksum::{self, Checksum, CopiedRows};
use super::plan::{Strategy, TablePlan};
use super::quarantine::{self, RefusedUnit};
use super::{Context, Job, MigrateError};
use crate::lock::fence::Fence;

/// Removes a unit from a copy and returns its rows there. They are read with the lock with which
/// they are changed: otherwise MySQL grants the transaction a weaker lock on the table first, and a
/// change of the copy's schema that waits for its end between the two, such as a new index,
/// deadlocks with it.
pub(super) async fn remove(
    tx: &mut Transaction,
    job: &Job,
    plan: &TablePlan,
    keys: &[UnitKey],
) -> Result<CopiedRows, MigrateError> {
    let name = &plan.table.name;
    let columns = plan
        .digested()
        .into_iter()
        .map(|(column, _)| column.name.clone())
        .collect();
    let wanted = WantedColumns::from([(name.clone(), columns)]);
    let mut stored = bbs_units::load(
        tx,
        &job.copies,
        &wanted,
        keys,
        RowLock::Exclusive,
        ByteLimits::NONE,
    )
    .await?;
    let stored = stored.tables.remove(name).expect("it was loaded");
    let count = stored.count() as u64;
    if count == 0 {
        return Ok(CopiedRows::default());
    }
    // The database copies a range by itself, without a checksum.
    let checksum = if plan.by_range() {
        Checksum::default()
    } else {
        Checksum::of_copied(plan, stored, &job.keyring)?
    };
    let mut delete = Query::delete();
    delete
        .from_table(Alias::new(plan.staged(job.to)))
        .and_where(bbs_units::is_unit(&plan.table, &keys[0], tx.dialect()));
    tx.execute(&delete).await.about("rows of a copy")?;
    Ok(CopiedRows {
        rows: count,
        checksum,
    })
}

/// Takes a unit out of all copies into quarantine.
pub(super) async fn leave_out(
    context: &Context,
    fence: &Fence,
    job: &Job,
    group: usize,
    refused: RefusedUnit,
) -> Result<(), MigrateError> {
    let key = refused.key.clone();
    let _held = match job.locks() {
        Some(locks) => Some(locks.take(vec![(group, key.clone())]).await),
        None => None,
    };
    let mut tx = fence.begin().await?;
    for plan in job
        .plans
        .iter()
        .filter(|plan| plan.group == group && plan.strategy == Strategy::Copy)
    {
        let before = remove(&mut tx, job, plan, std::slice::from_ref(&key)).await?;
        checksum::note(&mut tx, plan, before, CopiedRows::default()).await?;
    }
    residue::remove(&mut tx, &key.name(), residue::left_by(&job.lens.leaving)).await?;
    quarantine::store(&mut tx, job, group, &[refused], context.now_ns).await?;
    tx.commit().await.about("rows of a copy")?;
    context.progress.quarantined(1);
    Ok(())
}
