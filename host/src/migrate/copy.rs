//! The copy: group by group, batch by batch, in the order of unit keys. A batch's rows, their
//! residue and the cursor are written in one fenced transaction, so a crash leaves whole batches
//! only. Units that have rows come first, then those of which only residue is left.
//!
//! The units of a group are read, transformed and written in batches, as [`bbs_work::batches`] runs
//! them.

pub(super) mod catch_up;
mod checksum;
pub(super) mod copied_units;
pub(super) mod partial_run;
mod reader;
pub(super) mod residue_only;
mod transform;
pub(super) mod unindexable;
pub(super) mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bbs_database::{StatementResult, bulk, refusal, upsert};
use bbs_units::residue;
use bbs_work::batches::{self, BatchPace, ReadBatches, Worked, WorkedBatches};
use bbs_work::pauses;
use bbs_work::progress::Counted;
use bbs_work::throttle::Throttle;
use tokio::task::spawn_blocking;

use super::{Context, Job, MigrateError, OnUnreadable, PartialRun, fault, quarantine, state};
use crate::lock::fence::Fence;
use checksum::{Checksum, CopiedRows};
use reader::{BatchReader, CopyBatch, GroupPass};
use residue_only::Pass;
use transform::{TransformedBatch, transform};

/// Initial and minimum batch size; below it the fixed cost of a transaction dominates.
const FIRST_BATCH: u64 = 100;

/// The number of units that may still be read.
#[derive(Debug)]
pub(super) struct UnitBudget(Option<AtomicU64>);

impl UnitBudget {
    pub(super) fn of(units: Option<u64>) -> Self {
        Self(units.map(AtomicU64::new))
    }

    /// The size of the next batch at most; zero once the budget is spent.
    pub(super) fn most(&self, batch: u64) -> u64 {
        self.0
            .as_ref()
            .map_or(batch, |left| batch.min(left.load(Ordering::Relaxed)))
    }

    pub(super) fn spend(&self, units: u64) {
        if let Some(left) = &self.0 {
            left.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

/// Copies every group that has rows to copy or residue to save. Returns whether all of it is
/// copied; otherwise the budget is spent.
pub(super) async fn copy(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    budget: &Arc<UnitBudget>,
) -> Result<bool, MigrateError> {
    let PartialRun {
        total, migrated, ..
    } = partial_run::counted(context, job).await?;
    context
        .progress
        .enter("copy", job.describe(), Some(Counted::Units.total(total)));
    context.progress.resume_at(migrated);
    for group in 0..job.lens.groups.len() {
        for kind in passes(job, group) {
            let pass = GroupPass { group, kind };
            if !copy_units(context, fence, job, pass, budget).await? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The passes over a group.
fn passes(job: &Job, group: usize) -> impl Iterator<Item = Pass> + use<> {
    let is_walked = job.walks(group);
    let table_group = &job.lens.groups[group];
    let stored = (is_walked && !table_group.sources.is_empty()).then_some(Pass::Stored);
    let residue_only = (is_walked && !table_group.restored.is_empty()).then_some(Pass::ResidueOnly);
    stored.into_iter().chain(residue_only)
}

/// The number under which the cursor of a pass is stored.
fn cursor_number(job: &Job, GroupPass { group, kind }: GroupPass) -> usize {
    match kind {
        Pass::ResidueOnly if !job.lens.groups[group].sources.is_empty() => {
            job.lens.groups.len() + group
        }
        Pass::Stored | Pass::ResidueOnly => group,
    }
}

impl Context {
    /// The pace of batches of units.
    pub fn pace(&self) -> BatchPace {
        let most = self.tuning.batch_units;
        BatchPace {
            first: FIRST_BATCH,
            least: FIRST_BATCH.min(most),
            most,
            time: self.tuning.batch_time,
            beside_clients: false,
            throttle: self.throttle.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// Copies the units of one pass behind its cursor. Returns whether all of them are copied;
/// otherwise the budget is spent.
async fn copy_units(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    pass: GroupPass,
    budget: &Arc<UnitBudget>,
) -> Result<bool, MigrateError> {
    let after = state::cursor(context, cursor_number(job, pass)).await?;
    let reader = BatchReader::new(context.clone(), Arc::clone(job), pass, after);
    let worker = Arc::clone(job);
    let pace = BatchPace {
        beside_clients: job.is_online,
        ..context.pace()
    };
    batches::run(
        pace,
        |found| read_batches(reader, Arc::clone(budget), found),
        move |batch| transform_batch(&worker, pass.group, batch),
        |transformed| write_batches(context, fence, job, pass, transformed),
    )
    .await
}

/// The checksum of a group's originals as they are now: reads the rows of all units once more, as
/// fast as it can, since clients wait.
pub(super) async fn checksum_of_originals(
    context: &Context,
    job: &Arc<Job>,
    group: usize,
) -> Result<Checksum, MigrateError> {
    let reader = BatchReader::rows_only(context.clone(), Arc::clone(job), group);
    let worker = Arc::clone(job);
    let unlimited = Arc::new(UnitBudget::of(None));
    let mut sum = Checksum::default();
    let pace = BatchPace {
        throttle: Throttle::default(),
        ..context.pace()
    };
    batches::run(
        pace,
        |found| read_batches(reader, unlimited, found),
        move |mut batch: CopyBatch| {
            batch.note_originals(&worker);
            batch.read = None;
            Ok(Worked::Done(batch))
        },
        |read| add_up_originals(read, &mut sum),
    )
    .await?;
    Ok(sum)
}

/// A last stage that writes nothing.
async fn add_up_originals(
    mut read: WorkedBatches<CopyBatch>,
    sum: &mut Checksum,
) -> Result<(), MigrateError> {
    while let Some(batch) = read.next().await {
        sum.add(batch.originals());
        read.written(batch.units());
    }
    Ok(())
}

/// The first stage. Returns whether everything was read; otherwise the budget is spent.
async fn read_batches(
    mut reader: BatchReader,
    budget: Arc<UnitBudget>,
    mut found: ReadBatches<CopyBatch>,
) -> Result<bool, MigrateError> {
    loop {
        let most = budget.most(found.next_size().await);
        // One unit is read beyond the budget, to see whether any is left.
        let Some(batch) = reader.next(most.max(1)).await? else {
            return Ok(true);
        };
        if most == 0 {
            return Ok(false);
        }
        let units = batch.units();
        debug_assert!(units <= most, "a batch is bounded");
        budget.spend(units);
        if !found.send(batch, units).await {
            return Ok(true);
        }
    }
}

fn transform_batch(
    job: &Job,
    group: usize,
    mut batch: CopyBatch,
) -> Result<Worked<CopyBatch, CopyBatch>, MigrateError> {
    batch.note_originals(job);
    let Some(mut read) = batch.read.take() else {
        return Ok(Worked::Done(batch));
    };
    Ok(match transform(job, group, &mut read)? {
        Some(transformed) => {
            batch.transformed = transformed;
            Worked::Done(batch)
        }
        None => Worked::Divided(batch.divided(job, &read)),
    })
}

/// Counts of units and rows that were not copied as they were.
#[derive(Debug, Default)]
struct Deviations {
    left_out: u64,
    stale: u64,
    removed: u64,
}

impl Deviations {
    fn add(&mut self, batch: &TransformedBatch) {
        self.left_out += batch.refused.len() as u64;
        self.stale += batch.stale;
        self.removed += batch.removed;
    }

    /// Once for a pass and not for each batch, so that the log does not grow with the table.
    fn log(&self) {
        let Self {
            left_out,
            stale,
            removed,
        } = *self;
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "units went into quarantine; `bbs migrate quarantine list` names them"
            );
        }
        if removed > 0 {
            tracing::warn!(
                removed,
                "modules removed rows, as their manifests declare; a migration in the other direction restores them from residue"
            );
        }
        if stale > 0 {
            tracing::warn!(
                stale,
                "residue was discarded: the records that it was saved from have changed since"
            );
        }
    }
}

/// The last stage.
async fn write_batches(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    pass: GroupPass,
    mut transformed: WorkedBatches<CopyBatch>,
) -> Result<(), MigrateError> {
    let mut deviations = Deviations::default();
    while let Some(batch) = transformed.next().await {
        let units = batch.units();
        let left_out = deviations.left_out;
        write_in_parts(context, fence, job, pass, batch, &mut deviations).await?;
        transformed.written(units);
        context.progress.quarantined(deviations.left_out - left_out);
    }
    deviations.log();
    Ok(())
}

/// Writes a batch; if the database refuses a row of it, in halves, down to the unit that the row is
/// of.
async fn write_in_parts(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    pass: GroupPass,
    batch: CopyBatch,
    deviations: &mut Deviations,
) -> Result<(), MigrateError> {
    // In the order of their keys, the next one last.
    let mut waiting = vec![batch];
    while let Some(batch) = waiting.pop() {
        let attempt = || write_batch(context, fence, job, pass, &batch);
        match pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await {
            Err(MigrateError::RefusedRow { table, source }) if batch.keys.len() > 1 => {
                tracing::info!(
                    table,
                    reason = refusal(&source),
                    "the database refuses a row of a batch, which is divided"
                );
                let worker = Arc::clone(job);
                let [first, second] = spawn_blocking(move || batch.halves(&worker)).await??;
                waiting.extend([second, first]);
            }
            // A unit that is left out has no row of a copy.
            Err(MigrateError::RefusedRow { table, source })
                if batch.transformed.refused.is_empty() =>
            {
                let refused = batch
                    .transformed
                    .refused_unit(job, &batch.keys[0], &table, &source);
                match job.on_unreadable {
                    OnUnreadable::Stop => return Err(refused.stop(pass.group)),
                    OnUnreadable::Quarantine => waiting.push(batch.left_out(refused)),
                }
            }
            written => {
                written?;
                deviations.add(&batch.transformed);
            }
        }
    }
    Ok(())
}

async fn write_batch(
    context: &Context,
    fence: &Fence,
    job: &Job,
    pass: GroupPass,
    batch: &CopyBatch,
) -> Result<(), MigrateError> {
    // The cursor is in the same log, so batches that a crash of the machine loses are copied again.
    // The cut-over, whose commit is awaited, comes after them.
    let mut tx = fence.begin_relaxed().await?;
    for plan in job.copies_of(pass.group) {
        if plan.by_range() {
            if pass.kind == Pass::ResidueOnly {
                continue;
            }
            let source = &job.lens.source.tables[&plan.sources[0]];
            let range = (batch.after.as_ref(), &batch.last);
            let but_for = batch.transformed.refused.iter().map(|refused| &refused.key);
            let target = plan.staged(job.to);
            let copied =
                bbs_units::copy_range(&mut tx, (source, &target), &plan.columns, range, but_for)
                    .await;
            let copied = CopiedRows {
                rows: copied.map_err(plan.failed())?,
                checksum: Checksum::default(),
            };
            checksum::add(&mut tx, plan, copied).await?;
        } else if let Some((rows, checksum)) = batch.transformed.tables.get(&plan.table.name) {
            let inserted = bulk::insert(&mut tx, &plan.staged(job.to), &plan.table, rows).await;
            inserted.map_err(plan.failed())?;
            let copied = CopiedRows {
                rows: rows.count() as u64,
                checksum: *checksum,
            };
            checksum::add(&mut tx, plan, copied).await?;
        }
    }
    checksum::add_originals(&mut tx, pass.group, batch.originals()).await?;
    residue::store(&mut tx, &batch.transformed.residue).await?;
    quarantine::store(
        &mut tx,
        job,
        pass.group,
        &batch.transformed.refused,
        context.now_ns,
    )
    .await?;
    let number = cursor_number(job, pass) as i64;
    let cursor = upsert(
        "bbs_copy",
        [("group_number", number.into())],
        [("last_key", batch.last.to_text().into())],
    );
    tx.execute(&cursor).await.about("bbs_copy")?;
    fault::point(fault::BEFORE_BATCH);
    tx.commit().await.about("bbs_copy")?;
    fault::point(fault::AFTER_BATCH);
    Ok(())
}
