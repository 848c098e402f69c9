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

/// Merges modules into a catalog whose migrations follow version `base`: each replaces the module of the same version, or is
/// added as the newest.
///
/// # Errors
///
/// If a migration would be added between others: databases have already passed its version.
pub(super) fn merge(
    before: Vec<CatalogEntry>,
    added: impl Iterator<Item = CatalogEntry>,
    base: Option<DataVersion>,
) -> Result<Vec<CatalogEntry>, NotNewest> {
    let mut entries = before;
    for entry in added {
        if let Some(same) = entries.iter_mut().find(|old| old.position.is_same(entry.position)) {
            *same = entry;
            continue;
        }
        let newest = entries.iter().filter_map(version).max().max(base);
        if let (Some(version), Some(newest)) = (version(&entry), newest)
            && version < newest
        {
            return Err(NotNewest { version, newest });
        }
        entries.push(entry);
    }
    // Translators may be added at the older end of the chain.
    entries.sort_by_key(|entry| entry.position.order());
    Ok(chain(entries, base))
}

fn version(entry: &CatalogEntry) -> Option<DataVersion> {
    match entry.position {
        CatalogPosition::Migration { version, .. } => Some(version),
        CatalogPosition::Translator { .. } => None,
    }
}

/// Records in each migration the version that it follows; that is `base` for the first.
pub(super) fn chain(mut entries: Vec<CatalogEntry>, base: Option<DataVersion>) -> Vec<CatalogEntry> {
    let mut before = base;
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
