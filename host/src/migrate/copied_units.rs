//! Single units in the copies, before the copies replace the originals: their replacement and their
//! removal, with what is recorded about their rows.

use std::collections::HashSet;
use std::sync::Arc;

use bbs_database::{SqlError, StatementResult, Transaction, bulk};
use bbs_units::{ByteLimits, RowLock, RowsError, UnitKey, WantedColumns, residue};
use bbs_work::pauses;
use sea_query::{Alias, Query};
use tokio::task::spawn_blocking;

use super::checksum::{self, Checksum, CopiedRows};
use super::plan::TablePlan;
use super::quarantine::{self, RefusedUnit};
use super::transform::{ReadBatch, TransformedBatch, transform};
use super::{Context, Job, MigrateError, RefusedUnits};
use crate::lock::fence::Fence;

/// One unit as the originals have it, on its way to the copies, which may have an older state of it.
#[derive(Debug)]
pub(super) struct CopiedUnit<T> {
    group: usize,
    /// The keys of its rows. The database finds them under the key of the unit, in which they may be
    /// stored in another spelling (MySQL's collations ignore case): they are one unit.
    keys: Vec<UnitKey>,
    content: T,
}

impl CopiedUnit<ReadBatch> {
    /// Reads a unit with its residue.
    pub(super) async fn read(
        tx: &mut Transaction,
        job: &Job,
        group: usize,
        asked: &UnitKey,
    ) -> Result<Self, MigrateError> {
        let loaded = bbs_units::load(
            tx,
            &job.originals,
            &job.wanted[group],
            std::slice::from_ref(asked),
            RowLock::None,
            job.tuning.limits(),
        )
        .await;
        if let Err(fault @ RowsError::UnitTooLarge { .. }) = loaded {
            let content = ReadBatch {
                refused: RefusedUnit::all(job, group, vec![(asked.clone(), fault)])?,
                ..ReadBatch::default()
            };
            return Ok(Self {
                group,
                keys: vec![asked.clone()],
                content,
            });
        }
        let mut rows = loaded?;
        let keys = rows.units.clone();
        let left = job.residue_of(tx, &mut rows).await?;
        let content = ReadBatch {
            rows,
            left,
            refused: Vec::new(),
        };
        Ok(Self {
            group,
            keys,
            content,
        })
    }

    /// Takes it through the lens, away from the threads that serve.
    pub(super) async fn transformed(
        self,
        job: &Arc<Job>,
    ) -> Result<CopiedUnit<TransformedBatch>, MigrateError> {
        let Self {
            group,
            keys,
            mut content,
        } = self;
        let job = Arc::clone(job);
        let content = spawn_blocking(move || transform(&job, group, &mut content)).await??;
        Ok(CopiedUnit {
            group,
            keys,
            content: content.expect("one unit is not divided"),
        })
    }
}

impl CopiedUnit<TransformedBatch> {
    /// Replaces it in the copies, in its residue and in quarantine.
    pub(super) async fn replace(
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
        residue::store(tx, &content.residue).await?;
        for plan in job.copies_of(*group) {
            let before = remove(tx, job, plan, keys).await?;
            if let Some((rows, checksum)) = content.tables.get(&plan.table.name) {
                let inserted = bulk::insert(tx, &plan.staged(job.to), &plan.table, rows).await;
                inserted.map_err(plan.failed())?;
                let after = CopiedRows {
                    rows: rows.count() as u64,
                    checksum: *checksum,
                };
                checksum::note(tx, plan, before, after).await?;
            } else if before.rows > 0 {
                checksum::note(tx, plan, before, CopiedRows::default()).await?;
            }
        }
        Ok(())
    }

    /// The error of it, a row of which the database has refused.
    pub(super) fn refused(&self, job: &Job, table: &str, source: &SqlError) -> RefusedUnit {
        self.content.refused_unit(job, &self.keys[0], table, source)
    }
}

impl<T> CopiedUnit<T> {
    /// The unit as one that is left out of the copies.
    pub(super) fn left_out(&self, refused: RefusedUnit) -> CopiedUnit<TransformedBatch> {
        CopiedUnit {
            group: self.group,
            keys: self.keys.clone(),
            content: TransformedBatch::of_refused(refused),
        }
    }
}

/// Removes a unit from a copy and returns its rows there. They are read with the lock with which
/// they are changed: otherwise MySQL grants the transaction a weaker lock on the table first, and a
/// change of the copy's schema that waits for its end between the two, such as a new index,
/// deadlocks with it.
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

/// Rounds in which a unit is not held while modules are called for it.
const UNHELD_ROUNDS: usize = 3;
/// Rounds in which postponed units are copied. Clients may postpone them again meanwhile.
const POSTPONED_ROUNDS: usize = 3;

/// Copies the units of a batch that clients have requested since it was read, as they are now.
/// Returns the number of those that went into quarantine.
pub(super) async fn copy_requested(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    group: usize,
    keys: &[UnitKey],
) -> Result<u64, MigrateError> {
    let mut left_out = 0;
    let mut requested = keys.to_vec();
    for round in 0.. {
        if let Some(locks) = job.locks() {
            // What has requested them ends.
            let units = requested.iter().map(|key| (group, key.clone()));
            drop(locks.take(units.collect()).await);
        }
        // Clients' writes that were committed have copied theirs.
        let mut waiting = not_copied(context, job, group, requested).await?;
        requested = Vec::new();
        if waiting.is_empty() {
            break;
        }
        while let Some(key) = waiting.pop() {
            let lock = if round < UNHELD_ROUNDS {
                UnitLock::BeforeWriting
            } else {
                UnitLock::BeforeReading
            };
            match copy(context, fence, job, (group, &key), lock).await? {
                Some(quarantined) => left_out += quarantined,
                None => requested.push(key),
            }
        }
    }
    Ok(left_out)
}

/// Copies the units that are without rows in the copies because modules took longer for them than a
/// client waits. Those that are so again and again remain in quarantine.
pub(super) async fn copy_postponed(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
) -> Result<(), MigrateError> {
    for _ in 0..POSTPONED_ROUNDS {
        let mut postponed = job
            .dual_writes
            .as_ref()
            .map(|dual_writes| dual_writes.take_postponed())
            .unwrap_or_default();
        if job.refused_units == RefusedUnits::Stop {
            // What an earlier run postponed.
            let mut reader = context.database.read().await?;
            for (group, keys) in quarantine::left_out(&mut reader, job).await? {
                postponed.entry(group).or_default().extend(keys);
            }
        }
        if postponed.is_empty() {
            break;
        }
        for (group, keys) in postponed {
            let keys: Vec<_> = keys.into_iter().collect();
            let left_out = copy_requested(context, fence, job, group, &keys).await?;
            context.progress.quarantined(left_out);
        }
    }
    Ok(())
}

/// The units that no copy has rows of.
async fn not_copied(
    context: &Context,
    job: &Job,
    group: usize,
    keys: Vec<UnitKey>,
) -> Result<Vec<UnitKey>, MigrateError> {
    let attempt = || async {
        let mut reader = context.database.read().await?;
        let mut copied = HashSet::new();
        for plan in job.copies_of(group) {
            let name = plan.staged(job.to);
            copied.extend(bbs_units::places_among(&mut reader, &plan.table, &name, &keys).await?);
        }
        Ok(copied)
    };
    let copied =
        pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await?;
    let all = keys.into_iter().enumerate();
    let others = all.filter(|(place, _)| !copied.contains(place));
    Ok(others.map(|(_, key)| key).collect())
}

/// When a unit is locked that is copied alone while clients write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitLock {
    /// A client that requests it before then does not wait for modules.
    BeforeWriting,
    BeforeReading,
}

/// Copies a unit as it is now. Returns whether it went into quarantine, as a number of units; none
/// if a client has requested it before it was locked.
async fn copy(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    (group, key): (usize, &UnitKey),
    lock: UnitLock,
) -> Result<Option<u64>, MigrateError> {
    let attempt = || async {
        let mut held = None;
        let mut watched = None;
        match (job.locks(), lock) {
            (None, _) => {}
            (Some(locks), UnitLock::BeforeReading) => {
                held = Some(locks.take(vec![(group, key.clone())]).await);
            }
            (Some(locks), UnitLock::BeforeWriting) => {
                watched = Some(locks.watch(vec![(group, key.clone())]).await);
            }
        }
        let mut reader = context.database.read().await?;
        let unit = CopiedUnit::read(&mut reader, job, group, key).await?;
        // No transaction is open while a module is called: SQLite has one writer.
        drop(reader);
        let unit = unit.transformed(job).await?;
        if let Some(watched) = watched {
            let Ok(now_held) = watched.hold(group, std::slice::from_ref(key)).await else {
                return Ok(None);
            };
            held = Some(now_held);
        }
        let _held = held;
        let unit = match written(fence, job, &unit).await {
            Err(MigrateError::RefusedRow { table, source }) => {
                let refused = unit.refused(job, &table, &source);
                if job.refused_units == RefusedUnits::Stop {
                    return Err(refused.stop(group));
                }
                let left_out = unit.left_out(refused);
                written(fence, job, &left_out).await?;
                left_out
            }
            done => {
                done?;
                unit
            }
        };
        Ok(Some(unit.content.refused.len() as u64))
    };
    pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await
}

async fn written(
    fence: &Fence,
    job: &Job,
    unit: &CopiedUnit<TransformedBatch>,
) -> Result<(), MigrateError> {
    job.check_copies()?;
    let mut tx = fence.begin_relaxed().await?;
    unit.replace(&mut tx, job).await?;
    Ok(tx.commit().await.about("rows of a copy")?)
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
    for plan in job.copies_of(group) {
        let before = remove(&mut tx, job, plan, std::slice::from_ref(&key)).await?;
        checksum::note(&mut tx, plan, before, CopiedRows::default()).await?;
    }
    residue::remove(&mut tx, &key.name(), residue::left_by(&job.lens.leaving)).await?;
    quarantine::store(&mut tx, job, group, &[refused], context.now_ns).await?;
    tx.commit().await.about("rows of a copy")?;
    context.progress.quarantined(1);
    Ok(())
}
