//! Which units are in hand: the copier's batch, or a write. Owns the rule that a unit is in one hand at a time, from
//! before it is read until what was made of it is committed. Otherwise the copier could write what a client has just
//! changed or deleted.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::migrate::key::Key;

/// A unit of a group.
type Unit = (usize, Key);

#[derive(Debug, Clone, Default)]
pub(crate) struct UnitLocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    held: Mutex<HashSet<Unit>>,
    given_back: Notify,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashSet<Unit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Units in hand, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    locks: UnitLocks,
    units: Vec<Unit>,
}

impl UnitLocks {
    /// Takes all of these units once nobody has any of them: all at once, so that two who wait never wait for each
    /// other.
    pub(crate) async fn take(&self, units: Vec<Unit>) -> Held {
        loop {
            // Asked for before looking, so that what is given back meanwhile is not missed.
            let given_back = self.0.given_back.notified();
            tokio::pin!(given_back);
            given_back.as_mut().enable();
            {
                let mut held = self.0.held();
                if units.iter().all(|unit| !held.contains(unit)) {
                    held.extend(units.iter().cloned());
                    return Held { locks: self.clone(), units };
                }
            }
            given_back.await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.locks.0.held();
        for unit in &self.units {
            held.remove(unit);
        }
        drop(held);
        self.locks.0.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::migrate::key::Part;

    fn unit(name: &str) -> Unit {
        (0, Key(vec![Part::Text(name.into())]))
    }

    #[tokio::test]
    async fn a_unit_is_in_one_hand_at_a_time_and_others_are_free() {
        let locks = UnitLocks::default();
        let batch = locks.take(vec![unit("a"), unit("b")]).await;
        drop(locks.take(vec![unit("c"), (1, unit("a").1)]).await);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.take(vec![unit("b"), unit("d")]).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(locks.take(vec![unit("d")]).await);
        drop(batch);
        drop(waiting.await.unwrap());
        drop(locks.take(vec![unit("a"), unit("b"), unit("d")]).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_hands_never_hold_the_same_unit_nor_wait_for_ever() {
        let locks = UnitLocks::default();
        let inside = Arc::new(Mutex::new(HashSet::new()));
        let hands = (0..64_usize).map(|hand| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                for round in 0..20 {
                    let units: Vec<_> =
                        (0..3).map(|at| unit(&((hand * 7 + round * 3 + at) % 10).to_string())).collect();
                    let held = locks.take(units.clone()).await;
                    for unit in &units {
                        assert!(inside.lock().unwrap().insert(unit.clone()), "two hands hold {unit:?}");
                    }
                    tokio::task::yield_now().await;
                    for unit in &units {
                        inside.lock().unwrap().remove(unit);
                    }
                    drop(held);
                }
            })
        });
        for hand in hands.collect::<Vec<_>>() {
            hand.await.unwrap();
        }
    }
}
