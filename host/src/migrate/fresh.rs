//! A database that is begun anew: it has no version, and the tables of an earlier use are there
//! without rows. Owns what happens to these: tables of the catalog are dropped, and the host's own
//! state about their records is removed with them.
//!
//! The fence and the lease stay, since they keep earlier masters from writing; so do the serials of
//! catalogs, since an older catalog is no safer for new records; and so does the key label, since
//! no sealed record is left. Tables that are not of the catalog are left alone.

use bbs_database::{StatementResult, Transaction, schema, sql};
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::manifest::DataVersion;
use bbs_units::residue;
use sea_query::Cond;

use super::plan::side_table;
use super::state::own_tables::{self, APPLIED, QUARANTINE, RESIDUE};
use super::state::{self, removal};
use super::{Context, MigrateError};
use crate::lock::fence::Fence;

/// The table of the health probe holds nothing of clients: it is dropped even with rows.
const HEALTH_CHECK: &str = "bbs_health_check";
/// State about earlier records that has a row for a version at most: the modules that ran over
/// them, and their arguments.
const FORGOTTEN: [&str; 3] = ["bbs_history", APPLIED, "bbs_run_arguments"];

/// The tables that are neither of the catalog nor of the host: those of other programs.
///
/// # Errors
/// The migrations have no valid layouts, or the database fails.
pub async fn other_tables(context: &Context) -> Result<Vec<String>, MigrateError> {
    let layouts = context.layouts()?;
    let of_catalog = layouts.table_names();
    let mut reader = context.database.read().await?;
    let mut names = schema::table_names(&mut reader)
        .await
        .about("the list of tables")?;
    names.retain(|name| {
        // A copy has the name of its table and a version, with two underscores between them.
        let table = name.split("__").next().unwrap_or_default();
        !of_catalog.contains(table) && !name.starts_with("bbs_") && name != "configurations"
    });
    Ok(names)
}

/// Refuses a table of the catalog that has rows, since without a version the host cannot know their
/// layout, and anything else with such a name.
pub(super) async fn check(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
) -> Result<(), MigrateError> {
    let tables: Vec<_> = layouts.table_names().into_iter().collect();
    for (table, found) in state::relations(tx, &tables).await? {
        state::not_a_table(table, found).map_or(Ok(()), Err)?;
        if table != HEALTH_CHECK {
            is_empty(tx, table).await?;
        }
    }
    Ok(())
}

/// Refuses a table that has rows.
pub(super) async fn is_empty(tx: &mut Transaction, table: &str) -> Result<(), MigrateError> {
    match state::count(tx, table).await? {
        0 => Ok(()),
        _ => Err(MigrateError::TableInTheWay {
            table: table.to_owned(),
        }),
    }
}

/// The statements that drop the tables of an earlier use, each safe to repeat.
pub(super) async fn clear(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    versions: impl Iterator<Item = DataVersion> + Clone,
) -> Result<Vec<String>, MigrateError> {
    let tables = layouts.table_names();
    let mut copies = Vec::new();
    for table in &tables {
        copies.extend(versions.clone().map(|version| side_table(table, version)));
    }
    let mut names: Vec<_> = tables.iter().copied().collect();
    names.extend(copies.iter().map(String::as_str));
    let mut statements = Vec::new();
    // Hundreds of names: a query for each would take longer than all else of a first start.
    for name in state::existing(tx, &names).await? {
        let is_of_catalog = tables.contains(name);
        if is_of_catalog && name != HEALTH_CHECK {
            is_empty(tx, name).await?;
        }
        // Copies that a migration did not remove are dropped only if they are empty: their rows
        // were not counted.
        if is_of_catalog || state::count(tx, name).await? == 0 {
            statements.push(schema::drop_table(tx.dialect(), name));
        }
    }
    Ok(statements)
}

/// The statements that drop the tables of the catalog, whether they have rows or not.
pub(super) async fn existing(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
) -> Result<Vec<String>, MigrateError> {
    let tables: Vec<_> = layouts.table_names().into_iter().collect();
    let existing = state::existing(tx, &tables).await?;
    let statements = existing
        .into_iter()
        .map(|table| schema::drop_table(tx.dialect(), table));
    Ok(statements.collect())
}

/// Removes the residue of earlier records, so that new ones with the same keys do not get it, and
/// the halves of records that an unfinished import has read. Safe to repeat: until all of it is
/// gone, the database has no version and is begun anew.
pub(super) async fn forget(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    for table in [RESIDUE, QUARANTINE] {
        let entries = state::count(&mut reader, table).await?;
        if entries > 0 {
            tracing::warn!(
                table,
                entries,
                "the database has no version and no rows, so entries of its former records are removed"
            );
        }
    }
    drop(reader);
    let tables = [
        own_tables::import_run(),
        residue::table(),
        own_tables::quarantine_part(),
        own_tables::quarantine(),
    ];
    for table in tables {
        removal::remove(fence, &table, Cond::all()).await?;
    }
    let mut tx = fence.begin().await?;
    for table in FORGOTTEN {
        tx.execute(sql(format!("DELETE FROM {table}")))
            .await
            .about(table)?;
    }
    Ok(tx.commit().await.about("bbs_history")?)
}
