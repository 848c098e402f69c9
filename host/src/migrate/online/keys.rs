//! Unit locks: the copier's batch and each write of a client hold the units that they touch, from before they are read
//! until what was made of them is committed. Otherwise the copier could write what a client has just changed or deleted.
//! Requests for the same unit are granted in the order in which they were made, so a batch is not starved by clients that
//! keep taking one or another of its units.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

use crate::migrate::key::{Key, Part};

/// A unit of a group.
type Unit = (usize, Key);
/// A request, by its place in the order of all requests.
type Ticket = u64;

#[derive(Debug, Clone, Default)]
pub(crate) struct UnitLocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether the database may take two keys of different bytes for the same.
    collates: bool,
    queues: Mutex<Queues>,
    /// Shared by all requests but those for a key of which it is not known with which others the database confuses it.
    all: Arc<RwLock<()>>,
}

#[derive(Debug, Default)]
struct Queues {
    next: Ticket,
    /// By unit: the request that holds it, and behind it those that wait, in the order in which they were made.
    of_units: HashMap<Unit, VecDeque<Ticket>>,
    waiting: HashMap<Ticket, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// How many of its units others hold, or asked for before.
    missing: usize,
    granted: oneshot::Sender<()>,
}

/// Units that are held or asked for, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    locks: UnitLocks,
    ticket: Ticket,
    units: HashSet<Unit>,
    _all: All,
}

#[derive(Debug)]
enum All {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl UnitLocks {
    /// With `collates`, keys that a collation may take for the same are one lock.
    pub(crate) fn new(collates: bool) -> Self {
        Self(Arc::new(Shared { collates, ..Shared::default() }))
    }

    /// Takes all of these units at once, so that two requests never wait for each other.
    pub(crate) async fn take(&self, units: Vec<Unit>) -> Held {
        let all = Arc::clone(&self.0.all);
        let all = if self.0.collates && units.iter().any(|(_, key)| !is_ascii(key)) {
            All::Alone { _guard: all.write_owned().await }
        } else {
            All::Shared { _guard: all.read_owned().await }
        };
        let units = units.into_iter().map(|(group, key)| (group, self.lock_of(key))).collect();
        let (held, granted) = self.ask(units, all);
        if let Some(granted) = granted {
            granted.await.expect("a request is granted before it is forgotten");
        }
        held
    }

    /// What a key is locked by. Where keys are compared by a collation, which may ignore case, accents, widths and much
    /// else, that is its digits alone: no collation takes two ASCII texts for the same that differ in those, and guids
    /// have many.
    fn lock_of(&self, key: Key) -> Key {
        let digits = |part: Part| match part {
            Part::Text(text) => Part::Text(text.into_iter().filter(u8::is_ascii_digit).collect()),
            Part::Integer(number) => Part::Integer(number),
        };
        if self.0.collates { Key(key.0.into_iter().map(digits).collect()) } else { key }
    }

    fn ask(&self, units: HashSet<Unit>, all: All) -> (Held, Option<oneshot::Receiver<()>>) {
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
            queues.waiting.insert(ticket, Waiting { missing, granted });
            receiver
        });
        drop(queues);
        (Held { locks: self.clone(), ticket, units, _all: all }, granted)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_ascii(key: &Key) -> bool {
    key.0.iter().all(|part| match part {
        Part::Text(text) => text.is_ascii(),
        Part::Integer(_) => true,
    })
}

impl Queues {
    /// Takes a request out of the queue of one of its units; the request behind it then has one unit less to wait for.
    fn leave(&mut self, unit: &Unit, ticket: Ticket) {
        let Some(queue) = self.of_units.get_mut(unit) else { return };
        let was_first = queue.front() == Some(&ticket);
        queue.retain(|other| *other != ticket);
        let Some(&first) = queue.front() else {
            self.of_units.remove(unit);
            return;
        };
        if !was_first {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&first) else { return };
        waiting.missing -= 1;
        if waiting.missing == 0
            && let Some(Waiting { granted, .. }) = self.waiting.remove(&first)
        {
            // A request that was given up in this moment gives back what it was granted.
            let _ = granted.send(());
        }
    }
}

impl Drop for Held {
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
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(locks.take(vec![unit("e")]).await);
        drop(batch);
        drop(waiting.await.unwrap());
        drop(locks.take(vec![unit("a"), unit("b"), unit("d")]).await);
    }

    /// Goal: clients that keep taking units of a batch do not keep the batch waiting for ever.
    /// Method: a batch waits for one unit that a client has; another client asks for another unit of the batch.
    #[tokio::test]
    async fn waiting_batch_is_served_before_later_requests() {
        let locks = UnitLocks::default();
        let first = locks.take(vec![unit("a")]).await;
        let mut batch = Box::pin(locks.take(vec![unit("a"), unit("b")]));
        assert!((&mut batch).now_or_never().is_none());
        let mut later = Box::pin(locks.take(vec![unit("b")]));
        assert!((&mut later).now_or_never().is_none(), "the batch asked first");
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
                assert_eq!((&mut waiting).now_or_never().is_none(), alike, "{one} {other}");
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
