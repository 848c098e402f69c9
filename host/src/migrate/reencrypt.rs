//! Brings every sealed value under the active key when the database says that it is not. Owns the key label in
//! `configurations` and the rewriting; only the outer layer changes, the plain bytes stay as they are.
//!
//! The label is a promise: while it is there, every record is under that key. So it goes away before
//! the first record changes, and comes back once a scan proves that nothing is left under another key.

use sea_query::{Alias, Condition, Expr, ExprTrait, Order, Query, Value};

use super::{MigrateError, state};
use crate::database::{Database, Row, SqlError, Transaction, sql, upsert};
use crate::layout::schema::{Layout, Sealing, Table};
use crate::layout::values::{Encoding, Value as Stored};
use crate::lock::fence::{Fence, FenceError};
use crate::progress::Progress;
use crate::record::{Keyring, RecordError};

const LABEL: &str = "encryption_key_label";
/// Bounds a transaction, and what is in memory: rows are at most a few MiB and mostly a few KiB.
const ROWS_PER_BATCH: u64 = 250;
/// Enough examples to act on; the count is never cut.
const EXAMPLES: usize = 10;

/// A table with sealed columns: one of the layout, or one of the host's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTable {
    pub name: String,
    pub primary_key: Vec<(String, Encoding)>,
    pub columns: Vec<(String, Sealing)>,
}

impl SealedTable {
    /// Every table of a layout that has sealed columns.
    pub fn of(layout: &Layout) -> Vec<Self> {
        layout.tables.values().map(Self::from_table).filter(|table| !table.columns.is_empty()).collect()
    }

    /// The primary key's columns, with how each is read.
    pub(super) fn key_of(table: &Table) -> Vec<(String, Encoding)> {
        let known = |name: &String| table.column(name).expect("a key is of columns of the table").kind.into();
        table.primary_key.iter().map(|name| (name.clone(), known(name))).collect()
    }

    fn from_table(table: &Table) -> Self {
        let sealed = table.columns.iter().filter(|column| column.sealing != Sealing::Plain);
        Self {
            name: table.name.clone(),
            primary_key: Self::key_of(table),
            columns: sealed.map(|column| (column.name.clone(), column.sealing)).collect(),
        }
    }
}

/// What one pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reencrypted {
    pub rewritten: u64,
    /// Rows left as they are because they do not open. While there are any, the label stays absent and the
    /// next start tries again.
    pub unreadable: u64,
    /// The first of them, by table and key, with the reason.
    pub examples: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReencryptError {
    #[error(
        "existing encryption key version ({label}) is not among the known keys; \
         add the key with that label to `encryption_keys`, it may be any but the active one"
    )]
    UnknownLabel { label: String },
    #[error("cannot read or write {what} while re-encrypting; nothing is lost, start again to continue")]
    Sql { what: String, source: SqlError },
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    State(#[from] MigrateError),
}

fn failed(what: impl Into<String>) -> impl FnOnce(SqlError) -> ReencryptError {
    let what = what.into();
    move |source| ReencryptError::Sql { what, source }
}

/// Refuses a database whose label no configured key has: its records could not be read. For a start to call before
/// it changes or serves anything.
pub async fn check_label(database: &Database, keyring: &Keyring) -> Result<(), ReencryptError> {
    let mut reader = database.read().await.map_err(MigrateError::from)?;
    known_label(&mut reader, keyring).await?;
    Ok(())
}

/// The label in the database, if there is one to promise anything.
async fn known_label(tx: &mut Transaction, keyring: &Keyring) -> Result<Option<String>, ReencryptError> {
    match state::encryption_key_label(tx).await? {
        Some(label) if !keyring.knows(&label) => Err(ReencryptError::UnknownLabel { label }),
        label => Ok(label),
    }
}

/// Rewrites whatever is not under the active key, unless the label promises that there is nothing.
pub async fn reencrypt(
    fence: &Fence,
    keyring: &Keyring,
    tables: &[SealedTable],
    progress: &Progress,
) -> Result<Reencrypted, ReencryptError> {
    let mut tx = fence.begin().await?;
    if known_label(&mut tx, keyring).await?.as_deref() == Some(keyring.active_label()) {
        return Ok(Reencrypted::default());
    }
    tx.execute(sql("DELETE FROM configurations WHERE id = ?").bind(LABEL)).await.map_err(failed(LABEL))?;
    tx.commit().await.map_err(failed(LABEL))?;

    let mut rewritten = 0;
    for table in tables {
        rewritten += pass(fence, keyring, table, progress).await?.rewritten;
    }
    // The proof: a second look, in which nothing needs rewriting any more.
    let mut proof = Reencrypted::default();
    for table in tables {
        let found = pass(fence, keyring, table, progress).await?;
        proof.rewritten += found.rewritten;
        proof.unreadable += found.unreadable;
        proof.examples.extend(found.examples);
    }
    proof.examples.truncate(EXAMPLES);
    if proof.rewritten == 0 && proof.unreadable == 0 {
        write_label(fence, keyring.active_label()).await?;
    }
    Ok(Reencrypted { rewritten: rewritten + proof.rewritten, ..proof })
}

async fn write_label(fence: &Fence, label: &str) -> Result<(), ReencryptError> {
    let mut tx = fence.begin().await?;
    let row = upsert("configurations", [("id", LABEL.into())], [("value", label.into())]);
    tx.execute(&row).await.map_err(failed(LABEL))?;
    tx.commit().await.map_err(failed(LABEL))
}

/// One walk over a table in the order of its key, a fenced transaction a batch. Rows that are current
/// already cost a look at their label, so a pass that was cut short goes on where it was.
async fn pass(
    fence: &Fence,
    keyring: &Keyring,
    table: &SealedTable,
    progress: &Progress,
) -> Result<Reencrypted, ReencryptError> {
    progress.enter("re-encrypt", table.name.clone(), None);
    let mut done = Reencrypted::default();
    let mut after: Option<Vec<Value>> = None;
    loop {
        let mut tx = fence.begin().await?;
        let rows = fetch(&mut tx, table, after.as_deref()).await?;
        let Some(last) = rows.last() else { return Ok(done) };
        after = Some(last.key.clone());
        let seen = rows.len() as u64;
        for row in rows {
            match row.resealed(keyring, table) {
                Ok(None) => {}
                Ok(Some(columns)) => {
                    update(&mut tx, table, row.key, columns).await?;
                    done.rewritten += 1;
                }
                Err(reason) => {
                    done.unreadable += 1;
                    if done.examples.len() < EXAMPLES {
                        done.examples.push(format!("{} {}: {reason}", table.name, named(&row.key)));
                    }
                }
            }
        }
        tx.commit().await.map_err(failed(table.name.as_str()))?;
        progress.advance(seen);
    }
}

/// A column and its new text.
type Resealed = (String, Vec<u8>);

struct SealedRow {
    key: Vec<Value>,
    /// In the order of the table's sealed columns.
    texts: Vec<Option<Vec<u8>>>,
}

impl SealedRow {
    /// The new texts, or nothing where each is current. NULL and empty stay what they are: Diego writes them.
    fn resealed(&self, keyring: &Keyring, table: &SealedTable) -> Result<Option<Vec<Resealed>>, RecordError> {
        let mut changed = Vec::new();
        for ((name, sealing), text) in table.columns.iter().zip(&self.texts) {
            let Some(text) = text.as_ref().filter(|text| !text.is_empty()) else { continue };
            if !keyring.is_current(text)? {
                changed.push((name.clone(), keyring.seal(*sealing, &keyring.open(*sealing, text)?)));
            }
        }
        Ok((!changed.is_empty()).then_some(changed))
    }
}

async fn fetch(
    tx: &mut Transaction,
    table: &SealedTable,
    after: Option<&[Value]>,
) -> Result<Vec<SealedRow>, ReencryptError> {
    let keys = || table.primary_key.iter().map(|(name, _)| Expr::col(Alias::new(name)));
    let mut query = Query::select();
    query.from(Alias::new(&table.name)).exprs(keys()).limit(ROWS_PER_BATCH);
    for (name, _) in &table.columns {
        query.column(Alias::new(name));
    }
    for (name, _) in &table.primary_key {
        query.order_by(Alias::new(name), Order::Asc);
    }
    if let Some(after) = after {
        query.and_where(Expr::tuple(keys()).gt(Expr::tuple(after.iter().cloned().map(Expr::value))));
    }
    let rows = tx.fetch(&query).await.map_err(failed(table.name.as_str()))?;
    let read = |row: &Row| -> Result<SealedRow, SqlError> {
        let width = table.primary_key.len();
        let text = |at: usize| row.bytes(width + at).map(|text| text.map(<[u8]>::to_vec));
        Ok(SealedRow {
            key: (0..width).map(|at| key_value(row, at, table.primary_key[at].1)).collect::<Result<_, _>>()?,
            texts: (0..table.columns.len()).map(text).collect::<Result<_, _>>()?,
        })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(failed(table.name.as_str()))
}

fn key_value(row: &Row, at: usize, encoding: Encoding) -> Result<Value, SqlError> {
    Ok(match row.value(at, encoding)? {
        Stored::Integer(number) => number.into(),
        Stored::Boolean(value) => value.into(),
        Stored::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        Stored::Null => Value::String(None),
    })
}

fn named(key: &[Value]) -> String {
    let part = |value: &Value| match value {
        Value::String(Some(text)) => text.to_string(),
        Value::BigInt(Some(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    key.iter().map(part).collect::<Vec<_>>().join("/")
}

async fn update(
    tx: &mut Transaction,
    table: &SealedTable,
    key: Vec<Value>,
    columns: Vec<Resealed>,
) -> Result<(), ReencryptError> {
    let mut query = Query::update();
    query.table(Alias::new(&table.name));
    for (name, text) in columns {
        query.value(Alias::new(name), String::from_utf8(text).expect("sealed text is ASCII"));
    }
    let whole_key = table.primary_key.iter().zip(key).fold(Condition::all(), |condition, ((name, _), value)| {
        condition.add(Expr::col(Alias::new(name)).eq(Expr::value(value)))
    });
    query.cond_where(whole_key);
    tx.execute(&query).await.map_err(failed(table.name.as_str()))?;
    Ok(())
}

#[cfg(test)]
#[path = "reencrypt_tests.rs"]
mod tests;
