//! A rotation from its first moment to its proof. Owns the order of the steps, each of which is durable and safe to
//! repeat: the label goes, the tables are walked, a scan finds nothing left, the label comes back.

use std::collections::BTreeMap;

use super::rewrite::{self, Passed};
use super::row::RowKey;
use super::sample::wrong_keys;
use super::state::{self, Underway};
use super::{Context, KeysError, Scope, count, replays};
use crate::database::{Database, Transaction, schema};
use crate::lock::fence::Fence;
use crate::migrate::fault;
use crate::record::Keyring;

/// What a rotation did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Whether the database did not promise yet that everything is under the active key.
    pub was_due: bool,
    pub rewritten: u64,
    /// Rows and files left as they are because they do not open. While there are any, the label stays absent and the
    /// next start tries again.
    pub unreadable: u64,
    /// The first of them, by place and key, with the reason.
    pub examples: Vec<String>,
}

/// Refuses a database of which something is under a key that this host does not have, or has with another passphrase. For
/// a start to call before it changes or serves anything.
///
/// # Errors
/// The first such key, by label.
pub async fn check(database: &Database, keyring: &Keyring, scope: &Scope) -> Result<(), KeysError> {
    let mut tx = database.read().await?;
    let label = known_label(&mut tx, keyring).await?;
    let underway = state::underway(&mut tx).await?;
    drop(tx);
    if let Some(wrong) = wrong_keys(database, keyring, scope).await?.into_iter().next() {
        return Err(wrong.into());
    }
    let Some(underway) = underway.filter(|_| label.is_none()) else { return Ok(()) };
    let removed: Vec<_> = underway.labels.into_iter().filter(|label| !keyring.knows(label)).collect();
    if removed.is_empty() {
        return Ok(());
    }
    let counted = count::by_label(database, scope, &removed).await?;
    for label in removed {
        let found: Vec<_> = counted.iter().filter(|place| place.under(&label) > 0).collect();
        if !found.is_empty() {
            let texts = found.iter().map(|place| place.under(&label)).sum();
            let places = found.iter().map(|place| place.place.as_str()).collect::<Vec<_>>().join(", ");
            return Err(KeysError::KeyRemoved { label, texts, places });
        }
    }
    Ok(())
}

/// The label in the database, if there is one to promise anything.
async fn known_label(tx: &mut Transaction, keyring: &Keyring) -> Result<Option<String>, KeysError> {
    match state::label(tx).await? {
        Some(label) if !keyring.knows(&label) => Err(KeysError::UnknownLabel { label }),
        label => Ok(label),
    }
}

/// Takes the promise back if it is not for the active key: before anything can be sealed under that one. Says
/// whether there is something to rotate.
pub async fn begin(context: &Context, fence: &Fence) -> Result<bool, KeysError> {
    let active = context.keyring.active_label();
    let mut tx = context.database.read().await?;
    if known_label(&mut tx, &context.keyring).await?.as_deref() == Some(active) {
        return Ok(false);
    }
    let fresh = !schema::exists(&mut tx, "configurations").await.map_err(KeysError::sql("configurations"))?;
    drop(tx);
    if fresh {
        return Ok(true);
    }
    create_tables(context, fence).await?;
    let mut tx = fence.begin().await?;
    let label = known_label(&mut tx, &context.keyring).await?;
    let found = state::underway(&mut tx).await?;
    // A label says that another host has ended a rotation meanwhile.
    let resumed = found
        .clone()
        .filter(|found| label.is_none() && found.label == active && found.data_version == context.scope.data_version);
    if resumed.is_none() {
        state::forget_cursors(&mut tx).await?;
    }
    let now_ns = context.clock.now_ns();
    let mut underway = resumed.unwrap_or_else(|| Underway {
        label: active.to_owned(),
        labels: found.map(|found| found.labels).unwrap_or_default(),
        data_version: context.scope.data_version,
        started_at_ns: now_ns,
        moved_at_ns: now_ns,
        rewritten: 0,
    });
    underway.labels.extend(label);
    underway.labels.insert(active.to_owned());
    state::write_underway(&mut tx, &underway).await?;
    state::delete_label(&mut tx).await?;
    fault::point(fault::BEFORE_ROTATION);
    tx.commit().await.map_err(KeysError::sql("the encryption key label"))?;
    fault::point(fault::AFTER_ROTATION_BEGIN);
    Ok(true)
}

async fn create_tables(context: &Context, fence: &Fence) -> Result<(), KeysError> {
    let mut tx = context.database.read().await?;
    let mut statements = Vec::new();
    for table in state::tables() {
        if !schema::exists(&mut tx, &table.name).await.map_err(KeysError::sql(&table.name))? {
            statements.push(schema::create_table(tx.dialect(), &table, &table.name));
        }
    }
    drop(tx);
    Ok(fence.change_schema(&statements).await?)
}

/// Brings whatever is not under the active key under it, from wherever an earlier start got to, and writes the label
/// once a scan proves that nothing is left. Records are read and written meanwhile as always.
pub async fn rotate(context: &Context, fence: &Fence) -> Result<Rotated, KeysError> {
    if !begin(context, fence).await? {
        return Ok(Rotated::default());
    }
    let mut cursors = cursors(context).await?;
    let mut rewritten = 0;
    loop {
        let active = context.keyring.active_label();
        let stale = count::stale(&context.database, &context.scope, active).await?;
        if stale == 0 {
            promise(context, fence).await?;
            return Ok(Rotated { was_due: true, rewritten, ..Rotated::default() });
        }
        context.progress.enter("rotate-keys", format!("to {active}"), Some(stale));
        let whole = cursors.is_empty();
        let passed = round(context, fence, std::mem::take(&mut cursors)).await?;
        rewritten += passed.rewritten;
        // A round over everything that changed nothing: what is left does not open.
        if whole && passed.rewritten == 0 {
            let Passed { unreadable, examples, .. } = passed;
            return Ok(Rotated { was_due: true, rewritten, unreadable, examples });
        }
    }
}

/// Every table, then every file.
async fn round(context: &Context, fence: &Fence, mut cursors: BTreeMap<String, RowKey>) -> Result<Passed, KeysError> {
    let mut passed = Passed::default();
    for table in &context.scope.tables {
        passed.add(rewrite::walk(context, fence, table, cursors.remove(&table.name)).await?);
        fault::point(fault::BETWEEN_ROTATED_TABLES);
    }
    let files = replays::reseal(context.scope.replays.clone(), context.keyring.clone()).await?;
    context.progress.advance(files.rewritten);
    passed.add(files);
    let mut tx = fence.begin().await?;
    state::forget_cursors(&mut tx).await?;
    tx.commit().await.map_err(KeysError::sql("the cursors of the rotation"))?;
    Ok(passed)
}

async fn cursors(context: &Context) -> Result<BTreeMap<String, RowKey>, KeysError> {
    let mut tx = context.database.read().await?;
    let cursors = state::cursors(&mut tx).await?;
    let key = |table: &super::SealedTable| {
        let cursor = cursors.iter().find(|cursor| cursor.table == table.name)?;
        Some((table.name.clone(), RowKey::from_text(&cursor.last_key, table)?))
    };
    Ok(context.scope.tables.iter().filter_map(key).collect())
}

async fn promise(context: &Context, fence: &Fence) -> Result<(), KeysError> {
    fault::point(fault::AFTER_ROTATION_PROOF);
    // A database without tables has nothing to promise anything of, and no place to write it.
    let mut tx = context.database.read().await?;
    let place = schema::exists(&mut tx, "configurations").await.map_err(KeysError::sql("configurations"))?;
    drop(tx);
    if !place {
        return Ok(());
    }
    let mut tx = fence.begin().await?;
    state::write_label(&mut tx, context.keyring.active_label()).await?;
    fault::point(fault::BEFORE_LABEL_COMMIT);
    tx.commit().await.map_err(KeysError::sql("the encryption key label"))?;
    fault::point(fault::AFTER_LABEL);
    Ok(())
}
