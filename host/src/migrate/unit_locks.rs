//! Unit locks. Each write of a client holds the units that it touches until its result is committed,
//! and the copier holds those of a batch while it writes them; otherwise the copier could write what
//! a client has just changed or deleted. From before a batch is read until it is written, its units
//! are only watched: those that a client requests meanwhile are copied again, alone, so no client
//! waits for a module. Requests for a unit are granted in the order in which they were made, so
//! clients that keep taking a unit do not starve the copier.

use std::collections::hash_map::Entry;
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
    watched: HashMap<GroupUnit, Watched>,
}

/// A unit that is watched.
#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    /// Whether it was held when it was first watched, or requested since.
    is_requested: bool,
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

/// Units that are watched for requests; no longer on drop.
#[derive(Debug)]
pub(crate) struct WatchedUnits {
    locks: UnitLocks,
    units: HashSet<GroupUnit>,
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
        let all = if units.iter().any(|(_, key)| self.excludes_all(key)) {
            All::Alone {
                _guard: Arc::clone(&self.0.all).write_owned().await,
            }
        } else {
            self.shared().await
        };
        let units: HashSet<_> = units.into_iter().map(|unit| self.lock_of(unit)).collect();
        let (held, granted) = self.request(units, all);
        if let Some(granted) = granted {
            granted
                .await
                .expect("a request is granted before it is forgotten");
        }
        held
    }

    /// Watches units for requests, those of their present holders among them.
    pub(crate) async fn watch(&self, units: Vec<GroupUnit>) -> WatchedUnits {
        // Its holder may have any of the units.
        let _no_key_alone = self.shared().await;
        let mut queues = self.queues();
        let mut watched = HashSet::with_capacity(units.len());
        for unit in units {
            let excludes_all = self.excludes_all(&unit.1);
            let unit = self.lock_of(unit);
            let is_requested = excludes_all || queues.of_units.contains_key(&unit);
            let of_unit = queues.watched.entry(unit.clone()).or_default();
            of_unit.is_requested |= is_requested;
            of_unit.watchers += usize::from(watched.insert(unit));
        }
        drop(queues);
        WatchedUnits {
            locks: self.clone(),
            units: watched,
        }
    }

    async fn shared(&self) -> All {
        All::Shared {
            _guard: Arc::clone(&self.0.all).read_owned().await,
        }
    }

    /// Whether it is unknown which other keys the database treats as equal to this one.
    fn excludes_all(&self, key: &UnitKey) -> bool {
        self.0.collates && key.collation_class().is_none()
    }

    /// The lock of a key. A key without a class is locked together with all others.
    fn lock_of(&self, (group, key): GroupUnit) -> GroupUnit {
        if self.0.collates {
            (group, key.collation_class().unwrap_or(key))
        } else {
            (group, key)
        }
    }

    /// Requests units, which their watchers see.
    fn request(
        &self,
        units: HashSet<GroupUnit>,
        all: All,
    ) -> (HeldUnits, Option<oneshot::Receiver<()>>) {
        let mut queues = self.queues();
        queues.note_request(&units, matches!(all, All::Alone { .. }));
        self.enqueue(&mut queues, units, all)
    }

    fn enqueue(
        &self,
        queues: &mut Queues,
        units: HashSet<GroupUnit>,
        all: All,
    ) -> (HeldUnits, Option<oneshot::Receiver<()>>) {
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
        let held = HeldUnits {
            locks: self.clone(),
            ticket,
            units,
            _all: all,
        };
        (held, granted)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock()
    }
}

impl WatchedUnits {
    /// Holds units of a group, at once: those that were not requested are held by no one. If some
    /// were, returns the places of those.
    pub(crate) async fn hold(
        &self,
        group: usize,
        keys: &[UnitKey],
    ) -> Result<HeldUnits, Vec<usize>> {
        let all = self.locks.shared().await;
        let units: Vec<_> = keys
            .iter()
            .map(|key| self.locks.lock_of((group, key.clone())))
            .collect();
        let mut queues = self.locks.queues();
        let is_requested = |unit: &GroupUnit| {
            let watched = queues.watched.get(unit).expect("the unit is watched");
            watched.is_requested
        };
        let requested: Vec<_> = (0..units.len())
            .filter(|place| is_requested(&units[*place]))
            .collect();
        if !requested.is_empty() {
            return Err(requested);
        }
        let (held, granted) = self
            .locks
            .enqueue(&mut queues, units.into_iter().collect(), all);
        debug_assert!(granted.is_none(), "a unit that is held was requested");
        Ok(held)
    }
}

impl Drop for WatchedUnits {
    fn drop(&mut self) {
        let mut queues = self.locks.queues();
        for unit in &self.units {
            if let Entry::Occupied(mut watched) = queues.watched.entry(unit.clone()) {
                watched.get_mut().watchers -= 1;
                if watched.get().watchers == 0 {
                    watched.remove();
                }
            }
        }
    }
}

impl Queues {
    /// Notes a request for these units, or for all, with their watchers.
    fn note_request(&mut self, units: &HashSet<GroupUnit>, for_all: bool) {
        if for_all {
            self.watched
                .values_mut()
                .for_each(|watched| watched.is_requested = true);
        }
        for unit in units {
            if let Some(watched) = self.watched.get_mut(unit) {
                watched.is_requested = true;
            }
        }
    }

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
    async fn watched_units_are_held_if_none_was_requested() {
        let locks = UnitLocks::default();
        let [a, b] = [unit("a"), unit("b")];
        let before = locks.take(vec![a.clone()]).await;
        let watched = locks.watch(vec![a.clone(), b.clone(), unit("c")]).await;
        drop(locks.take(vec![unit("d"), (1, b.1.clone())]).await);
        drop(locks.take(vec![b.clone()]).await);
        let keys = [&a, &b, &unit("c")].map(|(_, key)| key.clone());
        assert_eq!(watched.hold(0, &keys).await.err(), Some(vec![0, 1]));
        drop(before);
        assert_eq!(
            watched.hold(0, &keys).await.err(),
            Some(vec![0, 1]),
            "a request is not forgotten"
        );
        let held = watched.hold(0, &keys[2..]).await.unwrap();
        let mut client = Box::pin(locks.take(vec![unit("c")]));
        assert!((&mut client).now_or_never().is_none());
        drop(held);
        drop(client.await);
        drop(watched);
        let watched = locks.watch(vec![a, b, unit("c")]).await;
        drop(watched.hold(0, &keys).await.unwrap());
    }

    #[tokio::test]
    async fn request_under_an_equal_key_is_noted() {
        for (watched, requested, is_noted) in [
            ("App-1b", "aPP-1B", true),
            ("app-1b", "app-2b", false),
            // It is unknown which others are equal.
            ("app-1b", "äpp-1b", true),
            ("äpp-1b", "app-2b", true),
        ] {
            let locks = UnitLocks::new(true);
            let watcher = locks.watch(vec![unit(watched)]).await;
            drop(locks.take(vec![unit(requested)]).await);
            let held = watcher.hold(0, &[unit(watched).1]).await;
            assert_eq!(held.is_err(), is_noted, "{watched} {requested}");
        }
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
