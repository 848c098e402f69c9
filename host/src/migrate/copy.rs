//! The copy: group by group, batch by batch, in the order of unit keys. A batch's rows, what its steps would
//! lose, and the cursor are one fenced transaction, so a crash leaves whole batches only. After the units that have rows
//! come those of which only what was kept is left.
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
use super::read::{Bounds, Loaded, Measure, Places, Range, Room, bounds, keys_among, keys_between, load};
use super::tally::{self, Written};
use super::transform::{Checksum, Read, Transformed, transform};
use super::{Context, MigrateError, Work, fault, quarantine, residue, write};
use crate::database::{SqlError, Transaction, sql, upsert};
use crate::layout::schema::Table;
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

/// Which units of a group are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Those that have rows in the tables of the group, in the order of their keys.
    Stored,
    /// Those that have rows in none of them, and of which the way back kept rows of tables that are made again; in the
    /// order of the digests of their names.
    Kept,
}

/// One batch on its way from reading to writing.
struct Batch {
    after: Option<Key>,
    last: Key,
    units: u64,
    /// What progress counts: see [`rows_in`].
    rows: u64,
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
            total += rows_in(&mut reader, work, group).await?;
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
        for pass in passes(work, group) {
            let complete = copy_group(context, fence, work, (group, pass), allowance).await?;
            if !complete {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// What there is to copy of a group.
fn passes(work: &Work, group: usize) -> impl Iterator<Item = Pass> + use<> {
    let is_copied = work.has_copies(group) || work.visits_units(group);
    let of_group = &work.lens.groups[group];
    let stored = (is_copied && !of_group.sources.is_empty()).then_some(Pass::Stored);
    let kept = (is_copied && !of_group.restored.is_empty()).then_some(Pass::Kept);
    stored.into_iter().chain(kept)
}

/// Under which number the cursor of a pass rests.
fn cursor_number(work: &Work, (group, pass): (usize, Pass)) -> usize {
    match pass {
        Pass::Kept if !work.lens.groups[group].sources.is_empty() => work.lens.groups.len() + group,
        Pass::Stored | Pass::Kept => group,
    }
}

/// Progress counts rows: counting distinct keys would read every table once more.
async fn rows_in(tx: &mut Transaction, work: &Work, group: usize) -> Result<u64, MigrateError> {
    let mut rows = 0;
    for table in &work.lens.groups[group].sources {
        rows += super::state::count(tx, table).await?.unsigned_abs();
    }
    Ok(rows)
}

/// The last unit that is written, of a group's units that have rows or of another pass.
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
    (group, pass): (usize, Pass),
    allowance: &Arc<Allowance>,
) -> Result<bool, MigrateError> {
    let number = cursor_number(work, (group, pass));
    let reading = Reading { after: cursor(context, number).await?, fitting: u64::MAX };
    let size = Arc::new(AtomicU64::new(FIRST_BATCH));
    let (to_transform, from_read) = mpsc::channel(WAITING);
    let (to_write, from_transform) = mpsc::channel(WAITING);
    let (context_of_read, work_of_read, allowance) = (context.clone(), Arc::clone(work), Arc::clone(allowance));
    let source = Source { context: context_of_read, work: work_of_read, group, pass, allowance, reading };
    // In tasks of their own, so that one core decodes rows while another encodes them.
    let read = tokio::spawn(read_batches(source, Arc::clone(&size), to_transform));
    let transformed = tokio::spawn(transform_batches(Arc::clone(work), group, from_read, to_write));
    // Each to its end, whatever happens to another: work on a connection is not left halfway. Who fails, or is not waited
    // for any more, lets go of its channel, and that ends the others. The last stage knows best what went wrong.
    let written = write_batches(context, fence, work, (group, pass), from_transform, &size).await;
    let interrupted = |_| MigrateError::Interrupted;
    let (read, transformed) = (read.await.map_err(interrupted), transformed.await.map_err(interrupted));
    written.and(transformed?).and(read?)
}

/// What the first stage reads from, and how far it has come.
struct Source {
    context: Context,
    work: Arc<Work>,
    group: usize,
    pass: Pass,
    allowance: Arc<Allowance>,
    reading: Reading,
}

/// The first stage. Says whether all there is was read, or as much as is allowed.
async fn read_batches(
    mut source: Source,
    size: Arc<AtomicU64>,
    to_transform: mpsc::Sender<(Batch, Option<Read>)>,
) -> Result<bool, MigrateError> {
    loop {
        source.context.pace.ready(&source.context.progress).await;
        let most = size.load(Ordering::Relaxed).min(source.context.pace.most_units());
        let most = source.allowance.most(most);
        // One is looked for, to see whether anything is left.
        let Some((batch, read)) = source.read_batch(most.max(1)).await? else {
            return Ok(true);
        };
        if most == 0 {
            return Ok(false);
        }
        source.allowance.spend(batch.units);
        source.context.pace.take(batch.units);
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
    of: (usize, Pass),
    mut batches: mpsc::Receiver<Batch>,
    size: &AtomicU64,
) -> Result<(), MigrateError> {
    let (mut stale, mut left_out) = (0, 0);
    while let Some(batch) = batches.recv().await {
        let began = Instant::now();
        until_it_is_written(context, fence, work, of, &batch).await?;
        let spent = began.elapsed().max(Duration::from_micros(1));
        context.progress.advance(batch.rows);
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

impl Source {
    /// The next batch, or nothing at the end. A group in which nothing is computed only has its bounds read.
    async fn read_batch(&mut self, most: u64) -> Result<Option<(Batch, Option<Read>)>, MigrateError> {
        let (context, work, group) = (&self.context, &self.work, self.group);
        let mut reader = context.database.read().await?;
        let after = self.reading.after.take();
        let most = most.min(self.reading.fitting);
        let Some((mut found, last)) = self.next_units(&mut reader, after.as_ref(), most).await? else {
            return Ok(None);
        };
        let held = match work.locks() {
            None => None,
            Some(locks) => {
                // Held before they are read again, in a state that has what their holders before have committed.
                drop(reader);
                let held = locks.take(found.units.iter().map(|unit| (group, unit.clone())).collect()).await;
                reader = context.database.read().await?;
                if self.pass == Pass::Kept {
                    leave_out_stored(work, &mut reader, group, &mut found.units).await?;
                }
                Some(held)
            }
        };
        let mut last = last;
        reader.find_by_key().await.map_err(failed)?;
        let read = match work.visits_units(group) {
            false => {
                self.reading.fitting = fitting(context, found.units.len(), found.bytes);
                None
            }
            true if self.pass == Pass::Kept => Some(self.read_kept(&mut reader, &found).await?),
            true => {
                let read = self.read_stored(&mut reader, after.as_ref(), &mut found).await?;
                last = found.units.last().cloned().expect("there is one");
                Some(read)
            }
        };
        self.reading.after = Some(last.clone());
        let (units, rows) = (found.units.len() as u64, found.rows);
        let batch = Batch { after, last, units, rows, transformed: Transformed::default(), _held: held };
        Ok(Some((batch, read)))
    }

    /// The units that come next, and the last key that they reach to.
    async fn next_units(
        &self,
        reader: &mut Transaction,
        after: Option<&Key>,
        most: u64,
    ) -> Result<Option<(Bounds, Key)>, MigrateError> {
        let Self { context, work, group, .. } = self;
        if self.pass == Pass::Kept {
            return kept_units(work, reader, *group, after, most).await;
        }
        // What is read is bounded when it is read; what the database copies by itself has to be measured before.
        let measure = match work.visits_units(*group) {
            true => Measure::Rows,
            false => Measure::Bytes { most: context.tuning.batch_bytes },
        };
        let found = bounds(reader, &work.sources(*group), after, most, measure).await?;
        Ok(found.units.last().cloned().map(|last| (found, last)))
    }

    /// The rows of the units that were found, of which fewer are left if there is no room for all.
    async fn read_stored(
        &mut self,
        reader: &mut Transaction,
        after: Option<&Key>,
        found: &mut Bounds,
    ) -> Result<Read, MigrateError> {
        let (context, work, group) = (&self.context, &self.work, self.group);
        let mut read = Read::default();
        let sources = work.sources(group);
        let mut room = Room::new(&context.tuning, found.units.len());
        for table in &sources {
            let range = Range { after, units: &found.units, is_shared: work.locks().is_some() };
            let loaded = load(reader, table, work.loads_of(&table.name), range, &mut room).await?;
            found.units.truncate(loaded.units());
            read.tables.insert(table.name.clone(), loaded);
        }
        let units = found.units.len();
        for table in &sources {
            read.tables.get_mut(&table.name).expect("it was loaded").truncate(table, units);
        }
        found.rows = read.tables.values().map(|loaded| loaded.rows() as u64).sum();
        self.reading.fitting = fitting(context, units, room.bytes(units));
        read.units.clone_from(&found.units);
        if work.locks().is_some() {
            let there = copied_already(reader, work, group, after, &found.units).await?;
            read.leave_out(work, &there);
        }
        with_left(work, reader, read).await
    }

    /// Units without a row, for what was kept of them.
    async fn read_kept(&self, reader: &mut Transaction, found: &Bounds) -> Result<Read, MigrateError> {
        let of_none = |table: &&Table| {
            let loaded = Loaded::of_none(table, self.work.loads_of(&table.name), found.units.len());
            (table.name.clone(), loaded)
        };
        let tables = self.work.sources(self.group).iter().map(of_none).collect();
        let read = Read { units: found.units.clone(), tables, ..Read::default() };
        with_left(&self.work, reader, read).await
    }
}

/// How many units make a full batch if they take as much as these.
fn fitting(context: &Context, units: usize, bytes: u64) -> u64 {
    let full = context.tuning.batch_bytes.saturating_mul(units as u64);
    (full / bytes.max(1)).max(1)
}

/// The same with what the way back kept of its units.
async fn with_left(work: &Work, reader: &mut Transaction, mut read: Read) -> Result<Read, MigrateError> {
    if !work.lens.restorable().is_empty() {
        let names: Vec<_> = read.units.iter().map(Key::name).collect();
        let from = work.lens.direction.opposite();
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

/// The next units of tables that are made again of which only the residue is left, and the last that was looked at.
async fn kept_units(
    work: &Work,
    tx: &mut Transaction,
    group: usize,
    after: Option<&Key>,
    most: u64,
) -> Result<Option<(Bounds, Key)>, MigrateError> {
    let restored = &work.lens.groups[group].restored;
    let from = work.lens.direction.opposite();
    let mut after = after.map(Key::name);
    loop {
        let names = residue::units_of(tx, from, restored, after.as_deref(), most).await?;
        let key = |unit: String| Key(vec![Part::Text(unit.into_bytes())]);
        let mut units: Vec<_> = names.into_iter().map(key).collect();
        let Some(last) = units.last().cloned() else { return Ok(None) };
        leave_out_stored(work, tx, group, &mut units).await?;
        if !units.is_empty() {
            let rows = units.len() as u64;
            return Ok(Some((Bounds { units, rows, bytes: 0 }, last)));
        }
        after = Some(last.name());
    }
}

/// Leaves out units that have rows in a table of the group.
async fn leave_out_stored(
    work: &Work,
    tx: &mut Transaction,
    group: usize,
    units: &mut Vec<Key>,
) -> Result<(), MigrateError> {
    for table in work.sources(group) {
        if units.is_empty() {
            break;
        }
        let stored = keys_among(tx, table, units).await?;
        let places = Places::new(&stored, tx.dialect());
        units.retain(|unit| places.of(unit).is_none());
    }
    Ok(())
}

/// Again where the database gave the batch up for another transaction's sake; nothing of it was kept.
async fn until_it_is_written(
    context: &Context,
    fence: &Fence,
    work: &Work,
    of: (usize, Pass),
    batch: &Batch,
) -> Result<(), MigrateError> {
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        let fault = match write_batch(context, fence, work, of, batch).await {
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
    (group, pass): (usize, Pass),
    batch: &Batch,
) -> Result<(), MigrateError> {
    work.check_mirror()?;
    // The cursor is in the same log: what a crash of the machine takes with it is copied again. And the cut-over, whose
    // commit is waited for, comes after it.
    let mut tx = fence.begin_at_ease().await?;
    tx.find_by_key().await.map_err(failed)?;
    for plan in work.plans.iter().filter(|plan| plan.group == group && plan.strategy == Strategy::Copy) {
        if plan.by_range() {
            if pass == Pass::Kept {
                continue;
            }
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
    let number = cursor_number(work, (group, pass)) as i64;
    let cursor = upsert("bbs_copy", [("group_number", number.into())], [("last_key", batch.last.to_text().into())]);
    tx.execute(&cursor).await.map_err(failed)?;
    fault::point(fault::BEFORE_BATCH);
    tx.commit().await.map_err(failed)?;
    fault::point(fault::AFTER_BATCH);
    Ok(())
}
