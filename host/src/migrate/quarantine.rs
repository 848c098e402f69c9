//! Quarantine: units that a migration could not transform and left out, kept whole. Owns
//! `bbs_quarantine`: an entry is sealed with the active key and records which step failed and why.
//! An entry leaves by being put back into the tables, or when an operator deletes it.
//!
//! A serving host keeps rows here that it cannot read (`unreadable.rs`).
//!
//! An entry is *pending* until the version of its migration is durable and its unit is in no table
//! any more. A migration that is abandoned removes its pending entries. The entry of a unit at
//! which a migration stopped (`stopped.rs`) is pending, too, and no row of it is left out.

mod document;
mod foreign;
mod inner_texts;
mod limit;
mod put;
mod put_back;
mod reason;
mod repair;
mod settled;
mod stopped;
mod unit;
mod unreadable;

use std::collections::{BTreeMap, HashSet};

use bbs_database::{Dialect, Row, StatementResult, Transaction, of_few_lengths, signed};
use bbs_files::digest::digest_of;
use bbs_lens::layout::history::Leg;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::schema::Table;
use bbs_lens::{LensError, TableGroup};
use bbs_units::{RowLock, RowsError, TableRows, UnitBatch, UnitKey};
use sea_query::{Alias, Cond, DeleteStatement, Expr, ExprTrait, Order, Query};
use serde::Serialize;

use super::state::exists;
use super::state::own_tables::{self, QUARANTINE, QUARANTINE_PART};
use super::state::removal::{self, Pieces};
use super::{Context, MigrateError, OnUnreadable, Work, fault};
use crate::lock::fence::Fence;

pub use document::{QuarantineDocument, SealedValues, json_of_bytes};
use foreign::FOREIGN;
pub use foreign::{ForeignRecord, keep_foreign};
pub use inner_texts::{inner_texts, reseal_inner_texts};
use put::put;
pub use put_back::{Fate, retry};
pub(super) use put_back::{give_back, groups_of, with};
use reason::reason_of_error;
pub(super) use reason::reason_of_unit;
pub(super) use repair::unit_of;
pub use repair::{delete, export, import};
pub use settled::WriteMode;
pub(super) use stopped::{remove_stopped, stopped};
pub use unreadable::ServingQuarantine;

/// A unit in quarantine, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuarantineEntry {
    pub unit: String,
    /// The first of the tables that it was in, or for which it has residue alone.
    pub table: String,
    /// The version of its rows.
    pub from: DataVersion,
    /// The target of the migration that left it out.
    pub to: DataVersion,
    /// The migration that failed; where a record did not open, the first one of the lens.
    pub version: DataVersion,
    /// The direction of that migration: the way of an insertion goes down and up again.
    pub direction: Direction,
    /// The name and digest of the failed module; empty where no module failed.
    pub module: String,
    pub digest: String,
    pub reason: String,
    /// By table, the rows that the migration leaves out.
    pub rows: BTreeMap<String, u64>,
    pub at_ns: i64,
    /// Whether the migration that left it out, or stopped at it, is unfinished.
    pub pending: bool,
    /// Whether the migration stopped at it: all of it is in its tables.
    pub stopped: bool,
}

/// The content of an entry.
struct QuarantineContent {
    key: UnitKey,
    /// The parts of its content, each sealed.
    sealed: Vec<Vec<u8>>,
}

/// A unit that cannot be transformed.
#[derive(Debug)]
pub(super) struct RefusedUnit {
    pub(super) key: UnitKey,
    pub(super) error: MigrateError,
}

impl QuarantineEntry {
    /// An entry of a version that no migration has failed for, without rows.
    fn without_a_module(
        unit: &str,
        table: &str,
        version: DataVersion,
        reason: &str,
        at_ns: i64,
    ) -> Self {
        Self {
            unit: unit.to_owned(),
            table: table.to_owned(),
            from: version,
            to: version,
            version,
            direction: Direction::Up,
            module: String::new(),
            digest: String::new(),
            reason: reason.to_owned(),
            rows: BTreeMap::new(),
            at_ns,
            pending: false,
            stopped: false,
        }
    }

    /// Whether it is of a row that a serving host could not read. A migration never ends at the
    /// version that it left.
    pub fn is_of_a_serving_host(&self) -> bool {
        self.from == self.to
    }
}

impl RefusedUnit {
    /// Of units above the limit.
    ///
    /// # Errors
    /// The first of them, if the operator did not choose quarantine.
    pub(super) fn all(
        work: &Work,
        group: usize,
        oversized: Vec<(UnitKey, RowsError)>,
    ) -> Result<Vec<Self>, MigrateError> {
        let refused = oversized.into_iter().map(|(key, error)| Self {
            key,
            error: error.into(),
        });
        match work.on_unreadable {
            OnUnreadable::Stop => refused.map(|unit| Err(unit.stop(group))).collect(),
            OnUnreadable::Quarantine => Ok(refused.collect()),
        }
    }

    /// The error of a migration that stops at the unit.
    pub(super) fn stop(self, group: usize) -> MigrateError {
        MigrateError::Refused {
            group,
            key: self.key,
            source: Box::new(self.error),
        }
    }
}

/// Stores units, which are still in their tables, as pending entries.
///
/// # Errors
/// There are too many of them, with those that are stored already, or an earlier unit of the same
/// key is in quarantine; the transaction has to be rolled back. The database fails.
pub(super) async fn store(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    refused: &[RefusedUnit],
    now_ns: i64,
) -> Result<(), MigrateError> {
    let mut last = None;
    for RefusedUnit { key, error } in refused {
        let unit = whole_unit(tx, work, group, key).await?;
        let entry = entry(work, group, key, error, now_ns);
        let rows = |(name, rows): (&String, &TableRows)| (name.clone(), rows.count() as u64);
        // Without a count it would be taken for one of a unit at which the migration stopped.
        let residue_only = unit.tables.is_empty().then(|| (entry.table.clone(), 0));
        let entry = QuarantineEntry {
            rows: unit.tables.iter().map(rows).chain(residue_only).collect(),
            ..entry
        };
        if is_there(tx, of(&entry).add(pending().not())).await? {
            let kept = MigrateError::KeptInQuarantine {
                unit: entry.unit,
                reason: entry.reason,
            };
            return Err(MigrateError::Refused {
                group,
                key: key.clone(),
                source: Box::new(kept),
            });
        }
        let content = unit::encode(&unit, &work.lens.source, &work.keyring);
        put(tx, &work.keyring, &entry, key, &content).await?;
        if let Some(left_out) = work.quarantine_lines.admit() {
            tracing::warn!(
                unit = entry.unit,
                version = entry.version,
                reason = entry.reason,
                left_out,
                "a unit goes into quarantine; `bbs migrate quarantine list` shows all"
            );
        }
        last = Some(entry);
    }
    match last {
        Some(last) => limit::refuse_too_many(tx, work, group, last).await,
        None => Ok(()),
    }
}

/// A unit as the originals have it, whatever its size.
async fn whole_unit(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    key: &UnitKey,
) -> Result<UnitBatch, MigrateError> {
    let wanted = bbs_units::whole(work.sources(group));
    let key = std::slice::from_ref(key);
    Ok(bbs_units::load(tx, &work.originals, &wanted, key, RowLock::None).await?)
}

/// A pending entry that has no row.
fn entry(
    work: &Work,
    group: usize,
    key: &UnitKey,
    error: &MigrateError,
    now_ns: i64,
) -> QuarantineEntry {
    let first = work.lens.legs().next().unwrap_or(Leg {
        version: work.to,
        direction: work.lens.direction,
    });
    let TableGroup {
        sources, restored, ..
    } = &work.lens.groups[group];
    let restored = restored.iter().map(|left| &left.table);
    let table = sources.iter().chain(restored).next();
    let entry = QuarantineEntry {
        from: work.from,
        to: work.to,
        direction: first.direction,
        pending: true,
        ..QuarantineEntry::without_a_module(
            &key.name(),
            table.expect("a unit has rows or residue"),
            first.version,
            &reason_of_error(error),
            now_ns,
        )
    };
    let (step, reason) = match error {
        MigrateError::Unstorable { source, .. } => (&source.step, source.to_string()),
        MigrateError::Unit { source, .. } => match &**source {
            LensError::Unit { step, reason, .. }
            | LensError::Step { step, reason, .. }
            | LensError::Slow { step, reason } => (step, reason.clone()),
            LensError::Counterpart {
                version, direction, ..
            } => {
                return QuarantineEntry {
                    version: *version,
                    direction: *direction,
                    reason: source.to_string(),
                    ..entry
                };
            }
        },
        _ => return entry,
    };
    QuarantineEntry {
        version: step.version,
        direction: step.direction,
        module: step.module.clone(),
        digest: step.digest.clone(),
        reason,
        ..entry
    }
}

const COLUMNS: [&str; 12] = [
    "unit",
    "table_name",
    "from_version",
    "to_version",
    "version",
    "direction",
    "module",
    "digest",
    "reason",
    "row_counts",
    "at_ns",
    "pending",
];

/// The units in quarantine, oldest first.
pub async fn list(context: &Context) -> Result<Vec<QuarantineEntry>, MigrateError> {
    entries(&mut context.database.read().await?).await
}

pub(super) async fn entries(tx: &mut Transaction) -> Result<Vec<QuarantineEntry>, MigrateError> {
    if !exists(tx, QUARANTINE).await? {
        return Ok(Vec::new());
    }
    let mut query = Query::select();
    query
        .columns(COLUMNS)
        .from(QUARANTINE)
        .order_by("at_ns", Order::Asc)
        .order_by("unit_digest", Order::Asc);
    tx.fetch(&query)
        .await
        .about(QUARANTINE)?
        .iter()
        .map(read)
        .collect()
}

/// A text of a row, empty where it has none.
fn text_at(row: &Row, at: usize) -> Result<&str, MigrateError> {
    let text = row.text(at).about(QUARANTINE)?;
    Ok(text.unwrap_or_default())
}

/// The key in a row; none if it is not one.
fn key_at(row: &Row, at: usize) -> Result<Option<UnitKey>, MigrateError> {
    let text = row.text(at).about(QUARANTINE)?;
    Ok(text.and_then(UnitKey::from_text))
}

/// The numbers of a unit's rows, by table.
fn row_counts_at(row: &Row, at: usize, unit: &str) -> Result<BTreeMap<String, u64>, MigrateError> {
    serde_json::from_str(text_at(row, at)?).map_err(|_| damaged(unit))
}

fn damaged(unit: &str) -> MigrateError {
    let unit = unit.to_owned();
    MigrateError::DamagedQuarantine { unit }
}

fn read(row: &Row) -> Result<QuarantineEntry, MigrateError> {
    let text = |at| text_at(row, at).map(str::to_owned);
    let number = |at: usize| row.integer_or_zero(at).about(QUARANTINE);
    let unit = text(0)?;
    let rows = row_counts_at(row, 9, &unit)?;
    let pending = number(11)? != 0;
    Ok(QuarantineEntry {
        table: text(1)?,
        from: number(2)?.unsigned_abs(),
        to: number(3)?.unsigned_abs(),
        version: number(4)?.unsigned_abs(),
        direction: match text(5)?.as_str() {
            "up" => Direction::Up,
            "down" => Direction::Down,
            _ => return Err(damaged(&unit)),
        },
        module: text(6)?,
        digest: text(7)?,
        reason: text(8)?,
        at_ns: number(10)?,
        // A unit that is left out has a count, if 0, for each table of its group.
        stopped: pending && rows.is_empty(),
        rows,
        pending,
        unit,
    })
}

/// The content of one entry; the lock is on the entry.
async fn kept(
    tx: &mut Transaction,
    entry: &QuarantineEntry,
    lock: RowLock,
) -> Result<QuarantineContent, MigrateError> {
    let mut query = Query::select();
    query
        .columns(["unit_key", "sealed"])
        .from(QUARANTINE)
        .cond_where(of(entry));
    if lock == RowLock::Exclusive {
        query.lock_exclusive();
    }
    let row = tx
        .fetch_optional(&query)
        .await
        .about(QUARANTINE)?
        .ok_or_else(|| damaged(&entry.unit))?;
    let key = key_at(&row, 0)?.ok_or_else(|| damaged(&entry.unit))?;
    let mut sealed = vec![row.bytes(1).about(QUARANTINE)?.unwrap_or_default().to_vec()];
    let mut query = Query::select();
    query
        .column("sealed")
        .from(QUARANTINE_PART)
        .cond_where(of(entry))
        .order_by("part", Order::Asc);
    for row in tx.fetch(&query).await.about(QUARANTINE)? {
        sealed.push(row.bytes(0).about(QUARANTINE)?.unwrap_or_default().to_vec());
    }
    Ok(QuarantineContent { key, sealed })
}

fn of(entry: &QuarantineEntry) -> Cond {
    Cond::all()
        .add(Expr::col("unit_digest").eq(digest_of(entry.unit.as_bytes())))
        .add(Expr::col("table_name").eq(entry.table.as_str()))
        .add(Expr::col("from_version").eq(signed(entry.from)))
}

async fn remove(tx: &mut Transaction, entry: &QuarantineEntry) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(QUARANTINE).cond_where(of(entry));
    deleted(tx, &delete).await
}

/// Deletes entries with their parts.
async fn deleted(tx: &mut Transaction, delete: &DeleteStatement) -> Result<(), MigrateError> {
    if tx.execute(delete).await.about(QUARANTINE)? == 0 {
        return Ok(());
    }
    let key = ["unit_digest", "table_name", "from_version"];
    let mut parts = Query::delete();
    let entries = Query::select().columns(key).from(QUARANTINE).take();
    parts
        .from_table(QUARANTINE_PART)
        .and_where(Expr::tuple(key.map(Expr::col)).not_in_subquery(entries));
    tx.execute(&parts).await.about(QUARANTINE)?;
    Ok(())
}

/// The number of rows of a table that the unfinished migration leaves out, but for some units.
pub(super) async fn pending_rows(
    tx: &mut Transaction,
    table: &str,
    but_for: &[UnitKey],
) -> Result<u64, MigrateError> {
    let others: HashSet<_> = digests_of(tx, but_for).await?.into_iter().collect();
    let entries = entries(tx).await?;
    let pending = entries
        .iter()
        .filter(|entry| entry.pending && !others.contains(&digest_of(entry.unit.as_bytes())));
    Ok(pending.filter_map(|entry| entry.rows.get(table)).sum())
}

/// The digests by which pending entries of these units are found. On MySQL, a client may have
/// spelled a unit in another case than its row, after which its entry is named; the column `unit`
/// has the collation of Diego's tables.
async fn digests_of(tx: &mut Transaction, units: &[UnitKey]) -> Result<Vec<String>, MigrateError> {
    let names: Vec<_> = units.iter().map(UnitKey::name).collect();
    let mut digests: Vec<_> = names
        .iter()
        .map(|name| digest_of(name.as_bytes()))
        .collect();
    if tx.dialect() == Dialect::Mysql && !names.is_empty() {
        let mut query = Query::select();
        query
            .column("unit_digest")
            .from(QUARANTINE)
            .cond_where(pending().add(Expr::col("unit").is_in(of_few_lengths(names))));
        for row in tx.fetch(&query).await.about(QUARANTINE)? {
            digests.push(row.owned_text(0).about(QUARANTINE)?);
        }
    }
    Ok(digests)
}

/// Removes the entries of units that are copied again: the present rows are authoritative.
pub(super) async fn forget(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    units: &[UnitKey],
) -> Result<(), MigrateError> {
    let digests = digests_of(tx, units).await?;
    let mut delete = Query::delete();
    delete
        .from_table(QUARANTINE)
        .and_where(Expr::col("unit_digest").is_in(of_few_lengths(digests)))
        .and_where(
            Expr::col("table_name")
                .is_in(work.lens.groups[group].sources.iter().map(String::as_str)),
        )
        .and_where(Expr::col("from_version").eq(signed(work.from)))
        .and_where(Expr::col("pending").eq(true));
    deleted(tx, &delete).await
}

/// Removes the entries of an abandoned migration: the units are still in their tables.
pub(super) async fn forget_pending(fence: &Fence) -> Result<(), MigrateError> {
    remove_entries(fence, pending()).await
}

/// Removes the entries of units that an abandoned copy left out. The entry of a unit at which the
/// migration stopped remains until the next run.
pub(super) async fn forget_left_out(fence: &Fence) -> Result<(), MigrateError> {
    remove_entries(fence, pending().add(stopped::is_stopped().not())).await
}

/// The parts of an entry are removed before it, so that none is left behind if this is interrupted.
async fn remove_entries(fence: &Fence, entries: Cond) -> Result<(), MigrateError> {
    let parts = parts_of(entries.clone());
    removal::remove(fence, &own_tables::quarantine_part(), parts).await?;
    removal::remove(fence, &own_tables::quarantine(), entries).await
}

fn pending() -> Cond {
    Cond::all().add(Expr::col("pending").eq(true))
}

fn parts_of(entries: Cond) -> Cond {
    let key = ["unit_digest", "table_name", "from_version"];
    let entries = Query::select()
        .columns(key)
        .from(QUARANTINE)
        .cond_where(entries)
        .take();
    Cond::all().add(Expr::tuple(key.map(Expr::col)).in_subquery(entries))
}

/// Whether there is an entry in the place of this one.
async fn is_present(tx: &mut Transaction, entry: &QuarantineEntry) -> Result<bool, MigrateError> {
    is_there(tx, of(entry)).await
}

async fn is_there(tx: &mut Transaction, entries: Cond) -> Result<bool, MigrateError> {
    let query = Query::select()
        .column("unit")
        .from(QUARANTINE)
        .cond_where(entries)
        .limit(1)
        .take();
    Ok(tx.fetch_optional(&query).await.about(QUARANTINE)?.is_some())
}

/// Whether a unit is in quarantine whose migration is not complete.
pub(super) async fn has_pending(tx: &mut Transaction) -> Result<bool, MigrateError> {
    is_there(tx, pending()).await
}

/// Settles the entries of a migration whose version is durable: their units are removed from
/// `tables`, which are those that were not copied, and are in quarantine alone. In pieces, each of
/// which ends with entries that are not pending; safe to interrupt and to repeat, until clients are
/// served.
///
/// # Errors
/// An entry is damaged, another host has raised the fence, or the database fails. Some of the
/// entries may be settled then.
pub(super) async fn settle(fence: &Fence, tables: &[&Table]) -> Result<(), MigrateError> {
    let table = own_tables::quarantine();
    let part_table = own_tables::quarantine_part();
    let entries = Pieces {
        table: &table,
        condition: pending(),
    };
    let parts = Pieces {
        table: &part_table,
        condition: parts_of(pending()),
    };
    let mut after = None;
    loop {
        let mut tx = fence.begin_relaxed().await?;
        let Some(last_entry) = entries
            .last_key(&mut tx, after.as_deref())
            .await
            .about(QUARANTINE)?
        else {
            return Ok(());
        };
        // A unit has about as many bytes as its entry with all parts.
        let last_part = parts
            .last_key(&mut tx, after.as_deref())
            .await
            .about(QUARANTINE)?;
        let last = last_part
            .filter(|part| *part < last_entry)
            .unwrap_or(last_entry);
        settle_piece(&mut tx, tables, entries.rows(after.as_deref(), &last)).await?;
        fault::point(fault::BEFORE_SETTLED_PIECE);
        tx.commit().await.about(QUARANTINE)?;
        fault::point(fault::AFTER_SETTLED_PIECE);
        assert!(
            after.is_none_or(|before| before < last),
            "each transaction settles further entries"
        );
        after = Some(last);
    }
}

async fn settle_piece(
    tx: &mut Transaction,
    tables: &[&Table],
    piece: Cond,
) -> Result<(), MigrateError> {
    let mut query = Query::select();
    query
        .columns(["unit", "unit_key", "row_counts"])
        .from(QUARANTINE)
        .cond_where(piece.clone());
    for row in tx.fetch(&query).await.about(QUARANTINE)? {
        let unit = text_at(&row, 0)?;
        let key = key_at(&row, 1)?.ok_or_else(|| damaged(unit))?;
        let counts = row_counts_at(&row, 2, unit)?;
        for table in tables
            .iter()
            .filter(|table| counts.contains_key(&table.name))
        {
            let mut delete = Query::delete();
            delete
                .from_table(Alias::new(&table.name))
                .and_where(bbs_units::is_unit(table, &key, tx.dialect()));
            tx.execute(&delete).await.about(QUARANTINE)?;
        }
    }
    let mut update = Query::update();
    update
        .table(QUARANTINE)
        .value("pending", false)
        .cond_where(piece);
    Ok(tx.execute(&update).await.map(drop).about(QUARANTINE)?)
}
