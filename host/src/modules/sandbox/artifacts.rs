//! Compiled components on disk, by the component's digest and the engine that compiled it. Owns in which folders they
//! are looked for, and which of them keeps a new one; `folder` decides what is trusted.

mod folder;

use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

pub use self::folder::CacheError;
use self::folder::Folder;

/// Where compiled modules are kept and looked for. Every folder can be deleted at any time, and hosts of one user may
/// share one.
#[derive(Debug, Clone, Default)]
pub struct CacheFolders {
    /// In order of preference: the first that can be made and written to keeps new artifacts.
    pub own: Vec<PathBuf>,
    /// Filled when a package was installed: only read.
    pub shipped: Vec<PathBuf>,
}

impl CacheFolders {
    /// One folder, which is read and written.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { own: vec![folder.into()], shipped: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Artifacts {
    /// Keeps new artifacts; none if no folder can be written to.
    keeper: Option<Folder>,
    /// Looked in after it.
    readable: Vec<Folder>,
    /// Of the engine: its version, settings and processor features.
    engine: u64,
    /// Why artifacts are not kept.
    failure: OnceLock<CacheError>,
}

impl Artifacts {
    /// Folders that cannot be used are left out: a cache saves time and is needed for nothing.
    pub(super) fn open(folders: &CacheFolders, engine: &Engine) -> Self {
        let mut fingerprint = Fingerprint(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut fingerprint);
        let (mut keeper, mut readable, mut failure) = (None, Vec::new(), None);
        for path in &folders.own {
            let made = if keeper.is_none() { Folder::make(path) } else { Folder::open(path) };
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
        let shipped = folders.shipped.iter().filter(|path| !folders.own.contains(path));
        readable.extend(shipped.filter_map(|path| Folder::open(path).inspect_err(warn_of_untrusted).ok()));
        // Why a folder was left out is of interest only where no other takes its place.
        let failure = failure.filter(|_| keeper.is_none()).map_or_else(OnceLock::new, OnceLock::from);
        Self { keeper, readable, engine: fingerprint.finish(), failure }
    }

    /// What the cache holds for a component. Anything damaged or not trusted counts as absent.
    pub(super) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let name = self.name(digest);
        self.keeper.iter().chain(&self.readable).find_map(|folder| {
            let component = folder.load(&name, |bytes| self.seal(digest, bytes), engine);
            component.inspect_err(|error| tracing::warn!(%error, "a compiled module is not used")).ok().flatten()
        })
    }

    /// Keeps an artifact for the next start.
    pub(super) fn store(&self, component: &Component, digest: &str) {
        let Some(keeper) = &self.keeper else { return };
        let serialized = component.serialize().map_err(|error| CacheError::Serialize { reason: format!("{error:#}") });
        let written =
            serialized.and_then(|artifact| keeper.write(&self.name(digest), &self.seal(digest, &artifact), &artifact));
        if let Err(error) = written {
            // The first one stands for all: the next module fails in the same way.
            let _ = self.failure.set(error);
        }
    }

    /// Why artifacts were not kept, if any was not.
    pub(super) fn failure(&self) -> Option<&CacheError> {
        self.failure.get()
    }

    fn name(&self, digest: &str) -> String {
        format!("{digest}-{:016x}.artifact", self.engine)
    }

    /// Binds an artifact to the component it was compiled from and the engine it was compiled for.
    fn seal(&self, digest: &str, artifact: &[u8]) -> folder::Seal {
        let mut hasher = Sha256::new();
        hasher.update(digest.as_bytes());
        hasher.update(self.engine.to_le_bytes());
        hasher.update(artifact);
        hasher.finalize().into()
    }
}

fn warn_of_untrusted(error: &CacheError) {
    if matches!(error, CacheError::Untrusted { .. } | CacheError::NoFolder { .. }) {
        tracing::warn!(%error, "a folder of compiled modules is not used");
    }
}

/// Hashes the same in every process, unlike the standard library's hashers.
struct Fingerprint(Sha256);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(digest[..8].try_into().expect("a sha256 is longer than eight bytes"))
    }
}

#[cfg(test)]
mod tests;
