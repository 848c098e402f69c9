//! Unit locks. The copier's batch and each write of a client hold the units that they touch from
//! before the units are read until the result is committed; otherwise the copier could write what a
//! client has just changed or deleted. Requests for a unit are granted in the order in which they
//! were made, so clients that keep taking units of a batch do not starve it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

use bbs_units::UnitKey;

/// A unit of a group.
pub(super) type GroupUnit = (usize, UnitKey);
/// A request, by its place in the order of all requests.
type Ticket = u64;

#[derive(Debug, Clone, Default)]
pub(crate) struct UnitLocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether the database may treat two keys of different bytes as equal.
    collates: bool,
    queues: Mutex<Queues>,
    /// Shared by all requests, except those for a key of which it is unknown which others the
    /// database treats as equal.
    all: Arc<RwLock<()>>,
}

#[derive(Debug, Default)]
struct Queues {
    next: Ticket,
    /// By unit: the request that holds it, then those that wait, in the order in which they were
    /// made.
    of_units: HashMap<GroupUnit, VecDeque<Ticket>>,
    waiting: HashMap<Ticket, WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    /// The number of its units that other requests hold, or requested before.
    missing: usize,
    granted: oneshot::Sender<()>,
}

/// Units that are held or requested; released on drop.
#[derive(Debug)]
pub(crate) struct HeldUnits {
    locks: UnitLocks,
    ticket: Ticket,
    units: HashSet<GroupUnit>,
    _all: All,
}

#[derive(Debug)]
enum All {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl UnitLocks {
    /// With `collates`, keys that a collation may treat as equal share a lock.
    pub(crate) fn new(collates: bool) -> Self {
        Self(Arc::new(Shared {
            collates,
            ..Shared::default()
        }))
    }

    /// Takes all of these units at once, so that two requests never wait for each other.
    pub(crate) async fn take(&self, units: Vec<GroupUnit>) -> HeldUnits {
        let all = Arc::clone(&self.0.all);
        let all = if self.0.collates && units.iter().any(|(_, key)| key.collation_class().is_none())
        {
            All::Alone {
                _guard: all.write_owned().await,
            }
        } else {
            All::Shared {
                _guard: all.read_owned().await,
            }
        };
        let units = units
            .into_iter()
            .map(|(group, key)| (group, self.lock_of(key)))
            .collect();
        let (held, granted) = self.enqueue(units, all);
        if let Some(granted) = granted {
            granted
                .await
                .expect("a request is granted before it is forgotten");
        }
        held
    }

    /// The lock of a key. A key without a class is locked together with all others.
    fn lock_of(&self, key: UnitKey) -> UnitKey {
        if self.0.collates {
            key.collation_class().unwrap_or(key)
        } else {
            key
        }
    }

    fn enqueue(
        &self,
        units: HashSet<GroupUnit>,
        all: All,
    ) -> (HeldUnits, Option<oneshot::Receiver<()>>) {
        let mut queues = self.queues();
        let ticket = queues.next;
        queues.next += 1;
        let mut missing = 0;
        for unit in &units {
            let queue = queues.of_units.entry(unit.clone()).or_default();
            missing += usize::from(!queue.is_empty());
            queue.push_back(ticket);
        }
        let granted = (missing > 0).then(|| {
            let (granted, receiver) = oneshot::channel();
            queues
                .waiting
                .insert(ticket, WaitingRequest { missing, granted });
            receiver
        });
        drop(queues);
        (
            HeldUnits {
                locks: self.clone(),
                ticket,
                units,
                _all: all,
            },
            granted,
        )
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock()
    }
}

impl Queues {
    /// Removes a request from the queue of one of its units; the next request in the queue then
    /// waits for one unit less.
    fn leave(&mut self, unit: &GroupUnit, ticket: Ticket) {
        let Some(queue) = self.of_units.get_mut(unit) else {
            return;
        };
        let was_first = queue.front() == Some(&ticket);
        queue.retain(|other| *other != ticket);
        let Some(&first) = queue.front() else {
            self.of_units.remove(unit);
            return;
        };
        if !was_first {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&first) else {
            return;
        };
        waiting.missing -= 1;
        if waiting.missing == 0
            && let Some(WaitingRequest { granted, .. }) = self.waiting.remove(&first)
        {
            // A request that is cancelled at this moment releases what it was granted.
            let _ = granted.send(());
        }
    }
}

impl Drop for HeldUnits {
    fn drop(&mut self) {
        let mut queues = self.locks.queues();
        queues.waiting.remove(&self.ticket);
        for unit in &self.units {
            queues.leave(unit, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn unit(name: &str) -> GroupUnit {
        (0, UnitKey::text(name))
    }

    #[tokio::test]
    async fn unit_has_one_holder_at_a_time_and_others_are_free() {
        let locks = UnitLocks::default();
        let batch = locks.take(vec![unit("a"), unit("b")]).await;
        drop(locks.take(vec![unit("c"), (1, unit("a").1)]).await);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.take(vec![unit("b"), unit("d")]).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(locks.take(vec![unit("e")]).await);
        drop(batch);
        drop(waiting.await.unwrap());
        drop(locks.take(vec![unit("a"), unit("b"), unit("d")]).await);
    }

    /// Goal: clients that keep taking units of a batch do not starve the batch. Method: a batch
    /// waits for one unit that a client has; another client requests another unit of the batch.
    #[tokio::test]
    async fn waiting_batch_is_served_before_later_requests() {
        let locks = UnitLocks::default();
        let first = locks.take(vec![unit("a")]).await;
        let mut batch = Box::pin(locks.take(vec![unit("a"), unit("b")]));
        assert!((&mut batch).now_or_never().is_none());
        let mut later = Box::pin(locks.take(vec![unit("b")]));
        assert!(
            (&mut later).now_or_never().is_none(),
            "the batch asked first"
        );
        drop(locks.take(vec![unit("c")]).await);
        drop(first);
        let held = batch.await;
        assert!((&mut later).now_or_never().is_none());
        drop(held);
        drop(later.await);
    }

    #[tokio::test]
    async fn cancelled_request_releases_its_units() {
        let locks = UnitLocks::default();
        let first = locks.take(vec![unit("a")]).await;
        let mut batch = Box::pin(locks.take(vec![unit("a"), unit("b")]));
        assert!((&mut batch).now_or_never().is_none());
        let mut later = Box::pin(locks.take(vec![unit("b")]));
        assert!((&mut later).now_or_never().is_none());
        drop(batch);
        drop(later.await);
        drop(first);
        drop(locks.take(vec![unit("a"), unit("b")]).await);
    }

    #[tokio::test]
    async fn keys_equal_under_a_collation_share_a_lock() {
        for (one, other, alike) in [
            ("App-1b", "aPP-1B", true),
            ("app-1b", "app-2b", false),
            ("app-1b", "äpp-1b", true),
            ("app-1b", "app-\u{ff11}b", true),
            ("\u{2460}", "\u{ff11}", true),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let locks = UnitLocks::new(true);
                let held = locks.take(vec![unit(one)]).await;
                let mut waiting = Box::pin(locks.take(vec![unit(other)]));
                assert_eq!(
                    (&mut waiting).now_or_never().is_none(),
                    alike,
                    "{one} {other}"
                );
                drop(held);
                if alike {
                    drop(waiting.await);
                }
            }
        }
        let locks = UnitLocks::default();
        let _held = locks.take(vec![unit("App-1b")]).await;
        drop(locks.take(vec![unit("app-1b"), unit("äpp-1b")]).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_requests_never_share_a_unit_nor_deadlock() {
        let locks = UnitLocks::default();
        let inside = Arc::new(Mutex::new(HashSet::new()));
        let hands = (0..64_usize).map(|hand| {
            let locks = locks.clone();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for round in 0..20 {
                    let units: Vec<_> = (0..3)
                        .map(|at| unit(&((hand * 7 + round * 3 + at) % 10).to_string()))
                        .collect();
                    let held = locks.take(units.clone()).await;
                    for unit in &units {
                        assert!(
                            inside.lock().insert(unit.clone()),
                            "two hands hold {unit:?}"
                        );
                    }
                    tokio::task::yield_now().await;
                    for unit in &units {
                        inside.lock().remove(unit);
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
