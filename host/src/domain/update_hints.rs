//! Where instances have to be replaced: the process guids that the host works on. Only a hint:
//! after a restart, or a failed step, convergence finds them in the records.

mod works;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use bbs_model::Text;
use bbs_model::actual_lrp::{ActualLrp, InstanceKey};
use bbs_model::lrp_update::PlaceDemand;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::{DomainError, Service};
use crate::store::Key;
pub(super) use works::StepEnd;
use works::{InstancesInFlight, Overlap, UpdateWorks};

/// Desired LRPs that are worked on at the same time.
const CONCURRENT: usize = 20;

/// The cell of a container that still runs gets a further request to stop it after this time.
const REPEAT_AFTER_NS: u64 = 20_000_000_000;
/// Reports of a container without a row are refused for this time after the request to stop it: a
/// cell reports its containers every 30 s, and stops one whose report is refused.
const REFUSED_FOR_NS: u64 = 60_000_000_000;

#[derive(Debug)]
pub(super) struct UpdateHints {
    works: Mutex<UpdateWorks>,
    /// Set once the updates that earlier hosts began are among the works.
    found: OnceCell<()>,
    /// When the cell of a container was last requested to stop it, in nanoseconds since 1970. Kept
    /// for longer than the update of the request: the container runs until then.
    stop_requests: Mutex<HashMap<InstanceKey, i64>>,
    permits: Semaphore,
    /// Starts a task that works on a process guid.
    spawn: fn(Service, Text),
    /// The last process guid whose archive was examined.
    last_pruned: Mutex<Option<Key>>,
}

impl UpdateHints {
    pub(super) fn new(spawn: fn(Service, Text)) -> Self {
        let permits = Semaphore::new(CONCURRENT);
        Self {
            works: Mutex::default(),
            found: OnceCell::new(),
            stop_requests: Mutex::default(),
            permits,
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

    /// Works on a process guid from now on, because a client has changed its definition.
    pub(super) fn begin(&self, service: &Service, process_guid: &[u8]) {
        // The change may be one of an update that an earlier host began.
        let in_flight = if self.found.initialized() {
            InstancesInFlight::None
        } else {
            InstancesInFlight::Unknown
        };
        self.begin_with(service, process_guid, in_flight);
    }

    /// Works on a process guid from now on, because its records show work.
    pub(super) fn find(&self, service: &Service, process_guid: &[u8]) {
        self.begin_with(service, process_guid, InstancesInFlight::Unknown);
    }

    fn begin_with(&self, service: &Service, process_guid: &[u8], in_flight: InstancesInFlight) {
        if self.works.lock().begin(process_guid, in_flight) {
            (self.spawn)(service.detached(), process_guid.to_vec());
        }
    }

    /// Works on the process guids of all updates under way, according to their records. No place is
    /// given until the instances in flight of those that are new to this host are counted. Works
    /// again on all others that wait for a change: no record leads to the work on an LRP that was
    /// removed, whose last step may have failed.
    pub(super) fn find_all(
        &self,
        service: &Service,
        process_guids: impl IntoIterator<Item = Text>,
    ) {
        let found: Vec<_> = {
            let mut works = self.works.lock();
            let mut found: Vec<_> = process_guids
                .into_iter()
                .filter(|process_guid| works.begin(process_guid, InstancesInFlight::Unknown))
                .collect();
            found.extend(works.wake_idle());
            found
        };
        for process_guid in found {
            (self.spawn)(service.detached(), process_guid);
        }
        // Refused if it is set, or if `recover` is about to set it.
        let _ = self.found.set(());
    }

    /// Returns once the updates that earlier hosts began are found: the first call looks for them
    /// with `find`, unless convergence was first.
    ///
    /// # Errors
    /// Errors of `find`.
    pub(super) async fn recover<F>(&self, find: impl FnOnce() -> F) -> Result<(), DomainError>
    where
        F: Future<Output = Result<(), DomainError>>,
    {
        self.found.get_or_try_init(find).await.copied()
    }

    /// Continues the work on a process guid, if there is any, because an instance has changed.
    pub(super) fn instance_changed(&self, service: &Service, process_guid: &[u8]) {
        if self.works.lock().wake(process_guid) {
            (self.spawn)(service.detached(), process_guid.to_vec());
        }
    }

    /// Continues the work on a process guid, if there is any, because its desired LRP was removed.
    /// The caller holds the key lock, so that a next one does not have the halt of this one.
    pub(super) fn removed(&self, service: &Service, process_guid: &[u8]) {
        self.works.lock().forget(process_guid);
        self.instance_changed(service, process_guid);
    }

    /// Ends a step; whether another one has to follow.
    pub(super) fn continues(&self, process_guid: &[u8], end: StepEnd) -> bool {
        self.works.lock().end_step(process_guid, end)
    }

    /// Takes as many of the next places of a process guid as all LRPs together leave, and returns
    /// their number. If it needs more, it waits for [`Self::give_places`].
    pub(super) fn take_places(
        &self,
        process_guid: &[u8],
        demand: PlaceDemand,
        most: NonZeroU32,
    ) -> usize {
        self.works
            .lock()
            .take_places(process_guid, demand, most.get() as usize)
    }

    /// Continues the work of the LRPs that wait for places, as far as there are free ones.
    pub(super) fn give_places(&self, service: &Service) {
        let most = service.policy().update_pace.max_in_flight_total.get() as usize;
        let called = self.works.lock().call_waiting(most);
        called
            .iter()
            .for_each(|process_guid| self.instance_changed(service, process_guid));
    }

    /// How long a container still receives traffic beside its successor, at a time in nanoseconds
    /// since 1970. The overlap begins with the first call about the two of them. It begins again
    /// once the successor's row has changed: the successor may have lost its traffic in between.
    pub(super) fn overlap_left(
        &self,
        process_guid: &[u8],
        old: &ActualLrp,
        successor: &ActualLrp,
        now_ns: i64,
        overlap: Duration,
    ) -> Option<Duration> {
        let mut works = self.works.lock();
        let overlaps = &mut works.get_mut(process_guid)?.overlaps;
        let begins = Overlap {
            successor: successor.instance_key(),
            successor_since_ns: successor.since_ns,
            began_ns: now_ns,
        };
        let begun = overlaps
            .entry(old.instance_key())
            .or_insert_with(|| begins.clone());
        // After a clock went back, the overlap would last longer by as much.
        if !begun.is_of(successor) || begun.began_ns > now_ns {
            *begun = begins;
        }
        let passed = Duration::from_nanos(now_ns.abs_diff(begun.began_ns));
        overlap.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// Notes that the work on a process guid continues at a time, in nanoseconds since 1970;
    /// whether the caller has to see to it, since it does not continue before.
    pub(super) fn note_wake(&self, process_guid: &[u8], at_ns: i64) -> bool {
        let mut works = self.works.lock();
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
        if let Some(work) = self.works.lock().get_mut(process_guid) {
            work.wakes_at_ns = None;
        }
        self.instance_changed(service, process_guid);
    }

    /// Whether the cell of a container was requested to stop it a short time ago.
    pub(super) fn is_stop_requested(&self, container: &InstanceKey, now_ns: i64) -> bool {
        self.is_stop_requested_within(container, now_ns, REPEAT_AFTER_NS)
    }

    /// Whether reports of a container are refused, if it has no row.
    pub(super) fn is_refused(&self, container: &InstanceKey, now_ns: i64) -> bool {
        self.is_stop_requested_within(container, now_ns, REFUSED_FOR_NS)
    }

    fn is_stop_requested_within(
        &self,
        container: &InstanceKey,
        now_ns: i64,
        limit_ns: u64,
    ) -> bool {
        let requests = self.stop_requests.lock();
        requests
            .get(container)
            .is_some_and(|requested_ns| now_ns.abs_diff(*requested_ns) < limit_ns)
    }

    /// Records that the cell of a container is requested to stop it.
    pub(super) fn record_stop_request(&self, container: InstanceKey, now_ns: i64) {
        let mut requests = self.stop_requests.lock();
        requests.retain(|_, requested_ns| now_ns.abs_diff(*requested_ns) < REFUSED_FOR_NS);
        requests.insert(container, now_ns);
    }

    /// Notes the instance that halts an update; whether that is a change between a halted and an
    /// advancing update.
    pub(super) fn set_halted(&self, process_guid: &[u8], halted: Option<i32>) -> bool {
        let mut works = self.works.lock();
        let Some(work) = works.get_mut(process_guid) else {
            return false;
        };
        std::mem::replace(&mut work.halted, halted).is_some() != halted.is_some()
    }

    /// Whether the update of a process guid is halted.
    pub(super) fn is_halted(&self, process_guid: &[u8]) -> bool {
        let mut works = self.works.lock();
        let work = works.get_mut(process_guid);
        work.is_some_and(|work| work.halted.is_some())
    }

    pub(super) fn last_pruned(&self) -> Option<Key> {
        self.last_pruned.lock().clone()
    }

    pub(super) fn set_last_pruned(&self, last: Option<Key>) {
        *self.last_pruned.lock() = last;
    }

    /// Whether a task works on any process guid.
    pub(super) fn is_any_running(&self) -> bool {
        self.works.lock().is_any_running()
    }

    /// The number of updates that are halted.
    pub(super) fn halted(&self) -> u64 {
        self.works.lock().halted() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_gets_one_request_within_a_time() {
        let hints = UpdateHints::new(|_, _| {});
        let container = |guid: &str| InstanceKey {
            instance_guid: guid.into(),
            cell_id: b"cell".to_vec(),
        };
        assert!(!hints.is_stop_requested(&container("one"), 0));
        hints.record_stop_request(container("one"), 0);
        assert!(hints.is_stop_requested(&container("one"), 19_999_999_999));
        assert!(!hints.is_stop_requested(&container("two"), 0));
        assert!(!hints.is_stop_requested(&container("one"), 20_000_000_000));
        hints.record_stop_request(container("one"), 20_000_000_000);
        assert!(
            !hints.is_stop_requested(&container("one"), -1),
            "the clock went back"
        );
    }

    #[test]
    fn overlap_begins_anew_with_another_or_changed_successor_and_once_the_clock_went_back() {
        const SECOND_NS: i64 = 1_000_000_000;
        let hints = UpdateHints::new(|_, _| {});
        hints.works.lock().begin(b"app", InstancesInFlight::None);
        let container = |guid: &str, since_s: i64| ActualLrp {
            instance_guid: guid.into(),
            since_ns: since_s * SECOND_NS,
            ..ActualLrp::default()
        };
        let old = container("old", 0);
        for (successor, since_s, now_s, expected) in [
            ("one", 99, 100, Some(60)),
            ("one", 99, 159, Some(1)),
            ("one", 99, 160, None),
            ("one", 99, 170, None),
            ("two", 170, 170, Some(60)),
            ("two", 170, 200, Some(30)),
            ("two", 205, 210, Some(60)),
            ("two", 205, 269, Some(1)),
            ("two", 205, 90, Some(60)),
            ("two", 205, 149, Some(1)),
            ("two", 205, 150, None),
        ] {
            let left = hints.overlap_left(
                b"app",
                &old,
                &container(successor, since_s),
                now_s * SECOND_NS,
                Duration::from_secs(60),
            );
            let left = left.map(|left| left.as_secs());
            assert_eq!(left, expected, "{successor} of {since_s} at {now_s}");
        }
    }

    #[test]
    fn work_continues_at_the_earliest_time() {
        let hints = UpdateHints::new(|_, _| {});
        assert!(!hints.note_wake(b"app", 50), "nothing is under way");
        hints.works.lock().begin(b"app", InstancesInFlight::None);
        assert!(hints.note_wake(b"app", 50));
        assert!(!hints.note_wake(b"app", 60));
        assert!(hints.note_wake(b"app", 40));
    }

    #[test]
    fn halt_is_reported_when_it_begins_and_ends() {
        let hints = UpdateHints::new(|_, _| {});
        hints.works.lock().begin(b"app", InstancesInFlight::None);
        assert!(hints.set_halted(b"app", Some(1)));
        assert_eq!(hints.halted(), 1);
        assert!(!hints.set_halted(b"app", Some(2)));
        assert!(hints.set_halted(b"app", None));
        assert_eq!(hints.halted(), 0);
    }

    #[test]
    fn halt_of_a_removed_lrp_is_none_of_the_next_one() {
        let hints = UpdateHints::new(|_, _| {});
        hints.works.lock().begin(b"app", InstancesInFlight::None);
        assert!(hints.set_halted(b"app", Some(1)));
        hints.works.lock().forget(b"app");
        assert_eq!(hints.halted(), 0);
        assert!(!hints.set_halted(b"app", None), "nothing ends");
    }
}
