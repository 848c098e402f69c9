//! What steps would lose, beside the records. Owns `bbs_residue`: entries are sealed with the
//! active key, found by unit, and gone once the way back has used them.

use std::collections::{BTreeSet, HashMap};

use sea_query::{Cond, Expr, ExprTrait, Order, Query};

use super::MigrateError;
use super::key::{digest_of, from_hex, to_hex};
use super::own_tables::{self, QUARANTINE, RESIDUE};
use super::state::{exists, signed};
use crate::database::{Row, SqlError, Transaction, bulk};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::Sealing;
use crate::layout::values::{ColumnBuilder, Value};
use crate::lens::{Entry, Kept, Left};
use crate::record::Keyring;

type Versions = std::ops::RangeInclusive<DataVersion>;

/// How many units are looked for at a time.
const UNITS: usize = 256;
/// What is removed in one transaction. Whoever writes one of these units meanwhile waits for it.
const REMOVED_UNITS: u64 = 500;

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: RESIDUE.to_owned(), source }
}

/// Entries of a direction at these versions.
fn of(direction: Direction, versions: &Versions) -> Cond {
    Cond::all()
        .add(Expr::col("direction").eq(direction.to_string()))
        .add(Expr::col("version").between(signed(*versions.start()), signed(*versions.end())))
}

/// For which versions and tables steps of a direction have left something.
pub(super) async fn present(
    tx: &mut Transaction,
    direction: Direction,
    versions: Versions,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    if !exists(tx, RESIDUE).await? {
        return Ok(BTreeSet::new());
    }
    let mut query = Query::select();
    query.distinct().columns(["version", "table_name"]).from(RESIDUE).cond_where(of(direction, &versions));
    let read = |row: &Row| -> Result<_, SqlError> {
        Ok((row.integer(0)?.unwrap_or_default().unsigned_abs(), row.text(1)?.unwrap_or_default().to_owned()))
    };
    tx.fetch(&query).await.map_err(failed)?.iter().map(read).collect::<Result<_, _>>().map_err(failed)
}

/// What the way from one version to another gives back. Nothing in a database that is begun anew: what is there was kept
/// of records that are gone.
pub(super) async fn restorable(
    tx: &mut Transaction,
    from: DataVersion,
    to: DataVersion,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    match (from, to >= from) {
        (0, _) => Ok(BTreeSet::new()),
        (_, true) => present(tx, Direction::Down, super::versions(from, to)).await,
        (_, false) => present(tx, Direction::Up, super::versions(from, to)).await,
    }
}

/// Units of tables of which only the residue is left, after a given one.
pub(super) async fn units_of(
    tx: &mut Transaction,
    direction: Direction,
    restored: &[(DataVersion, String)],
    after: Option<&str>,
    most: u64,
) -> Result<Vec<String>, MigrateError> {
    let one = |(version, table): &(DataVersion, String)| {
        Cond::all().add(Expr::col("version").eq(signed(*version))).add(Expr::col("table_name").eq(table.as_str()))
    };
    let any = restored.iter().map(one).fold(Cond::any(), |any, one| any.add(one));
    let mut query = Query::select();
    query
        .columns(["unit_digest", "unit"])
        .distinct()
        .from(RESIDUE)
        .and_where(Expr::col("direction").eq(direction.to_string()))
        .cond_where(any)
        .order_by("unit_digest", Order::Asc)
        .limit(most);
    if let Some(after) = after {
        query.and_where(Expr::col("unit_digest").gt(digest_of(after.as_bytes())));
    }
    let rows = tx.fetch(&query).await.map_err(failed)?;
    let unit = |row: &Row| Ok(row.text(1)?.unwrap_or_default().to_owned());
    rows.iter().map(unit).collect::<Result<_, _>>().map_err(failed)
}

/// The digests by which units are found. A list is filled up to a fixed size, so that its statement is prepared once; a
/// unit alone, as a client's write has it, is not looked for among 255 that are not there.
fn digests<'a>(units: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut digests: Vec<_> = units.map(|unit| digest_of(unit.as_bytes())).collect();
    if digests.len() > 1 {
        digests.resize(UNITS, String::new());
    }
    digests
}

/// What steps of a direction left for these units, opened.
pub(super) async fn load(
    tx: &mut Transaction,
    keyring: &Keyring,
    direction: Direction,
    versions: Versions,
    units: &[String],
) -> Result<Left, MigrateError> {
    let mut left = Left::default();
    let places: HashMap<&str, usize> = units.iter().enumerate().map(|(place, unit)| (unit.as_str(), place)).collect();
    for chunk in units.chunks(UNITS) {
        let digests = digests(chunk.iter().map(String::as_str));
        let mut query = Query::select();
        query
            .columns(["unit", "table_name", "row_key", "version", "digest", "sealed"])
            .from(RESIDUE)
            .and_where(Expr::col("unit_digest").is_in(digests))
            .cond_where(of(direction, &versions));
        for row in tx.fetch(&query).await.map_err(failed)? {
            let found = Found::read(&row).map_err(failed)?;
            let place = places.get(found.unit.as_str());
            let place = *place.ok_or_else(|| MigrateError::DamagedResidue { unit: found.unit.clone() })?;
            let entry = found.entry(keyring)?;
            left.add(found.version, &found.table, place, entry);
        }
    }
    Ok(left)
}

/// An entry as it rests.
struct Found {
    unit: String,
    table: String,
    row_key: String,
    version: DataVersion,
    digest: String,
    sealed: Vec<u8>,
}

impl Found {
    fn read(row: &Row) -> Result<Self, SqlError> {
        let text = |at: usize| row.text(at).map(|text| text.unwrap_or_default().to_owned());
        Ok(Self {
            unit: text(0)?,
            table: text(1)?,
            row_key: text(2)?,
            version: row.integer(3)?.unwrap_or_default().unsigned_abs(),
            digest: text(4)?,
            sealed: row.bytes(5)?.unwrap_or_default().to_vec(),
        })
    }

    fn entry(&self, keyring: &Keyring) -> Result<Entry, MigrateError> {
        let damaged = || MigrateError::DamagedResidue { unit: self.unit.clone() };
        let bytes = keyring.open(Sealing::Sealed, &self.sealed).map_err(|source| MigrateError::Record {
            unit: self.unit.clone(),
            table: RESIDUE.to_owned(),
            column: "sealed".to_owned(),
            source,
        })?;
        Ok(Entry {
            row_key: from_hex(&self.row_key).ok_or_else(damaged)?,
            digest: from_hex(&self.digest).ok_or_else(damaged)?,
            bytes,
        })
    }
}

/// Kept entries with their unit names, sealed and ready to be stored.
#[derive(Debug)]
pub(super) struct SealedEntry {
    unit: String,
    table: String,
    row_key: String,
    version: i64,
    digest: String,
    sealed: String,
}

pub(super) fn seal(keyring: &Keyring, kept: Vec<Kept>, units: &[String]) -> Vec<SealedEntry> {
    let seal = |kept: Kept| SealedEntry {
        unit: units[kept.unit].clone(),
        table: kept.table,
        row_key: to_hex(&kept.entry.row_key),
        version: signed(kept.version),
        digest: to_hex(&kept.entry.digest),
        sealed: String::from_utf8(keyring.seal(Sealing::Sealed, &kept.entry.bytes)).expect("sealed text is ASCII"),
    };
    kept.into_iter().map(seal).collect()
}

/// Keeps entries; one of the same row and step takes the place of what was kept before.
pub(super) async fn store(
    tx: &mut Transaction,
    direction: Direction,
    entries: &[SealedEntry],
) -> Result<(), MigrateError> {
    if entries.is_empty() {
        return Ok(());
    }
    for chunk in entries.chunks(UNITS) {
        let mut units: Vec<_> = chunk.iter().map(|entry| entry.unit.as_str()).collect();
        units.dedup();
        let digests = digests(units.into_iter());
        for (version, table) in chunk.iter().map(|entry| (entry.version, &entry.table)).collect::<BTreeSet<_>>() {
            let mut delete = Query::delete();
            delete
                .from_table(RESIDUE)
                .and_where(Expr::col("unit_digest").is_in(digests.clone()))
                .and_where(Expr::col("version").eq(version))
                .and_where(Expr::col("table_name").eq(table.as_str()))
                .and_where(Expr::col("direction").eq(direction.to_string()));
            tx.execute(&delete).await.map_err(failed)?;
        }
    }
    let table = own_tables::residue();
    let direction = direction.to_string();
    let mut builders: Vec<_> = table.columns.iter().map(|column| ColumnBuilder::new(column.kind.into())).collect();
    for entry in entries {
        let (unit, row) = (digest_of(entry.unit.as_bytes()), digest_of(entry.row_key.as_bytes()));
        let texts = [&unit, &entry.table, &row].map(|text| Value::Text(text.as_bytes()));
        let rest = [&direction, &entry.unit, &entry.row_key, &entry.digest, &entry.sealed];
        let values = texts.into_iter().chain([Value::Integer(entry.version)]);
        let values = values.chain(rest.map(|text| Value::Text(text.as_bytes())));
        builders.iter_mut().zip(values).for_each(|(builder, value)| builder.push(value));
    }
    let data: Vec<_> = builders.into_iter().map(ColumnBuilder::finish).collect();
    let rows = bulk::Rows { count: entries.len(), columns: table.columns.iter().zip(&data).collect() };
    bulk::insert(tx, RESIDUE, &rows).await.map_err(failed)
}

/// Removes what steps of a direction left at these versions for one unit.
pub(super) async fn remove_unit(
    tx: &mut Transaction,
    direction: Direction,
    versions: Versions,
    unit: &str,
) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(RESIDUE).cond_where(of(direction, &versions));
    delete.and_where(Expr::col("unit_digest").eq(digest_of(unit.as_bytes())));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(())
}

/// What steps of a direction left at these versions, but for units in quarantine, for which nothing of it was used.
fn used(direction: Direction, versions: &Versions) -> Cond {
    let quarantined = Query::select().column("unit_digest").from(QUARANTINE).take();
    of(direction, versions).add(Expr::col("unit_digest").not_in_subquery(quarantined))
}

/// Removes it. Only while nobody writes.
pub(super) async fn remove(tx: &mut Transaction, direction: Direction, versions: Versions) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(RESIDUE).cond_where(used(direction, &versions));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(())
}

/// Removes it for the next few units after one. Gives the last of them, if there was any.
pub(super) async fn remove_some(
    tx: &mut Transaction,
    direction: Direction,
    versions: Versions,
    after: &str,
) -> Result<Option<String>, MigrateError> {
    let next = used(direction, &versions).add(Expr::col("unit_digest").gt(after));
    let mut some = Query::select();
    some.distinct().column("unit_digest").from(RESIDUE).cond_where(next.clone());
    some.order_by("unit_digest", Order::Asc).limit(REMOVED_UNITS);
    let Some(last) = tx.fetch(&some).await.map_err(failed)?.pop() else { return Ok(None) };
    let last = last.text(0).map_err(failed)?.unwrap_or_default().to_owned();
    let mut delete = Query::delete();
    delete.from_table(RESIDUE).cond_where(next.add(Expr::col("unit_digest").lte(last.as_str())));
    tx.execute(&delete).await.map_err(failed)?;
    Ok(Some(last))
}
