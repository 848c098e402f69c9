//! What was kept of units, beside them: entries of `bbs_residue`, found by the unit's name, sealed with the active key.
//! Owns reading and replacing them for some units; the table itself, and what becomes of it after a migration, is
//! `migrate`'s.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use sea_query::{Cond, Expr, ExprTrait, Query};

use super::UnitsError;
use super::digest::{digest_of, from_hex, signed, to_hex};
use crate::database::{Row, SqlError, Transaction};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::Sealing;
use crate::lens::{Entry, Kept};
use crate::record::Keyring;

pub const TABLE: &str = "bbs_residue";

/// Where steps keep things: versions and tables; no table for what a row function left.
pub type Places = BTreeSet<(DataVersion, String)>;

/// What steps of a direction kept of these units, opened. `unit` of an entry is its unit's place among the names.
pub async fn load(
    tx: &mut Transaction,
    keyring: &Keyring,
    direction: Direction,
    versions: &RangeInclusive<DataVersion>,
    names: &[String],
) -> Result<Vec<Kept>, UnitsError> {
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    let digests = names.iter().map(|name| digest_of(name.as_bytes()));
    if names.len() > 1 {
        tx.find_by_key().await.map_err(UnitsError::Residue)?;
    }
    let select = Query::select()
        .columns(["unit", "table_name", "row_key", "version", "digest", "sealed"])
        .from(TABLE)
        .and_where(Expr::col("unit_digest").is_in(digests))
        .and_where(Expr::col("direction").eq(direction.to_string()))
        .and_where(Expr::col("version").between(signed(*versions.start()), signed(*versions.end())))
        .to_owned();
    let mut kept = Vec::new();
    for row in tx.fetch(&select).await.map_err(UnitsError::Residue)? {
        let text = |at: usize| row.text(at).map(Option::unwrap_or_default).map_err(UnitsError::Residue);
        let unit = text(0)?;
        let damaged = || UnitsError::DamagedResidue { unit: unit.to_owned() };
        let version = row.integer(3).map_err(UnitsError::Residue)?.ok_or_else(damaged)?.unsigned_abs();
        let entry = Entry {
            row_key: from_hex(text(2)?).ok_or_else(damaged)?,
            digest: from_hex(text(4)?).ok_or_else(damaged)?,
            bytes: opened(&row, unit, keyring)?,
        };
        let unit = *places.get(unit).ok_or_else(damaged)?;
        kept.push(Kept { unit, table: text(1)?.to_owned(), version, entry });
    }
    Ok(kept)
}

fn opened(row: &Row, unit: &str, keyring: &Keyring) -> Result<Vec<u8>, UnitsError> {
    let sealed = row.bytes(5).map_err(UnitsError::Residue)?.unwrap_or_default();
    let failed = |source| UnitsError::SealedResidue { unit: unit.to_owned(), source };
    keyring.open(Sealing::Sealed, sealed).map_err(failed)
}

/// Removes what steps of either direction have kept of a unit that is gone.
pub async fn forget(tx: &mut Transaction, places: &Places, name: &str) -> Result<(), UnitsError> {
    if places.is_empty() {
        return Ok(());
    }
    let delete = Query::delete()
        .from_table(TABLE)
        .and_where(Expr::col("unit_digest").eq(digest_of(name.as_bytes())))
        .cond_where(at_any_of(places))
        .to_owned();
    run(tx.execute(&delete).await)
}

fn at_any_of(places: &Places) -> Cond {
    let at = |(version, table): &(DataVersion, String)| {
        Cond::all().add(Expr::col("version").eq(signed(*version))).add(Expr::col("table_name").eq(table.as_str()))
    };
    places.iter().fold(Cond::any(), |any, place| any.add(at(place)))
}

/// Makes `kept` all that steps of a direction have kept of one unit at these places.
pub async fn replace(
    tx: &mut Transaction,
    keyring: &Keyring,
    direction: Direction,
    places: &Places,
    name: &str,
    kept: &[Kept],
) -> Result<(), UnitsError> {
    let unit = digest_of(name.as_bytes());
    let delete = Query::delete()
        .from_table(TABLE)
        .and_where(Expr::col("unit_digest").eq(unit.as_str()))
        .and_where(Expr::col("direction").eq(direction.to_string()))
        .cond_where(at_any_of(places))
        .to_owned();
    if !places.is_empty() {
        run(tx.execute(&delete).await)?;
    }
    for Kept { table, version, entry, .. } in kept {
        let row_key = to_hex(&entry.row_key);
        let sealed = String::from_utf8(keyring.seal(Sealing::Sealed, &entry.bytes)).expect("sealed text is ASCII");
        let insert = Query::insert()
            .into_table(TABLE)
            .columns([
                "unit_digest",
                "table_name",
                "row_digest",
                "version",
                "direction",
                "unit",
                "row_key",
                "digest",
                "sealed",
            ])
            .values_panic([
                unit.as_str().into(),
                table.as_str().into(),
                digest_of(row_key.as_bytes()).into(),
                signed(*version).into(),
                direction.to_string().into(),
                name.into(),
                row_key.into(),
                to_hex(&entry.digest).into(),
                sealed.into(),
            ])
            .to_owned();
        run(tx.execute(&insert).await)?;
    }
    Ok(())
}

fn run(done: Result<u64, SqlError>) -> Result<(), UnitsError> {
    done.map(drop).map_err(UnitsError::Residue)
}
