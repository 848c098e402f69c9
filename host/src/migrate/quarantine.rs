//! Units that would not go over a migration and were left out of it, kept whole. Owns `bbs_quarantine`: an entry is sealed
//! with the active key and says which step failed and why. Nothing leaves it but by going back into the tables.
//!
//! An entry is *pending* until the migration that made it has arrived: until then its unit is where it was, too, and a
//! migration that is given up takes its entries along.

mod put_back;
mod unit;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sea_query::{Alias, Cond, Expr, ExprTrait, Order, Query};
use serde::Serialize;

use super::key::{Key, digest_of};
use super::own_tables::QUARANTINE;
use super::plan::Strategy;
use super::read::load_unit;
use super::state::{exists, signed};
use super::{Context, MigrateError, Work};
use crate::database::{Row, SqlError, Transaction, upsert};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Layout, Sealing};
use crate::lens::LensError;
use crate::record::Keyring;

pub(super) use put_back::give_back;
pub use put_back::{Fate, retry};
use unit::WholeUnit;

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: QUARANTINE.to_owned(), source }
}

/// A unit in quarantine, without what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub unit: String,
    /// The first of the tables that it was in.
    pub table: String,
    /// The version of its rows.
    pub from: DataVersion,
    /// The version that it would not go to.
    pub to: DataVersion,
    /// The migration that failed; where a record did not open, the first of the way.
    pub version: DataVersion,
    pub direction: Direction,
    /// The failed migration's name and digest; empty where no module is to blame.
    pub module: String,
    pub digest: String,
    pub reason: String,
    pub replay: Option<String>,
    /// By table.
    pub rows: BTreeMap<String, u64>,
    pub at_ns: i64,
    /// Whether the migration that left it out is still under way.
    pub pending: bool,
}

/// What an entry holds.
struct Kept {
    key: Key,
    sealed: Vec<u8>,
}

/// A unit that the lens or a record of its own kept from going.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) key: Key,
    pub(super) error: MigrateError,
}

impl MigrateError {
    /// The unit that is to blame, if it is one alone.
    pub(super) fn unit(&self) -> Option<&str> {
        match self {
            Self::Unit { unit, .. } | Self::Record { unit, .. } => Some(unit),
            _ => None,
        }
    }
}

/// Keeps units that are still where they were, pending.
pub(super) async fn store(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    refused: &[Refused],
    now_ns: i64,
) -> Result<(), MigrateError> {
    let sources = &work.lens.groups[group].sources;
    for Refused { key, error } in refused {
        let mut unit = WholeUnit::new();
        for name in sources {
            let table = &work.lens.near.tables[name];
            let loaded = load_unit(tx, table, key).await?;
            unit.add(&work.keyring, table, &loaded);
        }
        let entry = entry(work, &sources[0], key, error, unit.rows(), now_ns);
        put(tx, &work.keyring, &work.lens.near, &entry, key, &unit).await?;
        tracing::warn!(
            unit = entry.unit,
            version = entry.version,
            reason = entry.reason,
            "a unit goes into quarantine"
        );
    }
    Ok(())
}

fn entry(work: &Work, table: &str, key: &Key, error: &MigrateError, rows: BTreeMap<String, u64>, now_ns: i64) -> Entry {
    let first = work.lens.steps().next().map_or(work.to, |step| step.manifest().version);
    let mut entry = Entry {
        unit: key.name(),
        table: table.to_owned(),
        from: work.from,
        to: work.to,
        version: first,
        direction: work.lens.direction,
        module: String::new(),
        digest: String::new(),
        reason: chain(error),
        replay: None,
        rows,
        at_ns: now_ns,
        pending: true,
    };
    if let MigrateError::Unit { replay, source, .. } = error {
        entry.replay = replay.as_ref().map(|path: &PathBuf| path.display().to_string());
        match &**source {
            LensError::Unit { module, version, digest, reason, .. } => {
                (entry.module, entry.version, entry.digest) = (module.clone(), *version, digest.clone());
                entry.reason.clone_from(reason);
            }
            LensError::Counterpart { version, .. } => {
                entry.version = *version;
                entry.reason = source.to_string();
            }
        }
    }
    entry
}

/// An error with its sources, without the advice for a migration that stops.
fn chain(error: &MigrateError) -> String {
    let MigrateError::Record { table, column, source, .. } = error else { return error.to_string() };
    format!("`{column}` of `{table}` does not open: {source}")
}

async fn put(
    tx: &mut Transaction,
    keyring: &Keyring,
    layout: &Layout,
    entry: &Entry,
    key: &Key,
    unit: &WholeUnit,
) -> Result<(), MigrateError> {
    let sealed = keyring.seal(Sealing::Sealed, &unit.encode(layout));
    let sealed = String::from_utf8(sealed).expect("sealed text is ASCII");
    let rows = serde_json::to_string(&entry.rows).expect("names and numbers");
    let place = [
        ("unit_digest", digest_of(entry.unit.as_bytes()).into()),
        ("table_name", entry.table.as_str().into()),
        ("from_version", signed(entry.from).into()),
    ];
    let values = [
        ("unit", entry.unit.as_str().into()),
        ("unit_key", key.to_text().into()),
        ("to_version", signed(entry.to).into()),
        ("version", signed(entry.version).into()),
        ("direction", entry.direction.to_string().into()),
        ("module", entry.module.as_str().into()),
        ("digest", entry.digest.as_str().into()),
        ("reason", entry.reason.as_str().into()),
        ("replay", entry.replay.clone().into()),
        ("row_counts", rows.into()),
        ("at_ns", entry.at_ns.into()),
        ("pending", entry.pending.into()),
        ("sealed", sealed.into()),
    ];
    tx.execute(&upsert(QUARANTINE, place, values)).await.map_err(failed)?;
    Ok(())
}

const COLUMNS: [&str; 13] = [
    "unit",
    "table_name",
    "from_version",
    "to_version",
    "version",
    "direction",
    "module",
    "digest",
    "reason",
    "replay",
    "row_counts",
    "at_ns",
    "pending",
];

/// The units in quarantine, oldest first.
pub async fn list(context: &Context) -> Result<Vec<Entry>, MigrateError> {
    entries(&mut context.database.read().await?).await
}

pub(super) async fn entries(tx: &mut Transaction) -> Result<Vec<Entry>, MigrateError> {
    if !exists(tx, QUARANTINE).await? {
        return Ok(Vec::new());
    }
    let mut query = Query::select();
    query.columns(COLUMNS).from(QUARANTINE).order_by("at_ns", Order::Asc).order_by("unit_digest", Order::Asc);
    tx.fetch(&query).await.map_err(failed)?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Entry, MigrateError> {
    let text = |at: usize| row.text(at).map(|text| text.unwrap_or_default().to_owned()).map_err(failed);
    let number = |at: usize| row.integer(at).map(Option::unwrap_or_default).map_err(failed);
    let unit = text(0)?;
    let damaged = || MigrateError::DamagedQuarantine { unit: unit.clone() };
    Ok(Entry {
        table: text(1)?,
        from: number(2)?.unsigned_abs(),
        to: number(3)?.unsigned_abs(),
        version: number(4)?.unsigned_abs(),
        direction: match text(5)?.as_str() {
            "up" => Direction::Up,
            "down" => Direction::Down,
            _ => return Err(damaged()),
        },
        module: text(6)?,
        digest: text(7)?,
        reason: text(8)?,
        replay: row.text(9).map_err(failed)?.map(str::to_owned),
        rows: serde_json::from_str(&text(10)?).map_err(|_| damaged())?,
        at_ns: number(11)?,
        pending: number(12)? != 0,
        unit,
    })
}

/// One entry whole.
async fn kept(tx: &mut Transaction, entry: &Entry) -> Result<Kept, MigrateError> {
    let mut query = Query::select();
    query.columns(["unit_key", "sealed"]).from(QUARANTINE).cond_where(of(entry));
    let damaged = || MigrateError::DamagedQuarantine { unit: entry.unit.clone() };
    let row = tx.fetch_optional(&query).await.map_err(failed)?.ok_or_else(damaged)?;
    let key = row.text(0).map_err(failed)?.and_then(Key::from_text).ok_or_else(damaged)?;
    let sealed = row.bytes(1).map_err(failed)?.unwrap_or_default().to_vec();
    Ok(Kept { key, sealed })
}

fn of(entry: &Entry) -> Cond {
    Cond::all()
        .add(Expr::col("unit_digest").eq(digest_of(entry.unit.as_bytes())))
        .add(Expr::col("table_name").eq(entry.table.as_str()))
        .add(Expr::col("from_version").eq(signed(entry.from)))
}

async fn remove(tx: &mut Transaction, entry: &Entry) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(QUARANTINE).cond_where(of(entry));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(())
}

/// How many rows of a table the migration under way leaves out.
pub(super) async fn pending_rows(tx: &mut Transaction, table: &str) -> Result<u64, MigrateError> {
    let entries = entries(tx).await?;
    let pending = entries.iter().filter(|entry| entry.pending);
    Ok(pending.filter_map(|entry| entry.rows.get(table)).sum())
}

/// Units that a client has written since: what they are now is what counts.
pub(super) async fn forget(tx: &mut Transaction, work: &Work, group: usize, units: &[Key]) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete
        .from_table(QUARANTINE)
        .and_where(Expr::col("unit_digest").is_in(units.iter().map(|unit| digest_of(unit.name().as_bytes()))))
        .and_where(Expr::col("table_name").is_in(work.lens.groups[group].sources.iter().map(String::as_str)))
        .and_where(Expr::col("from_version").eq(signed(work.from)))
        .and_where(Expr::col("pending").eq(true));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(())
}

/// Forgets what a migration left out that did not arrive: the units are where they were.
pub(super) async fn forget_pending(tx: &mut Transaction) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(QUARANTINE).and_where(Expr::col("pending").eq(true));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(())
}

/// A migration arrives: what it left out leaves the tables that it did not copy too, and is in quarantine alone.
pub(super) async fn settle(tx: &mut Transaction, work: &Work) -> Result<(), MigrateError> {
    for entry in entries(tx).await?.into_iter().filter(|entry| entry.pending) {
        let Kept { key, .. } = kept(tx, &entry).await?;
        let Some(group) = group_of(work, &entry) else { continue };
        let here = |plan: &&super::plan::TablePlan| {
            plan.group == group && matches!(plan.strategy, Strategy::Untouched | Strategy::InPlace)
        };
        for plan in work.plans.iter().filter(here) {
            let mut delete = Query::delete();
            delete.from_table(Alias::new(&plan.table.name)).and_where(super::read::is_unit(&plan.table, &key));
            tx.execute(&delete).await.map_err(failed)?;
        }
    }
    let mut update = Query::update();
    update.table(QUARANTINE).value("pending", false).and_where(Expr::col("pending").eq(true));
    tx.execute(&update).await.map_err(failed)?;
    Ok(())
}

fn group_of(work: &Work, entry: &Entry) -> Option<usize> {
    work.lens.groups.iter().position(|group| group.sources.contains(&entry.table))
}
