//! Writes a folder of modules that does not exist yet, or is empty, in one step: it has all files
//! or none.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a folder was not written; it is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum NewFolderError {
    #[error(
        "{} is not empty; name a new folder, or add single modules to this one with `bbs module add FILE.wasm --into {0}`",
        .folder.display()
    )]
    NotEmpty { folder: PathBuf },
    #[error(
        "the folder {} cannot be written; check that the folder above it exists, its permissions, and its space; \
         the root of a volume cannot be replaced, so name a folder in it",
        .folder.display()
    )]
    Write { folder: PathBuf, source: io::Error },
}

/// A path with no folder or an empty one.
#[derive(Debug)]
pub(super) struct NewFolder {
    /// As given; for messages.
    name: PathBuf,
    path: PathBuf,
}

impl NewFolder {
    /// # Errors
    /// If the folder is not empty, or cannot be read.
    pub(super) fn at(name: &Path) -> Result<Self, NewFolderError> {
        let failed = |source| NewFolderError::Write {
            folder: name.to_owned(),
            source,
        };
        // Without links: the folder is replaced by renaming another one.
        let path = name
            .canonicalize()
            .or_else(|_| std::path::absolute(name))
            .map_err(failed)?;
        match std::fs::read_dir(&path).map(|mut files| files.next().is_none()) {
            Ok(false) => {
                return Err(NewFolderError::NotEmpty {
                    folder: name.to_owned(),
                });
            }
            Err(source) if source.kind() != ErrorKind::NotFound => return Err(failed(source)),
            Ok(true) | Err(_) => {}
        }
        Ok(Self {
            name: name.to_owned(),
            path,
        })
    }

    /// Writes the folder with these files, by name. All users may read them.
    ///
    /// # Errors
    /// If a file cannot be written, or the folder is no longer empty.
    pub(super) fn write<'a>(
        &self,
        files: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(), NewFolderError> {
        let folder = self.name.clone();
        self.stage_and_rename(files)
            .map_err(|source| match source.kind() {
                ErrorKind::DirectoryNotEmpty => NewFolderError::NotEmpty { folder },
                _ => NewFolderError::Write { folder, source },
            })
    }

    fn stage_and_rename<'a>(
        &self,
        files: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> io::Result<()> {
        let above = self.path.parent().unwrap_or(Path::new("/"));
        // Removed on every failure.
        let stage = tempfile::Builder::new()
            .prefix(".bbs-modules-")
            .tempdir_in(above)?;
        for (name, content) in files {
            let mut file = File::create_new(stage.path().join(name))?;
            file.write_all(content)?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.sync_all()?;
        }
        std::fs::set_permissions(stage.path(), Permissions::from_mode(0o755))?;
        File::open(stage.path())?.sync_all()?;
        // Replaces an empty folder, and fails for any other.
        std::fs::rename(stage.path(), &self.path)?;
        let _ = stage.keep();
        File::open(above)?.sync_all()
    }
}
