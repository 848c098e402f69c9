//! One folder of compiled components. Owns the one place where the host runs machine code that it did not just compile,
//! and so the rule by which it trusts a folder and a file.
//!
//! An artifact is code that runs outside any sandbox once loaded. It is trusted if its folder and its file belong to
//! the user that the host runs as, or to root, and no other user or group may write to them: those two could replace
//! the host itself. The digest before each artifact protects against damage, not against an attacker: a write that
//! was cut short, a bad disk, a file copied to another name.
//!
//! Artifacts are read into memory and never mapped from their file, so a file system mounted `noexec`, as BOSH mounts
//! the data folders of jobs, holds them as well as any other.

use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;

const OTHERS_MAY_WRITE: u32 = 0o022;
const ROOT: u32 = 0;

/// A sha256.
pub(super) type Seal = [u8; 32];

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

/// Why a folder or a file of compiled modules is not used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{} cannot be made or read ({source}); name a folder that this user may write to", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error(
        "{} may be written to by other users (owner {owner}, mode {mode:o}), and compiled modules run with the host's \
         rights; delete it and the host makes it anew, or leave it to this user (or root) alone",
        .path.display()
    )]
    Untrusted { path: PathBuf, owner: u32, mode: u32 },
    #[error("{} is a symbolic link or a file; name the folder itself", .path.display())]
    NoFolder { path: PathBuf },
    #[error("{} is damaged ({what}); the module is compiled again", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} cannot be written to ({source}); check its permissions and space", .folder.display())]
    Write { folder: PathBuf, source: io::Error },
    #[error("a compiled module has no form to be kept in: {reason}; please report it")]
    Serialize { reason: String },
}

impl Folder {
    /// A folder to read and write, made if it is absent. Other users may read it: modules are no secret, and what root
    /// compiled is of use to the user that a service runs as.
    pub(super) fn make(path: &Path) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Folder { folder: path.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(failed)?;
        Self::open(path)
    }

    /// A folder that is there, if it is trusted.
    pub(super) fn open(path: &Path) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Folder { folder: path.to_owned(), source };
        let found = std::fs::symlink_metadata(path).map_err(failed)?;
        if !found.is_dir() {
            return Err(CacheError::NoFolder { path: path.to_owned() });
        }
        trust(path, &found)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Whether artifacts can be kept here, found out by writing.
    pub(super) fn try_to_write(&self) -> Result<(), CacheError> {
        let written = tempfile::tempfile_in(&self.path);
        written.map(drop).map_err(|source| CacheError::Write { folder: self.path.clone(), source })
    }

    /// The component in a file of this folder; nothing if there is none.
    pub(super) fn load(
        &self,
        name: &str,
        seal: impl Fn(&[u8]) -> Seal,
        engine: &Engine,
    ) -> Result<Option<Component>, CacheError> {
        let path = self.path.join(name);
        let Ok(mut file) = std::fs::File::open(&path) else { return Ok(None) };
        let damaged = |what: String| CacheError::Damaged { path: path.clone(), what };
        let unreadable = |error: io::Error| damaged(error.to_string());
        // Of the open file, so that what is checked is what is read.
        trust(&path, &file.metadata().map_err(unreadable)?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let Some((stated, artifact)) = bytes.split_first_chunk::<{ size_of::<Seal>() }>() else {
            return Err(damaged("it is cut short".to_owned()));
        };
        if *stated != seal(artifact) {
            return Err(damaged("its digest is another".to_owned()));
        }
        #[allow(unsafe_code, reason = "compiled code, from a file that only this user or root can write")]
        // SAFETY: only the user that the host runs as, or root, may write to the folder and to the file, so these are
        // bytes that `write` got from `Component::serialize`; the digest shows that they are whole, and wasmtime
        // itself refuses another version's or another setting's.
        let component = unsafe { Component::deserialize(engine, artifact) };
        component.map(Some).map_err(|error| damaged(format!("{error:#}")))
    }

    /// Puts an artifact into the folder, whole or not at all, whichever other host does the same.
    pub(super) fn write(&self, name: &str, seal: &Seal, artifact: &[u8]) -> Result<(), CacheError> {
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            file.write_all(seal)?;
            file.write_all(artifact)?;
            file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
            file.persist(self.path.join(name))?;
            Ok(())
        };
        write().map_err(|source| CacheError::Write { folder: self.path.clone(), source })
    }
}

/// Refuses what another user than this one or root may write to.
fn trust(path: &Path, found: &Metadata) -> Result<(), CacheError> {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let is_owned = owner == ROOT || own_user().is_ok_and(|own| owner == own);
    match is_owned && mode & OTHERS_MAY_WRITE == 0 {
        true => Ok(()),
        false => Err(CacheError::Untrusted { path: path.to_owned(), owner, mode }),
    }
}

/// The user that the host runs as, from the owner of its own process entry: the standard library has no other way.
fn own_user() -> io::Result<u32> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}
