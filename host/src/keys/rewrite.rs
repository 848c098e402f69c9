//! One walk over a table in the order of its key: rows whose texts are under another key are read, sealed anew and
//! written, each by itself while the next are on their way. Owns the batches, each a short fenced transaction that
//! moves the cursor too; never writes over what an API call wrote meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::row::{Resealed, RowKey, StaleRow};
use super::tables::SealedTable;
use super::{Context, KeysError, state, statement};
use crate::database::{Dialect, is_transient};
use crate::lock::fence::{Fence, FenceError};
use crate::migrate::fault;
use crate::record::Keyring;
use crate::record::header::Beginnings;

/// Enough examples to act on; the count is never cut.
const EXAMPLES: usize = 10;
const FIRST_ROWS: usize = 250;
const MOST_ROWS: usize = 4_000;
/// Bounds what is in memory, whatever the size of a row.
const BATCH_BYTES: usize = 4 << 20;
/// A batch grows or shrinks until writing it takes about this long.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// The same where every API write waits for the batch, and not only one that changes a row of it.
const BATCH_TIME_ALONE: Duration = Duration::from_millis(20);
/// How often a batch that lost against other transactions is written again.
const ATTEMPTS: usize = 10;

/// What a walk did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub rewritten: u64,
    pub unreadable: u64,
    /// The first that do not open, by place and key, with the reason.
    pub examples: Vec<String>,
}

impl Passed {
    pub(super) fn leave(&mut self, example: String) {
        self.unreadable += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example);
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.rewritten += other.rewritten;
        self.unreadable += other.unreadable;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
    }
}

struct Sealed {
    last: RowKey,
    rows: Vec<Resealed>,
    unreadable: Vec<String>,
}

/// From a cursor on to the end of the table.
pub(super) async fn walk(
    context: &Context,
    fence: &Fence,
    table: &SealedTable,
    after: Option<RowKey>,
) -> Result<Passed, KeysError> {
    let batch_rows = AtomicUsize::new(FIRST_ROWS);
    let (to_seal, stale) = channel(1);
    let (to_write, sealed) = channel(1);
    // Each runs to its end, also when another has failed: its channel is closed then, and no connection is left in the
    // middle of a statement.
    let (read, resealed, written) = tokio::join!(
        read(context, table, after, &batch_rows, to_seal),
        seal(&context.keyring, &table.name, stale, to_write),
        write(context, fence, table, &batch_rows, sealed),
    );
    let passed = written?;
    read.and(resealed)?;
    Ok(passed)
}

async fn read(
    context: &Context,
    table: &SealedTable,
    mut after: Option<RowKey>,
    batch_rows: &AtomicUsize,
    to_seal: Sender<Vec<StaleRow>>,
) -> Result<(), KeysError> {
    let active = Beginnings::of(context.keyring.active_label());
    loop {
        let most_rows = usize::try_from(context.pace.most_units()).unwrap_or(usize::MAX);
        let most = batch_rows.load(Ordering::Relaxed).min(most_rows);
        let (rows, ended) = fetch(context, table, &active, after.as_ref(), most).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = Some(last.key.clone());
        // Nobody receives any more: the walk has failed elsewhere, which is told there.
        if to_seal.send(rows).await.is_err() || ended {
            return Ok(());
        }
    }
}

/// The next rows, and whether they are the last. Fewer than asked for where they are large.
async fn fetch(
    context: &Context,
    table: &SealedTable,
    active: &Beginnings,
    after: Option<&RowKey>,
    most: usize,
) -> Result<(Vec<StaleRow>, bool), KeysError> {
    let failed = || KeysError::sql(&table.name);
    let mut tx = context.database.read().await?;
    let dialect = tx.dialect();
    let mut found = tx.stream(statement::fetch_stale(dialect, table, active, after, most));
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        let Some(row) = found.try_next().await.map_err(failed())? else { break };
        let key = RowKey::read(&row, table).map_err(failed())?;
        let width = table.key.len();
        let text = |at: usize| row.bytes(width + at).map(|text| text.map(<[u8]>::to_vec));
        let texts = (0..table.columns.len()).map(text).collect::<Result<Vec<_>, _>>().map_err(failed())?;
        bytes += texts.iter().flatten().map(Vec::len).sum::<usize>();
        rows.push(StaleRow { key, texts });
    }
    let ended = bytes < BATCH_BYTES && rows.len() < most;
    Ok((rows, ended))
}

async fn seal(
    keyring: &Arc<Keyring>,
    table: &str,
    mut stale: Receiver<Vec<StaleRow>>,
    to_write: Sender<Sealed>,
) -> Result<(), KeysError> {
    while let Some(rows) = stale.recv().await {
        let keyring = Arc::clone(keyring);
        let last = rows.last().expect("an empty batch is not sent").key.clone();
        let resealed =
            tokio::task::spawn_blocking(move || rows.into_iter().map(|row| row.reseal(&keyring)).collect::<Vec<_>>());
        let mut sealed = Sealed { last, rows: Vec::new(), unreadable: Vec::new() };
        for row in resealed.await.map_err(|_| KeysError::Interrupted)? {
            match row {
                Ok(row) if row.changes.iter().all(Option::is_none) => {}
                Ok(row) => sealed.rows.push(row),
                Err(row) => sealed.unreadable.push(format!("{table} {}: {}", row.key.name(), row.reason)),
            }
        }
        if to_write.send(sealed).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn write(
    context: &Context,
    fence: &Fence,
    table: &SealedTable,
    batch_rows: &AtomicUsize,
    mut sealed: Receiver<Sealed>,
) -> Result<Passed, KeysError> {
    let wanted = match context.database.dialect() {
        Dialect::Sqlite => BATCH_TIME_ALONE,
        Dialect::Postgres | Dialect::Mysql => BATCH_TIME,
    };
    let mut passed = Passed::default();
    while let Some(batch) = sealed.recv().await {
        context.pace.ready(&context.progress).await;
        context.pace.take(batch.rows.len() as u64);
        let began = Instant::now();
        let rewritten = write_batch(context, fence, table, &batch).await?;
        let spent = began.elapsed().max(Duration::from_millis(1));
        let fitting = batch.rows.len().max(1) as f64 * wanted.as_secs_f64() / spent.as_secs_f64();
        let now = batch_rows.load(Ordering::Relaxed);
        // Half or twice at most: one slow batch says little.
        let next = (fitting as usize).clamp(now / 2, now * 2).clamp(1, MOST_ROWS);
        batch_rows.store(next, Ordering::Relaxed);
        passed.rewritten += rewritten;
        context.progress.advance(batch.rows.len() as u64);
        context.progress.batch_done(batch.rows.len() as u64, spent);
        batch.unreadable.into_iter().for_each(|example| passed.leave(example));
    }
    Ok(passed)
}

/// Rows and cursor, once more from the start if another transaction was in the way.
async fn write_batch(context: &Context, fence: &Fence, table: &SealedTable, batch: &Sealed) -> Result<u64, KeysError> {
    let mut attempt = 1;
    loop {
        let done = try_write_batch(context, fence, table, batch).await;
        let Err(KeysError::Sql { source, .. } | KeysError::Fence(FenceError::Read(source))) = &done else {
            return done;
        };
        if !is_transient(source) || attempt == ATTEMPTS {
            return done;
        }
        attempt += 1;
        context.progress.retried();
    }
}

async fn try_write_batch(
    context: &Context,
    fence: &Fence,
    table: &SealedTable,
    batch: &Sealed,
) -> Result<u64, KeysError> {
    let mut tx = fence.begin().await?;
    let dialect = tx.dialect();
    let mut rewritten = 0;
    if dialect == Dialect::Postgres {
        tx.fetch(statement::by_index()).await.map_err(KeysError::sql(&table.name))?;
    }
    for update in statement::updates(dialect, table, &batch.rows) {
        rewritten += tx.execute(update).await.map_err(KeysError::sql(&table.name))?;
    }
    state::advance(&mut tx, table, &batch.last, rewritten, context.clock.now_ns()).await?;
    fault::point(fault::BEFORE_ROTATION_BATCH);
    tx.commit().await.map_err(KeysError::sql(&table.name))?;
    fault::point(fault::AFTER_ROTATION_BATCH);
    Ok(rewritten)
}
