//! Compiled components on disk, by the component's digest and the engine that compiled it.
//! Owns the one place where the host trusts machine code that it did not just compile.
//!
//! An artifact is code that runs outside any sandbox once loaded, so it must come from nobody but this host.
//! That rests on the folder: it belongs to the user the host runs as, and nobody else may write to it. Whoever
//! can write there all the same can as well replace the host. The digest before each artifact is for the rest:
//! a torn write, a bad disk, a file copied to another name.

use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

const OTHERS_MAY_WRITE: u32 = 0o022;
const DIGEST_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Artifacts {
    folder: PathBuf,
    /// Of the engine: its version, settings and processor features.
    engine: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{} cannot be made or read; give the host a folder of its own, or none", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error(
        "others than this host may write to {} (mode {mode:o}, owner {owner}), and what is in it runs with the host's rights; \
         delete the folder, the host makes it anew",
        .folder.display()
    )]
    Exposed { folder: PathBuf, mode: u32, owner: u32 },
}

impl Artifacts {
    pub(super) fn open(folder: &Path, engine: &Engine) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Folder { folder: folder.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let found = std::fs::symlink_metadata(folder).map_err(failed)?;
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        if !found.is_dir() || mode & OTHERS_MAY_WRITE != 0 || owner != own_user().map_err(failed)? {
            return Err(CacheError::Exposed { folder: folder.to_owned(), mode, owner });
        }
        let mut fingerprint = Fingerprint(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut fingerprint);
        Ok(Self { folder: folder.to_owned(), engine: fingerprint.finish() })
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{:016x}.artifact", self.engine))
    }

    /// What the cache holds for a component. Anything damaged or foreign counts as nothing: it is compiled again.
    pub(super) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let mut file = std::fs::File::open(&path).ok()?;
        let found = file.metadata().ok()?;
        if found.mode() & OTHERS_MAY_WRITE != 0 || Some(found.uid()) != own_user().ok() {
            tracing::warn!(path = %path.display(), "left out of the cache: others may write to it");
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (stated, artifact) = bytes.split_at_checked(DIGEST_BYTES)?;
        if stated != self.seal(digest, artifact) {
            tracing::warn!(path = %path.display(), "damaged in the cache: compiled again");
            return None;
        }
        #[allow(unsafe_code, reason = "compiled code, written by this host to a folder that only it can write to")]
        // SAFETY: the folder was refused unless it belongs to this host's user and nobody else may write to it, so
        // these are bytes that `store` made with `Component::serialize`; the digest shows that they are whole, and
        // wasmtime itself refuses another version's or another setting's.
        let component = unsafe { Component::deserialize(engine, artifact) };
        component.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "unusable in the cache")).ok()
    }

    /// Keeps an artifact for the next start. A cache that cannot be written to costs time, nothing else.
    pub(super) fn store(&self, component: &Component, digest: &str) {
        if let Err(error) = self.write(component, digest) {
            tracing::warn!(folder = %self.folder.display(), %error, "a compiled module was not kept");
        }
    }

    fn write(&self, component: &Component, digest: &str) -> io::Result<()> {
        let artifact = component.serialize().map_err(io::Error::other)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&self.seal(digest, &artifact))?;
        file.write_all(&artifact)?;
        file.persist(self.path(digest))?;
        Ok(())
    }

    /// Binds an artifact to the component it was compiled from and the engine it was compiled for.
    fn seal(&self, digest: &str, artifact: &[u8]) -> [u8; DIGEST_BYTES] {
        let mut hasher = Sha256::new();
        hasher.update(digest.as_bytes());
        hasher.update(self.engine.to_le_bytes());
        hasher.update(artifact);
        hasher.finalize().into()
    }
}

/// The user the host runs as, read off a process's own entry: the standard library has no other way.
fn own_user() -> io::Result<u32> {
    Ok(std::fs::metadata("/proc/self")?.uid())
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
