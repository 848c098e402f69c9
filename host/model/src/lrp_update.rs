//! The update of a desired LRP to another definition: which of its instances are replaced next, how
//! far it is, and when it is done. Pure: everything follows from the rows, so nothing is lost with
//! the host.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use bbs_proto::models::desired_lrp::UpdateStrategy;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::Text;
use super::actual_lrp::{ActualLrp, State};
use super::bounds::INSTANCES;
use super::slot::{Replacement, ReplacementPhase, Slot};

/// An update under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateRecord {
    /// The process guid of the desired LRP.
    pub process_guid: Text,
    /// In nanoseconds since 1970.
    pub started_at_ns: i64,
    /// Whether it was cancelled, so that all instances return to the definition from before.
    pub is_cancelled: bool,
}

/// The part of a desired LRP that its update depends on, as stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateTarget {
    pub domain: Text,
    pub instances: i32,
    pub definition_id: Text,
    pub previous_definition_id: Text,
    pub update_strategy: i32,
}

impl UpdateTarget {
    /// How an instance is replaced; by [`Replacement::Rolling`] if the strategy is unknown.
    pub fn replacement(&self) -> Replacement {
        if self.update_strategy == UpdateStrategy::Recreate as i32 {
            Replacement::Recreate
        } else {
            Replacement::Rolling
        }
    }

    /// The target at a time in nanoseconds since 1970, with its update, if one is under way.
    pub fn at(&self, now_ns: i64, pace: &Pace, update: Option<&UpdateRecord>) -> UpdatedLrp<'_> {
        let cancelled_at_ns = update
            .filter(|update| update.is_cancelled)
            .map(|update| update.started_at_ns);
        let definition_id = &self.definition_id;
        let instances = self.instances;
        UpdatedLrp {
            definition_id,
            instances,
            strategy: self.replacement(),
            cancelled_at_ns,
            now_ns,
            pace: *pace,
            places: usize::MAX,
            unreadable: &NO_INDICES,
        }
    }
}

/// An [`UpdateTarget`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdatedLrp<'a> {
    /// The id of the current definition.
    pub definition_id: &'a [u8],
    /// The desired number of instances.
    pub instances: i32,
    /// How an instance is replaced.
    pub strategy: Replacement,
    /// Since when the instances return to the definition from before, in nanoseconds since 1970;
    /// `None` if they do not.
    pub cancelled_at_ns: Option<i64>,
    /// In nanoseconds since 1970.
    pub now_ns: i64,
    /// The limits of updates.
    pub pace: Pace,
    /// Most replacements that may begin now, because of the updates of other LRPs.
    pub places: usize,
    /// Indices whose slots cannot be read, and which `slots` leaves out. They are left as they are,
    /// and do not count as in flight: most such containers run, and they would keep their places
    /// until their records are repaired.
    pub unreadable: &'a BTreeSet<i32>,
}

static NO_INDICES: BTreeSet<i32> = BTreeSet::new();

/// The limits of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Most instances of one LRP that are replaced at the same time.
    pub max_in_flight: MaxInFlight,
    /// Most instances of all LRPs that are replaced at the same time, without those of halted
    /// updates.
    pub max_in_flight_total: NonZeroU32,
    /// A new instance that runs fails if it is not routable after this time. After a cancellation,
    /// a container of the cancelled definition is stopped that has not been routable for this time.
    pub routable_timeout: Duration,
    /// A replaced container keeps its traffic for this time beside its successor.
    pub overlap: Duration,
}

impl Default for Pace {
    /// The timeout is the longest that Cloud Foundry gives an app to start. Without an overlap.
    fn default() -> Self {
        Self {
            max_in_flight: MaxInFlight::default(),
            max_in_flight_total: NonZeroU32::new(500).expect("not zero"),
            routable_timeout: Duration::from_secs(180),
            overlap: Duration::ZERO,
        }
    }
}

/// Most instances of one LRP that are replaced at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxInFlight {
    /// At least 1.
    Instances(u32),
    /// A share of the desired number, rounded up.
    Percent(u32),
}

impl Default for MaxInFlight {
    fn default() -> Self {
        Self::Percent(10)
    }
}

impl<'de> Deserialize<'de> for MaxInFlight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenLimit {
            Number(u32),
            Text(String),
        }
        let expected = || {
            D::Error::custom(
                "expected a number of instances above 0, or a percentage from \"1%\" to \"100%\"",
            )
        };
        match WrittenLimit::deserialize(deserializer).map_err(|_| expected())? {
            WrittenLimit::Number(instances) if instances > 0 => Ok(Self::Instances(instances)),
            WrittenLimit::Text(text) => {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|digits| digits.parse().ok());
                percent
                    .filter(|percent| (1..=100).contains(percent))
                    .map(Self::Percent)
                    .ok_or_else(expected)
            }
            WrittenLimit::Number(_) => Err(expected()),
        }
    }
}

impl MaxInFlight {
    fn of(self, instances: i32) -> usize {
        let instances = usize::try_from(instances).unwrap_or(0);
        let most = match self {
            Self::Instances(most) => most as usize,
            Self::Percent(percent) => instances.saturating_mul(percent as usize).div_ceil(100),
        };
        most.max(1)
    }
}

/// An action that is due for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpdateAction {
    /// A missing instance is created.
    Create,
    /// The cell of the replaced container is asked to stop it.
    StopReplaced,
    /// The old container becomes the managed one again.
    Revert,
    /// The old container is replaced by a new one.
    Replace,
    /// The cell of the old container is asked to stop it; a new one follows.
    StopFirst,
}

impl UpdateAction {
    /// The container of a slot whose cell is asked to stop it.
    pub fn stopped(self, slot: &Slot) -> Option<&ActualLrp> {
        match self {
            Self::StopReplaced => slot.evacuating.as_ref(),
            Self::StopFirst => slot.ordinary.as_ref(),
            Self::Create | Self::Revert | Self::Replace => None,
        }
    }
}

/// Places of an LRP among the instances of all LRPs that are being replaced. A halted update has
/// none: it would keep them until a client corrects it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaceDemand {
    /// For instances that are being replaced.
    pub taken: usize,
    /// For the instances that may be replaced next.
    pub next: usize,
}

/// How far an update is, in instances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpdateProgress {
    /// Run the current definition.
    pub current: usize,
    /// Run another one, replaced or not.
    pub old: usize,
    /// Instances of the current definition that do not run or are not routable yet.
    pub pending: usize,
    /// Instances of the current definition that crashed too often, find no cell, or are not
    /// routable for too long.
    pub failing: usize,
}

impl UpdateProgress {
    /// Whether no more instances are replaced until the failing ones run.
    pub fn is_halted(self) -> bool {
        self.failing > 0
    }
}

/// Why no more instances are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// The lowest index of a failing instance.
    pub index: i32,
    /// In nanoseconds since 1970.
    pub since_ns: i64,
    /// The reason of its last crash, why no cell takes it, or that it is not routable.
    pub reason: Text,
}

/// The reason of an instance that runs.
const NOT_ROUTABLE: &str = "the instance runs and is not routable";

/// The state of a desired LRP between its definitions.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateStatus {
    /// The definitions, and the desired number of instances.
    pub target: UpdateTarget,
    /// `None` if no update is under way.
    pub update: Option<UpdateRecord>,
    /// Instances by what they run.
    pub progress: UpdateProgress,
    /// Why no more instances are replaced.
    pub halt: Option<Halt>,
}

impl UpdateStatus {
    /// The status that follows from the rows, at a time in nanoseconds since 1970.
    pub fn of(
        target: UpdateTarget,
        update: Option<UpdateRecord>,
        slots: &BTreeMap<i32, Box<Slot>>,
        pace: &Pace,
        now_ns: i64,
    ) -> Self {
        let lrp = target.at(now_ns, pace, update.as_ref());
        let progress = lrp.progress(slots);
        let halt = lrp.halt(slots);
        Self {
            target,
            update,
            progress,
            halt,
        }
    }

    /// Why the update under way is halted.
    pub fn halt_of_update(&self) -> Option<&Halt> {
        self.halt.as_ref().filter(|_| self.update.is_some())
    }
}

impl UpdatedLrp<'_> {
    /// The due actions of each index, lowest first.
    pub fn due(&self, slots: &BTreeMap<i32, Box<Slot>>) -> Vec<(i32, UpdateAction)> {
        let mut free = self.free(slots).min(self.places);
        let is_halted = self.progress(slots).is_halted();
        let mut due = Vec::new();
        for (index, slot) in slots {
            if let Some(stop) = self.stop_in(*index, slot) {
                due.push((*index, stop));
                continue;
            }
            let is_desired = *index < self.instances;
            let action = match self.phase(slot) {
                ReplacementPhase::Reverting => UpdateAction::Revert,
                ReplacementPhase::Empty if is_desired => UpdateAction::Create,
                ReplacementPhase::Old if is_halted && !self.passes_halt(slot) => continue,
                ReplacementPhase::Old if is_desired && free > 0 => {
                    free -= 1;
                    match self.strategy {
                        Replacement::Rolling => UpdateAction::Replace,
                        Replacement::Recreate => UpdateAction::StopFirst,
                    }
                }
                ReplacementPhase::Empty
                | ReplacementPhase::Current
                | ReplacementPhase::Replaced
                | ReplacementPhase::Pending
                | ReplacementPhase::Failing
                | ReplacementPhase::Old => continue,
            };
            due.push((*index, action));
        }
        let missing = (0..self.instances.min(INSTANCES))
            .filter(|index| !slots.contains_key(index) && !self.unreadable.contains(index));
        due.extend(missing.map(|index| (index, UpdateAction::Create)));
        due
    }

    /// The stop that is due in a slot whatever the other slots are. [`Self::due`] has more of them
    /// where containers are recreated, as far as the instances in flight permit.
    pub fn stop_in(&self, index: i32, slot: &Slot) -> Option<UpdateAction> {
        let is_desired = index < self.instances;
        match self.phase(slot) {
            ReplacementPhase::Replaced => Some(UpdateAction::StopReplaced),
            // Nothing waits for the replacement of an instance that is not desired any more.
            _ if !is_desired && self.has_old_evacuating(slot) => Some(UpdateAction::StopReplaced),
            ReplacementPhase::Pending | ReplacementPhase::Failing
                if self.has_dispensable_evacuating(slot) =>
            {
                Some(UpdateAction::StopReplaced)
            }
            ReplacementPhase::Old if is_desired && slot.evacuating.is_some() => {
                Some(surplus_container(slot))
            }
            ReplacementPhase::Old if is_desired && self.is_dispensable(slot) => {
                Some(UpdateAction::StopFirst)
            }
            ReplacementPhase::Empty
            | ReplacementPhase::Current
            | ReplacementPhase::Pending
            | ReplacementPhase::Failing
            | ReplacementPhase::Reverting
            | ReplacementPhase::Old => None,
        }
    }

    /// The replaced container of a desired instance and its successor, if both receive traffic.
    pub fn overlapping<'s>(
        &self,
        index: i32,
        slot: &'s Slot,
    ) -> Option<(&'s ActualLrp, &'s ActualLrp)> {
        let old = slot.evacuating.as_ref()?;
        let new = slot.ordinary.as_ref()?;
        let is_replaced = index < self.instances && self.phase(slot) == ReplacementPhase::Replaced;
        (is_replaced && old.routable && new.routable).then_some((old, new))
    }

    /// Instances that may be replaced now because of this LRP alone.
    fn free(&self, slots: &BTreeMap<i32, Box<Slot>>) -> usize {
        self.pace
            .max_in_flight
            .of(self.instances)
            .saturating_sub(self.in_flight(slots))
    }

    /// The places that this LRP has and that it needs next, among those of all.
    pub fn demand(&self, slots: &BTreeMap<i32, Box<Slot>>) -> PlaceDemand {
        let is_halted = self.progress(slots).is_halted();
        let next = slots
            .range(..self.instances.max(0))
            .filter(|(_, slot)| {
                self.phase(slot) == ReplacementPhase::Old && (!is_halted || self.passes_halt(slot))
            })
            .count();
        let taken = if is_halted { 0 } else { self.in_flight(slots) };
        PlaceDemand {
            taken,
            next: self.free(slots).min(next),
        }
    }

    /// Why the update is halted; none if it is not.
    pub fn halt(&self, slots: &BTreeMap<i32, Box<Slot>>) -> Option<Halt> {
        let mut desired = slots.range(..self.instances.max(0));
        let (index, slot) =
            desired.find(|(_, slot)| self.phase(slot) == ReplacementPhase::Failing)?;
        let row = slot.ordinary.as_ref()?;
        let is_unplaced = row.state() == Some(State::Unclaimed) && !row.placement_error.is_empty();
        let reason = if self.is_late(slot) {
            NOT_ROUTABLE.into()
        } else if is_unplaced {
            row.placement_error.clone()
        } else {
            row.crash_reason.clone()
        };
        Some(Halt {
            index: *index,
            since_ns: row.since_ns,
            reason,
        })
    }

    /// How far the update is.
    pub fn progress(&self, slots: &BTreeMap<i32, Box<Slot>>) -> UpdateProgress {
        let mut progress = UpdateProgress::default();
        for index in 0..self.instances {
            let phase = slots
                .get(&index)
                .map_or(ReplacementPhase::Empty, |slot| self.phase(slot));
            match phase {
                ReplacementPhase::Current
                | ReplacementPhase::Replaced
                | ReplacementPhase::Reverting => progress.current += 1,
                ReplacementPhase::Pending | ReplacementPhase::Empty => progress.pending += 1,
                ReplacementPhase::Failing => progress.failing += 1,
                ReplacementPhase::Old => {}
            }
        }
        progress.old = slots
            .values()
            .filter(|slot| self.has_old_container(slot))
            .count();
        progress
    }

    /// Whether all desired instances run the current definition, and nothing runs another one. A
    /// cancelled update is done even if instances of the definition from before fail, as they may
    /// have done before; another update may correct that.
    pub fn is_done(&self, slots: &BTreeMap<i32, Box<Slot>>) -> bool {
        let progress = self.progress(slots);
        let instances = usize::try_from(self.instances).unwrap_or(0);
        let all_run = progress.current == instances && self.in_flight(slots) == 0;
        progress.old == 0 && (self.cancelled_at_ns.is_some() || all_run)
    }

    fn in_flight(&self, slots: &BTreeMap<i32, Box<Slot>>) -> usize {
        let is_in_flight = |slot: &Slot| match self.phase(slot) {
            ReplacementPhase::Empty
            | ReplacementPhase::Pending
            | ReplacementPhase::Failing
            | ReplacementPhase::Replaced
            | ReplacementPhase::Reverting => true,
            ReplacementPhase::Current | ReplacementPhase::Old => false,
        };
        let indices = ..self.instances.max(0);
        let desired = slots.range(indices);
        let existing = desired.clone().count() + self.unreadable.range(indices).count();
        // A missing instance is about to be created.
        let missing = usize::try_from(self.instances)
            .unwrap_or(0)
            .saturating_sub(existing);
        desired.filter(|(_, slot)| is_in_flight(slot)).count() + missing
    }

    fn phase(&self, slot: &Slot) -> ReplacementPhase {
        match slot.phase(self.definition_id, self.now_ns) {
            ReplacementPhase::Pending if self.is_late(slot) => ReplacementPhase::Failing,
            phase => phase,
        }
    }

    /// Whether the managed instance has run for too long without being routable.
    fn is_late(&self, slot: &Slot) -> bool {
        let runs_unroutable =
            |row: &&ActualLrp| row.state() == Some(State::Running) && !row.routable;
        slot.ordinary
            .as_ref()
            .filter(runs_unroutable)
            .is_some_and(|row| self.is_since_the_timeout(row))
    }

    /// Whether a row has been as it is for the time in which an instance has to become routable.
    fn is_since_the_timeout(&self, row: &ActualLrp) -> bool {
        let limit_ns = i64::try_from(self.pace.routable_timeout.as_nanos()).unwrap_or(i64::MAX);
        self.now_ns.saturating_sub(row.since_ns) >= limit_ns
    }

    /// Whether the managed container is one of a cancelled definition that receives no traffic, so
    /// that nothing is lost if it stops before its successor runs.
    fn is_dispensable(&self, slot: &Slot) -> bool {
        slot.ordinary
            .as_ref()
            .is_some_and(|row| self.has_lost_traffic(row))
    }

    /// Whether a container of a cancelled definition received no traffic when the update was
    /// cancelled, or has received none for long. One that is not ready for a moment may be the only
    /// one that receives traffic in the next.
    fn has_lost_traffic(&self, row: &ActualLrp) -> bool {
        let Some(cancelled_at_ns) = self.cancelled_at_ns else {
            return false;
        };
        let was_ready = row.since_ns > cancelled_at_ns;
        !row.routable && (!was_ready || self.is_since_the_timeout(row))
    }

    /// Whether the container is replaced also while the update is halted: its record may name
    /// another definition than it runs, and it goes on until its successor is up.
    fn passes_halt(&self, slot: &Slot) -> bool {
        self.strategy == Replacement::Rolling
            && slot
                .ordinary
                .as_ref()
                .is_some_and(|row| row.definition_uncertain)
    }

    /// As [`Self::is_dispensable`], for a container that is being replaced.
    fn has_dispensable_evacuating(&self, slot: &Slot) -> bool {
        self.has_old_evacuating(slot)
            && slot
                .evacuating
                .as_ref()
                .is_some_and(|row| self.has_lost_traffic(row))
    }

    fn has_old_evacuating(&self, slot: &Slot) -> bool {
        slot.evacuating
            .as_ref()
            .is_some_and(|row| row.is_old(self.definition_id))
    }

    /// A suspect container counts: its cell may come back.
    fn has_old_container(&self, slot: &Slot) -> bool {
        slot.rows()
            .any(|row: &ActualLrp| !row.waits() && row.is_old(self.definition_id))
    }
}

/// Stops one of two containers of which the managed one is old, because there is no room for a
/// third one: that which receives no traffic, or the evacuating one, whose cell may have been asked
/// to stop it already.
fn surplus_container(slot: &Slot) -> UpdateAction {
    let is_routable = |row: &Option<ActualLrp>| row.as_ref().is_some_and(|row| row.routable);
    if is_routable(&slot.evacuating) && !is_routable(&slot.ordinary) {
        UpdateAction::StopFirst
    } else {
        UpdateAction::StopReplaced
    }
}

#[cfg(test)]
mod tests;
