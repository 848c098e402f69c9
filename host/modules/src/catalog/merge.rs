//! Merging of the catalogs of several folders: those of a host, and of add-ons that continue its
//! sequence. Owns every conflict between folders; opens no module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::entries::{CatalogEntry, CatalogPosition};
use super::{CatalogError, sequence};

/// A folder's catalog.
#[derive(Debug, Clone)]
pub(super) struct ListedCatalog {
    pub(super) folder: PathBuf,
    pub(super) name: Option<String>,
    pub(super) entries: Vec<CatalogEntry>,
    /// The digest of the folder's list of releases, if the catalog pins it.
    pub(super) releases: Option<String>,
    /// The name and the serial, if the signature was verified.
    pub(super) verified: Option<(String, u64)>,
}

/// An entry of a catalog, and the folder that has its file.
#[derive(Debug, Clone)]
pub(super) struct ListedModule {
    pub(super) folder: PathBuf,
    pub(super) entry: CatalogEntry,
}

impl ListedModule {
    fn path(&self) -> PathBuf {
        self.folder.join(&self.entry.file)
    }
}

/// Merges the catalogs of folders into one sequence: a migration comes after the one that its entry
/// names, whatever folder has it, and after those of other folders that are older than itself. The
/// same module in two folders is listed once.
///
/// # Errors
/// If two catalogs have one name, two modules claim one position, or the sequence has a gap.
pub(super) fn merge(catalogs: Vec<ListedCatalog>) -> Result<Vec<ListedModule>, CatalogError> {
    refuse_same_names(&catalogs)?;
    let listed = |ListedCatalog {
                      folder, entries, ..
                  }: ListedCatalog| {
        entries.into_iter().map(move |entry| ListedModule {
            folder: folder.clone(),
            entry,
        })
    };
    if let [_] = &catalogs[..] {
        let modules: Vec<_> = catalogs.into_iter().flat_map(listed).collect();
        sequence::check(
            &modules
                .iter()
                .map(|module| module.entry.clone())
                .collect::<Vec<_>>(),
        )?;
        return Ok(modules);
    }
    // The faults of sequences name the file with its folder.
    let named = |module: &ListedModule| CatalogEntry {
        file: module.path().display().to_string(),
        ..module.entry.clone()
    };
    for catalog in &catalogs {
        sequence::check_migrations_of_part(
            &listed(catalog.clone())
                .map(|module| named(&module))
                .collect::<Vec<_>>(),
        )?;
    }
    let mut merged: Vec<ListedModule> = Vec::new();
    for module in catalogs.into_iter().flat_map(listed) {
        match merged
            .iter()
            .find(|other| other.entry.position.is_same(module.entry.position))
        {
            Some(other) if other.entry.sha256 == module.entry.sha256 => {}
            Some(other) => {
                let position = module.entry.position.to_string();
                return Err(CatalogError::SamePosition {
                    position,
                    one: other.path(),
                    other: module.path(),
                });
            }
            None => merged.push(module),
        }
    }
    merged.sort_by_key(|module| module.entry.position.order());
    check_predecessors(&merged)?;
    sequence::check_translators(&merged.iter().map(named).collect::<Vec<_>>())?;
    Ok(merged)
}

/// Refuses two catalogs with one name: an operator could not say which one is trusted, and the
/// older one could add to the newer.
fn refuse_same_names(catalogs: &[ListedCatalog]) -> Result<(), CatalogError> {
    let mut folders = BTreeMap::<&str, &Path>::new();
    for ListedCatalog { folder, name, .. } in catalogs {
        let Some(name) = name else { continue };
        if let Some(one) = folders.insert(name, folder) {
            return Err(CatalogError::SameName {
                name: name.clone(),
                one: one.to_owned(),
                other: folder.clone(),
            });
        }
    }
    Ok(())
}

/// Checks that each migration follows one that is there, and only the first follows none. Several
/// may follow the same one: their authors did not know of each other, and each is inserted where
/// its version is.
fn check_predecessors(merged: &[ListedModule]) -> Result<(), CatalogError> {
    let has = |version| {
        merged
            .iter()
            .any(|module| module.entry.position.data_version() == Some(version))
    };
    let mut first: Option<&ListedModule> = None;
    for module in merged {
        let CatalogPosition::Migration { version, follows } = module.entry.position else {
            continue;
        };
        if let Some(missing) = follows.filter(|follows| !has(*follows)) {
            return Err(CatalogError::Predecessor {
                path: module.path(),
                version,
                missing,
            });
        }
        let first = first.get_or_insert(module);
        if follows.is_none() && !std::ptr::eq(*first, module) {
            return Err(CatalogError::TwoFirst {
                one: first.path(),
                other: module.path(),
                version,
            });
        }
    }
    Ok(())
}
