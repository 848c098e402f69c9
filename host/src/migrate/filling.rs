//! A database that is filled from another store: the tables of one version are created empty, the
//! caller fills them, and then the database gets that version. Owns which tables are dropped
//! before; the rows are the caller's.

use bbs_database::{StatementResult, Transaction, schema, upsert};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::Layout;

use super::lock_waits::{change_schema, patiently};
use super::look::in_the_way;
use super::{Context, MigrateError, fresh, state};
use crate::lock::fence::Fence;

/// The rows that the tables may have when they are created anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingRows {
    /// Nothing: a table with rows is an error.
    Refused,
    /// Rows of an earlier attempt, which are dropped.
    Dropped,
}

/// Checks that nothing is in the place of the tables of a version, which are to be filled, or has
/// the name of one of their indexes.
///
/// # Errors
/// The catalog does not have the version, a table has rows, something else has a name, or the
/// database fails. Nothing was written.
pub async fn check(
    context: &Context,
    version: DataVersion,
    existing: ExistingRows,
) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    check_in(&mut reader, context, version, existing).await
}

/// [`check`] within a transaction.
///
/// # Errors
/// As of [`check`].
pub async fn check_in(
    tx: &mut Transaction,
    context: &Context,
    version: DataVersion,
    existing: ExistingRows,
) -> Result<(), MigrateError> {
    let layouts = context.layouts()?;
    let layout = layouts
        .at(version)
        .ok_or(MigrateError::UnknownTarget { version })?;
    if existing == ExistingRows::Refused {
        fresh::check(tx, &layouts).await?;
    }
    in_the_way::check_of_new_tables(tx, &layouts, layout).await
}

/// Creates the tables of a version, empty, and with indexes only in a cluster; removes what is
/// recorded about earlier records. The database has no version before and after.
///
/// # Errors
/// The catalog does not have the version, a table has rows, another host has raised the fence, or
/// the database fails.
pub async fn create_tables(
    context: &Context,
    fence: &Fence,
    version: DataVersion,
    existing: ExistingRows,
) -> Result<Layout, MigrateError> {
    let layouts = context.layouts()?;
    let layout = layouts
        .at(version)
        .ok_or(MigrateError::UnknownTarget { version })?
        .clone();
    let dialect = context.database.dialect();
    let mut reader = context.database.read().await?;
    let versions = context.manifests().map(|manifest| manifest.version);
    let mut statements = match existing {
        ExistingRows::Refused => fresh::clear(&mut reader, &layouts, versions).await?,
        ExistingRows::Dropped => fresh::existing(&mut reader, &layouts).await?,
    };
    drop(reader);
    for table in layout.tables.values() {
        statements.push(schema::create_table(dialect, table, &table.name));
        if fence.is_in_cluster() {
            statements.extend(schema::create_indexes(dialect, &table.name, &table.indexes));
        }
    }
    change_schema(context, fence, &statements).await?;
    fresh::forget(context, fence).await?;
    Ok(layout)
}

/// Creates the indexes of tables that are filled. In a cluster they are there: all commits, and so
/// the renewal of the lock, would wait for a statement that creates them.
///
/// # Errors
/// Another host has raised the fence, or the database fails.
pub async fn create_indexes(
    context: &Context,
    fence: &Fence,
    layout: &Layout,
) -> Result<(), MigrateError> {
    if fence.is_in_cluster() {
        return Ok(());
    }
    let dialect = context.database.dialect();
    for table in layout.tables.values() {
        let statements = schema::create_indexes(dialect, &table.name, &table.indexes);
        patiently(context, || async {
            let built = fence.build_indexes(&statements, table.indexes.len());
            Ok(built.await?)
        })
        .await?;
    }
    Ok(())
}

/// Gives the database its version, and the label of the key that all its records are sealed with.
/// From then on it is migrated and served as any other.
pub async fn declare(
    tx: &mut Transaction,
    version: DataVersion,
    key_label: &str,
) -> Result<(), MigrateError> {
    if !key_label.is_empty() {
        let row = upsert(
            "configurations",
            [("id", state::KEY_LABEL.into())],
            [("value", key_label.into())],
        );
        tx.execute(&row)
            .await
            .about("the key label in `configurations`")?;
    }
    state::write_version(tx, version, version).await
}
