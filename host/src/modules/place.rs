//! Where a module stands among those of a folder, and how its file gets there. Owns the rule that a migration comes
//! last; opens no module.

use std::io::Write;
use std::path::Path;

use super::catalog::{self, Entry, Place};
use crate::layout::manifest::DataVersion;

#[derive(Debug, thiserror::Error)]
#[error(
    "migration {version} would come before {newest}, which the folder already has; give it a later version (`date +%s`)"
)]
pub struct NotNewest {
    pub version: DataVersion,
    pub newest: DataVersion,
}

/// Puts modules among those that are there: in place of the same version, or as the newest.
///
/// # Errors
///
/// For a migration between two that are there: databases have passed its place.
pub(super) fn merge(before: Vec<Entry>, added: impl Iterator<Item = Entry>) -> Result<Vec<Entry>, NotNewest> {
    let mut entries = before;
    for entry in added {
        if let Some(same) = entries.iter_mut().find(|old| is_same(old, &entry)) {
            *same = entry;
            continue;
        }
        let newest = entries.iter().filter_map(version).max();
        if let (Some(version), Some(newest)) = (version(&entry), newest)
            && version < newest
        {
            return Err(NotNewest { version, newest });
        }
        entries.push(entry);
    }
    // A translator may be added at the older end of its line.
    entries.sort_by_key(order);
    Ok(chain(entries))
}

/// Migrations before translators, each oldest first.
pub(super) fn order(entry: &Entry) -> (u8, u64, u32) {
    match entry.place {
        Place::Migration { version, .. } => (0, version, 0),
        Place::Translator { serves, .. } => (1, serves.major.into(), serves.minor),
    }
}

fn version(entry: &Entry) -> Option<DataVersion> {
    match entry.place {
        Place::Migration { version, .. } => Some(version),
        Place::Translator { .. } => None,
    }
}

/// Whether two modules lead to the same data version or serve the same API version.
pub(super) fn is_same(one: &Entry, other: &Entry) -> bool {
    match (one.place, other.place) {
        (Place::Migration { version: one, .. }, Place::Migration { version: other, .. }) => one == other,
        (Place::Translator { serves: one, .. }, Place::Translator { serves: other, .. }) => one == other,
        _ => false,
    }
}

/// Writes down for each migration which one it follows.
pub(super) fn chain(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut before = None;
    for entry in &mut entries {
        if let Place::Migration { version, follows } = &mut entry.place {
            *follows = before.replace(*version);
        }
    }
    entries
}

/// Writes a module's file, whole or not at all.
pub(super) fn put(into: &Path, entry: &Entry, component: &[u8]) -> std::io::Result<()> {
    let path = into.join(&entry.file);
    if std::fs::read(&path).is_ok_and(|found| found == component) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(into)?;
    file.write_all(component)?;
    file.as_file().sync_all()?;
    catalog::persist_readable(file, &path)
}

#[cfg(test)]
mod tests;
