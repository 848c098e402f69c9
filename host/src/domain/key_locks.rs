//! Key locks: changes of one desired LRP with its instances, or of one task, are serialized within
//! this host, so that the events of a key are published in commit order.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Number of locks; keys share them by hash. Large enough that few callers wait for another key.
const LOCKS: usize = 4096;

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
    pub(super) async fn lock(&self, key: &[u8]) -> KeyLock {
        let at = self.hasher.hash_one(key) as usize % LOCKS;
        KeyLock {
            _guard: Arc::clone(&self.locks[at]).lock_owned().await,
        }
    }
}
