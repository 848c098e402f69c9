//! From crates to a folder of modules with its catalog: compiled by cargo, encoded as components, asked what
//! they are, written so that a folder is never half of one catalog and half of another for long.
//! Owns the order of the steps; runs no module beyond `describe`.

mod compile;
mod sources;
mod target;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wit_component::ComponentEncoder;

use super::catalog::{self, CATALOG_FILE, Catalog, CatalogError, Entry};
use super::module::{Module, ModuleError};
use super::place::{self, NotNewest};
use super::sandbox::{self, Sandbox};
use crate::progress::Progress;

pub use self::sources::{SourceError, listed_crates};
pub use self::target::TargetError;

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
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("rustc cannot be run in the crate's folder; correct what it says and build again:\n{output}")]
    Rustc { output: String },
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
    #[error(transparent)]
    NotNewest(#[from] NotNewest),
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
        Others::Keep => place::merge(before.clone(), built.iter().map(|built| built.entry.clone()))?,
        Others::Drop => place::chain(built.iter().map(|built| built.entry.clone()).collect()),
    };
    catalog::check_lines(&entries)?;
    for Built { entry, component } in &built {
        place::put(into, entry, component).map_err(failed)?;
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
    compile::prepare(crates, progress)?;
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
    let module = Module::open(file.path(), sandbox).map_err(unusable)?;
    Ok(Built { entry: Entry::of(&module, sha256), component })
}
