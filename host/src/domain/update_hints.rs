//! Where instances have to be replaced: the process guids that the host works on. Only a hint:
//! after a restart, or a failed step, convergence finds them in the records.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use bbs_model::Text;
use bbs_model::actual_lrp::InstanceKey;
use bbs_model::lrp_update::PlaceDemand;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Service;
use crate::store::Key;

/// Desired LRPs that are worked on at the same time.
const CONCURRENT: usize = 20;

/// The cell of a container that still runs is asked to stop it again after this time.
const REPEAT_AFTER_NS: u64 = 20_000_000_000;

#[derive(Debug)]
pub(super) struct UpdateHints {
    by_guid: Mutex<HashMap<Text, UpdateWork>>,
    /// When the cell of a container was last asked to stop it, in nanoseconds since 1970. Longer
    /// than the update that asked: the container runs until then.
    asked: Mutex<HashMap<InstanceKey, i64>>,
    permits: Semaphore,
    /// Process guids whose next instances wait for places, in the order in which they are given.
    waiting: Mutex<VecDeque<Text>>,
    /// Starts a task that works on a process guid.
    spawn: fn(Service, Text),
    /// The last process guid whose archive was examined.
    last_pruned: Mutex<Option<Key>>,
}

#[derive(Debug, Default)]
struct UpdateWork {
    state: WorkState,
    /// The index of the instance that halts the update.
    halted: Option<i32>,
    /// Its places among the instances of all LRPs that are being replaced.
    places: usize,
    /// The containers that receive traffic beside their successors.
    overlaps: HashMap<InstanceKey, Overlap>,
    /// When the work continues because an overlap ends, in nanoseconds since 1970.
    wakes_at_ns: Option<i64>,
}

#[derive(Debug)]
struct Overlap {
    successor: InstanceKey,
    /// In nanoseconds since 1970.
    began_ns: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WorkState {
    /// Waits for a change of an instance.
    #[default]
    Idle,
    /// A task works on it.
    Running,
    /// A task works on it, and something has changed since it began.
    Stale,
}

fn is_recent(asked_ns: i64, now_ns: i64) -> bool {
    now_ns.abs_diff(asked_ns) < REPEAT_AFTER_NS
}

impl UpdateHints {
    pub(super) fn new(spawn: fn(Service, Text)) -> Self {
        let permits = Semaphore::new(CONCURRENT);
        Self {
            by_guid: Mutex::default(),
            asked: Mutex::default(),
            permits,
            waiting: Mutex::default(),
            spawn,
            last_pruned: Mutex::default(),
        }
    }

    /// Waits for a step of other desired LRPs to end, if there are too many.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        self.permits
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// Works on a process guid from now on.
    pub(super) fn begin(&self, service: &Service, process_guid: &[u8]) {
        if self.note_begun(process_guid) {
            (self.spawn)(service.clone(), process_guid.to_vec());
        }
    }

    /// Continues the work on a process guid, if there is any, because an instance has changed.
    pub(super) fn instance_changed(&self, service: &Service, process_guid: &[u8]) {
        if self.note_changed(process_guid) {
            (self.spawn)(service.clone(), process_guid.to_vec());
        }
    }

    /// Notes that there is work; whether the caller has to start a task.
    fn note_begun(&self, process_guid: &[u8]) -> bool {
        let mut works = self.by_guid.lock();
        works.entry(process_guid.to_vec()).or_default().wake()
    }

    /// Notes a change of an instance; whether the caller has to start a task.
    fn note_changed(&self, process_guid: &[u8]) -> bool {
        let mut works = self.by_guid.lock();
        works.get_mut(process_guid).is_some_and(UpdateWork::wake)
    }

    /// Ends a step; whether another one has to follow.
    pub(super) fn continues(&self, process_guid: &[u8], is_done: bool) -> bool {
        let mut works = self.by_guid.lock();
        let Some(work) = works.get_mut(process_guid) else {
            return false;
        };
        match work.state {
            WorkState::Stale => {
                work.state = WorkState::Running;
                return true;
            }
            WorkState::Idle | WorkState::Running if is_done => drop(works.remove(process_guid)),
            WorkState::Idle | WorkState::Running => work.state = WorkState::Idle,
        }
        false
    }

    /// Takes as many of the next places of a process guid as all LRPs together leave, and returns
    /// their number. If it needs more, it waits: an update that has begun goes on before those that
    /// wait.
    pub(super) fn take_places(
        &self,
        process_guid: &[u8],
        demand: PlaceDemand,
        most: NonZeroU32,
    ) -> usize {
        let mut works = self.by_guid.lock();
        let others = works
            .iter()
            .filter(|(guid, _)| **guid != process_guid)
            .map(|(_, work)| work.places)
            .sum::<usize>();
        let free = (most.get() as usize).saturating_sub(others + demand.taken);
        let taken = demand.next.min(free);
        if let Some(work) = works.get_mut(process_guid) {
            work.places = demand.taken + taken;
        }
        let mut waiting = self.waiting.lock();
        let is_waiting = waiting.iter().any(|guid| guid == process_guid);
        if taken < demand.next && !is_waiting {
            waiting.push_back(process_guid.to_vec());
        }
        taken
    }

    /// Continues the work of the LRPs that wait for places, as far as there are free ones.
    pub(super) fn give_places(&self, service: &Service) {
        let most = service.policy().update_pace.max_in_flight_total.get() as usize;
        let taken: usize = self.by_guid.lock().values().map(|work| work.places).sum();
        let free = most.saturating_sub(taken);
        let next: Vec<_> = {
            let works = self.by_guid.lock();
            let mut waiting = self.waiting.lock();
            waiting.retain(|process_guid| works.contains_key(process_guid));
            let count = free.min(waiting.len());
            waiting.drain(..count).collect()
        };
        next.iter()
            .for_each(|process_guid| self.instance_changed(service, process_guid));
    }

    /// How long a container still receives traffic beside its successor, at a time in nanoseconds
    /// since 1970. The overlap begins with the first call about the two of them.
    pub(super) fn overlap_left(
        &self,
        process_guid: &[u8],
        old: InstanceKey,
        successor: InstanceKey,
        now_ns: i64,
        overlap: Duration,
    ) -> Option<Duration> {
        let mut works = self.by_guid.lock();
        let begun = works.get_mut(process_guid)?.overlaps.entry(old);
        let begun = begun.or_insert_with(|| Overlap {
            successor: successor.clone(),
            began_ns: now_ns,
        });
        if begun.successor != successor {
            *begun = Overlap {
                successor,
                began_ns: now_ns,
            };
        }
        // A clock that goes back does not make it longer.
        let passed = Duration::from_nanos(
            now_ns
                .saturating_sub(begun.began_ns)
                .try_into()
                .unwrap_or(0),
        );
        overlap.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// Notes that the work on a process guid continues at a time, in nanoseconds since 1970;
    /// whether the caller has to see to it, since it does not continue before.
    pub(super) fn note_wake(&self, process_guid: &[u8], at_ns: i64) -> bool {
        let mut works = self.by_guid.lock();
        let Some(work) = works.get_mut(process_guid) else {
            return false;
        };
        let is_first = work.wakes_at_ns.is_none_or(|earlier_ns| at_ns < earlier_ns);
        if is_first {
            work.wakes_at_ns = Some(at_ns);
        }
        is_first
    }

    /// Continues the work on a process guid at the time that was noted.
    pub(super) fn end_of_overlap(&self, service: &Service, process_guid: &[u8]) {
        if let Some(work) = self.by_guid.lock().get_mut(process_guid) {
            work.wakes_at_ns = None;
        }
        self.instance_changed(service, process_guid);
    }

    /// Whether the cell of a container was asked to stop it a short time ago.
    pub(super) fn is_asked(&self, container: &InstanceKey, now_ns: i64) -> bool {
        let asked = self.asked.lock();
        asked
            .get(container)
            .is_some_and(|asked_ns| is_recent(*asked_ns, now_ns))
    }

    /// Notes that the cell of a container is asked to stop it.
    pub(super) fn note_asked(&self, container: InstanceKey, now_ns: i64) {
        let mut asked = self.asked.lock();
        asked.retain(|_, asked_ns| is_recent(*asked_ns, now_ns));
        asked.insert(container, now_ns);
    }

    /// Notes the instance that halts an update; whether that is a change between a halted and an
    /// advancing update.
    pub(super) fn set_halted(&self, process_guid: &[u8], halted: Option<i32>) -> bool {
        let mut works = self.by_guid.lock();
        let Some(work) = works.get_mut(process_guid) else {
            return false;
        };
        std::mem::replace(&mut work.halted, halted).is_some() != halted.is_some()
    }

    pub(super) fn last_pruned(&self) -> Option<Key> {
        self.last_pruned.lock().clone()
    }

    pub(super) fn set_last_pruned(&self, last: Option<Key>) {
        *self.last_pruned.lock() = last;
    }

    /// Whether a task works on any process guid.
    pub(super) fn is_any_running(&self) -> bool {
        self.by_guid
            .lock()
            .values()
            .any(|work| work.state != WorkState::Idle)
    }

    /// The number of updates that are halted.
    pub(super) fn halted(&self) -> u64 {
        self.by_guid
            .lock()
            .values()
            .filter(|work| work.halted.is_some())
            .count() as u64
    }
}

impl UpdateWork {
    fn wake(&mut self) -> bool {
        let is_idle = self.state == WorkState::Idle;
        self.state = if is_idle {
            WorkState::Running
        } else {
            WorkState::Stale
        };
        is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shared_by_all_and_those_of_a_halted_update_are_free() {
        let hints = UpdateHints::new(|_, _| {});
        let most = NonZeroU32::new(5).unwrap();
        let take =
            |guid: &[u8], taken, next| hints.take_places(guid, PlaceDemand { taken, next }, most);
        let waiting = || {
            hints
                .waiting
                .lock()
                .iter()
                .map(|guid| guid[0])
                .collect::<Vec<_>>()
        };
        for guid in [b"a", b"b", b"c"] {
            hints.note_begun(guid);
        }
        assert_eq!(
            (take(b"a", 0, 3), take(b"b", 0, 3), take(b"c", 0, 1)),
            (3, 2, 0)
        );
        assert_eq!(take(b"c", 0, 1), 0);
        assert_eq!(waiting(), b"bc");
        assert_eq!(
            (take(b"a", 3, 0), take(b"b", 2, 0)),
            (0, 0),
            "those that it has"
        );
        assert_eq!(
            (take(b"a", 0, 0), take(b"c", 0, 4)),
            (0, 3),
            "the first one is halted"
        );
        assert_eq!(
            take(b"a", 3, 2),
            0,
            "it goes on although there are too many"
        );
    }

    #[test]
    fn change_during_a_step_is_followed_by_another_step() {
        let hints = UpdateHints::new(|_, _| {});
        assert!(!hints.note_changed(b"app"), "nothing is under way");
        assert!(!hints.is_any_running());
        assert!(hints.note_begun(b"app"));
        assert!(!hints.note_changed(b"app"), "the task looks again");
        assert!(
            hints.continues(b"app", true),
            "it was done before the change"
        );
        assert!(hints.is_any_running());
        assert!(!hints.continues(b"app", false));
        assert!(!hints.is_any_running(), "it waits for a change");
        assert!(hints.note_changed(b"app"), "its task has ended");
        assert!(!hints.continues(b"app", true));
        assert!(!hints.note_changed(b"app"), "the work is done");
    }

    #[test]
    fn cell_is_asked_once_within_a_time() {
        let hints = UpdateHints::new(|_, _| {});
        let container = |guid: &str| InstanceKey {
            instance_guid: guid.into(),
            cell_id: b"cell".to_vec(),
        };
        assert!(!hints.is_asked(&container("one"), 0));
        hints.note_asked(container("one"), 0);
        assert!(hints.is_asked(&container("one"), 19_999_999_999));
        assert!(!hints.is_asked(&container("two"), 0));
        assert!(!hints.is_asked(&container("one"), 20_000_000_000));
        hints.note_asked(container("one"), 20_000_000_000);
        assert!(
            !hints.is_asked(&container("one"), -1),
            "the clock went back"
        );
    }

    #[test]
    fn overlap_begins_anew_with_another_successor() {
        let hints = UpdateHints::new(|_, _| {});
        hints.note_begun(b"app");
        let container = |guid: &str| InstanceKey {
            instance_guid: guid.into(),
            cell_id: b"cell".to_vec(),
        };
        let left = |successor, now_s: i64| {
            let overlap = Duration::from_secs(60);
            let left = hints.overlap_left(
                b"app",
                container("old"),
                container(successor),
                now_s * 1_000_000_000,
                overlap,
            );
            left.map(|left| left.as_secs())
        };
        assert_eq!(
            (
                left("one", 100),
                left("one", 159),
                left("one", 160),
                left("one", 170)
            ),
            (Some(60), Some(1), None, None)
        );
        assert_eq!(
            (left("two", 170), left("two", 90), left("two", 230)),
            (Some(60), Some(60), None)
        );
    }

    #[test]
    fn work_continues_at_the_earliest_time() {
        let hints = UpdateHints::new(|_, _| {});
        assert!(!hints.note_wake(b"app", 50), "nothing is under way");
        hints.note_begun(b"app");
        assert!(hints.note_wake(b"app", 50));
        assert!(!hints.note_wake(b"app", 60));
        assert!(hints.note_wake(b"app", 40));
    }

    #[test]
    fn halt_is_reported_when_it_begins_and_ends() {
        let hints = UpdateHints::new(|_, _| {});
        hints.note_begun(b"app");
        assert!(hints.set_halted(b"app", Some(1)));
        assert_eq!(hints.halted(), 1);
        assert!(!hints.set_halted(b"app", Some(2)));
        assert!(hints.set_halted(b"app", None));
        assert_eq!(hints.halted(), 0);
    }
}
