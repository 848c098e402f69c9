//! Rewrites the rows of a table whose texts are not under the active key, in the order of the
//! primary key: a pipeline of reading, re-sealing and writing batches. Owns the batches, each a
//! short fenced transaction that also moves the cursor; never overwrites what an API call has
//! written in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::row::{ResealedRow, RowKey, StaleRow};
use super::tables::SealedTable;
use super::{KeysError, RotationContext, state, statement};
use crate::database::{Dialect, SqlError, is_transient};
use crate::encryption::Keyring;
use crate::encryption::header::LabelPrefixes;
use crate::lock::fence::{Fence, FenceError};
use crate::migrate::fault;
use crate::pauses;

/// The most examples that are kept; the count includes all.
const EXAMPLES: usize = 10;
const FIRST_ROWS: usize = 250;
const MOST_ROWS: usize = 4_000;
/// Bounds the memory of a batch; the last row may exceed it.
const BATCH_BYTES: usize = 4 << 20;
/// Target for the time to write a batch. Batches grow or shrink towards it.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// The target on SQLite, where every API write waits for the batch, not only writes to its rows.
const BATCH_TIME_ALONE: Duration = Duration::from_millis(20);

/// The result of a pass over a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RewriteSummary {
    /// Rows written.
    pub rewritten: u64,
    /// Rows that do not open and stay as they are.
    pub unreadable: u64,
    /// The first of these, by place and key, with the reason.
    pub examples: Vec<String>,
}

impl RewriteSummary {
    pub(super) fn skip(&mut self, example: String) {
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

/// A batch that is ready to be written.
struct SealedBatch {
    last: RowKey,
    rows: Vec<ResealedRow>,
    unreadable: Vec<String>,
}

/// Rewrites from a cursor to the end of the table.
pub(super) async fn rewrite_table(
    context: &RotationContext,
    fence: &Fence,
    table: &SealedTable,
    after: Option<RowKey>,
) -> Result<RewriteSummary, KeysError> {
    let batch_rows = AtomicUsize::new(FIRST_ROWS);
    let (to_seal, stale) = channel(1);
    let (to_write, sealed) = channel(1);
    // `join`, not `try_join`: if one stage fails, the others end by their closed channels, so that
    // no connection is abandoned within a statement.
    let (read, resealed, written) = tokio::join!(
        read(context, table, after, &batch_rows, to_seal),
        seal(&context.keyring, &table.name, stale, to_write),
        write(context, fence, table, &batch_rows, sealed),
    );
    let summary = written?;
    read.and(resealed)?;
    Ok(summary)
}

/// Opens what [`rewrite_table`] would rewrite in a whole table, and writes nothing.
pub(super) async fn survey_table(
    context: &RotationContext,
    table: &SealedTable,
) -> Result<RewriteSummary, KeysError> {
    let batch_rows = AtomicUsize::new(MOST_ROWS);
    let (to_seal, stale) = channel(1);
    let (to_count, mut sealed) = channel::<SealedBatch>(1);
    let count = async {
        let mut summary = RewriteSummary::default();
        while let Some(batch) = sealed.recv().await {
            summary.rewritten += batch.rows.len() as u64;
            batch
                .unreadable
                .into_iter()
                .for_each(|example| summary.skip(example));
        }
        summary
    };
    let (read, resealed, summary) = tokio::join!(
        read(context, table, None, &batch_rows, to_seal),
        seal(&context.keyring, &table.name, stale, to_count),
        count,
    );
    read.and(resealed)?;
    Ok(summary)
}

async fn read(
    context: &RotationContext,
    table: &SealedTable,
    mut after: Option<RowKey>,
    batch_rows: &AtomicUsize,
    to_seal: Sender<Vec<StaleRow>>,
) -> Result<(), KeysError> {
    let active = LabelPrefixes::of(context.keyring.active_label());
    loop {
        let most_rows = usize::try_from(context.throttle.most_units()).unwrap_or(usize::MAX);
        let most = batch_rows.load(Ordering::Relaxed).min(most_rows);
        let (rows, ended) = fetch(context, table, &active, after.as_ref(), most).await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };
        if after.as_ref() == Some(&last.key) {
            // Such as a key of SQLite of another storage class, which comes after every key of its
            // column's.
            let fault = format!("the keys do not ascend behind {}", last.key.name());
            return Err(KeysError::sql(&table.name)(SqlError::Decode(fault.into())));
        }
        after = Some(last.key.clone());
        // The receiver is dropped only if a later stage has failed; that stage returns the error.
        if to_seal.send(rows).await.is_err() || ended {
            return Ok(());
        }
    }
}

/// Reads the next rows, at most `most`, fewer if they exceed [`BATCH_BYTES`]. Also returns whether
/// they are the last.
async fn fetch(
    context: &RotationContext,
    table: &SealedTable,
    active: &LabelPrefixes,
    after: Option<&RowKey>,
    most: usize,
) -> Result<(Vec<StaleRow>, bool), KeysError> {
    let failed = || KeysError::sql(&table.name);
    let mut tx = context.database.read().await?;
    let dialect = tx.dialect();
    let mut found = tx.stream(&statement::fetch_stale(dialect, table, active, after, most));
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        let Some(row) = found.try_next().await.map_err(failed())? else {
            break;
        };
        let key = RowKey::read(&row, table).map_err(failed())?;
        let width = table.key.len();
        let text = |at: usize| row.bytes(width + at).map(|text| text.map(<[u8]>::to_vec));
        let texts = (0..table.columns.len())
            .map(text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed())?;
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
    to_write: Sender<SealedBatch>,
) -> Result<(), KeysError> {
    while let Some(rows) = stale.recv().await {
        let keyring = Arc::clone(keyring);
        let last = rows.last().expect("an empty batch is not sent").key.clone();
        let resealed = tokio::task::spawn_blocking(move || {
            rows.into_iter()
                .map(|row| row.reseal(&keyring))
                .collect::<Vec<_>>()
        });
        let mut sealed = SealedBatch {
            last,
            rows: Vec::new(),
            unreadable: Vec::new(),
        };
        for row in resealed.await.map_err(|_| KeysError::Interrupted)? {
            match row {
                Ok(row) if row.changes.iter().all(Option::is_none) => {}
                Ok(row) => sealed.rows.push(row),
                Err(row) => {
                    sealed
                        .unreadable
                        .push(format!("{table} {}: {}", row.key.name(), row.reason))
                }
            }
        }
        if to_write.send(sealed).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn write(
    context: &RotationContext,
    fence: &Fence,
    table: &SealedTable,
    batch_rows: &AtomicUsize,
    mut sealed: Receiver<SealedBatch>,
) -> Result<RewriteSummary, KeysError> {
    let wanted = match context.database.dialect() {
        Dialect::Sqlite => BATCH_TIME_ALONE,
        Dialect::Postgres | Dialect::Mysql => BATCH_TIME,
    };
    let mut summary = RewriteSummary::default();
    while let Some(batch) = sealed.recv().await {
        context.throttle.ready(&context.progress).await;
        context.throttle.take(batch.rows.len() as u64);
        let began = Instant::now();
        let rewritten = write_batch(context, fence, table, &batch).await?;
        let spent = began.elapsed().max(Duration::from_millis(1));
        let fitting = batch.rows.len().max(1) as f64 * wanted.as_secs_f64() / spent.as_secs_f64();
        let now = batch_rows.load(Ordering::Relaxed);
        // By a factor of two at most: one slow batch is weak evidence.
        let next = (fitting as usize)
            .clamp(now / 2, now * 2)
            .clamp(1, MOST_ROWS);
        batch_rows.store(next, Ordering::Relaxed);
        summary.rewritten += rewritten;
        context.progress.batch_done(batch.rows.len() as u64, spent);
        batch
            .unreadable
            .into_iter()
            .for_each(|example| summary.skip(example));
    }
    Ok(summary)
}

/// Writes rows and cursor in one transaction; retries on transient conflicts.
async fn write_batch(
    context: &RotationContext,
    fence: &Fence,
    table: &SealedTable,
    batch: &SealedBatch,
) -> Result<u64, KeysError> {
    let is_transient = |fault: &KeysError| match fault {
        KeysError::Sql { source, .. } | KeysError::Fence(FenceError::Read(source)) => {
            is_transient(source)
        }
        _ => false,
    };
    pauses::retry_batch(&context.progress, is_transient, || {
        try_write_batch(context, fence, table, batch)
    })
    .await
}

async fn try_write_batch(
    context: &RotationContext,
    fence: &Fence,
    table: &SealedTable,
    batch: &SealedBatch,
) -> Result<u64, KeysError> {
    let mut tx = fence.begin().await?;
    let dialect = tx.dialect();
    let mut rewritten = 0;
    if dialect == Dialect::Postgres {
        tx.fetch(statement::force_index_lookups())
            .await
            .map_err(KeysError::sql(&table.name))?;
    }
    for update in statement::updates(dialect, table, &batch.rows) {
        rewritten += tx
            .execute(&update)
            .await
            .map_err(KeysError::sql(&table.name))?;
    }
    state::advance(
        &mut tx,
        table,
        &batch.last,
        rewritten,
        context.clock.now_ns(),
    )
    .await?;
    fault::point(fault::BEFORE_ROTATION_BATCH);
    tx.commit().await.map_err(KeysError::sql(&table.name))?;
    fault::point(fault::AFTER_ROTATION_BATCH);
    Ok(rewritten)
}
