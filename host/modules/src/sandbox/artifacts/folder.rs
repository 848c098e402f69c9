//! One folder of compiled components. Owns the rule by which a folder and a file are trusted.
//!
//! An artifact is code that runs outside the sandbox once loaded. It is trusted if its folder and
//! its file belong to the user that the host runs as, or to root, and no other user or group may
//! write to them: those two users could replace the host itself. The digest before each artifact
//! detects damage (a partial write, a bad disk, a file copied to another name); it is no protection
//! against an attacker.
//!
//! Artifacts are read into memory and never mapped from their file, so that they also work on a
//! file system mounted `noexec`, as BOSH mounts the data folders of jobs.

use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;

use super::sealed::{ARTIFACT_BYTES, EngineFingerprint, SealedArtifact};

const OTHERS_MAY_WRITE: u32 = 0o022;
const ROOT: u32 = 0;

/// A trusted folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

/// Why a folder or a file of compiled modules is not used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{} cannot be created or read ({source}); name a folder that this user may write to", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error(
        "{} may be written to by other users (owner {owner}, mode {mode:o}), and compiled modules run with the host's \
         rights; delete it, and the host creates it again; or make this user (or root) the only one who may write to it",
        .path.display()
    )]
    Untrusted {
        path: PathBuf,
        owner: u32,
        mode: u32,
    },
    #[error("{} is a symbolic link or a file; name the folder itself", .path.display())]
    NoFolder { path: PathBuf },
    #[error("{} is damaged ({what}); the module is compiled again", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} cannot be written to ({source}); check its permissions and space", .folder.display())]
    Write { folder: PathBuf, source: io::Error },
}

impl Folder {
    /// Opens a folder to read and write; creates it if absent. Other users may read it: modules are
    /// not secret, and a service's user can use what root compiled.
    pub(super) fn make(path: &Path) -> Result<Self, CacheError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(path)
            .map_err(|source| CacheError::Folder {
                folder: path.to_owned(),
                source,
            })?;
        Self::open(path)
    }

    /// Opens an existing folder, if it is trusted.
    pub(super) fn open(path: &Path) -> Result<Self, CacheError> {
        let found = std::fs::symlink_metadata(path).map_err(|source| CacheError::Folder {
            folder: path.to_owned(),
            source,
        })?;
        if !found.is_dir() {
            return Err(CacheError::NoFolder {
                path: path.to_owned(),
            });
        }
        trust(path, &found)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Checks that artifacts can be stored, by creating a temporary file.
    pub(super) fn try_to_write(&self) -> Result<(), CacheError> {
        let written = tempfile::tempfile_in(&self.path);
        written.map(drop).map_err(|source| CacheError::Write {
            folder: self.path.clone(),
            source,
        })
    }

    /// Loads the component with this digest from its file in this folder; `None` if there is no
    /// such file.
    pub(super) fn load(
        &self,
        digest: &str,
        engine: &Engine,
        fingerprint: EngineFingerprint,
    ) -> Result<Option<Component>, CacheError> {
        let path = self.path.join(fingerprint.file_name(digest));
        let damaged = |what: String| CacheError::Damaged {
            path: path.clone(),
            what,
        };
        let file = match bbs_files::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(damaged(error.to_string()));
            }
            Err(_) => return Ok(None),
        };
        let unreadable = |error: io::Error| damaged(error.to_string());
        // Checks the open file, so that the checked file is the one that is read.
        trust(&path, &file.metadata().map_err(unreadable)?)?;
        let artifact = SealedArtifact::of_bytes(
            bbs_files::read_open(file, ARTIFACT_BYTES).map_err(unreadable)?,
        );
        #[allow(
            unsafe_code,
            reason = "compiled code, from a file that only this user or root can write"
        )]
        // SAFETY: only the user that the host runs as, or root, may write to the folder and to the
        // file, so these bytes come from `write`.
        let component = unsafe { artifact.load(digest, engine, fingerprint) };
        component.map(Some).map_err(damaged)
    }

    /// Writes an artifact atomically, also if other hosts do the same.
    pub(super) fn write(&self, name: &str, artifact: &SealedArtifact) -> Result<(), CacheError> {
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            file.write_all(artifact.bytes())?;
            file.as_file()
                .set_permissions(std::fs::Permissions::from_mode(0o644))?;
            file.persist(self.path.join(name))?;
            Ok(())
        };
        write().map_err(|source| CacheError::Write {
            folder: self.path.clone(),
            source,
        })
    }
}

/// Rejects a folder or file that a user other than this one or root may write to.
fn trust(path: &Path, found: &Metadata) -> Result<(), CacheError> {
    let owner = found.uid();
    let mode = found.mode() & 0o7777;
    let is_owned = owner == ROOT || owner == bbs_files::own_user();
    if is_owned && mode & OTHERS_MAY_WRITE == 0 {
        Ok(())
    } else {
        Err(CacheError::Untrusted {
            path: path.to_owned(),
            owner,
            mode,
        })
    }
}
