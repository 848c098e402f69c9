//! The change of the names of tables where it is no part of a transaction, and back.

use std::collections::BTreeSet;

use bbs_database::{Transaction, schema};
use bbs_lens::layout::schema::Layout;

use crate::lock::fence::Fence;
use crate::migrate::lock_waits::patiently;
use crate::migrate::plan::side_table;
use crate::migrate::state::{self, Underway};
use crate::migrate::{Context, MigrateError, fault, statements};

/// Changes the names of tables that have to change, in one statement. Returns the old and the new
/// ones.
pub(super) async fn change_names(
    context: &Context,
    fence: &Fence,
    source: &Layout,
    target: &Layout,
    underway: &Underway,
) -> Result<Vec<(String, String)>, MigrateError> {
    let mut reader = context.database.read().await?;
    let pairs = old_names(&mut reader, source, target, underway).await?;
    drop(reader);
    if !pairs.is_empty() {
        fence
            .change_schema(&[schema::rename_tables(&pairs)])
            .await?;
    }
    fault::point(fault::AFTER_RENAMING);
    Ok(pairs)
}

/// Gives tables the names back that [`change_names`] has changed. Safe to repeat.
pub(super) async fn change_names_back(
    context: &Context,
    fence: &Fence,
    source: &Layout,
    target: &Layout,
    underway: &Underway,
    renamed: &[(String, String)],
) -> Result<(), MigrateError> {
    let back = renamed.iter().rev();
    let back: Vec<_> = back.map(|(from, to)| (to.clone(), from.clone())).collect();
    let back = [schema::rename_tables(&back)];
    patiently(context, || async {
        let mut reader = context.database.read().await?;
        let pairs = old_names(&mut reader, source, target, underway).await?;
        drop(reader);
        // An attempt whose answer was lost may have given them back.
        if pairs.is_empty() {
            fence.change_schema(&back).await?;
        }
        Ok(())
    })
    .await
}

/// The tables whose names have to change, as the database shows them: all or none of them.
async fn old_names(
    tx: &mut Transaction,
    source: &Layout,
    target: &Layout,
    underway: &Underway,
) -> Result<Vec<(String, String)>, MigrateError> {
    let mut there = BTreeSet::new();
    let tables = target.tables.keys();
    let staged = tables.map(|table| side_table(table, underway.to));
    for name in staged
        .chain(target.tables.keys().cloned())
        .chain(source.tables.keys().cloned())
    {
        if state::exists(tx, &name).await? {
            there.insert(name);
        }
    }
    Ok(statements::renames(
        source,
        target,
        underway.from,
        underway.to,
        |name| there.contains(name),
    ))
}
