//! The master lock for an embedded database: an operating-system lock on a file beside it. The
//! kernel releases it when the holder's process ends for any reason, independent of clocks.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LockLost;
use super::holder::Holder;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

/// Why a lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    #[error("cannot open the lock file {}; check that its folder exists and can be written to", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot lock {}; the file system it is on must support locks", .path.display())]
    Lock { path: PathBuf, source: io::Error },
}

impl FileLock {
    /// The lock file of a database. It is beside the file that a symbolic link leads to, so that
    /// hosts which name the same database by other paths have the same lock.
    pub fn path_for(database: &Path) -> PathBuf {
        let database = database
            .canonicalize()
            .unwrap_or_else(|_| database.to_owned());
        let mut name = database.into_os_string();
        name.push(".lock");
        PathBuf::from(name)
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// The file cannot be opened or does not support locks.
    pub fn try_take(path: &Path) -> Result<Option<Self>, FileLockError> {
        let file = bbs_files::private()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| FileLockError::Open {
                path: path.to_owned(),
                source,
            })?;
        // A user who can open the file can hold its lock.
        bbs_files::make_private(path);
        match file.try_lock() {
            Ok(()) => Ok(Some(Self {
                file,
                path: path.to_owned(),
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(FileLockError::Lock {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Writes the holder into the file, for waiting hosts. The lock does not depend on it.
    #[must_use]
    pub fn held_by(self, holder: &str) -> Self {
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(holder.as_bytes(), 0));
        if let Err(fault) = written {
            tracing::debug!(%fault, path = %self.path.display(), "the lock file does not name its holder");
        }
        self
    }

    /// The holder, described for operators. A process that has released the lock and goes on is
    /// named until another one takes it.
    pub fn holder(path: &Path) -> Option<String> {
        Holder::describe(&bbs_files::read_text(path).ok()?)
    }

    /// Waits for the lock, retrying at each interval.
    ///
    /// # Errors
    /// The file cannot be opened or does not support locks.
    pub async fn take(path: &Path, retry_interval: Duration) -> Result<Self, FileLockError> {
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            tokio::time::sleep(retry_interval).await;
        }
    }

    /// Returns when the lock file was removed or replaced, after which another host can hold a lock
    /// on the new file of the same name.
    pub async fn lost(&self, check_interval: Duration) -> LockLost {
        while self.is_held() {
            tokio::time::sleep(check_interval).await;
        }
        LockLost::File(self.path.clone())
    }

    fn is_held(&self) -> bool {
        let Ok(ours) = self.file.metadata() else {
            return false;
        };
        std::fs::metadata(&self.path)
            .is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_has_one_holder_and_is_free_after_its_drop() {
        let folder = tempfile::tempdir().unwrap();
        let path = FileLock::path_for(&folder.path().join("bbs.db"));
        let first = FileLock::try_take(&path).unwrap().expect("it is free");
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(first);
        assert!(FileLock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn database_has_one_lock_whatever_the_links_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let [database, link] = ["bbs.db", "link.db"].map(|name| folder.path().join(name));
        File::create(&database).unwrap();
        std::os::unix::fs::symlink(&database, &link).unwrap();
        let [path, other] = [&database, &link].map(|path| FileLock::path_for(path));
        let lock = FileLock::try_take(&path).unwrap();
        assert!(lock.is_some());
        assert!(FileLock::try_take(&other).unwrap().is_none());
    }

    #[test]
    fn removed_lock_file_is_a_lost_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::try_take(&path).unwrap().unwrap();
        assert!(lock.is_held());
        std::fs::remove_file(&path).unwrap();
        assert!(!lock.is_held());
        let successor = FileLock::try_take(&path).unwrap().unwrap();
        assert!(successor.is_held() && !lock.is_held());
    }

    #[test]
    fn missing_folder_is_named_in_the_error() {
        let error = FileLock::try_take(Path::new("/nonexistent/bbs.lock")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bbs.lock"));
    }
}
