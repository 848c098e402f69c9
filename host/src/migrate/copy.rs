//! The copy: group by group, batch by batch, in the order of unit keys. A batch's rows, what its steps would
//! lose, and the cursor are one fenced transaction, so a crash leaves whole batches only.
//!
//! While one batch is being written, the next is in the modules and the one after it is being read.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::key::{Key, Part};
use super::online::Held;
use super::part::Allowance;
use super::plan::Strategy;
use super::read::{Bounds, Room, Selection, bounds, keys_between, load};
use super::tally::{self, Written};
use super::transform::{Checksum, Read, Transformed, transform};
use super::{Context, MigrateError, Work, fault, quarantine, residue, write};
use crate::database::{SqlError, Transaction, sql, upsert};
use crate::lock::fence::Fence;
use crate::progress::Wait;

/// Nor do batches get smaller than the first: what a batch costs however small it is would soon be all that is done.
const FIRST_BATCH: u64 = 100;
/// Batches that wait between two stages: with one in each stage, at most five are in memory.
const WAITING: usize = 1;
/// Before a batch that lost to another transaction is tried again. Who loses every time loses to somebody that will
/// not end.
const RETRY_PAUSES: [Duration; 6] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: "bbs_copy".to_owned(), source }
}

/// Where reading has come to.
struct Reading {
    after: Option<Key>,
    /// How many units make a full batch, by what those of the last one took.
    fitting: u64,
}

/// One batch on its way from reading to writing.
struct Batch {
    after: Option<Key>,
    last: Key,
    keys: u64,
    /// Rows: see [`units_in`].
    units: u64,
    transformed: Transformed,
    /// Until it is committed, where clients write meanwhile.
    _held: Option<Held>,
}

/// Copies every group that has something to copy or to keep. Says whether all of it is copied, or as much as is allowed.
pub(super) async fn copy(
    context: &Context,
    fence: &Fence,
    work: &Arc<Work>,
    allowance: &Arc<Allowance>,
) -> Result<bool, MigrateError> {
    let mut reader = context.database.read().await?;
    let mut total = 0;
    for group in 0..work.lens.groups.len() {
        if work.has_copies(group) || work.visits_units(group) {
            total += units_in(&mut reader, work, group).await?;
        }
    }
    let mut done = 0;
    for plan in &work.plans {
        done += tally::written(&mut reader, plan).await?.rows;
    }
    drop(reader);
    context.progress.enter("copy", work.describe(), Some(total));
    context.progress.resume_at(done.min(total));
    for group in 0..work.lens.groups.len() {
        if work.has_copies(group) || work.visits_units(group) {
            let complete = copy_group(context, fence, work, group, allowance).await?;
            if !complete {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Rows stand for units here: counting distinct keys would read every table once more.
async fn units_in(tx: &mut Transaction, work: &Work, group: usize) -> Result<u64, MigrateError> {
    let mut rows = 0;
    for table in &work.lens.groups[group].sources {
        rows += super::state::count(tx, table).await?.unsigned_abs();
    }
    Ok(rows)
}

/// The last unit that is written.
pub(super) async fn cursor(context: &Context, group: usize) -> Result<Option<Key>, MigrateError> {
    let mut reader = context.database.read().await?;
    let select = sql("SELECT last_key FROM bbs_copy WHERE group_number = ?").bind(group as i64);
    let Some(row) = reader.fetch_optional(select).await.map_err(failed)? else { return Ok(None) };
    let key = row.text(0).map_err(failed)?.and_then(Key::from_text);
    key.ok_or(MigrateError::DamagedCursor { group }).map(Some)
}

async fn copy_group(
    context: &Context,
    fence: &Fence,
    work: &Arc<Work>,
    group: usize,
    allowance: &Arc<Allowance>,
) -> Result<bool, MigrateError> {
    let reading = Reading { after: cursor(context, group).await?, fitting: u64::MAX };
    let size = Arc::new(AtomicU64::new(FIRST_BATCH));
    let (to_transform, from_read) = mpsc::channel(WAITING);
    let (to_write, from_transform) = mpsc::channel(WAITING);
    let source =
        Source { context: context.clone(), work: Arc::clone(work), group, allowance: Arc::clone(allowance), reading };
    // In tasks of their own, so that one core decodes rows while another encodes them.
    let read = tokio::spawn(read_batches(source, Arc::clone(&size), to_transform));
    let transformed = tokio::spawn(transform_batches(Arc::clone(work), group, from_read, to_write));
    // Each to its end, whatever happens to another: work on a connection is not left halfway. Who fails, or is not waited
    // for any more, lets go of its channel, and that ends the others. The last stage knows best what went wrong.
    let written = write_batches(context, fence, work, group, from_transform, &size).await;
    let interrupted = |_| MigrateError::Interrupted;
    let (read, transformed) = (read.await.map_err(interrupted), transformed.await.map_err(interrupted));
    written.and(transformed?).and(read?)
}

/// What the first stage reads from, and how far it has come.
struct Source {
    context: Context,
    work: Arc<Work>,
    group: usize,
    allowance: Arc<Allowance>,
    reading: Reading,
}

/// The first stage. Says whether all there is was read, or as much as is allowed.
async fn read_batches(
    mut source: Source,
    size: Arc<AtomicU64>,
    to_transform: mpsc::Sender<(Batch, Option<Read>)>,
) -> Result<bool, MigrateError> {
    let Source { context, work, group, allowance, reading } = &mut source;
    loop {
        context.pace.ready(&context.progress).await;
        let most = size.load(Ordering::Relaxed).min(context.pace.most_units());
        let most = allowance.most(most);
        // One is looked for, to see whether anything is left.
        let Some((batch, read)) = read_batch(context, work, *group, reading, most.max(1)).await? else {
            return Ok(true);
        };
        if most == 0 {
            return Ok(false);
        }
        allowance.spend(batch.keys);
        context.pace.take(batch.units);
        if to_transform.send((batch, read)).await.is_err() {
            return Ok(true);
        }
    }
}

async fn transform_batches(
    work: Arc<Work>,
    group: usize,
    mut from_read: mpsc::Receiver<(Batch, Option<Read>)>,
    to_write: mpsc::Sender<Batch>,
) -> Result<(), MigrateError> {
    while let Some((mut batch, read)) = from_read.recv().await {
        if let Some(read) = read {
            let work = Arc::clone(&work);
            let done = tokio::task::spawn_blocking(move || transform(&work, group, &read)).await;
            batch.transformed = done.map_err(|_| MigrateError::Interrupted)??;
        }
        if to_write.send(batch).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The last stage: a batch after another, as large as what they take allows.
async fn write_batches(
    context: &Context,
    fence: &Fence,
    work: &Work,
    group: usize,
    mut batches: mpsc::Receiver<Batch>,
    size: &AtomicU64,
) -> Result<(), MigrateError> {
    let (mut stale, mut left_out) = (0, 0);
    while let Some(batch) = batches.recv().await {
        let began = Instant::now();
        until_it_is_written(context, fence, work, group, &batch).await?;
        let spent = began.elapsed().max(Duration::from_micros(1));
        context.progress.batch_done(batch.units, spent);
        context.progress.quarantined(batch.transformed.refused.len() as u64);
        let ratio = (context.tuning.batch_time.as_secs_f64() / spent.as_secs_f64()).clamp(0.5, 2.0);
        let next = (batch.units as f64 * ratio) as u64;
        let most = context.tuning.batch_units;
        size.store(next.clamp(FIRST_BATCH.min(most), most), Ordering::Relaxed);
        left_out += batch.transformed.refused.len();
        stale += batch.transformed.stale;
    }
    // Once and not for each batch, so that the log does not grow with the table.
    if left_out > 0 {
        tracing::warn!(left_out, "units went into quarantine; `bbs migrate quarantine list` names them");
    }
    if stale > 0 {
        tracing::warn!(stale, "kept values were not given back: their records have changed since they were kept");
    }
    Ok(())
}

/// The next batch, or nothing at the end. A group in which nothing is computed only has its bounds read.
async fn read_batch(
    context: &Context,
    work: &Work,
    group: usize,
    reading: &mut Reading,
    most: u64,
) -> Result<Option<(Batch, Option<Read>)>, MigrateError> {
    let mut reader = context.database.read().await?;
    let sources = work.sources(group);
    let after = reading.after.take();
    let most = most.min(reading.fitting);
    let mut found = if sources.is_empty() {
        restored_units(work, &mut reader, group, after.as_ref(), most).await?
    } else {
        bounds(&mut reader, &sources, after.as_ref(), most).await?
    };
    if found.units.is_empty() {
        return Ok(None);
    }
    let held = match work.locks() {
        None => None,
        Some(locks) => {
            // In hand before they are read again, in a state that has what the hands before have done.
            drop(reader);
            let held = locks.take(found.units.iter().map(|unit| (group, unit.clone())).collect()).await;
            reader = context.database.read().await?;
            Some(held)
        }
    };
    reader.find_by_key().await.map_err(failed)?;
    let read = match work.visits_units(group) {
        false => None,
        true => Some(read_units(context, work, &mut reader, group, after.as_ref(), &mut found, reading).await?),
    };
    let last = found.units.last().cloned().expect("there is one");
    reading.after = Some(last.clone());
    let keys = found.units.len() as u64;
    let batch = Batch { after, last, keys, units: found.rows, transformed: Transformed::default(), _held: held };
    Ok(Some((batch, read)))
}

/// The rows of the units that were found, of which fewer are left if there is no room for all.
async fn read_units(
    context: &Context,
    work: &Work,
    reader: &mut Transaction,
    group: usize,
    after: Option<&Key>,
    found: &mut Bounds,
    reading: &mut Reading,
) -> Result<Read, MigrateError> {
    let mut read = Read::default();
    let sources = work.sources(group);
    let mut room = Room::new(&context.tuning, found.units.len());
    for table in &sources {
        let range = Selection::Range { after, units: &found.units, is_shared: work.locks().is_some() };
        let loaded = load(reader, table, work.loads_of(&table.name), range, &mut room).await?;
        found.units.truncate(loaded.units());
        read.tables.insert(table.name.clone(), loaded);
    }
    if !sources.is_empty() {
        let units = found.units.len();
        for table in &sources {
            read.tables.get_mut(&table.name).expect("it was loaded").truncate(table, units);
        }
        found.rows = read.tables.values().map(|loaded| loaded.rows() as u64).sum();
        let full = context.tuning.batch_bytes.saturating_mul(units as u64);
        reading.fitting = (full / room.bytes(units).max(1)).max(1);
    }
    read.units.clone_from(&found.units);
    if work.locks().is_some() && !sources.is_empty() {
        let there = copied_already(reader, work, group, after, &found.units).await?;
        read.leave_out(work, &there);
    }
    if !work.lens.restorable().is_empty() {
        let names: Vec<_> = read.units.iter().map(Key::name).collect();
        let from = residue::opposite(work.lens.direction);
        read.left = residue::load(reader, &work.keyring, from, work.versions(), &names).await?;
    }
    Ok(read)
}

/// Units of a range that are in the copies, because a client has written them since: they are as they have to be.
async fn copied_already(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    after: Option<&Key>,
    units: &[Key],
) -> Result<HashSet<Key>, MigrateError> {
    let mut there = HashSet::new();
    for plan in work.plans.iter().filter(|plan| plan.group == group && plan.strategy == Strategy::Copy) {
        there.extend(keys_between(tx, &plan.table, &plan.staged(work.to), after, units.last()).await?);
    }
    Ok(there)
}

/// Units of tables that are made again, of which only the residue is left.
async fn restored_units(
    work: &Work,
    tx: &mut Transaction,
    group: usize,
    after: Option<&Key>,
    most: u64,
) -> Result<Bounds, MigrateError> {
    let restored = &work.lens.groups[group].restored;
    let from = residue::opposite(work.lens.direction);
    let after = after.map(Key::name);
    let units = residue::units_of(tx, from, restored, after.as_deref(), most).await?;
    let rows = units.len() as u64;
    let units = units.into_iter().map(|unit| Key(vec![Part::Text(unit.into_bytes())])).collect();
    Ok(Bounds { units, rows })
}

/// Again where the database gave the batch up for another transaction's sake; nothing of it was kept.
async fn until_it_is_written(
    context: &Context,
    fence: &Fence,
    work: &Work,
    group: usize,
    batch: &Batch,
) -> Result<(), MigrateError> {
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        let fault = match write_batch(context, fence, work, group, batch).await {
            Err(fault) if fault.is_transient() => fault,
            written => return written,
        };
        let Some(pause) = pauses.next() else { return Err(fault) };
        tracing::info!(reason = %fault, "a batch lost to another transaction and is written again");
        context.progress.retried();
        let _waiting = context.progress.wait(Wait::Retry);
        tokio::time::sleep(*pause).await;
    }
}

async fn write_batch(
    context: &Context,
    fence: &Fence,
    work: &Work,
    group: usize,
    batch: &Batch,
) -> Result<(), MigrateError> {
    work.check_mirror()?;
    // The cursor is in the same log: what a crash of the machine takes with it is copied again. And the cut-over, whose
    // commit is waited for, comes after it.
    let mut tx = fence.begin_at_ease().await?;
    tx.find_by_key().await.map_err(failed)?;
    for plan in work.plans.iter().filter(|plan| plan.group == group && plan.strategy == Strategy::Copy) {
        if plan.by_range() {
            let source = &work.lens.near.tables[&plan.sources[0]];
            let range = (batch.after.as_ref(), &batch.last);
            let but_for = batch.transformed.refused.iter().map(|refused| &refused.key);
            let rows = write::copy_range(&mut tx, plan, source, range, but_for, work.to).await?;
            tally::add(&mut tx, plan, Written { rows, checksum: Checksum::default() }).await?;
        } else if let Some((rows, checksum)) = batch.transformed.tables.get(&plan.table.name) {
            write::write_rows(&mut tx, plan, work.to, rows).await?;
            tally::add(&mut tx, plan, Written { rows: rows.count as u64, checksum: *checksum }).await?;
        }
    }
    residue::store(&mut tx, work.lens.direction, &batch.transformed.residue).await?;
    quarantine::store(&mut tx, work, group, &batch.transformed.refused, context.now_ns).await?;
    let cursor =
        upsert("bbs_copy", [("group_number", (group as i64).into())], [("last_key", batch.last.to_text().into())]);
    tx.execute(&cursor).await.map_err(failed)?;
    fault::point(fault::BEFORE_BATCH);
    tx.commit().await.map_err(failed)?;
    fault::point(fault::AFTER_BATCH);
    Ok(())
}
