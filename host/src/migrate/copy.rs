//! The copy: group by group, batch by batch, in the order of unit keys. A batch's rows, their
//! residue and the cursor are written in one fenced transaction, so a crash leaves whole batches
//! only. Units that have rows come first, then those of which only residue is left.
//!
//! While one batch is written, the next is transformed and the one after it is read.

mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::checksum::{self, Checksum, CopiedRows};
use super::plan::Strategy;
use super::transform::{ReadBatch, TransformedBatch, transform};
use super::{
    Context, Job, MigrateError, PartialRun, RefusedUnits, fault, partial_run, quarantine, state,
};
use crate::database::{SqlError, refusal, upsert};
use crate::lock::fence::Fence;
use crate::pauses;
use crate::progress::Counted;
use crate::rows::{self, residue};
use reader::{BatchReader, CopyBatch, Pass};

/// Initial and minimum batch size; below it the fixed cost of a transaction dominates.
const FIRST_BATCH: u64 = 100;
/// Batches that wait between two stages: with one in each stage, at most five are in memory.
const WAITING: usize = 1;
fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql {
        what: "bbs_copy".to_owned(),
        source,
    }
}

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
        for pass in passes(job, group) {
            let complete = copy_group(context, fence, job, (group, pass), budget).await?;
            if !complete {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The passes over a group.
fn passes(job: &Job, group: usize) -> impl Iterator<Item = Pass> + use<> {
    let is_copied = job.has_copies(group) || job.visits_units(group);
    let of_group = &job.lens.groups[group];
    let stored = (is_copied && !of_group.sources.is_empty()).then_some(Pass::Stored);
    let kept = (is_copied && !of_group.restored.is_empty()).then_some(Pass::ResidueOnly);
    stored.into_iter().chain(kept)
}

/// The number under which the cursor of a pass is stored.
fn cursor_number(job: &Job, (group, pass): (usize, Pass)) -> usize {
    match pass {
        Pass::ResidueOnly if !job.lens.groups[group].sources.is_empty() => {
            job.lens.groups.len() + group
        }
        Pass::Stored | Pass::ResidueOnly => group,
    }
}

async fn copy_group(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    (group, pass): (usize, Pass),
    budget: &Arc<UnitBudget>,
) -> Result<bool, MigrateError> {
    let number = cursor_number(job, (group, pass));
    let after = state::cursor(context, number).await?;
    let size = Arc::new(AtomicU64::new(FIRST_BATCH));
    let (to_transform, from_read) = mpsc::channel(WAITING);
    let (to_write, from_transform) = mpsc::channel(WAITING);
    let reader = BatchReader::new(context.clone(), Arc::clone(job), group, pass, after);
    // In tasks of their own, so that one core decodes rows while another encodes them.
    let read = tokio::spawn(read_batches(
        reader,
        context.clone(),
        Arc::clone(budget),
        Arc::clone(&size),
        to_transform,
    ));
    let transformed = tokio::spawn(transform_batches(
        Arc::clone(job),
        group,
        from_read,
        to_write,
    ));
    // Each stage runs to its end whatever happens to the others: no statement is abandoned on a
    // connection. A stage that fails or is cancelled drops its channel, which ends the others; the
    // error of the last stage is the most specific.
    let written = write_batches(context, fence, job, (group, pass), from_transform, &size).await;
    let interrupted = |_| MigrateError::Interrupted;
    let (read, transformed) = (
        read.await.map_err(interrupted),
        transformed.await.map_err(interrupted),
    );
    written.and(transformed?).and(read?)
}

/// The first stage. Returns whether everything was read; otherwise the budget is spent.
async fn read_batches(
    mut reader: BatchReader,
    context: Context,
    budget: Arc<UnitBudget>,
    size: Arc<AtomicU64>,
    to_transform: mpsc::Sender<(CopyBatch, Option<ReadBatch>)>,
) -> Result<bool, MigrateError> {
    loop {
        context.throttle.ready(&context.progress).await;
        let most = size
            .load(Ordering::Relaxed)
            .min(context.throttle.most_units());
        let most = budget.most(most);
        // One unit is read beyond the budget, to see whether any is left.
        let Some((batch, read)) = reader.next(most.max(1)).await? else {
            return Ok(true);
        };
        if most == 0 {
            return Ok(false);
        }
        budget.spend(batch.units());
        context.throttle.take(batch.units());
        if to_transform.send((batch, read)).await.is_err() {
            return Ok(true);
        }
    }
}

async fn transform_batches(
    job: Arc<Job>,
    group: usize,
    mut from_read: mpsc::Receiver<(CopyBatch, Option<ReadBatch>)>,
    to_write: mpsc::Sender<CopyBatch>,
) -> Result<(), MigrateError> {
    while let Some((batch, read)) = from_read.recv().await {
        // In the order of their keys, the next one last.
        let mut waiting = vec![(batch, read)];
        while let Some((mut batch, read)) = waiting.pop() {
            if let Some(mut read) = read {
                let worker = Arc::clone(&job);
                let work = move || {
                    transform(&worker, group, &mut read).map(|transformed| (transformed, read))
                };
                let done = tokio::task::spawn_blocking(work).await;
                let (transformed, read) = done.map_err(|_| MigrateError::Interrupted)??;
                let Some(transformed) = transformed else {
                    let [front, back] = read.halves(&job);
                    let end = front.rows.units.last().expect("half of several units");
                    let (first, second) = batch.divided_after(end);
                    waiting.extend([(second, Some(back)), (first, Some(front))]);
                    continue;
                };
                batch.transformed = transformed;
            }
            if to_write.send(batch).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
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
}

/// The last stage: writes batch after batch, and sets the size of the next by the time that each
/// takes.
async fn write_batches(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    of: (usize, Pass),
    mut batches: mpsc::Receiver<CopyBatch>,
    size: &AtomicU64,
) -> Result<(), MigrateError> {
    let mut deviations = Deviations::default();
    while let Some(batch) = batches.recv().await {
        let units = batch.units();
        let left_out = deviations.left_out;
        let began = Instant::now();
        write_in_parts(context, fence, job, of, batch, &mut deviations).await?;
        let spent = began.elapsed().max(Duration::from_micros(1));
        context.progress.batch_done(units, spent);
        context.progress.quarantined(deviations.left_out - left_out);
        let ratio = (context.tuning.batch_time.as_secs_f64() / spent.as_secs_f64()).clamp(0.5, 2.0);
        let next = (units as f64 * ratio) as u64;
        let most = context.tuning.batch_units;
        size.store(next.clamp(FIRST_BATCH.min(most), most), Ordering::Relaxed);
    }
    let Deviations {
        left_out,
        stale,
        removed,
    } = deviations;
    // Once and not for each batch, so that the log does not grow with the table.
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
    Ok(())
}

/// Writes a batch; if the database refuses a row of it, in halves, down to the unit that the row is
/// of.
async fn write_in_parts(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    of: (usize, Pass),
    batch: CopyBatch,
    deviations: &mut Deviations,
) -> Result<(), MigrateError> {
    // In the order of their keys, the next one last.
    let mut waiting = vec![batch];
    while let Some(batch) = waiting.pop() {
        let attempt = || write_batch(context, fence, job, of, &batch);
        match pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await {
            Err(MigrateError::RefusedRow { table, source }) if batch.keys.len() > 1 => {
                tracing::info!(
                    table,
                    reason = refusal(&source),
                    "the database refuses a row of a batch, which is divided"
                );
                let worker = Arc::clone(job);
                let halves = tokio::task::spawn_blocking(move || batch.halves(&worker)).await;
                let (first, second) = halves.map_err(|_| MigrateError::Interrupted)??;
                waiting.extend([second, first]);
            }
            // A unit that is left out has no row of a copy.
            Err(MigrateError::RefusedRow { table, source })
                if batch.transformed.refused.is_empty() =>
            {
                let refused = batch
                    .transformed
                    .refused_unit(job, &batch.keys[0], &table, &source);
                match job.refused_units {
                    RefusedUnits::Stop => return Err(refused.stop(of.0)),
                    RefusedUnits::Quarantine => waiting.push(batch.left_out(refused)),
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
    (group, pass): (usize, Pass),
    batch: &CopyBatch,
) -> Result<(), MigrateError> {
    job.check_copies()?;
    // The cursor is in the same log, so batches that a crash of the machine loses are copied again.
    // The cut-over, whose commit is awaited, comes after them.
    let mut tx = fence.begin_relaxed().await?;
    for plan in job
        .plans
        .iter()
        .filter(|plan| plan.group == group && plan.strategy == Strategy::Copy)
    {
        if plan.by_range() {
            if pass == Pass::ResidueOnly {
                continue;
            }
            let source = &job.lens.source.tables[&plan.sources[0]];
            let range = (batch.after.as_ref(), &batch.last);
            let but_for = batch.transformed.refused.iter().map(|refused| &refused.key);
            let target = plan.staged(job.to);
            let copied =
                rows::copy_range(&mut tx, (source, &target), &plan.columns, range, but_for).await;
            let rows = copied.map_err(plan.failed())?;
            checksum::add(
                &mut tx,
                plan,
                CopiedRows {
                    rows,
                    checksum: Checksum::default(),
                },
            )
            .await?;
        } else if let Some((rows, checksum)) = batch.transformed.tables.get(&plan.table.name) {
            let inserted = rows::insert(&mut tx, &plan.staged(job.to), &plan.table, rows).await;
            inserted.map_err(plan.failed())?;
            checksum::add(
                &mut tx,
                plan,
                CopiedRows {
                    rows: rows.count() as u64,
                    checksum: *checksum,
                },
            )
            .await?;
        }
    }
    residue::store(&mut tx, &batch.transformed.residue).await?;
    quarantine::store(
        &mut tx,
        job,
        group,
        &batch.transformed.refused,
        context.now_ns,
    )
    .await?;
    let number = cursor_number(job, (group, pass)) as i64;
    let cursor = upsert(
        "bbs_copy",
        [("group_number", number.into())],
        [("last_key", batch.last.to_text().into())],
    );
    tx.execute(&cursor).await.map_err(failed)?;
    fault::point(fault::BEFORE_BATCH);
    tx.commit().await.map_err(failed)?;
    fault::point(fault::AFTER_BATCH);
    Ok(())
}
