//! One component's file become a module: read, hashed, compiled, recognised, asked what it is. Owns the
//! order of these; each later step trusts the earlier ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::call::CallError;
use super::contract::{self, Contract, ContractError};
use super::migration::MigrationModule;
use super::rules::{self, ManifestError};
use super::sandbox::{self, ComponentError, Sandbox};
use super::translate::{Translate, TranslatorManifest};
use super::translator::TranslatorModule;
use crate::layout::manifest::Manifest;
use crate::lens::transform::Transform;

/// A module of either kind, ready to run.
#[derive(Debug)]
pub enum Module {
    Migration(Arc<MigrationModule>),
    Translator(Arc<TranslatorModule>),
}

/// What can be told of a file without a catalog, as `bbs module inspect` shows it.
#[derive(Debug, Serialize)]
pub struct Inspection {
    pub file: PathBuf,
    pub sha256: String,
    pub bytes: usize,
    pub imports: Vec<String>,
    #[serde(flatten)]
    pub manifest: AnyManifest,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", content = "manifest", rename_all = "lowercase")]
pub enum AnyManifest {
    Migration(Manifest),
    Translator(TranslatorManifest),
}

#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error(transparent)]
    Component(#[from] ComponentError),
    #[error("{file} (sha256 {digest}) is refused before anything of it runs")]
    Contract { file: String, digest: String, source: ContractError },
    #[error("{file} (sha256 {digest}) does not say what it is")]
    Describe { file: String, digest: String, source: CallError },
    #[error("{file} (sha256 {digest}) says something of itself that cannot be")]
    Manifest { file: String, digest: String, source: ManifestError },
}

/// A file that has been read and has the digest one expects of it, if any.
pub(super) struct Source {
    path: PathBuf,
    file: Arc<str>,
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

impl Source {
    pub(super) fn read(path: &Path, sandbox: &Sandbox) -> Result<Self, ComponentError> {
        let bytes = sandbox.read(path)?;
        let digest = sandbox::digest(&bytes);
        let file = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
        Ok(Self { path: path.to_owned(), file: file.into(), bytes, digest })
    }

    pub(super) fn load(&self, sandbox: &Arc<Sandbox>) -> Result<Module, ModuleError> {
        let (file, digest) = (&self.file, self.digest.as_str());
        let named = || (file.to_string(), digest.to_owned());
        let component = sandbox.compile(&self.path, &self.bytes, digest)?;
        let contract = contract::recognise(sandbox.engine(), &component).map_err(|source| {
            let (file, digest) = named();
            ModuleError::Contract { file, digest, source }
        })?;
        let mute = |source| {
            let (file, digest) = named();
            ModuleError::Describe { file, digest, source }
        };
        let (module, checked) = match contract {
            Contract::Migration(linked) => {
                let module = MigrationModule::load(file, digest, linked, sandbox).map_err(mute)?;
                let checked = rules::check_migration(module.manifest());
                (Module::Migration(Arc::new(module)), checked)
            }
            Contract::Translator(linked) => {
                let module = TranslatorModule::load(file, digest, linked, sandbox).map_err(mute)?;
                let checked = rules::check_translator(module.manifest());
                (Module::Translator(Arc::new(module)), checked)
            }
        };
        checked.map_err(|source| {
            let (file, digest) = named();
            ModuleError::Manifest { file, digest, source }
        })?;
        Ok(module)
    }
}

impl Module {
    /// A module on its own, without a catalog to say what it should be.
    pub fn open(path: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, ModuleError> {
        Source::read(path, sandbox)?.load(sandbox)
    }
}

impl Inspection {
    pub fn of(path: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, ModuleError> {
        let source = Source::read(path, sandbox)?;
        let component = sandbox.compile(path, &source.bytes, &source.digest)?;
        let manifest = match source.load(sandbox)? {
            Module::Migration(module) => AnyManifest::Migration(module.manifest().clone()),
            Module::Translator(module) => AnyManifest::Translator(module.manifest().clone()),
        };
        Ok(Self {
            file: path.to_owned(),
            bytes: source.bytes.len(),
            sha256: source.digest,
            imports: contract::imports(sandbox.engine(), &component),
            manifest,
        })
    }
}
