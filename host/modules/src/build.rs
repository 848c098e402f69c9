//! Builds crates into a folder of modules with its catalog: compiles them with cargo, encodes them
//! as components, reads their manifests, and writes files and catalog in an order that keeps the
//! time in which they disagree short. Runs no guest code but `describe`.

mod compile;
mod sources;
mod toolchain;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs_files::digest::digest_of;
use bbs_work::progress::{Counted, Progress};
use wit_component::ComponentEncoder;

use super::catalog::{
    self, CATALOG_FILE, Catalog, CatalogContent, CatalogEntry, CatalogError, PreviousSignature,
};
use super::module::{Module, ModuleError};
use super::placement::{self, BelowFirst, Insertions};
use super::releases::RELEASES_FILE;
use super::sandbox::Sandbox;

pub use self::sources::{SourceError, crates_of, listed_crates};
pub use self::toolchain::TargetError;

/// Handling of other modules in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Keep them; replace only those of the same version.
    Keep,
    /// Delete them.
    Drop,
}

/// The crates to build, and the folder to write to.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Folders of crates.
    pub crates: Vec<PathBuf>,
    /// The folder of modules; created if absent.
    pub into: PathBuf,
    /// Handling of other modules in that folder.
    pub others: Others,
    /// A list of releases to copy into that folder.
    pub releases: Option<PathBuf>,
    /// Other folders of modules, which this one continues.
    pub base: Vec<PathBuf>,
    /// Whether modules that the folder has already may be replaced or deleted. One that may have
    /// run on a database should not be: hosts would refuse the folder.
    pub replace: bool,
}

impl BuildRequest {
    /// Builds all modules of the repository that the current folder belongs to; the folder gets no
    /// others.
    ///
    /// # Errors
    /// If no parent folder has a list of modules, or it cannot be read.
    pub fn everything(into: &Path) -> Result<Self, SourceError> {
        Self::listed(&sources::find_list()?, into)
    }

    /// Builds all modules of a list, with the releases beside it; the folder gets no others.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn listed(list: &Path, into: &Path) -> Result<Self, SourceError> {
        let releases = Some(list.with_file_name(RELEASES_FILE)).filter(|file| file.exists());
        Ok(Self {
            crates: listed_crates(list)?,
            into: into.to_owned(),
            others: Others::Drop,
            releases,
            base: Vec::new(),
            replace: false,
        })
    }

    /// Builds crates into a folder that keeps its other modules, and continues those of `base`.
    pub fn added(crates: Vec<PathBuf>, into: &Path, base: Vec<PathBuf>) -> Self {
        Self {
            crates,
            into: into.to_owned(),
            others: Others::Keep,
            releases: None,
            base,
            replace: false,
        }
    }
}

/// Why crates could not be built into a folder of modules.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("cargo cannot be run; install Rust from https://rustup.rs, or put `cargo` on the PATH")]
    Cargo { source: std::io::Error },
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(
        "rustc cannot be run in the crate's folder; correct the error below and build again:\n{output}"
    )]
    Rustc { output: String },
    #[error("cargo failed; correct the error below and build again:\n{output}")]
    Compile { output: String },
    #[error("cargo built no WebAssembly from {}; its Cargo.toml needs `[lib] crate-type = [\"cdylib\", \"rlib\"]`", .crate_folder.display())]
    NoLibrary { crate_folder: PathBuf },
    #[error("{} is not a module: {reason}; end it with the SDK's export macro", .crate_folder.display())]
    Encode {
        crate_folder: PathBuf,
        reason: String,
    },
    #[error("the folder {} cannot be written to; check its permissions and space", .folder.display())]
    Write {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("the component built from {} cannot be loaded by this host; correct its source and build again", .crate_folder.display())]
    Module {
        crate_folder: PathBuf,
        source: ModuleError,
    },
    #[error(
        "the folder has {file} ({position}, sha256 {listed}), and {built} was built of the same version with another content; a \
         module that has run is never changed: build it with a later version, or, if the one in the folder has run nowhere, with \
         `--replace`"
    )]
    Replaces {
        file: String,
        position: String,
        listed: String,
        built: String,
    },
    #[error(
        "the folder has {file} ({position}), which is none of the modules to build; a module that has run is never taken away: \
         name the crates to build, or, if this one has run nowhere, build with `--replace`, which deletes it"
    )]
    Deletes { file: String, position: String },
    #[error(transparent)]
    BelowFirst(#[from] BelowFirst),
    #[error("the modules do not form a valid catalog")]
    Catalog(#[from] CatalogError),
}

/// A folder of modules after its crates were built.
#[derive(Debug)]
pub struct BuiltFolder {
    /// All modules of the folder, in catalog order.
    pub entries: Vec<CatalogEntry>,
    /// The migrations that were added below others.
    pub insertions: Insertions,
    /// The fate of the signature of the catalog.
    pub signature: PreviousSignature,
}

/// A built component with its catalog entry.
struct Built {
    entry: CatalogEntry,
    component: Vec<u8>,
}

/// Builds the crates into their folder. The name and the serial of its catalog stay.
///
/// # Errors
/// If a crate cannot be built, its component is no module, or the result is no valid catalog.
pub fn build(
    request: &BuildRequest,
    sandbox: &Arc<Sandbox>,
    progress: &Progress,
) -> Result<BuiltFolder, BuildError> {
    let BuildRequest {
        crates,
        into,
        others,
        releases,
        base,
        replace,
    } = request;
    let failed = |source| BuildError::Write {
        folder: into.to_owned(),
        source,
    };
    std::fs::create_dir_all(into).map_err(failed)?;
    // A catalog that cannot be used is reported before the crates are compiled, which takes long:
    // other commands may change the folder meanwhile.
    let lock = catalog::lock(into).map_err(failed)?;
    content_before(into, base, *others, *replace)?;
    drop(lock);
    let base_migrations = placement::migrations_of(&Catalog::merged_entries(base)?);
    let built = built(crates, into, sandbox, progress)?;
    let new: Vec<_> = built.iter().map(|built| built.entry.clone()).collect();
    placement::refuse_twins(&new)?;
    let _lock = catalog::lock(into).map_err(failed)?;
    let before = content_before(into, base, *others, *replace)?;
    let entries = match others {
        Others::Keep => placement::merge(before.entries.clone(), new, &base_migrations)?,
        Others::Drop => placement::chain(new, &base_migrations),
    };
    if !replace {
        refuse_changes(&before.entries, &entries)?;
    }
    catalog::check_sequence(into, &entries, base)?;
    let after = CatalogContent {
        entries: entries.clone(),
        ..before.clone()
    };
    let signature = write(into, &built, after, releases.as_deref()).map_err(failed)?;
    let listed_before: BTreeSet<_> = before.entries.iter().map(|old| &old.file).collect();
    let deletes_others = *others == Others::Drop && *replace;
    for gone in catalog::unlisted(into, &entries)? {
        if deletes_others || listed_before.contains(&gone) {
            std::fs::remove_file(into.join(gone)).map_err(failed)?;
        }
    }
    let insertions = Insertions::of_change(&base_migrations, &before.entries, &entries);
    Ok(BuiltFolder {
        entries,
        insertions,
        signature,
    })
}

/// The catalog of the folder before the build. Its faults, files that it does not list, as a build
/// leaves that was killed before its end, and modules without a catalog are reported, unless the
/// build may delete all that the folder has: a module that it has may have run.
fn content_before(
    into: &Path,
    base: &[PathBuf],
    others: Others,
    replace: bool,
) -> Result<CatalogContent, CatalogError> {
    let may_delete_all = others == Others::Drop && replace;
    if !into.join(CATALOG_FILE).exists() {
        if !may_delete_all {
            catalog::refuse_unlisted(into, &[])?;
        }
        return Ok(CatalogContent::default());
    }
    match Catalog::entries(into, base).and_then(|_| catalog::read(into)) {
        Err(CatalogError::Unlisted { .. }) if may_delete_all => catalog::read(into),
        Err(_) if may_delete_all => Ok(CatalogContent::default()),
        read => read,
    }
}

/// Writes the modules and the catalog, and beside it the list of releases if the build has one.
/// Another list than the signed one is no longer pinned.
fn write(
    into: &Path,
    built: &[Built],
    mut content: CatalogContent,
    releases: Option<&Path>,
) -> io::Result<PreviousSignature> {
    let list = releases
        .map(|path| bbs_files::read(path, bbs_files::TEXT_BYTES))
        .transpose()?;
    if let Some(list) = &list {
        content.releases = content.releases.filter(|digest| *digest == digest_of(list));
    }
    let list = list
        .map(|list| catalog::complete_file(into, &list))
        .transpose()?;
    let modules = built.iter().map(|built| (&built.entry, &*built.component));
    let signature = placement::place(into, modules, || catalog::write(into, &content))?;
    if let Some(list) = list {
        catalog::persist_readable(list, &into.join(RELEASES_FILE))?;
    }
    Ok(signature)
}

/// Refuses a change or the absence of a module that is listed.
fn refuse_changes(before: &[CatalogEntry], after: &[CatalogEntry]) -> Result<(), BuildError> {
    for CatalogEntry {
        file,
        sha256,
        position,
    } in before
    {
        let file = file.clone();
        let position_name = position.to_string();
        match after.iter().find(|entry| entry.position.is_same(*position)) {
            Some(built) if built.sha256 == *sha256 => {}
            Some(built) => {
                let listed = sha256.clone();
                let built = built.file.clone();
                return Err(BuildError::Replaces {
                    file,
                    position: position_name,
                    listed,
                    built,
                });
            }
            None => {
                return Err(BuildError::Deletes {
                    file,
                    position: position_name,
                });
            }
        }
    }
    Ok(())
}

/// Builds crates and returns their catalog entries, in the same order, without writing to a folder
/// of modules.
///
/// # Errors
/// If a crate cannot be built, or its component is no module.
pub fn entries(
    crates: &[PathBuf],
    sandbox: &Arc<Sandbox>,
    progress: &Progress,
) -> Result<Vec<CatalogEntry>, BuildError> {
    let scratch = tempfile::tempdir().map_err(|source| BuildError::Write {
        folder: std::env::temp_dir(),
        source,
    })?;
    let built = built(crates, scratch.path(), sandbox, progress)?;
    Ok(built.into_iter().map(|built| built.entry).collect())
}

fn built(
    crates: &[PathBuf],
    scratch: &Path,
    sandbox: &Arc<Sandbox>,
    progress: &Progress,
) -> Result<Vec<Built>, BuildError> {
    let mut built = Vec::new();
    for (crate_folder, component) in crates.iter().zip(components(crates, progress)?) {
        built.push(describe(crate_folder, component, scratch, sandbox)?);
        progress.advance(1);
    }
    Ok(built)
}

/// Builds the components of crates, in the same order, without running them.
///
/// # Errors
/// If a crate cannot be built or encoded.
pub fn components(crates: &[PathBuf], progress: &Progress) -> Result<Vec<Vec<u8>>, BuildError> {
    let total = Some(Counted::Modules.total(crates.len() as u64));
    let workspaces = sources::workspaces_of(crates)?;
    compile::prepare(&workspaces, progress)?;
    progress.enter("compile", "migrations and translators, with cargo", total);
    let libraries = compile::compile(crates, &workspaces, progress)?;
    progress.enter("encode", "as WebAssembly components", total);
    crates
        .iter()
        .zip(libraries)
        .map(|(crate_folder, library)| encode(crate_folder, &library))
        .collect()
}

fn encode(crate_folder: &Path, library: &Path) -> Result<Vec<u8>, BuildError> {
    let encode = || {
        ComponentEncoder::default()
            .validate(true)
            .module(&std::fs::read(library)?)?
            .encode()
    };
    encode().map_err(|reason| BuildError::Encode {
        crate_folder: crate_folder.to_owned(),
        reason: format!("{reason:#}"),
    })
}

/// Loads a component, from a file in `scratch`, to read its manifest, and returns it with its
/// catalog entry.
fn describe(
    crate_folder: &Path,
    component: Vec<u8>,
    scratch: &Path,
    sandbox: &Arc<Sandbox>,
) -> Result<Built, BuildError> {
    let failed = |source| BuildError::Write {
        folder: scratch.to_owned(),
        source,
    };
    let mut file = tempfile::NamedTempFile::new_in(scratch).map_err(failed)?;
    file.write_all(&component).map_err(failed)?;
    let sha256 = digest_of(&component);
    let module = Module::open(file.path(), sandbox).map_err(|source| BuildError::Module {
        crate_folder: crate_folder.to_owned(),
        source,
    })?;
    Ok(Built {
        entry: CatalogEntry::of(&module, sha256),
        component,
    })
}
