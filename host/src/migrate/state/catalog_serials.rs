//! The highest serial of each signed catalog that a host or a command with the lock has used on
//! this database. Owns `bbs_catalog_serial`; what an older catalog leads to is up to the caller.
//!
//! The database is the only memory that all hosts share, and that an attacker who replaces a folder
//! of modules does not reach.

use std::collections::BTreeMap;

use bbs_database::{Database, StatementResult, schema, signed, sql, upsert};

use super::own_tables::{CATALOG_SERIAL, catalog_serial};
use crate::lock::fence::Fence;
use crate::migrate::{LockWaits, MigrateError, state};

/// The remembered serials, by the name of the catalog.
pub async fn catalog_serials(database: &Database) -> Result<BTreeMap<String, u64>, MigrateError> {
    let mut tx = database.read().await?;
    if !state::exists(&mut tx, CATALOG_SERIAL).await? {
        return Ok(BTreeMap::new());
    }
    let select = sql("SELECT name, serial FROM bbs_catalog_serial");
    let serials = tx.fetch_as(select, |row| Ok((row.owned_text(0)?, row.unsigned(1)?)));
    Ok(serials.await.about(CATALOG_SERIAL)?)
}

/// Remembers serials, which are higher than the remembered ones. Writes nothing if there are none.
///
/// # Errors
/// Another host has raised the fence, another client holds a lock for too long, or the database
/// fails.
pub async fn remember_catalog_serials(
    waits: LockWaits<'_>,
    fence: &Fence,
    higher: &[(&str, u64)],
) -> Result<(), MigrateError> {
    if higher.is_empty() {
        return Ok(());
    }
    let mut tx = waits.database.read().await?;
    let is_there = state::exists(&mut tx, CATALOG_SERIAL).await?;
    drop(tx);
    if !is_there {
        // Even where it exists, a statement about a table waits for a backup of the server.
        let statement = schema::ensure_table(waits.database.dialect(), &catalog_serial());
        waits.change_schema(fence, &[statement]).await?;
    }
    let mut tx = fence.begin().await?;
    for (name, serial) in higher {
        let row = upsert(
            CATALOG_SERIAL,
            [("name", (*name).into())],
            [("serial", signed(*serial).into())],
        );
        tx.execute(&row).await.about(CATALOG_SERIAL)?;
    }
    Ok(tx.commit().await.about(CATALOG_SERIAL)?)
}
