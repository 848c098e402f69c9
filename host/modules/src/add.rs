//! Adds finished modules to a folder and its catalog: all of them or none. Owns the checks of each
//! file; whether the result is a valid catalog is decided by loading it as a host does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs_lens::layout::migration_set::MigrationSet;

use super::catalog::{
    self, CATALOG_FILE, Catalog, CatalogContent, CatalogEntry, CatalogError, PreviousSignature,
    is_file_name,
};
use super::module::{ModuleError, ModuleSource};
use super::placement::{self, BelowFirst, Insertions, MissingPredecessor};
use super::sandbox::{ComponentError, Sandbox};
use crate::signatures::TrustedKeys;

/// Why modules were not added; the folder is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error("the folder {} cannot be made, read or written to; check its permissions and space", .folder.display())]
    Folder {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("{} cannot be added", .file.display())]
    Module { file: PathBuf, source: ModuleError },
    #[error("{} cannot be added; get a build with a later version from its author", .file.display())]
    BelowFirst { file: PathBuf, source: BelowFirst },
    #[error(
        "{} is {added}, and the folder has another file of it, {listed} (sha256 {sha256}); a module that has run is never \
         changed: ship the correction under a later version or, if the file in the folder has run nowhere, first remove that file with \
         `bbs module remove FILE --from DIR --config CONFIG`",
        .file.display()
    )]
    OtherContent {
        file: PathBuf,
        added: String,
        listed: String,
        sha256: String,
    },
    #[error(
        "{} would be named {name} in the folder, which has another file of that name; delete that file if no entry of the \
         catalog lists it, or add this one under another name from within the folder",
        .file.display()
    )]
    NameTaken { file: PathBuf, name: String },
    #[error(transparent)]
    Predecessor(#[from] MissingPredecessor),
    #[error("the catalog of the folder cannot be read")]
    Before(#[source] CatalogError),
    #[error("a host would refuse the folder with this change; the folder is unchanged")]
    After(#[source] BoxError),
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Checks the translators of a folder as a host does that serves the API with them.
pub type ApiCheck<'a> = &'a dyn Fn(&Catalog) -> Result<(), BoxError>;

/// The result of adding modules.
#[derive(Debug)]
pub struct Added {
    /// File names, in the folder, of modules that were added, or that it listed and that were put
    /// back.
    pub added: Vec<String>,
    /// File names of modules that were already listed and present with the same content.
    pub present: Vec<String>,
    /// All modules of the folder, in catalog order.
    pub entries: Vec<CatalogEntry>,
    /// The migrations that were added below others.
    pub insertions: Insertions,
    /// The fate of the signature of the catalog.
    pub signature: PreviousSignature,
}

/// A file to add, with its catalog entry.
pub(super) struct Candidate {
    file: PathBuf,
    entry: CatalogEntry,
    source: ModuleSource,
}

/// Adds files to a folder, which is created if absent, and continues those of `base`. The folder
/// changes only if a host would then start with them: if `check_api` accepts their translators.
///
/// # Errors
///
/// If a file is no module, cannot be placed, or a host would refuse the resulting folder.
pub fn add(
    files: &[PathBuf],
    into: &Path,
    base: &[PathBuf],
    check_api: ApiCheck<'_>,
    sandbox: &Arc<Sandbox>,
) -> Result<Added, AddError> {
    let is_new = !into.exists();
    let added = add_to(files, into, base, check_api, sandbox);
    if is_new && added.is_err() {
        // Fails, as intended, if the folder is not empty.
        let _ = std::fs::remove_dir(into);
    }
    added
}

fn add_to(
    files: &[PathBuf],
    into: &Path,
    base: &[PathBuf],
    check_api: ApiCheck<'_>,
    sandbox: &Arc<Sandbox>,
) -> Result<Added, AddError> {
    let failed = |source| AddError::Folder {
        folder: into.to_owned(),
        source,
    };
    std::fs::create_dir_all(into).map_err(failed)?;
    let _lock = catalog::lock(into).map_err(failed)?;
    let before = if into.join(CATALOG_FILE).exists() {
        catalog::read(into).map_err(AddError::Before)?
    } else {
        CatalogContent::default()
    };
    let base_entries = Catalog::merged_entries(base).map_err(AddError::Before)?;
    let base_migrations = placement::migrations_of(&base_entries);
    let mut result = Added {
        added: Vec::new(),
        present: Vec::new(),
        entries: before.entries.clone(),
        insertions: Insertions::default(),
        signature: PreviousSignature::Unaffected,
    };
    let new = place_candidates(files, into, &base_migrations, sandbox, &mut result)?;
    if new.is_empty() {
        return Ok(result);
    }
    let present = base_migrations.union(&placement::migrations_of(&result.entries));
    placement::check_predecessors(&before.entries, &present)?;
    result.insertions = Insertions::of_change(&base_migrations, &before.entries, &result.entries);
    let are_all_listed = result.entries == before.entries;
    let after = CatalogContent {
        entries: result.entries.clone(),
        ..before
    };
    rehearse(into, base, &after, &new, check_api, sandbox)?;
    let modules = new.iter().map(|new| (&new.entry, &*new.source.bytes));
    let write_catalog = || {
        if are_all_listed {
            // Its signature stays, also if another version of this program has written it.
            Ok(PreviousSignature::Unaffected)
        } else {
            catalog::write(into, &after)
        }
    };
    result.signature = placement::place(into, modules, write_catalog).map_err(failed)?;
    Ok(result)
}

/// Enters the modules of `files` into the result, in the order of their versions, and returns those
/// whose files the folder does not have.
fn place_candidates(
    files: &[PathBuf],
    into: &Path,
    base_migrations: &MigrationSet,
    sandbox: &Arc<Sandbox>,
    result: &mut Added,
) -> Result<Vec<Candidate>, AddError> {
    let mut candidates = files
        .iter()
        .map(|file| Candidate::read(file, into, sandbox))
        .collect::<Result<Vec<_>, _>>()?;
    candidates.sort_by_key(|candidate| candidate.entry.position.order());
    let mut new = Vec::new();
    for mut candidate in candidates {
        if let Some(listed) = same_version(&result.entries, &candidate)? {
            if result.added.contains(&listed) || candidate.is_in(into, &listed) {
                result.present.push(listed);
                continue;
            }
            // Its file is gone or was altered.
            result.added.push(listed.clone());
            candidate.entry.file = listed;
            new.push(candidate);
            continue;
        }
        refuse_taken_name(into, &candidate)?;
        let merged = placement::merge(
            std::mem::take(&mut result.entries),
            [candidate.entry.clone()],
            base_migrations,
        );
        result.entries = merged.map_err(|source| AddError::BelowFirst {
            file: candidate.file.clone(),
            source,
        })?;
        result.added.push(candidate.entry.file.clone());
        new.push(candidate);
    }
    Ok(new)
}

impl Candidate {
    fn read(file: &Path, into: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, AddError> {
        let unusable = |source| AddError::Module {
            file: file.to_owned(),
            source,
        };
        let source = ModuleSource::read(file, sandbox)
            .map_err(|error: ComponentError| unusable(error.into()))?;
        let module = source.load(sandbox).map_err(unusable)?;
        let mut entry = CatalogEntry::of(&module, source.digest.clone());
        // A file that is already in the folder keeps its name, or the folder would have it twice.
        if let Some(name) = name_within(file, into) {
            entry.file = name;
        }
        Ok(Self {
            file: file.to_owned(),
            entry,
            source,
        })
    }

    /// Whether the file of this name in the folder has the content of the candidate.
    fn is_in(&self, folder: &Path, name: &str) -> bool {
        let bytes = &self.source.bytes;
        bbs_files::read(&folder.join(name), bytes.len() as u64).is_ok_and(|found| found == *bytes)
    }
}

fn refuse_taken_name(into: &Path, candidate: &Candidate) -> Result<(), AddError> {
    let name = &candidate.entry.file;
    if into.join(name).exists() && !candidate.is_in(into, name) {
        Err(AddError::NameTaken {
            file: candidate.file.clone(),
            name: name.clone(),
        })
    } else {
        Ok(())
    }
}

/// Returns the name of a file that is directly in the folder, if a catalog can list it.
fn name_within(file: &Path, folder: &Path) -> Option<String> {
    let file = file.canonicalize().ok()?;
    let name = file.file_name()?.to_str()?;
    let is_within = file.parent() == folder.canonicalize().ok().as_deref();
    (is_within && is_file_name(name)).then(|| name.to_owned())
}

/// Returns the listed file with the candidate's version, if its content is the same.
///
/// # Errors
/// [`AddError::OtherContent`] if the content differs.
fn same_version(
    entries: &[CatalogEntry],
    candidate: &Candidate,
) -> Result<Option<String>, AddError> {
    let Some(listed) = entries
        .iter()
        .find(|entry| entry.position.is_same(candidate.entry.position))
    else {
        return Ok(None);
    };
    if listed.sha256 == candidate.entry.sha256 {
        return Ok(Some(listed.file.clone()));
    }
    Err(AddError::OtherContent {
        file: candidate.file.clone(),
        added: candidate.entry.position.to_string(),
        listed: listed.file.clone(),
        sha256: listed.sha256.clone(),
    })
}

/// Loads the resulting folder from a temporary copy made of links.
pub(super) fn rehearse(
    into: &Path,
    base: &[PathBuf],
    after: &CatalogContent,
    new: &[Candidate],
    check_api: ApiCheck<'_>,
    sandbox: &Arc<Sandbox>,
) -> Result<(), AddError> {
    let failed = |source| AddError::Folder {
        folder: into.to_owned(),
        source,
    };
    let stage = tempfile::tempdir_in(into).map_err(failed)?;
    let folder = into.canonicalize().map_err(failed)?;
    for entry in &after.entries {
        let staged = stage.path().join(&entry.file);
        match new
            .iter()
            .find(|candidate| candidate.entry.file == entry.file)
        {
            Some(candidate) => std::fs::write(staged, &candidate.source.bytes),
            // The catalog reports a link to an absent file as a missing module.
            None => std::os::unix::fs::symlink(folder.join(&entry.file), staged),
        }
        .map_err(failed)?;
    }
    catalog::write(stage.path(), after).map_err(failed)?;
    let folders = [base, &[stage.path().to_owned()]].concat();
    let catalog = Catalog::merge(&folders, &TrustedKeys::default(), sandbox)
        .map_err(|error| AddError::After(error.into()))?;
    check_api(&catalog).map_err(AddError::After)
}
