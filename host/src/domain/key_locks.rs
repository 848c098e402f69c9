//! Key locks: changes of one desired LRP with its instances, or of one task, are serialized within
//! this host, so that the events of a key are published in commit order.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use super::DomainError;

/// Number of locks; keys share them by hash. Large enough that few callers wait for another key.
const LOCKS: usize = 4096;
/// Longest wait for a lock, so that many calls on a record that another client of the database has
/// locked do not wait one after the other. Below the 10 s after which Diego's clients give up.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// Shortest time for which a call waits, also after other waits: most locks are free by then.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct KeyLocks {
    locks: Vec<Arc<Mutex<()>>>,
    hasher: RandomState,
}

/// Held from before the transaction until its events are published. Not re-entrant.
pub type KeyLock = OwnedMutexGuard<()>;

impl Default for KeyLocks {
    fn default() -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl KeyLocks {
    /// Locks a key. `waits_until` is the end of the waits of a call.
    ///
    /// # Errors
    /// `Busy` if others hold the lock for too long.
    pub(super) async fn lock(
        &self,
        key: &[u8],
        waits_until: Option<Instant>,
    ) -> Result<KeyLock, DomainError> {
        let at = self.hasher.hash_one(key) as usize % LOCKS;
        let left = waits_until.map_or(LONGEST_WAIT, |end| {
            end.saturating_duration_since(Instant::now())
        });
        let locked = Arc::clone(&self.locks[at]).lock_owned();
        let locked = timeout(left.clamp(SHORTEST_WAIT, LONGEST_WAIT), locked);
        locked.await.map_err(|_| DomainError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_ends_with_the_waits_of_the_call() {
        let locks = KeyLocks::default();
        let _held = locks.lock(b"key", None).await.unwrap();
        let seconds = Duration::from_secs;
        for (left, waited) in [
            (None, LONGEST_WAIT),
            (Some(seconds(3)), seconds(3)),
            (Some(Duration::ZERO), SHORTEST_WAIT),
        ] {
            let began = Instant::now();
            let end = left.map(|left| began + left);
            let refused = locks.lock(b"key", end).await;
            assert!(matches!(refused, Err(DomainError::Busy)), "{refused:?}");
            assert_eq!(began.elapsed(), waited, "{left:?}");
        }
    }
}
