//! The cache of compiled components on disk, keyed by the component's digest and the engine. Owns
//! which folders are read, and which one is written; `folder` decides which files are trusted.

mod folder;
mod sealed;

use std::path::PathBuf;
use std::sync::OnceLock;

use wasmtime::Engine;
use wasmtime::component::Component;

pub use self::folder::CacheError;
use self::folder::Folder;
pub(super) use self::sealed::{ARTIFACT_BYTES, EngineFingerprint, SealedArtifact};

/// The folders of compiled modules. Each can be deleted at any time, and hosts of one user may
/// share one.
#[derive(Debug, Clone, Default)]
pub struct CacheFolders {
    /// In order of preference: the first that can be created and written to receives new artifacts.
    pub own: Vec<PathBuf>,
    /// Read-only folders, filled when a package was installed.
    pub shipped: Vec<PathBuf>,
}

impl CacheFolders {
    /// A single folder to read and write.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            own: vec![folder.into()],
            shipped: Vec::new(),
        }
    }
}

/// The opened cache.
#[derive(Debug)]
pub(super) struct Artifacts {
    /// The folder that receives new artifacts; none if no folder can be written to.
    keeper: Option<Folder>,
    /// Folders that are read after it.
    readable: Vec<Folder>,
    engine: EngineFingerprint,
    /// Why artifacts are not stored.
    failure: OnceLock<CacheError>,
}

impl Artifacts {
    /// Opens the folders. Folders that cannot be used are skipped: the cache only saves time.
    pub(super) fn open(folders: &CacheFolders, engine: EngineFingerprint) -> Self {
        let mut keeper = None;
        let mut readable = Vec::new();
        let mut failure = None;
        for path in &folders.own {
            let made = if keeper.is_none() {
                Folder::make(path)
            } else {
                Folder::open(path)
            };
            match made.inspect_err(warn_of_untrusted) {
                Ok(folder) if keeper.is_some() => readable.push(folder),
                Ok(folder) => match folder.try_to_write() {
                    Ok(()) => keeper = Some(folder),
                    Err(error) => {
                        readable.push(folder);
                        failure = failure.or(Some(error));
                    }
                },
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let shipped = folders
            .shipped
            .iter()
            .filter(|path| !folders.own.contains(path));
        readable.extend(
            shipped.filter_map(|path| Folder::open(path).inspect_err(warn_of_untrusted).ok()),
        );
        // The failure of one folder is irrelevant if another one is used instead.
        let failure = failure
            .filter(|_| keeper.is_none())
            .map_or_else(OnceLock::new, OnceLock::from);
        Self {
            keeper,
            readable,
            engine,
            failure,
        }
    }

    /// Loads a component. A damaged or untrusted artifact counts as absent.
    pub(super) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        self.keeper.iter().chain(&self.readable).find_map(|folder| {
            let component = folder.load(digest, engine, self.engine);
            component
                .inspect_err(|error| tracing::warn!(%error, "a compiled module is not used"))
                .ok()
                .flatten()
        })
    }

    /// Stores an artifact for the next start.
    pub(super) fn store(&self, artifact: &SealedArtifact, digest: &str) {
        let Some(keeper) = &self.keeper else { return };
        if let Err(error) = keeper.write(&self.engine.file_name(digest), artifact) {
            // Only the first failure is recorded: the next module would fail in the same way.
            let _ = self.failure.set(error);
        }
    }

    /// Why artifacts were not stored, if any was not.
    pub(super) fn failure(&self) -> Option<&CacheError> {
        self.failure.get()
    }
}

fn warn_of_untrusted(error: &CacheError) {
    if matches!(
        error,
        CacheError::Untrusted { .. } | CacheError::NoFolder { .. }
    ) {
        tracing::warn!(%error, "a folder of compiled modules is not used");
    }
}

#[cfg(test)]
mod tests;
