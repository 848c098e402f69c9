//! A database that is begun anew: it has no version, and the tables of an earlier life are there without a row. Owns what
//! becomes of these: tables of the catalog make way, and what the host kept beside their records is forgotten with them.
//!
//! The fence and the lease stay, since they keep earlier masters from writing; so does the promise of the key label, since
//! nothing is sealed that could break it. Whatever is not of the catalog belongs to others.

use super::own_tables::{QUARANTINE, RESIDUE};
use super::state;
use super::{MigrateError, SqlError};
use crate::database::{Transaction, schema, sql};
use crate::layout::fold::Line;
use crate::layout::manifest::DataVersion;

/// Tables of this prefix hold nothing of clients: they go even with rows, such as the one of the health probe.
const OWN_PREFIX: &str = "bbs_";
/// What earlier records left behind: what modules ran over them, were given for them, and kept of them.
const FORGOTTEN: [&str; 4] = ["bbs_history", "bbs_run_arguments", RESIDUE, QUARANTINE];

/// Refuses a table of the catalog that holds rows: without a version, the host cannot say what they are.
pub(super) async fn check(tx: &mut Transaction, line: &Line) -> Result<(), MigrateError> {
    for table in line.table_names() {
        if !table.starts_with(OWN_PREFIX) && state::exists(tx, table).await? {
            is_empty(tx, table).await?;
        }
    }
    Ok(())
}

async fn is_empty(tx: &mut Transaction, table: &str) -> Result<(), MigrateError> {
    match state::count(tx, table).await? {
        0 => Ok(()),
        _ => Err(MigrateError::TableInTheWay { table: table.to_owned() }),
    }
}

/// The statements that drop the tables of an earlier life, each safe to repeat.
pub(super) async fn clear(
    tx: &mut Transaction,
    line: &Line,
    versions: impl Iterator<Item = DataVersion> + Clone,
) -> Result<Vec<String>, MigrateError> {
    let mut statements = Vec::new();
    for table in line.table_names() {
        // Copies that a migration did not get to remove go only where they are empty: their records are not counted.
        let copies = versions.clone().map(|version| format!("{table}__{version}"));
        for name in std::iter::once(table.to_owned()).chain(copies) {
            if !state::exists(tx, &name).await? {
                continue;
            }
            if name == table && !table.starts_with(OWN_PREFIX) {
                is_empty(tx, table).await?;
            }
            if name == table || state::count(tx, &name).await? == 0 {
                statements.push(schema::drop_table(tx.dialect(), &name));
            }
        }
    }
    Ok(statements)
}

/// Forgets what the host kept of earlier records, so that none of it is given to new ones of the same key.
pub(super) async fn forget(tx: &mut Transaction) -> Result<(), MigrateError> {
    let failed = |table: &str| {
        let what = table.to_owned();
        move |source: SqlError| MigrateError::Sql { what, source }
    };
    for table in [RESIDUE, QUARANTINE] {
        let entries = state::count(tx, table).await?;
        if entries > 0 {
            tracing::warn!(
                table,
                entries,
                "the database is begun anew: what was kept of its earlier records is removed"
            );
        }
    }
    for table in FORGOTTEN {
        tx.execute(sql(format!("DELETE FROM {table}"))).await.map_err(failed(table))?;
    }
    Ok(())
}
