//! The course of a rotation. Owns the order of the steps, each of which is durable and idempotent:
//! delete the label, rewrite the tables, scan for texts under other keys, write the label.

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::{Database, StatementResult, Transaction, schema};
use bbs_encryption::Keyring;
use bbs_units::UnitKey;
use bbs_work::pauses;
use bbs_work::progress::{Counted, ROTATION};

use super::rewrite;
use super::sample::wrong_keys;
use super::state::{self, RotationState};
use super::{KeysError, RotationContext, SealedScope, SealedTable, count};
use crate::lock::fence::Fence;
use crate::migrate::{self, LockWaits, fault};

/// Bounds the passes in succession that neither rewrite a row nor find one that does not open. One
/// is usual where clients write every row between its read and its update.
const MOST_IDLE_PASSES: u32 = 10;

/// The most examples that are kept; the count includes all.
const EXAMPLES: usize = 10;

/// The result of a rotation, or of a pass over some rows, which is not due by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Whether a rotation was due: the database did not have the label of the active key, or
    /// [`rotate_all`] found rows under others.
    pub was_due: bool,
    /// Rows rewritten.
    pub rewritten: u64,
    /// Rows left as they are because they do not open. While there are any, the label
    /// stays absent and the next start tries again.
    pub unreadable: u64,
    /// The first of them, by place and key, with the reason.
    pub examples: Vec<String>,
}

impl Rotated {
    pub(super) fn skip(&mut self, example: String) {
        self.unreadable += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example);
        }
    }

    fn add(&mut self, other: Self) {
        self.rewritten += other.rewritten;
        self.unreadable += other.unreadable;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
    }
}

/// Checks that the keyring can open everything in the database. Called at start, before the host
/// writes or serves.
///
/// # Errors
/// If something is sealed under a key that is not configured, or that is configured with another
/// passphrase: names the first such label. If the database cannot be read.
pub async fn check(
    database: &Database,
    keyring: &Keyring,
    scope: &SealedScope,
) -> Result<(), KeysError> {
    let mut tx = database.read().await?;
    let label = known_label(&mut tx, keyring).await?;
    let underway = state::underway(&mut tx).await?;
    drop(tx);
    if let Some(wrong) = wrong_keys(database, keyring, scope)
        .await?
        .into_iter()
        .next()
    {
        return Err(wrong.into());
    }
    let Some(underway) = underway.filter(|_| label.is_none()) else {
        return Ok(());
    };
    let removed: Vec<_> = underway
        .labels
        .into_iter()
        .filter(|label| !keyring.contains(label))
        .collect();
    if removed.is_empty() {
        return Ok(());
    }
    let counted = count::by_label(database, keyring, scope, &removed).await?;
    for label in removed {
        let found: Vec<_> = counted
            .iter()
            .filter(|place| place.under(&label) > 0)
            .collect();
        if !found.is_empty() {
            let texts = found.iter().map(|place| place.under(&label)).sum();
            let places = found
                .iter()
                .map(|place| place.place.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            return Err(KeysError::KeyRemoved {
                label,
                texts,
                places,
            });
        }
    }
    Ok(())
}

/// The label in the database, if there is one; an error if the keyring does not have it.
async fn known_label(tx: &mut Transaction, keyring: &Keyring) -> Result<Option<String>, KeysError> {
    match state::label(tx).await? {
        Some(label) if !keyring.contains(&label) => Err(KeysError::UnknownLabel { label }),
        label => Ok(label),
    }
}

/// Whether a rotation is due: the database does not have the label of the active key.
///
/// # Errors
/// If the label in the database is not in the keyring, or the database cannot be read.
pub async fn is_due(database: &Database, keyring: &Keyring) -> Result<bool, KeysError> {
    let label = known_label(&mut database.read().await?, keyring).await?;
    Ok(label.as_deref() != Some(keyring.active_label()))
}

/// Begins a rotation: deletes the label unless it is that of the active key. Called before anything
/// is sealed under the active key. Returns whether a rotation is due.
///
/// # Errors
/// If the label in the database is not in the keyring, the database fails, or this host is no
/// longer the master.
pub async fn begin(context: &RotationContext, fence: &Fence) -> Result<bool, KeysError> {
    let is_due = is_due(&context.database, &context.keyring).await?;
    if is_due {
        withdraw_label(context, fence, &BTreeSet::new()).await?;
    }
    Ok(is_due)
}

/// Deletes the label and records the rotation, unless the database has no place for them. Texts may
/// be under keys with `other` labels, too.
async fn withdraw_label(
    context: &RotationContext,
    fence: &Fence,
    other: &BTreeSet<String>,
) -> Result<(), KeysError> {
    if !has_configurations(context).await? {
        return Ok(());
    }
    create_tables(context, fence).await?;
    let attempt = || record_rotation(context, fence, other);
    pauses::retry_batch(&context.progress, KeysError::is_transient, attempt).await
}

async fn record_rotation(
    context: &RotationContext,
    fence: &Fence,
    other: &BTreeSet<String>,
) -> Result<(), KeysError> {
    let active = context.keyring.active_label();
    let mut tx = fence.begin().await?;
    // A command may be sealing a record under the key of the label, which the scan would not see.
    migrate::lock_version(&mut tx, fence.is_in_cluster()).await?;
    let label = known_label(&mut tx, &context.keyring).await?;
    let found = state::underway(&mut tx).await?;
    // With a label, the recorded rotation is over.
    let resumed = found.clone().filter(|found| {
        label.is_none() && found.label == active && found.data_version == context.scope.data_version
    });
    if resumed.is_none() {
        state::delete_cursors(&mut tx).await?;
    }
    let now_ns = context.clock.now_ns();
    let mut underway = resumed.unwrap_or_else(|| RotationState {
        label: active.to_owned(),
        labels: found.map(|found| found.labels).unwrap_or_default(),
        data_version: context.scope.data_version,
        started_at_ns: now_ns,
        moved_at_ns: now_ns,
        rewritten: 0,
    });
    underway.labels.extend(label);
    underway.labels.insert(active.to_owned());
    underway.labels.extend(other.iter().cloned());
    state::write_underway(&mut tx, &underway).await?;
    state::delete_label(&mut tx).await?;
    fault::point(fault::BEFORE_ROTATION);
    tx.commit().await.about("the encryption key label")?;
    fault::point(fault::AFTER_ROTATION_BEGIN);
    Ok(())
}

/// Whether the database has a place for the label. One without tables has no texts either.
async fn has_configurations(context: &RotationContext) -> Result<bool, KeysError> {
    state::exists(&mut context.database.read().await?, "configurations").await
}

async fn create_tables(context: &RotationContext, fence: &Fence) -> Result<(), KeysError> {
    let mut tx = context.database.read().await?;
    let mut statements = Vec::new();
    for table in state::tables() {
        if !state::exists(&mut tx, &table.name).await? {
            statements.push(schema::create_table(tx.dialect(), &table, &table.name));
        }
    }
    drop(tx);
    let waits = LockWaits {
        database: &context.database,
        progress: &context.progress,
        timeout: context.lock_timeout,
    };
    Ok(waits.change_schema(fence, &statements).await?)
}

/// Re-seals everything that is not under the active key, resumes at the cursors of an interrupted
/// rotation, and writes the label once a scan finds nothing under other keys. The API is served in
/// the meantime.
///
/// # Errors
/// As [`begin`]; [`KeysError::Idle`] if passes rewrite no row although each row opens. What has
/// been rewritten stays rewritten.
pub async fn rotate(context: &RotationContext, fence: &Fence) -> Result<Rotated, KeysError> {
    if begin(context, fence).await? {
        rewrite_all(context, fence).await
    } else {
        Ok(Rotated::default())
    }
}

async fn rewrite_all(context: &RotationContext, fence: &Fence) -> Result<Rotated, KeysError> {
    let mut cursors = cursors(context).await?;
    let mut rewritten = 0;
    let mut idle_passes = 0;
    loop {
        let active = context.keyring.active_label();
        let stale = count::stale(&context.database, &context.scope, active).await?;
        if stale == 0 {
            write_label(context, fence).await?;
            return Ok(Rotated {
                was_due: true,
                rewritten,
                ..Rotated::default()
            });
        }
        if idle_passes == MOST_IDLE_PASSES {
            return Err(KeysError::Idle {
                rows: stale,
                label: active.to_owned(),
                passes: idle_passes,
            });
        }
        context.progress.enter(
            ROTATION,
            format!("to {active}"),
            Some(Counted::Rows.total(stale)),
        );
        let whole = cursors.is_empty();
        let summary = pass(context, fence, std::mem::take(&mut cursors)).await?;
        rewritten += summary.rewritten;
        let is_idle = whole && summary.rewritten == 0;
        // A pass over all rows that rewrote none. Without a text that does not open, clients have
        // changed the rows since they were counted, and the next count may prove completion.
        if is_idle && summary.unreadable > 0 {
            return Ok(Rotated {
                was_due: true,
                rewritten,
                ..summary
            });
        }
        idle_passes = if is_idle { idle_passes + 1 } else { 0 };
    }
}

/// As [`rotate`], also where the database has the label of the active key but rows are under
/// others. Diego's rotation writes the label although it leaves out the rows that it cannot decode,
/// and instances without one of their texts. Such a row may be in quarantine since. Looks at all
/// rows, so it is for a command and not for a start. Where no such row opens, the label stays.
///
/// # Errors
/// As [`rotate`].
pub async fn rotate_all(context: &RotationContext, fence: &Fence) -> Result<Rotated, KeysError> {
    let rotated = rotate_tables(context, fence).await?;
    with_quarantine(context, Some(fence), rotated).await
}

async fn rotate_tables(context: &RotationContext, fence: &Fence) -> Result<Rotated, KeysError> {
    if !begin(context, fence).await? {
        let found = survey_tables(context).await?;
        if found.rewritten == 0 {
            return Ok(found);
        }
        let all: BTreeSet<_> = context.keyring.labels().map(str::to_owned).collect();
        withdraw_label(context, fence, &all).await?;
    }
    rewrite_all(context, fence).await
}

/// A result with the entries of the quarantine that have texts inside under other keys that open.
/// With a fence, these are sealed with the active key.
async fn with_quarantine(
    context: &RotationContext,
    fence: Option<&Fence>,
    rotated: Rotated,
) -> Result<Rotated, KeysError> {
    let entries = migrate::reseal_inner_texts(&context.database, &context.keyring, fence).await?;
    Ok(Rotated {
        was_due: rotated.was_due || entries > 0,
        rewritten: rotated.rewritten + entries,
        ..rotated
    })
}

/// The result that [`rotate_all`] would have now. Opens everything that is not under the active
/// key, and writes nothing.
pub async fn survey(context: &RotationContext) -> Result<Rotated, KeysError> {
    with_quarantine(context, None, survey_tables(context).await?).await
}

async fn survey_tables(context: &RotationContext) -> Result<Rotated, KeysError> {
    let label = state::label(&mut context.database.read().await?).await?;
    let mut found = Rotated::default();
    for table in &context.scope.tables {
        found.add(rewrite::survey_table(context, table).await?);
    }
    let has_label = label.as_deref() == Some(context.keyring.active_label());
    found.was_due = !has_label || found.rewritten + found.unreadable > 0;
    Ok(found)
}

/// Rewrites every table.
async fn pass(
    context: &RotationContext,
    fence: &Fence,
    mut cursors: BTreeMap<String, UnitKey>,
) -> Result<Rotated, KeysError> {
    let mut summary = Rotated::default();
    for table in &context.scope.tables {
        summary
            .add(rewrite::rewrite_table(context, fence, table, cursors.remove(&table.name)).await?);
        fault::point(fault::BETWEEN_ROTATED_TABLES);
    }
    let mut tx = fence.begin().await?;
    state::delete_cursors(&mut tx).await?;
    tx.commit().await.about("the cursors of the rotation")?;
    Ok(summary)
}

async fn cursors(context: &RotationContext) -> Result<BTreeMap<String, UnitKey>, KeysError> {
    let mut tx = context.database.read().await?;
    let cursors = state::cursors(&mut tx).await?;
    let key = |table: &SealedTable| {
        let cursor = cursors.iter().find(|cursor| cursor.table == table.name)?;
        let key = UnitKey::from_json(&cursor.last_key, &table.key)?;
        Some((table.name.clone(), key))
    };
    Ok(context.scope.tables.iter().filter_map(key).collect())
}

/// Writes the label of the active key, which completes the rotation.
async fn write_label(context: &RotationContext, fence: &Fence) -> Result<(), KeysError> {
    fault::point(fault::AFTER_ROTATION_PROOF);
    if !has_configurations(context).await? {
        return Ok(());
    }
    pauses::retry_batch(&context.progress, KeysError::is_transient, || {
        record_label(context, fence)
    })
    .await
}

async fn record_label(context: &RotationContext, fence: &Fence) -> Result<(), KeysError> {
    let mut tx = fence.begin().await?;
    // A command that looks for the label and then for the rotation finds one of them.
    migrate::lock_version(&mut tx, fence.is_in_cluster()).await?;
    state::write_label(&mut tx, context.keyring.active_label()).await?;
    fault::point(fault::BEFORE_LABEL_COMMIT);
    tx.commit().await.about("the encryption key label")?;
    fault::point(fault::AFTER_LABEL);
    Ok(())
}
