//! What steps would lose, beside the records. Owns `bbs_residue`: entries are sealed with the
//! active key, found by unit, and gone once the way back has used them.

use std::collections::BTreeSet;

use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection, Transaction};

use super::MigrateError;
use super::key::{from_hex, to_hex};
use super::reencrypt::SealedTable;
use super::state::{RESIDUE_TABLE, exists, signed};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::Sealing;
use crate::lens::{Entry, Kept, Left};
use crate::record::Keyring;

fn sql(source: sqlx::Error) -> MigrateError {
    MigrateError::Sql { what: RESIDUE_TABLE.to_owned(), source }
}

pub(super) fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

/// The residue as a table with a sealed column, for a new key to be put on.
pub(super) fn sealed_table() -> SealedTable {
    let primary_key = ["unit", "table_name", "row_key", "version", "direction"].map(str::to_owned).to_vec();
    SealedTable { name: RESIDUE_TABLE.to_owned(), primary_key, columns: vec![("sealed".to_owned(), Sealing::Sealed)] }
}

/// For which versions and tables steps of a direction have left something.
pub(super) async fn present(
    connection: &mut SqliteConnection,
    direction: Direction,
    versions: std::ops::RangeInclusive<DataVersion>,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    if !exists(connection, RESIDUE_TABLE).await? {
        return Ok(BTreeSet::new());
    }
    let rows = sqlx::query(
        "SELECT DISTINCT version, table_name FROM bbs_residue WHERE direction = ? AND version BETWEEN ? AND ?",
    )
    .bind(direction.to_string())
    .bind(signed(*versions.start()))
    .bind(signed(*versions.end()))
    .fetch_all(connection)
    .await
    .map_err(sql)?;
    Ok(rows.iter().map(|row| (row.get::<i64, _>(0).unsigned_abs(), row.get(1))).collect())
}

/// Entries of a table of which only the residue is left, as unit names after a given one.
pub(super) async fn units_of(
    readers: &SqlitePool,
    direction: Direction,
    restored: &[(DataVersion, String)],
    after: Option<&str>,
    most: u64,
) -> Result<Vec<String>, MigrateError> {
    let mut units = BTreeSet::new();
    for (version, table) in restored {
        let rows = sqlx::query(
            "SELECT DISTINCT unit FROM bbs_residue WHERE direction = ? AND version = ? AND table_name = ? \
             AND unit > ? ORDER BY unit LIMIT ?",
        )
        .bind(direction.to_string())
        .bind(signed(*version))
        .bind(table)
        .bind(after.unwrap_or_default())
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_all(readers)
        .await
        .map_err(sql)?;
        units.extend(rows.iter().map(|row| row.get::<String, _>(0)));
    }
    Ok(units.into_iter().take(usize::try_from(most).unwrap_or(usize::MAX)).collect())
}

/// What steps of a direction left for these units, opened.
pub(super) async fn load(
    readers: &SqlitePool,
    keyring: &Keyring,
    direction: Direction,
    versions: std::ops::RangeInclusive<DataVersion>,
    units: &[String],
) -> Result<Left, MigrateError> {
    let names = serde_json::to_string(units).expect("a list of text");
    let rows = sqlx::query(
        "SELECT unit, table_name, row_key, version, digest, sealed FROM bbs_residue \
         WHERE unit IN (SELECT value FROM json_each(?)) AND direction = ? AND version BETWEEN ? AND ?",
    )
    .bind(names)
    .bind(direction.to_string())
    .bind(signed(*versions.start()))
    .bind(signed(*versions.end()))
    .fetch_all(readers)
    .await
    .map_err(sql)?;
    let mut left = Left::default();
    for row in rows {
        let unit: String = row.get(0);
        let damaged = || MigrateError::DamagedResidue { unit: unit.clone() };
        let sealed: String = row.get(5);
        let bytes = keyring.open(Sealing::Sealed, sealed.as_bytes()).map_err(|source| MigrateError::Record {
            unit: unit.clone(),
            table: RESIDUE_TABLE.to_owned(),
            column: "sealed".to_owned(),
            source,
        })?;
        let entry = Entry {
            row_key: from_hex(row.get(2)).ok_or_else(damaged)?,
            digest: from_hex(row.get(4)).ok_or_else(damaged)?,
            bytes,
        };
        let place = units.iter().position(|name| *name == unit).ok_or_else(damaged)?;
        left.add(row.get::<i64, _>(3).unsigned_abs(), row.get(1), place, entry);
    }
    Ok(left)
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

pub(super) async fn store(
    tx: &mut Transaction<'static, Sqlite>,
    direction: Direction,
    entries: &[SealedEntry],
) -> Result<(), MigrateError> {
    const ROWS: usize = 64;
    for chunk in entries.chunks(ROWS) {
        let places = vec!["(?, ?, ?, ?, ?, ?, ?)"; chunk.len()].join(", ");
        let statement = format!(
            "INSERT OR REPLACE INTO bbs_residue (unit, table_name, row_key, version, direction, digest, sealed) \
             VALUES {places}"
        );
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for entry in chunk {
            query = query
                .bind(&entry.unit)
                .bind(&entry.table)
                .bind(&entry.row_key)
                .bind(entry.version)
                .bind(direction.to_string())
                .bind(&entry.digest)
                .bind(&entry.sealed);
        }
        query.execute(&mut **tx).await.map_err(sql)?;
    }
    Ok(())
}

/// Removes what steps of a direction left at these versions.
pub(super) async fn remove(
    tx: &mut Transaction<'static, Sqlite>,
    direction: Direction,
    versions: std::ops::RangeInclusive<DataVersion>,
) -> Result<(), MigrateError> {
    sqlx::query("DELETE FROM bbs_residue WHERE direction = ? AND version BETWEEN ? AND ?")
        .bind(direction.to_string())
        .bind(signed(*versions.start()))
        .bind(signed(*versions.end()))
        .execute(&mut **tx)
        .await
        .map_err(sql)?;
    Ok(())
}
