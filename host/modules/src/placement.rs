//! The position of a module in a catalog, and writing its file. Owns the rule that a new migration
//! is not below the first, and which ones are inserted below others; opens no module.

use std::io;
use std::path::{Path, PathBuf};

use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::migration_set::MigrationSet;
use serde::Serialize;
use tempfile::NamedTempFile;

use super::catalog::{self, Catalog, CatalogEntry, CatalogError, CatalogPosition};
use super::limits::Limits;

/// A migration is older than the first one in the folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "migration {version} is older than {first}, the first in the folder; give it a later version (`date +%s`)"
)]
pub struct BelowFirst {
    /// The version of the migration to add.
    pub version: DataVersion,
    /// The first version in the folder.
    pub first: DataVersion,
}

/// A migration follows one that is neither in its folder nor in those that the folder continues.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file} (migration {version}) follows migration {missing}, which the folder does not have; name the folder that has it \
     with `--base`, or put it back first"
)]
pub struct MissingPredecessor {
    /// The file of the migration.
    pub file: String,
    /// The version of the migration.
    pub version: DataVersion,
    /// The version that it follows.
    pub missing: DataVersion,
}

/// A migration that was added below others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Insertion {
    /// The version of the migration.
    pub version: DataVersion,
    /// The migrations above it that were there before.
    pub below: Vec<DataVersion>,
}

/// The migrations that a change of modules adds below others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Insertions {
    /// One for each migration, oldest first.
    pub migrations: Vec<Insertion>,
    /// The newest version, if no migration was added above it: databases that are at it refuse the
    /// insertion.
    pub refused_at: Option<DataVersion>,
}

impl Insertions {
    /// The migrations of a folder below those of the folders `base`, which it continues.
    ///
    /// # Errors
    /// As [`Catalog::entries`].
    pub fn of_add_on(folder: &Path, base: &[PathBuf]) -> Result<Self, CatalogError> {
        let base_migrations = migrations_of(&Catalog::merged_entries(base)?);
        let own = Catalog::entries(folder, base)?;
        Ok(Self::of_change(&base_migrations, &[], &own))
    }

    /// The migrations that a change of a folder's entries adds below others. The folder continues
    /// the migrations of `base`.
    pub(super) fn of_change(
        base: &MigrationSet,
        before: &[CatalogEntry],
        after: &[CatalogEntry],
    ) -> Self {
        let [before, after] = [before, after].map(|entries| base.union(&migrations_of(entries)));
        Self::between(&before, &after)
    }

    /// The migrations below which a version was inserted.
    pub fn of(&self, version: DataVersion) -> &[DataVersion] {
        self.migrations
            .iter()
            .find(|inserted| inserted.version == version)
            .map_or(&[], |inserted| &inserted.below)
    }

    /// The insertions among the versions `after` that are not in `before`.
    fn between(before: &MigrationSet, after: &MigrationSet) -> Self {
        let below = |version| before.versions().filter(|other| *other > version).collect();
        let migrations: Vec<_> = before
            .inserted(after)
            .map(|version| Insertion {
                version,
                below: below(version),
            })
            .collect();
        let is_refused = !migrations.is_empty() && after.newest() == before.newest();
        Self {
            migrations,
            refused_at: is_refused.then(|| before.newest()),
        }
    }
}

/// Refuses two modules of one version: the second would take the place of the first.
pub(super) fn refuse_twins(modules: &[CatalogEntry]) -> Result<(), CatalogError> {
    for (index, entry) in modules.iter().enumerate() {
        let is_twin = |earlier: &CatalogEntry| {
            earlier.position.is_same(entry.position) && earlier.sha256 != entry.sha256
        };
        if modules[..index].iter().any(is_twin) {
            let file = entry.file.clone();
            return Err(match entry.position {
                CatalogPosition::Migration { version, .. } => {
                    CatalogError::VersionTwice { file, version }
                }
                CatalogPosition::Translator { serves, .. } => {
                    CatalogError::ServedTwice { file, serves }
                }
            });
        }
    }
    Ok(())
}

/// Merges modules into a catalog that continues the migrations of `base`: each replaces the module
/// of the same version, or is added at the place of its version.
///
/// # Errors
///
/// If a migration would be added below the first: a database that another BBS has written is
/// assumed to have run it.
pub(super) fn merge(
    before: Vec<CatalogEntry>,
    added: impl IntoIterator<Item = CatalogEntry>,
    base: &MigrationSet,
) -> Result<Vec<CatalogEntry>, BelowFirst> {
    let first = migrations_of(&before)
        .versions()
        .chain(base.versions())
        .min();
    let mut entries = before;
    for entry in added {
        if let Some(same) = entries
            .iter_mut()
            .find(|old| old.position.is_same(entry.position))
        {
            *same = entry;
            continue;
        }
        if let (Some(version), Some(first)) = (entry.position.data_version(), first)
            && version < first
        {
            return Err(BelowFirst { version, first });
        }
        entries.push(entry);
    }
    entries.sort_by_key(|entry| entry.position.order());
    Ok(chain(entries, base))
}

/// The versions of the migrations in a catalog.
pub(super) fn migrations_of(entries: &[CatalogEntry]) -> MigrationSet {
    entries
        .iter()
        .filter_map(|entry| entry.position.data_version())
        .collect()
}

/// Checks that each migration of a catalog follows one of `present`, before [`chain`] records
/// others: if the folder of an add-on is changed without those that it continues, its first
/// migration would follow nothing, and hosts would refuse it.
///
/// # Errors
/// For the first migration that does not.
pub(super) fn check_predecessors(
    entries: &[CatalogEntry],
    present: &MigrationSet,
) -> Result<(), MissingPredecessor> {
    for CatalogEntry { file, position, .. } in entries {
        if let CatalogPosition::Migration {
            version,
            follows: Some(missing),
        } = *position
            && !present.has(missing)
        {
            let file = file.clone();
            return Err(MissingPredecessor {
                file,
                version,
                missing,
            });
        }
    }
    Ok(())
}

/// Records in each migration the version that it follows: of the migration before it, or of one of
/// `base` in between.
pub(super) fn chain(mut entries: Vec<CatalogEntry>, base: &MigrationSet) -> Vec<CatalogEntry> {
    let mut before = None;
    for entry in &mut entries {
        if let CatalogPosition::Migration { version, follows } = &mut entry.position {
            debug_assert!(before < Some(*version), "versions of a catalog ascend");
            let of_base = base.versions().rfind(|other| *other < *version);
            *follows = before.replace(*version).max(of_base);
        }
    }
    entries
}

/// A module's file that is complete, beside its place.
struct StagedFile {
    file: NamedTempFile,
    place: ChangedPlace,
}

/// The place of a module's file that has another content.
struct ChangedPlace {
    path: PathBuf,
    /// The content before; `None` if there was no file that can be read.
    before: Option<Vec<u8>>,
}

impl StagedFile {
    fn move_to_place(self) -> io::Result<ChangedPlace> {
        catalog::persist_readable(self.file, &self.place.path)?;
        Ok(self.place)
    }
}

impl ChangedPlace {
    fn revert(self) -> io::Result<()> {
        let Some(content) = self.before else {
            return std::fs::remove_file(self.path);
        };
        let folder = self.path.parent().expect("the path of a file in a folder");
        catalog::persist_readable(catalog::complete_file(folder, &content)?, &self.path)
    }
}

/// Places the files of modules in a folder and then writes its catalog with the function, so that
/// the catalog never lists a missing file. If any of it fails, the folder has the files that it had
/// before.
///
/// # Errors
/// If the folder cannot be written to, or as `write_catalog`.
pub(super) fn place<'a, T>(
    into: &Path,
    modules: impl IntoIterator<Item = (&'a CatalogEntry, &'a [u8])>,
    write_catalog: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // All are complete before the first is placed: a full disk changes nothing.
    let mut staged = Vec::new();
    for (entry, component) in modules {
        let path = into.join(&entry.file);
        let before = bbs_files::read(&path, Limits::default().component_bytes).ok();
        if before.as_deref() != Some(component) {
            let file = catalog::complete_file(into, component)?;
            let place = ChangedPlace { path, before };
            staged.push(StagedFile { file, place });
        }
    }
    let mut changed = Vec::new();
    let placed: io::Result<()> = staged.into_iter().try_for_each(|file| {
        changed.push(file.move_to_place()?);
        Ok(())
    });
    let written = placed.and_then(|()| write_catalog());
    if written.is_err() {
        // A file without a catalog entry makes the folder unusable. If it cannot be deleted either,
        // the host's error names it and `bbs module add`.
        changed.into_iter().for_each(|place| drop(place.revert()));
    }
    written
}

#[cfg(test)]
mod tests;
