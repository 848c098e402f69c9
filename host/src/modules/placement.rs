//! The position of a module in a catalog, and writing its file. Owns the rule that a new migration is the newest; opens no
//! module.

use std::io::Write;
use std::path::Path;

use super::catalog::{self, CatalogEntry, CatalogPosition};
use crate::files;
use crate::layout::manifest::DataVersion;

/// A migration is older than the newest one in the folder.
#[derive(Debug, thiserror::Error)]
#[error("migration {version} is older than {newest}, the newest in the folder; give it a later version (`date +%s`)")]
pub struct NotNewest {
    /// The version of the migration to add.
    pub version: DataVersion,
    /// The newest version in the folder.
    pub newest: DataVersion,
}

/// Merges modules into a catalog: each replaces the module of the same version, or is added as the newest.
///
/// # Errors
///
/// If a migration would be added between others: databases have already passed its version.
pub(super) fn merge(
    before: Vec<CatalogEntry>,
    added: impl Iterator<Item = CatalogEntry>,
) -> Result<Vec<CatalogEntry>, NotNewest> {
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
    // Translators may be added at the older end of the chain.
    entries.sort_by_key(order);
    Ok(chain(entries))
}

/// Sort key: migrations, translators of the line, and those of side shapes, each oldest first.
pub(super) fn order(entry: &CatalogEntry) -> (u8, u64, u32) {
    match entry.position {
        CatalogPosition::Migration { version, .. } => (0, version, 0),
        CatalogPosition::Translator { serves, .. } => {
            (if serves.side.is_none() { 1 } else { 2 }, serves.major.into(), serves.minor)
        }
    }
}

fn version(entry: &CatalogEntry) -> Option<DataVersion> {
    match entry.position {
        CatalogPosition::Migration { version, .. } => Some(version),
        CatalogPosition::Translator { .. } => None,
    }
}

/// Whether two modules lead to the same data version or serve the same API version.
pub(super) fn is_same(one: &CatalogEntry, other: &CatalogEntry) -> bool {
    match (one.position, other.position) {
        (CatalogPosition::Migration { version: one, .. }, CatalogPosition::Migration { version: other, .. }) => {
            one == other
        }
        (CatalogPosition::Translator { serves: one, .. }, CatalogPosition::Translator { serves: other, .. }) => {
            one == other
        }
        _ => false,
    }
}

/// Records in each migration the version that it follows.
pub(super) fn chain(mut entries: Vec<CatalogEntry>) -> Vec<CatalogEntry> {
    let mut before = None;
    for entry in &mut entries {
        if let CatalogPosition::Migration { version, follows } = &mut entry.position {
            *follows = before.replace(*version);
        }
    }
    entries
}

/// Writes a module's file atomically, unless the file already has that content.
pub(super) fn put(into: &Path, entry: &CatalogEntry, component: &[u8]) -> std::io::Result<()> {
    let path = into.join(&entry.file);
    if files::read(&path, component.len() as u64).is_ok_and(|found| found == component) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(into)?;
    file.write_all(component)?;
    file.as_file().sync_all()?;
    catalog::persist_readable(file, &path)
}

#[cfg(test)]
mod tests;
