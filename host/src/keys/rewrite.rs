//! Rewrites the rows of a table whose texts are not under the active key, in the order of the
//! primary key. Owns the batches, each a short fenced transaction that also moves the cursor; never
//! overwrites what an API call has written in the meantime.

use std::sync::Arc;
use std::time::Duration;

use bbs_database::{Dialect, SqlError, StatementResult};
use bbs_encryption::Keyring;
use bbs_encryption::header::LabelPrefixes;
use bbs_lens::layout::values::Value;
use bbs_units::UnitKey;
use bbs_work::batches::{self, BatchPace, ReadBatches, Worked, WorkedBatches};
use bbs_work::pauses;
use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;
use futures_util::TryStreamExt;
use tokio::task::JoinError;

use super::row::{ResealedRow, StaleRow};
use super::tables::SealedTable;
use super::{KeysError, Rotated, RotationContext, state, statement};
use crate::lock::fence::Fence;
use crate::migrate::fault;

const FIRST_ROWS: u64 = 250;
const MOST_ROWS: u64 = 4_000;
/// Bounds the memory of a batch; the last row may exceed it.
const BATCH_BYTES: usize = 4 << 20;
/// Target for the time to write a batch.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// The target on SQLite, where every API write waits for the batch, not only writes to its rows.
const BATCH_TIME_ALONE: Duration = Duration::from_millis(20);

impl From<JoinError> for KeysError {
    fn from(_: JoinError) -> Self {
        Self::Interrupted
    }
}

/// A batch that is ready to be written.
struct SealedBatch {
    last: UnitKey,
    /// The number of rows that were read.
    read: u64,
    rows: Vec<ResealedRow>,
    /// The rows that do not open, with the reason.
    unreadable: Vec<String>,
}

/// Rewrites from a cursor to the end of the table.
pub(super) async fn rewrite_table(
    context: &RotationContext,
    fence: &Fence,
    table: &SealedTable,
    after: Option<UnitKey>,
) -> Result<Rotated, KeysError> {
    let pace = BatchPace {
        first: FIRST_ROWS,
        least: 1,
        most: MOST_ROWS,
        time: match context.database.dialect() {
            Dialect::Sqlite => BATCH_TIME_ALONE,
            Dialect::Postgres | Dialect::Mysql => BATCH_TIME,
        },
        beside_clients: false,
        throttle: context.throttle.clone(),
        progress: context.progress.clone(),
    };
    reseal_table(context, Some(fence), table, after, pace).await
}

/// Opens what [`rewrite_table`] would rewrite in a whole table, and writes nothing.
pub(super) async fn survey_table(
    context: &RotationContext,
    table: &SealedTable,
) -> Result<Rotated, KeysError> {
    let pace = BatchPace {
        first: MOST_ROWS,
        least: MOST_ROWS,
        most: MOST_ROWS,
        time: BATCH_TIME,
        beside_clients: false,
        throttle: Throttle::default(),
        progress: Progress::default(),
    };
    reseal_table(context, None, table, None, pace).await
}

/// Re-seals from a cursor to the end of the table, and writes it if there is a fence.
async fn reseal_table(
    context: &RotationContext,
    fence: Option<&Fence>,
    table: &SealedTable,
    after: Option<UnitKey>,
    pace: BatchPace,
) -> Result<Rotated, KeysError> {
    let mut summary = Rotated::default();
    let keyring = Arc::clone(&context.keyring);
    let resealed = table.clone();
    batches::run(
        pace,
        |found| read(context.clone(), table.clone(), after, found),
        move |rows| Ok(Worked::Done(reseal(&keyring, &resealed, rows))),
        |sealed| write(context, fence, table, sealed, &mut summary),
    )
    .await?;
    Ok(summary)
}

async fn read(
    context: RotationContext,
    table: SealedTable,
    mut after: Option<UnitKey>,
    mut found: ReadBatches<Vec<StaleRow>>,
) -> Result<(), KeysError> {
    let active = LabelPrefixes::of(context.keyring.active_label());
    loop {
        let most = found.next_size().await;
        let attempt = || fetch(&context, &table, &active, after.as_ref(), most);
        let rows = pauses::retry_batch(&context.progress, KeysError::is_transient, attempt).await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };
        if after.as_ref() == Some(&last.key) {
            // Such as a key of SQLite of another storage class, which comes after every key of its
            // column's.
            let fault = format!("the keys do not ascend behind {}", shown(&last.key, &table));
            return Err(KeysError::Sql {
                what: table.name,
                source: SqlError::Decode(fault.into()),
            });
        }
        after = Some(last.key.clone());
        let count = rows.len() as u64;
        // Without another query, which would scan the rest of the table once more.
        let is_last = count < most && rows.iter().map(text_bytes).sum::<usize>() < BATCH_BYTES;
        if !found.send(rows, count).await || is_last {
            return Ok(());
        }
    }
}

/// Reads the next rows, at most `most`, fewer if they exceed [`BATCH_BYTES`].
async fn fetch(
    context: &RotationContext,
    table: &SealedTable,
    active: &LabelPrefixes,
    after: Option<&UnitKey>,
    most: u64,
) -> Result<Vec<StaleRow>, KeysError> {
    let mut tx = context.database.read().await?;
    let dialect = tx.dialect();
    let mut found = tx.stream(&statement::fetch_stale(dialect, table, active, after, most));
    let mut rows = Vec::new();
    let mut bytes = 0;
    while bytes < BATCH_BYTES {
        let Some(row) = found.try_next().await.about(&table.name)? else {
            break;
        };
        let key = UnitKey::read_any(&row, &table.key).about(&table.name)?;
        let width = table.key.len();
        let text = |at: usize| row.bytes(width + at).map(|text| text.map(<[u8]>::to_vec));
        let texts = (0..table.columns.len())
            .map(text)
            .collect::<Result<Vec<_>, _>>()
            .about(&table.name)?;
        let row = StaleRow { key, texts };
        bytes += text_bytes(&row);
        rows.push(row);
    }
    debug_assert!(rows.len() as u64 <= most, "a batch is bounded");
    Ok(rows)
}

fn text_bytes(row: &StaleRow) -> usize {
    row.texts.iter().flatten().map(Vec::len).sum()
}

/// A key for messages: its values, separated by slashes.
fn shown(key: &UnitKey, table: &SealedTable) -> String {
    let value = |value: Value<'_>| match value {
        Value::Boolean(flag) => flag.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "NULL".to_owned(),
    };
    key.values(&table.key)
        .map(value)
        .collect::<Vec<_>>()
        .join("/")
}

fn reseal(keyring: &Keyring, table: &SealedTable, rows: Vec<StaleRow>) -> SealedBatch {
    let mut sealed = SealedBatch {
        last: rows.last().expect("an empty batch is not sent").key.clone(),
        read: rows.len() as u64,
        rows: Vec::new(),
        unreadable: Vec::new(),
    };
    for row in rows {
        match row.reseal(keyring) {
            Ok(changes) if changes.iter().all(Option::is_none) => {}
            Ok(changes) => {
                let key = row.key;
                sealed.rows.push(ResealedRow { key, changes });
            }
            Err(reason) => {
                let key = shown(&row.key, table);
                sealed
                    .unreadable
                    .push(format!("{} {key}: {reason}", table.name));
            }
        }
    }
    sealed
}

async fn write(
    context: &RotationContext,
    fence: Option<&Fence>,
    table: &SealedTable,
    mut sealed: WorkedBatches<SealedBatch>,
    summary: &mut Rotated,
) -> Result<(), KeysError> {
    while let Some(batch) = sealed.next().await {
        summary.rewritten += match fence {
            None => batch.rows.len() as u64,
            Some(fence) => {
                let attempt = || write_batch(context, fence, table, &batch);
                pauses::retry_batch(&context.progress, KeysError::is_transient, attempt).await?
            }
        };
        sealed.written(batch.read);
        for example in batch.unreadable {
            summary.skip(example);
        }
    }
    Ok(())
}

/// Writes rows and cursor in one transaction. Returns the number of rows that were still as they
/// were read.
async fn write_batch(
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
            .about(&table.name)?;
    }
    for update in statement::updates(dialect, table, &batch.rows) {
        rewritten += tx.execute(&update).await.about(&table.name)?;
    }
    let now_ns = context.clock.now_ns();
    state::advance(&mut tx, table, &batch.last, rewritten, now_ns).await?;
    fault::point(fault::BEFORE_ROTATION_BATCH);
    tx.commit().await.about(&table.name)?;
    fault::point(fault::AFTER_ROTATION_BATCH);
    Ok(rewritten)
}
