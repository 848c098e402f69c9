//! Key locks: changes of one desired LRP with its instances, or of one task, are serialized within
//! this host, so that the events of a key are published in commit order.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

use super::DomainError;

/// Number of locks; keys share them by hash. Large enough that few callers wait for another key.
const LOCKS: usize = 4096;
/// Longest wait for a lock, so that many calls on a record that another client of the database has
/// locked do not wait one after the other. Below the 10 s after which Diego's clients give up.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(super) struct KeyLocks {
    locks: Vec<Arc<Mutex<()>>>,
    hasher: RandomState,
}

/// Held from before the transaction until its events are published. Not re-entrant.
#[derive(Debug)]
pub struct KeyLock {
    _guard: OwnedMutexGuard<()>,
}

impl Default for KeyLocks {
    fn default() -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl KeyLocks {
    /// # Errors
    /// `Busy` if others hold the lock for too long.
    pub(super) async fn lock(&self, key: &[u8]) -> Result<KeyLock, DomainError> {
        let at = self.hasher.hash_one(key) as usize % LOCKS;
        let locked = timeout(LONGEST_WAIT, Arc::clone(&self.locks[at]).lock_owned());
        let guard = locked.await.map_err(|_| DomainError::Busy)?;
        Ok(KeyLock { _guard: guard })
    }
}
