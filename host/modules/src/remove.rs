//! Removes a module from a folder and its catalog: the migrations above it then follow the one
//! below it, as they did before it was added. That it has run nowhere is the caller's to know, and
//! whether the result is a valid catalog is decided by loading it as a host does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::add::{AddError, ApiCheck, rehearse};
use super::catalog::{
    self, Catalog, CatalogContent, CatalogEntry, CatalogError, PreviousSignature,
};
use super::placement::{self, MissingPredecessor};
use super::sandbox::Sandbox;

/// Why a module was not removed; the folder is unchanged, unless the error is
/// [`RemoveError::Write`].
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("the catalog of the folder cannot be read")]
    Catalog(#[source] CatalogError),
    #[error("the catalog of {} does not list {file}; it lists {}", .folder.display(), .listed.join(", "))]
    NotListed {
        folder: PathBuf,
        file: String,
        listed: Vec<String>,
    },
    #[error(transparent)]
    Predecessor(#[from] MissingPredecessor),
    #[error(transparent)]
    After(#[from] AddError),
    #[error("the folder {} cannot be written to; check its permissions", .folder.display())]
    Write {
        folder: PathBuf,
        source: std::io::Error,
    },
}

/// The result of removing a module.
#[derive(Debug)]
pub struct Removed {
    /// The entry that the catalog had.
    pub entry: CatalogEntry,
    /// The number of modules that are left.
    pub modules: usize,
    /// The fate of the signature of the catalog.
    pub signature: PreviousSignature,
}

/// The entry of a file in a folder's catalog.
///
/// # Errors
/// If the catalog cannot be read, or does not list the file.
pub fn listed(file: &str, folder: &Path) -> Result<CatalogEntry, RemoveError> {
    let CatalogContent { entries, .. } = catalog::read(folder).map_err(RemoveError::Catalog)?;
    entries
        .iter()
        .find(|entry| entry.file == file)
        .cloned()
        .ok_or_else(|| RemoveError::NotListed {
            folder: folder.to_owned(),
            file: file.to_owned(),
            listed: entries.into_iter().map(|entry| entry.file).collect(),
        })
}

/// Removes a module from a folder, which continues those of `base`, if a host would then start with
/// the folder.
///
/// # Errors
/// If the catalog does not list the file, or a host would refuse the folder without it.
pub fn remove(
    file: &str,
    folder: &Path,
    base: &[PathBuf],
    check_api: ApiCheck<'_>,
    sandbox: &Arc<Sandbox>,
) -> Result<Removed, RemoveError> {
    let failed = |source| RemoveError::Write {
        folder: folder.to_owned(),
        source,
    };
    // A folder that is not there is reported as one without a catalog.
    listed(file, folder)?;
    let _lock = catalog::lock(folder).map_err(failed)?;
    let entry = listed(file, folder)?;
    let mut after = catalog::read(folder).map_err(RemoveError::Catalog)?;
    let base_entries = Catalog::merged_entries(base).map_err(RemoveError::Catalog)?;
    let base_migrations = placement::migrations_of(&base_entries);
    let present = base_migrations.union(&placement::migrations_of(&after.entries));
    after.entries.retain(|other| *other != entry);
    placement::check_predecessors(&after.entries, &present)?;
    after.entries = placement::chain(after.entries, &base_migrations);
    rehearse(folder, base, &after, &[], check_api, sandbox)?;
    let signature = catalog::write(folder, &after).map_err(failed)?;
    // After the catalog, so that it never lists a missing file.
    std::fs::remove_file(folder.join(file)).map_err(failed)?;
    Ok(Removed {
        entry,
        modules: after.entries.len(),
        signature,
    })
}
