//! Loads a module from its file: reads, hashes, compiles, links and describes it. Owns the order of
//! these steps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs_files::digest::digest_of;
use bbs_lens::layout::manifest::Manifest;
use bbs_lens::transform::Transform;
use serde::Serialize;
use wasmtime::component::Component;

use super::call::CallError;
use super::contract::{self, Contract, ContractError};
use super::migration::MigrationModule;
use super::rules::{self, ManifestError};
use super::sandbox::{ComponentError, Sandbox};
use super::translate::{Translate, TranslatorManifest};
use super::translator::TranslatorModule;

/// A module of either kind, ready to run.
#[derive(Debug)]
pub enum Module {
    /// Leads to a data version.
    Migration(Arc<MigrationModule>),
    /// Serves an API version.
    Translator(Arc<TranslatorModule>),
}

/// The properties of a module that need no catalog; printed by `bbs module inspect`.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// The path of the file.
    pub file: PathBuf,
    /// The digest of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// The size of the file.
    pub bytes: usize,
    /// The imported functions, as `interface#function`.
    pub imports: Vec<String>,
    /// The manifest that the module returns.
    #[serde(flatten)]
    pub manifest: AnyManifest,
}

/// The manifest of a module of either kind.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", content = "manifest", rename_all = "lowercase")]
pub enum AnyManifest {
    Migration(Manifest),
    Translator(TranslatorManifest),
}

/// Why a file cannot be loaded as a module.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error(transparent)]
    Component(#[from] ComponentError),
    #[error("{file} (sha256 {digest}) is refused before any of its code runs")]
    Contract {
        file: String,
        digest: String,
        source: ContractError,
    },
    #[error("{file} (sha256 {digest}) did not return a manifest")]
    Describe {
        file: String,
        digest: String,
        source: CallError,
    },
    #[error("{file} (sha256 {digest}) has an invalid manifest")]
    Manifest {
        file: String,
        digest: String,
        source: ManifestError,
    },
}

/// The content of a module's file.
pub(super) struct ModuleSource {
    path: PathBuf,
    file: Arc<str>,
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

impl ModuleSource {
    pub(super) fn read(path: &Path, sandbox: &Sandbox) -> Result<Self, ComponentError> {
        let bytes = sandbox.read(path)?;
        let digest = digest_of(&bytes);
        let file = path
            .file_name()
            .map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
        Ok(Self {
            path: path.to_owned(),
            file: file.into(),
            bytes,
            digest,
        })
    }

    pub(super) fn load(&self, sandbox: &Arc<Sandbox>) -> Result<Module, ModuleError> {
        self.load_compiled(&self.compile(sandbox)?, sandbox)
    }

    fn compile(&self, sandbox: &Sandbox) -> Result<Component, ComponentError> {
        sandbox.compile(&self.path, &self.bytes, &self.digest)
    }

    fn load_compiled(
        &self,
        component: &Component,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Module, ModuleError> {
        let file = &self.file;
        let digest = self.digest.as_str();
        let contract = contract::recognise(component).map_err(|source| ModuleError::Contract {
            file: file.to_string(),
            digest: digest.to_owned(),
            source,
        })?;
        let undescribed = |source| ModuleError::Describe {
            file: file.to_string(),
            digest: digest.to_owned(),
            source,
        };
        let (module, checked) = match contract {
            Contract::Migration(linked) => {
                let module =
                    MigrationModule::load(file, digest, linked, sandbox).map_err(undescribed)?;
                let checked = rules::check_migration(module.manifest());
                (Module::Migration(Arc::new(module)), checked)
            }
            Contract::Translator(linked) => {
                let module =
                    TranslatorModule::load(file, digest, linked, sandbox).map_err(undescribed)?;
                let checked = rules::check_translator(module.manifest());
                (Module::Translator(Arc::new(module)), checked)
            }
        };
        checked.map_err(|source| ModuleError::Manifest {
            file: file.to_string(),
            digest: digest.to_owned(),
            source,
        })?;
        Ok(module)
    }
}

impl Module {
    /// Loads a module without a catalog, so that no digest is expected.
    ///
    /// # Errors
    /// If the file is no component, implements no contract, or has an invalid manifest.
    pub fn open(path: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, ModuleError> {
        ModuleSource::read(path, sandbox)?.load(sandbox)
    }
}

impl Inspection {
    /// Reads the properties of a module.
    ///
    /// # Errors
    /// As [`Module::open`].
    pub fn of(path: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, ModuleError> {
        let source = ModuleSource::read(path, sandbox)?;
        let component = source.compile(sandbox)?;
        let manifest = match source.load_compiled(&component, sandbox)? {
            Module::Migration(module) => AnyManifest::Migration(module.manifest().clone()),
            Module::Translator(module) => AnyManifest::Translator(module.manifest().clone()),
        };
        Ok(Self {
            file: path.to_owned(),
            bytes: source.bytes.len(),
            sha256: source.digest,
            imports: contract::imports(&component),
            manifest,
        })
    }
}
