//! The master lock for an embedded database: an operating-system lock on a file beside it. The
//! kernel gives it up when its holder ends, however it ends, and no clock takes part.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LockLost;
use super::holder::Holder;

/// Held for as long as it lives.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    #[error("cannot open the lock file {}; check that its folder exists and can be written to", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot lock {}; the file system it is on must support locks", .path.display())]
    Lock { path: PathBuf, source: io::Error },
}

impl FileLock {
    /// The lock file of a database.
    pub fn path_for(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    }

    /// Takes the lock if nobody has it.
    pub fn try_take(path: &Path) -> Result<Option<Self>, FileLockError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| FileLockError::Open { path: path.to_owned(), source })?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file, path: path.to_owned() })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(FileLockError::Lock { path: path.to_owned(), source }),
        }
    }

    /// Writes into the file who holds the lock, for those that wait. The lock holds without it.
    #[must_use]
    pub fn held_by(self, holder: &str) -> Self {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all_at(holder.as_bytes(), 0));
        if let Err(fault) = written {
            tracing::debug!(%fault, path = %self.path.display(), "the lock file does not name its holder");
        }
        self
    }

    /// Who holds the lock, in words. Only while another host has it: a file that is left behind names the last one.
    pub fn holder(path: &Path) -> Option<String> {
        Holder::describe(&std::fs::read_to_string(path).ok()?)
    }

    /// Waits for the lock, trying again each interval.
    pub async fn take(path: &Path, retry_interval: Duration) -> Result<Self, FileLockError> {
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            tokio::time::sleep(retry_interval).await;
        }
    }

    /// Returns once the lock is no longer worth anything: somebody removed or replaced its file, so
    /// another host can hold a lock of the same name.
    pub async fn lost(&self, check_interval: Duration) -> LockLost {
        while self.is_held() {
            tokio::time::sleep(check_interval).await;
        }
        LockLost::File(self.path.clone())
    }

    fn is_held(&self) -> bool {
        let Ok(ours) = self.file.metadata() else { return false };
        std::fs::metadata(&self.path).is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_free_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = FileLock::path_for(&folder.path().join("bbs.db"));
        let first = FileLock::try_take(&path).unwrap().expect("nobody has it");
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(first);
        assert!(FileLock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn a_removed_lock_file_is_a_lost_lock() {
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
    fn a_folder_that_is_not_there_is_named() {
        let error = FileLock::try_take(Path::new("/nonexistent/bbs.lock")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bbs.lock"));
    }
}
