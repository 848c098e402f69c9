//! From crates to a folder of modules with its catalog: compiled by cargo, encoded as components, asked what
//! they are, written so that a folder is never half of one catalog and half of another for long.
//! Owns the order of the steps; runs no module beyond `describe`.

mod compile;
mod sources;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wit_component::ComponentEncoder;

use super::catalog::{self, CATALOG_FILE, Catalog, CatalogError, Entry, Place};
use super::module::{Module, ModuleError};
use super::sandbox::{self, Sandbox};
use super::translate::Translate;
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::progress::Progress;

pub use self::sources::{SourceError, listed_crates};

/// What to do with the modules that the folder already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    Keep,
    Drop,
}

/// Which crates to build, and where to.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    pub crates: Vec<PathBuf>,
    pub into: PathBuf,
    pub others: Others,
}

impl BuildRequest {
    /// All modules of the repository that the current folder belongs to, and nothing else.
    pub fn everything(into: &Path) -> Result<Self, SourceError> {
        let crates = listed_crates(&sources::find_list()?)?;
        Ok(Self { crates, into: into.to_owned(), others: Others::Drop })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("cargo cannot be run; install Rust from https://rustup.rs, or put `cargo` on the PATH")]
    Cargo { source: std::io::Error },
    #[error("this Rust does not build for WebAssembly; run `rustup target add wasm32-unknown-unknown`")]
    NoTarget,
    #[error("cargo refused; correct what it says and build again:\n{output}")]
    Compile { output: String },
    #[error("cargo built no WebAssembly from {}; its Cargo.toml needs `[lib] crate-type = [\"cdylib\", \"rlib\"]`", .crate_folder.display())]
    NoLibrary { crate_folder: PathBuf },
    #[error("{} exports no module: {reason}; end it with the SDK's export macro", .crate_folder.display())]
    Encode { crate_folder: PathBuf, reason: String },
    #[error("the folder {} cannot be written to; check its permissions and space", .folder.display())]
    Write { folder: PathBuf, source: std::io::Error },
    #[error("what {} builds is not a module this host can use", .crate_folder.display())]
    Module { crate_folder: PathBuf, source: ModuleError },
    #[error(
        "migration {version} would come before {newest}, which the folder already has; give it a later version (`date +%s`)"
    )]
    NotNewest { version: DataVersion, newest: DataVersion },
    #[error("the modules do not make a catalog")]
    Catalog(#[from] CatalogError),
}

/// A component and the place it claims.
struct Built {
    entry: Entry,
    component: Vec<u8>,
}

/// Builds the crates into their folder and returns its catalog.
pub fn build(request: &BuildRequest, sandbox: &Arc<Sandbox>, progress: &Progress) -> Result<Vec<Entry>, BuildError> {
    let BuildRequest { crates, into, others } = request;
    let failed = |source| BuildError::Write { folder: into.to_owned(), source };
    std::fs::create_dir_all(into).map_err(failed)?;
    let before = match into.join(CATALOG_FILE).exists() {
        true => {
            Catalog::entries(into).or_else(|error| if *others == Others::Drop { Ok(vec![]) } else { Err(error) })?
        }
        false => Vec::new(),
    };
    let components = components(crates, progress)?;
    let mut built = Vec::new();
    for (crate_folder, component) in crates.iter().zip(components) {
        built.push(describe(crate_folder, component, into, sandbox)?);
        progress.advance(1);
    }
    let entries = match others {
        Others::Keep => merge(before.clone(), built.iter().map(|built| built.entry.clone()))?,
        Others::Drop => chain(built.iter().map(|built| built.entry.clone()).collect()),
    };
    catalog::check_lines(&entries)?;
    for Built { entry, component } in &built {
        place(into, entry, component).map_err(failed)?;
    }
    catalog::write(into, &entries).map_err(failed)?;
    for gone in before.iter().filter(|old| entries.iter().all(|entry| entry.file != old.file)) {
        std::fs::remove_file(into.join(&gone.file)).map_err(failed)?;
    }
    Ok(entries)
}

/// The components of crates, in their order, without asking them what they are.
pub fn components(crates: &[PathBuf], progress: &Progress) -> Result<Vec<Vec<u8>>, BuildError> {
    let total = Some(crates.len() as u64);
    progress.enter("compile", "migrations and translators, with cargo", total);
    let libraries = compile::compile(crates, progress)?;
    progress.enter("encode", "as WebAssembly components", total);
    crates.iter().zip(libraries).map(|(crate_folder, library)| encode(crate_folder, &library)).collect()
}

fn encode(crate_folder: &Path, library: &Path) -> Result<Vec<u8>, BuildError> {
    let component = || ComponentEncoder::default().validate(true).module(&std::fs::read(library)?)?.encode();
    component()
        .map_err(|reason| BuildError::Encode { crate_folder: crate_folder.to_owned(), reason: format!("{reason:#}") })
}

/// Asks a component what it is.
fn describe(crate_folder: &Path, component: Vec<u8>, into: &Path, sandbox: &Arc<Sandbox>) -> Result<Built, BuildError> {
    let failed = |source| BuildError::Write { folder: into.to_owned(), source };
    let unusable = |source| BuildError::Module { crate_folder: crate_folder.to_owned(), source };
    let mut file = tempfile::NamedTempFile::new_in(into).map_err(failed)?;
    file.write_all(&component).map_err(failed)?;
    let sha256 = sandbox::digest(&component);
    let (file, place) = match Module::open(file.path(), sandbox).map_err(unusable)? {
        Module::Migration(module) => {
            let manifest = module.manifest();
            let place = Place::Migration { version: manifest.version, follows: None };
            (format!("{}-{}.wasm", manifest.version, manifest.name), place)
        }
        Module::Translator(module) => {
            let (serves, onto) = (module.manifest().serves, module.manifest().onto);
            (format!("{serves}-to-{onto}.wasm"), Place::Translator { serves, onto })
        }
    };
    Ok(Built { entry: Entry { file, sha256, place }, component })
}

/// Puts the modules that were built among those that are there: in place of the same version, or as the newest.
fn merge(before: Vec<Entry>, built: impl Iterator<Item = Entry>) -> Result<Vec<Entry>, BuildError> {
    let mut entries = before;
    for entry in built {
        if let Some(same) = entries.iter_mut().find(|old| same_place(old, &entry)) {
            *same = entry;
            continue;
        }
        let newest = entries.iter().filter_map(version).max();
        if let (Some(version), Some(newest)) = (version(&entry), newest)
            && version < newest
        {
            return Err(BuildError::NotNewest { version, newest });
        }
        entries.push(entry);
    }
    // A translator may be added at the older end of its line.
    entries.sort_by_key(|entry| match entry.place {
        Place::Migration { version, .. } => (0, version, 0),
        Place::Translator { serves, .. } => (1, serves.major.into(), serves.minor),
    });
    Ok(chain(entries))
}

fn version(entry: &Entry) -> Option<DataVersion> {
    match entry.place {
        Place::Migration { version, .. } => Some(version),
        Place::Translator { .. } => None,
    }
}

fn same_place(one: &Entry, other: &Entry) -> bool {
    match (one.place, other.place) {
        (Place::Migration { version: one, .. }, Place::Migration { version: other, .. }) => one == other,
        (Place::Translator { serves: one, .. }, Place::Translator { serves: other, .. }) => one == other,
        _ => false,
    }
}

/// Writes down for each migration which one it follows.
fn chain(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut before = None;
    for entry in &mut entries {
        if let Place::Migration { version, follows } = &mut entry.place {
            *follows = before.replace(*version);
        }
    }
    entries
}

fn place(into: &Path, entry: &Entry, component: &[u8]) -> std::io::Result<()> {
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
