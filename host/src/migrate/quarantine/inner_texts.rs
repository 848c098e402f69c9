//! Texts inside entries: values that did not open when their rows went into quarantine, and that
//! are sealed with the keys that they had. A scan of the tables sees only the text around them.

use bbs_database::{Database, StatementResult};
use bbs_encryption::Keyring;
use bbs_encryption::header::label_of;
use bbs_units::RowLock;

use super::put::put_content;
use super::{FOREIGN, QUARANTINE, QuarantineEntry, entries, kept, unit};
use crate::lock::fence::Fence;
use crate::migrate::MigrateError;

/// Whether the content of an entry is rows, and not a record that another store still has.
fn has_rows(entry: &&QuarantineEntry) -> bool {
    entry.table != FOREIGN
}

/// Gives `found` each text inside an entry, and returns the number of entries of which the content
/// does not open: their texts are unknown.
pub async fn inner_texts(
    database: &Database,
    keyring: &Keyring,
    mut found: impl FnMut(&[u8]),
) -> Result<u64, MigrateError> {
    let mut tx = database.read().await?;
    let mut unopened = 0;
    for entry in entries(&mut tx).await?.iter().filter(has_rows) {
        let content = match kept(&mut tx, entry, RowLock::None).await {
            Err(MigrateError::DamagedQuarantine { .. }) => None,
            content => content?.opened(entry, keyring).ok(),
        };
        let read = content.and_then(|bytes| {
            unit::with_other_texts(&bytes, |text| {
                found(text);
                None
            })
        });
        unopened += u64::from(read.is_none());
    }
    Ok(unopened)
}

/// Seals the texts inside entries with the active key, as far as they open, each entry in a
/// transaction of its own. Without a fence, nothing is written. Returns the number of entries that
/// have such texts.
///
/// # Errors
/// Another host has raised the fence, or the database fails.
pub async fn reseal_inner_texts(
    database: &Database,
    keyring: &Keyring,
    fence: Option<&Fence>,
) -> Result<u64, MigrateError> {
    let waiting = entries(&mut database.read().await?).await?;
    let lock = if fence.is_some() {
        RowLock::Exclusive
    } else {
        RowLock::None
    };
    let mut resealed_entries = 0;
    for entry in waiting.iter().filter(has_rows) {
        let mut tx = match fence {
            Some(fence) => fence.begin().await?,
            None => database.read().await?,
        };
        let content = match kept(&mut tx, entry, lock).await {
            // Or removed since it was listed.
            Err(MigrateError::DamagedQuarantine { .. }) => continue,
            content => content?.opened(entry, keyring).ok(),
        };
        let Some(bytes) = content.and_then(|bytes| resealed(&bytes, keyring)) else {
            continue;
        };
        if fence.is_some() {
            put_content(&mut tx, keyring, entry, &bytes).await?;
            tx.commit().await.about(QUARANTINE)?;
        }
        resealed_entries += 1;
    }
    Ok(resealed_entries)
}

/// A content with all texts inside under the active key that open; none if that changes nothing.
fn resealed(bytes: &[u8], keyring: &Keyring) -> Option<Vec<u8>> {
    let mut is_changed = false;
    let content = unit::with_other_texts(bytes, |text| {
        if label_of(text).ok()? == keyring.active_label() {
            return None;
        }
        let resealed = keyring.reseal(text).ok()?;
        is_changed = true;
        Some(resealed)
    })?;
    is_changed.then_some(content)
}
