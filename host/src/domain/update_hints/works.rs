//! The desired LRPs that are worked on, and their places among the instances of all LRPs that are
//! being replaced: a running total, and a queue of those that wait for places. No step and no change
//! of an instance looks at all of them: each is made under the same lock.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use bbs_model::Text;
use bbs_model::actual_lrp::{ActualLrp, InstanceKey};
use bbs_model::lrp_update::PlaceDemand;

/// Failed steps in a row after which the instances of an LRP count as not in flight: its record may
/// be damaged, or locked for long, and others wait for their places.
const RELEASED_AFTER_FAILURES: u8 = 3;

#[derive(Debug, Default)]
pub(super) struct UpdateWorks {
    by_guid: HashMap<Text, UpdateWork>,
    /// The places of all of them together.
    places: usize,
    /// The number of those whose instances in flight are not counted yet. They may have all places,
    /// so none is given.
    uncounted: usize,
    /// Process guids that wait for places, by their tickets: in the order in which they came.
    waiting: BTreeMap<u64, Text>,
    next_ticket: u64,
}

#[derive(Debug, Default)]
pub(super) struct UpdateWork {
    state: WorkState,
    /// The index of the instance that halts the update.
    pub(super) halted: Option<i32>,
    /// Its places among the instances of all LRPs that are being replaced.
    places: usize,
    /// Whether its instances in flight are not counted yet.
    is_uncounted: bool,
    /// Failed steps in a row.
    failures: u8,
    /// Its ticket, if it waits for places.
    ticket: Option<u64>,
    /// Whether it was called because there are places, and has not taken them yet.
    is_called: bool,
    /// The containers that receive traffic beside their successors.
    pub(super) overlaps: HashMap<InstanceKey, Overlap>,
    /// When the work continues because an overlap ends, in nanoseconds since 1970.
    pub(super) wakes_at_ns: Option<i64>,
}

/// When the overlap of a container with its successor began. Times in nanoseconds since 1970.
#[derive(Debug, Clone)]
pub(super) struct Overlap {
    pub(super) successor: InstanceKey,
    /// The last change of the successor.
    pub(super) successor_since_ns: i64,
    pub(super) began_ns: i64,
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

/// The instances of an LRP that are in flight when the work on it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstancesInFlight {
    None,
    /// An earlier host may have begun to replace some.
    Unknown,
}

/// The end of a step of the work on a process guid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::domain) enum StepEnd {
    /// There is nothing left to do.
    Done,
    /// The work goes on when an instance changes.
    Waits,
    /// Convergence repeats the step.
    Failed,
}

impl UpdateWorks {
    pub(super) fn get_mut(&mut self, process_guid: &[u8]) -> Option<&mut UpdateWork> {
        self.by_guid.get_mut(process_guid)
    }

    /// Notes that there is work; whether the caller has to start a task.
    pub(super) fn begin(&mut self, process_guid: &[u8], in_flight: InstancesInFlight) -> bool {
        let work = match self.by_guid.entry(process_guid.to_vec()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let is_uncounted = in_flight == InstancesInFlight::Unknown;
                self.uncounted += usize::from(is_uncounted);
                new.insert(UpdateWork {
                    is_uncounted,
                    ..UpdateWork::default()
                })
            }
        };
        work.wake()
    }

    /// Notes a change of an instance; whether the caller has to start a task.
    pub(super) fn wake(&mut self, process_guid: &[u8]) -> bool {
        self.get_mut(process_guid).is_some_and(UpdateWork::wake)
    }

    /// Notes that all that wait for a change are worked on again; the caller has to start a task
    /// for each of them.
    pub(super) fn wake_idle(&mut self) -> Vec<Text> {
        let idle = self
            .by_guid
            .iter_mut()
            .filter(|(_, work)| work.state == WorkState::Idle);
        idle.filter_map(|(process_guid, work)| work.wake().then(|| process_guid.clone()))
            .collect()
    }

    /// Forgets what is noted about the instances of a desired LRP that was removed.
    pub(super) fn forget(&mut self, process_guid: &[u8]) {
        if let Some(work) = self.by_guid.get_mut(process_guid) {
            work.halted = None;
            work.overlaps.clear();
        }
    }

    /// Ends a step; whether another one has to follow.
    pub(super) fn end_step(&mut self, process_guid: &[u8], end: StepEnd) -> bool {
        let Some(work) = self.by_guid.get_mut(process_guid) else {
            return false;
        };
        let is_stale = work.state == WorkState::Stale;
        work.state = if is_stale {
            WorkState::Running
        } else {
            WorkState::Idle
        };
        if end == StepEnd::Failed {
            work.failures = work.failures.saturating_add(1);
            if work.failures >= RELEASED_AFTER_FAILURES {
                self.uncounted -= usize::from(std::mem::take(&mut work.is_uncounted));
                self.places -= std::mem::take(&mut work.places);
            }
            // Those behind it must not wait for its next step.
            self.leave_queue(process_guid);
        } else {
            work.failures = 0;
            if end == StepEnd::Done && !is_stale {
                self.remove(process_guid);
            }
        }
        is_stale
    }

    fn remove(&mut self, process_guid: &[u8]) {
        self.leave_queue(process_guid);
        if let Some(work) = self.by_guid.remove(process_guid) {
            self.places -= work.places;
            self.uncounted -= usize::from(work.is_uncounted);
        }
    }

    fn leave_queue(&mut self, process_guid: &[u8]) {
        let Some(work) = self.by_guid.get_mut(process_guid) else {
            return;
        };
        work.is_called = false;
        if let Some(ticket) = work.ticket.take() {
            self.waiting.remove(&ticket);
        }
    }

    /// Takes as many of the next places of a process guid as all LRPs together leave, and returns
    /// their number. If it needs more, it waits. An update that has begun goes on before those that
    /// wait; any other leaves a place to each that came before it.
    pub(super) fn take_places(
        &mut self,
        process_guid: &[u8],
        demand: PlaceDemand,
        most: usize,
    ) -> usize {
        let Some(work) = self.by_guid.get_mut(process_guid) else {
            return 0;
        };
        if std::mem::take(&mut work.is_uncounted) {
            self.uncounted -= 1;
        }
        let others = self.places - work.places;
        let free = if self.uncounted == 0 {
            most.saturating_sub(others + demand.taken)
        } else {
            0
        };
        let has_begun = demand.taken > 0 || work.places > 0;
        let reserved = if has_begun {
            0
        } else {
            let ticket = work.ticket.unwrap_or(self.next_ticket);
            self.waiting.range(..ticket).take(free).count()
        };
        let taken = demand.next.min(free - reserved);
        work.places = demand.taken + taken;
        work.is_called = false;
        self.places = others + work.places;
        if taken == demand.next {
            self.leave_queue(process_guid);
        } else if work.ticket.is_none() {
            work.ticket = Some(self.next_ticket);
            self.waiting.insert(self.next_ticket, process_guid.to_vec());
            self.next_ticket += 1;
        }
        taken
    }

    /// Calls the first of those that wait for places, one for each free place. Returns those that
    /// were not called before.
    pub(super) fn call_waiting(&mut self, most: usize) -> Vec<Text> {
        if self.uncounted > 0 {
            return Vec::new();
        }
        let free = most.saturating_sub(self.places);
        let by_guid = &mut self.by_guid;
        let first = self.waiting.values().take(free);
        first
            .filter(|process_guid| {
                by_guid
                    .get_mut(*process_guid)
                    .is_some_and(|work| !std::mem::replace(&mut work.is_called, true))
            })
            .cloned()
            .collect()
    }

    /// Whether a task works on any process guid.
    pub(super) fn is_any_running(&self) -> bool {
        self.by_guid
            .values()
            .any(|work| work.state != WorkState::Idle)
    }

    /// The number of updates that are halted.
    pub(super) fn halted(&self) -> usize {
        debug_assert_eq!(self.places, self.counted_places(), "the running total");
        self.by_guid
            .values()
            .filter(|work| work.halted.is_some())
            .count()
    }

    fn counted_places(&self) -> usize {
        self.by_guid.values().map(|work| work.places).sum()
    }
}

impl Overlap {
    /// Whether a row is that of the successor, and has not changed.
    pub(super) fn is_of(&self, row: &ActualLrp) -> bool {
        row.is_instance(&self.successor) && row.since_ns == self.successor_since_ns
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

    const MOST: usize = 5;

    fn begun(process_guids: &[&[u8]]) -> UpdateWorks {
        let mut works = UpdateWorks::default();
        for process_guid in process_guids {
            assert!(works.begin(process_guid, InstancesInFlight::None));
        }
        works
    }

    fn take(works: &mut UpdateWorks, process_guid: &[u8], taken: usize, next: usize) -> usize {
        let given = works.take_places(process_guid, PlaceDemand { taken, next }, MOST);
        assert_eq!(works.places, works.counted_places());
        given
    }

    fn waiting(works: &UpdateWorks) -> Vec<&[u8]> {
        works.waiting.values().map(Vec::as_slice).collect()
    }

    #[test]
    fn places_are_shared_by_all_and_those_of_a_halted_update_are_free() {
        let mut works = begun(&[b"a", b"b", b"c"]);
        assert_eq!(take(&mut works, b"a", 0, 3), 3);
        assert_eq!(take(&mut works, b"b", 0, 3), 2);
        assert_eq!(take(&mut works, b"c", 0, 1), 0);
        assert_eq!(take(&mut works, b"c", 0, 1), 0);
        assert_eq!(waiting(&works), [b"b", b"c"]);
        assert_eq!(take(&mut works, b"a", 3, 0), 0, "those that it has");
        assert_eq!(take(&mut works, b"b", 2, 0), 0, "those that it has");
        assert_eq!(take(&mut works, b"a", 0, 0), 0);
        assert_eq!(take(&mut works, b"c", 0, 4), 3, "the first one is halted");
        assert_eq!(
            take(&mut works, b"a", 3, 2),
            0,
            "it goes on although there are too many"
        );
    }

    #[test]
    fn places_are_given_in_the_order_in_which_lrps_came() {
        let mut works = begun(&[b"a", b"b", b"c", b"d"]);
        assert_eq!(take(&mut works, b"a", 0, 5), 5);
        assert_eq!(take(&mut works, b"b", 0, 1), 0);
        assert_eq!(take(&mut works, b"c", 0, 1), 0);
        assert_eq!(works.call_waiting(MOST), [b""; 0]);
        assert_eq!(take(&mut works, b"a", 4, 0), 0, "one instance is replaced");
        assert_eq!(works.call_waiting(MOST), [b"b"]);
        assert_eq!(works.call_waiting(MOST), [b""; 0], "it is called once");
        assert_eq!(take(&mut works, b"d", 0, 1), 0, "it came last");
        assert_eq!(take(&mut works, b"c", 0, 1), 0, "one came before it");
        assert_eq!(take(&mut works, b"b", 0, 1), 1);
        assert_eq!(take(&mut works, b"a", 2, 1), 1, "it has begun");
        assert_eq!(works.call_waiting(MOST), [b"c"]);
        assert_eq!(waiting(&works), [b"c", b"d"]);
    }

    #[test]
    fn ended_and_failed_steps_leave_the_queue_and_removed_work_its_places() {
        let mut works = begun(&[b"a", b"b", b"c"]);
        assert_eq!(take(&mut works, b"a", 0, 5), 5);
        assert_eq!(take(&mut works, b"b", 0, 1), 0);
        assert_eq!(take(&mut works, b"c", 0, 1), 0);
        assert!(!works.end_step(b"b", StepEnd::Failed));
        assert!(!works.end_step(b"c", StepEnd::Waits));
        assert_eq!(waiting(&works), [b"c"]);
        assert!(!works.end_step(b"a", StepEnd::Done));
        assert_eq!((works.places, works.counted_places()), (0, 0));
        assert!(works.begin(b"b", InstancesInFlight::None));
        assert_eq!(take(&mut works, b"b", 0, 5), 4, "one came before it");
        assert!(works.wake(b"c"));
        assert!(!works.end_step(b"c", StepEnd::Done));
        assert_eq!(waiting(&works), [b"b"]);
    }

    #[test]
    fn no_place_is_given_until_the_instances_of_all_found_updates_are_counted() {
        let mut works = begun(&[b"new"]);
        for found in [&b"a"[..], b"b", b"removed"] {
            assert!(works.begin(found, InstancesInFlight::Unknown));
        }
        assert_eq!(take(&mut works, b"new", 0, 1), 0);
        assert_eq!(take(&mut works, b"a", 2, 1), 0, "it may not go on either");
        assert!(!works.end_step(b"removed", StepEnd::Done));
        assert_eq!(works.call_waiting(MOST), [b""; 0]);
        assert_eq!(take(&mut works, b"b", 2, 0), 0, "the last one");
        assert_eq!(works.call_waiting(MOST), [b"new"]);
        assert_eq!(take(&mut works, b"new", 0, 1), 1);
        assert_eq!(take(&mut works, b"a", 2, 1), 0, "all places are taken");
        assert!(!works.end_step(b"a", StepEnd::Waits));
        assert!(works.begin(b"a", InstancesInFlight::Unknown));
        assert_eq!(works.uncounted, 0, "it is counted once");
    }

    #[test]
    fn update_whose_steps_fail_does_not_keep_the_others_from_their_places() {
        let mut works = begun(&[b"new"]);
        assert!(works.begin(b"damaged", InstancesInFlight::Unknown));
        for failures in 1..=RELEASED_AFTER_FAILURES {
            assert_eq!(take(&mut works, b"new", 0, 1), 0, "{failures}");
            assert!(!works.end_step(b"damaged", StepEnd::Failed));
            assert!(works.wake(b"damaged"));
        }
        assert_eq!(take(&mut works, b"new", 0, 1), 1);
    }

    #[test]
    fn update_whose_steps_fail_leaves_its_places_to_the_others() {
        let mut works = begun(&[b"new", b"damaged"]);
        assert_eq!(take(&mut works, b"damaged", 0, 5), 5);
        for end in [
            StepEnd::Failed,
            StepEnd::Failed,
            StepEnd::Waits,
            StepEnd::Failed,
            StepEnd::Failed,
            StepEnd::Failed,
        ] {
            assert_eq!(take(&mut works, b"new", 0, 1), 0, "{end:?}");
            assert!(!works.end_step(b"damaged", end));
            assert!(works.wake(b"damaged"));
        }
        assert_eq!(take(&mut works, b"new", 0, 1), 1);
        assert_eq!(take(&mut works, b"damaged", 5, 1), 0, "it goes on");
    }

    #[test]
    fn failed_step_leaves_the_queue_while_instances_change() {
        let mut works = begun(&[b"other", b"new", b"damaged"]);
        assert_eq!(take(&mut works, b"other", 0, 5), 5);
        assert_eq!(take(&mut works, b"damaged", 0, 1), 0, "it waits");
        assert!(!works.wake(b"damaged"), "its step runs");
        assert!(works.end_step(b"damaged", StepEnd::Failed));
        assert_eq!(take(&mut works, b"new", 0, 1), 0, "it waits");
        take(&mut works, b"other", 4, 0);
        assert_eq!(works.call_waiting(MOST), [b"new"]);
        assert_eq!(take(&mut works, b"new", 0, 1), 1);
    }

    #[test]
    fn failed_steps_are_counted_while_instances_change() {
        let mut works = begun(&[b"new", b"damaged"]);
        assert_eq!(take(&mut works, b"damaged", 0, 5), 5);
        for failures in 1..=RELEASED_AFTER_FAILURES {
            assert_eq!(take(&mut works, b"new", 0, 1), 0, "{failures}");
            assert!(!works.wake(b"damaged"), "its step runs");
            assert!(works.end_step(b"damaged", StepEnd::Failed));
        }
        assert_eq!(take(&mut works, b"new", 0, 1), 1);
    }

    #[test]
    fn work_that_waits_is_found_without_a_record() {
        let mut works = begun(&[b"removed", b"running"]);
        assert_eq!(take(&mut works, b"removed", 0, 5), 5);
        assert!(!works.end_step(b"removed", StepEnd::Failed));
        assert_eq!(works.wake_idle(), [b"removed"]);
        assert!(!works.end_step(b"removed", StepEnd::Done));
        assert_eq!(works.places, 0);
    }

    #[test]
    fn change_during_a_step_is_followed_by_another_step() {
        let mut works = UpdateWorks::default();
        assert!(!works.wake(b"app"), "nothing is under way");
        assert!(!works.is_any_running());
        assert!(works.begin(b"app", InstancesInFlight::None));
        assert!(!works.wake(b"app"), "the task looks again");
        assert!(
            works.end_step(b"app", StepEnd::Done),
            "it was done before the change"
        );
        assert!(works.is_any_running());
        assert!(!works.end_step(b"app", StepEnd::Waits));
        assert!(!works.is_any_running(), "it waits for a change");
        assert!(works.wake(b"app"), "its task has ended");
        assert!(!works.end_step(b"app", StepEnd::Done));
        assert!(!works.wake(b"app"), "the work is done");
    }
}
