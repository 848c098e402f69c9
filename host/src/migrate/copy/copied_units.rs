//! Listed units in the copies, before the copies replace the originals: their replacement and their
//! removal, with what is recorded about their rows.

use std::sync::Arc;

use bbs_database::{SqlError, StatementResult, Transaction, bulk};
use bbs_units::{ByteLimits, RowLock, RowsError, UnitKey, WantedColumns, residue};
use sea_query::{Alias, Cond, Query};
use tokio::task::spawn_blocking;

use super::checksum::{self, Checksum, CopiedRows};
use super::transform::{ReadBatch, TransformedBatch, transform};
use crate::lock::fence::Fence;
use crate::migrate::plan::TablePlan;
use crate::migrate::quarantine::{self, RefusedUnit};
use crate::migrate::{Context, Job, MigrateError, OnUnreadable};

/// The name of the copies in errors.
pub(super) const COPIES: &str = "rows of a copy";

/// Units of one group as the originals have them, on their way to the copies, which may have an
/// older state of them.
#[derive(Debug)]
pub(crate) struct CopiedUnits<T> {
    group: usize,
    /// As their rows spell them, which on MySQL may be in another case than what they were listed
    /// by.
    keys: Vec<UnitKey>,
    content: T,
}

impl CopiedUnits<ReadBatch> {
    /// Reads units with their residue. None if they are too large to be in memory at once.
    pub(crate) async fn read(
        tx: &mut Transaction,
        job: &Job,
        group: usize,
        listed: &[UnitKey],
    ) -> Result<Option<Self>, MigrateError> {
        let loaded = bbs_units::load_within(
            tx,
            &job.originals,
            &job.wanted[group],
            listed,
            RowLock::None,
            job.tuning.limits(),
        )
        .await;
        let mut rows = match loaded {
            Err(RowsError::UnitsTooLarge { .. }) => return Ok(None),
            Err(RowsError::UnitTooLarge { .. }) if listed.len() > 1 => return Ok(None),
            Err(fault @ RowsError::UnitTooLarge { .. }) => {
                let content = ReadBatch {
                    refused: RefusedUnit::all(job, group, vec![(listed[0].clone(), fault)])?,
                    ..ReadBatch::default()
                };
                let keys = listed.to_vec();
                return Ok(Some(Self {
                    group,
                    keys,
                    content,
                }));
            }
            loaded => loaded?,
        };
        let keys = rows.units.clone();
        let left = job.residue_of(tx, &mut rows).await?;
        if rows.units.len() < keys.len() {
            return Ok(None);
        }
        let content = ReadBatch {
            rows,
            left,
            refused: Vec::new(),
        };
        Ok(Some(Self {
            group,
            keys,
            content,
        }))
    }

    /// Takes them through the lens, away from the threads that serve. None if that is not possible
    /// at once.
    pub(crate) async fn transformed(
        self,
        job: &Arc<Job>,
    ) -> Result<Option<CopiedUnits<TransformedBatch>>, MigrateError> {
        let Self {
            group,
            keys,
            mut content,
        } = self;
        let job = Arc::clone(job);
        let content = spawn_blocking(move || transform(&job, group, &mut content)).await??;
        Ok(content.map(|content| CopiedUnits {
            group,
            keys,
            content,
        }))
    }
}

impl CopiedUnits<TransformedBatch> {
    /// Replaces them in the copies, in their residue and in quarantine.
    ///
    /// # Errors
    /// The copies have too much of several of them to be in memory at once, as of units that are
    /// deleted; the database refuses a row, or fails. The transaction has to be rolled back.
    pub(crate) async fn replace(
        &self,
        tx: &mut Transaction,
        job: &Job,
    ) -> Result<(), MigrateError> {
        let Self {
            group,
            keys,
            content,
        } = self;
        quarantine::forget(tx, job, *group, keys).await?;
        quarantine::store(tx, job, *group, &content.refused, job.now_ns).await?;
        // Also of those that are gone: a batch may have saved it after a client had deleted them.
        let names: Vec<_> = keys.iter().map(UnitKey::name).collect();
        let of_group = &job.lens.groups[*group].keeps;
        if !of_group.is_empty() {
            // A unit of another group may have the same name.
            let left = residue::left_by(&job.lens.leaving);
            let of_group = residue::at_any_of(of_group);
            residue::remove(tx, &names, Cond::all().add(left).add(of_group)).await?;
        }
        residue::store(tx, &content.residue).await?;
        for plan in job.copies_of(*group) {
            let before = remove(tx, job, plan, keys).await?;
            let mut after = CopiedRows::default();
            if let Some((rows, checksum)) = content.tables.get(&plan.table.name) {
                let inserted = bulk::insert(tx, &plan.staged(job.to), &plan.table, rows).await;
                inserted.map_err(plan.failed())?;
                after = CopiedRows {
                    rows: rows.count() as u64,
                    checksum: *checksum,
                };
            }
            if before != after {
                checksum::replace(tx, plan, before, after).await?;
            }
        }
        Ok(())
    }

    /// The only unit, of which the database has refused a row, as one that is left out.
    ///
    /// # Errors
    /// The unit, if the operator did not choose quarantine.
    pub(super) fn without_refused(
        self,
        job: &Job,
        table: &str,
        source: &SqlError,
    ) -> Result<Self, MigrateError> {
        let Self {
            group,
            keys,
            content,
        } = self;
        let refused = content.refused_unit(job, &keys[0], table, source);
        match job.on_unreadable {
            OnUnreadable::Stop => Err(refused.stop(group)),
            OnUnreadable::Quarantine => Ok(Self {
                group,
                keys,
                content: TransformedBatch::of_refused(refused),
            }),
        }
    }

    /// How many of them are left out of the copies.
    pub(crate) fn left_out(&self) -> u64 {
        self.content.refused.len() as u64
    }
}

/// Removes units from a copy and returns their rows there.
async fn remove(
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
    let limits = ByteLimits {
        batch: job.tuning.batch_bytes,
        ..ByteLimits::NONE
    };
    let lock = RowLock::None;
    let mut stored = bbs_units::load_within(tx, &job.copies, &wanted, keys, lock, limits).await?;
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
        .and_where(bbs_units::is_one_of(&plan.table, keys, tx.dialect()));
    tx.execute(&delete).await.about(COPIES)?;
    Ok(CopiedRows {
        rows: count,
        checksum,
    })
}

/// Takes a unit out of all copies into quarantine.
pub(crate) async fn leave_out(
    context: &Context,
    fence: &Fence,
    job: &Job,
    group: usize,
    refused: RefusedUnit,
) -> Result<(), MigrateError> {
    let units = CopiedUnits {
        group,
        keys: vec![refused.key.clone()],
        content: TransformedBatch::of_refused(refused),
    };
    let mut tx = fence.begin().await?;
    units.replace(&mut tx, job).await?;
    tx.commit().await.about(COPIES)?;
    context.progress.quarantined(1);
    Ok(())
}
