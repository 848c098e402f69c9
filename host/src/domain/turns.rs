//! Turns: whatever changes one desired LRP with its instances, or one task, is done one after another in this host.
//! So the events of a key are told in the order in which its changes were committed.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Keys share turns by their hash; few wait for another key.
const TURNS: usize = 4096;

#[derive(Debug)]
pub(super) struct Turns {
    turns: Vec<Arc<Mutex<()>>>,
    hasher: RandomState,
}

/// Held from before the transaction until its events are told. Whoever has one takes no second.
#[derive(Debug)]
pub struct Turn {
    _held: OwnedMutexGuard<()>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { turns: (0..TURNS).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }
}

impl Turns {
    pub(super) async fn of(&self, key: &[u8]) -> Turn {
        let at = self.hasher.hash_one(key) as usize % TURNS;
        Turn { _held: Arc::clone(&self.turns[at]).lock_owned().await }
    }
}
