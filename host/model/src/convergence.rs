//! Convergence of the instances of one process guid: the actions that are due for each slot, given
//! the desired LRP, if any, and the present cells and domains. Pure; combines Diego's passes per
//! slot.
//!
//! Differences from Diego. Where its passes contradict each other and apply both in any order, one
//! wins here: removal of what is not desired, and a container whose cell is back over a new one.
//! Diego compares counts of instances, so it misses a surplus instance that makes up for a missing
//! one; here each index is examined. A suspect container beyond the desired number is removed, too,
//! which Diego keeps until its cell is back.

mod push;

use std::collections::{BTreeMap, BTreeSet};

use super::Text;
use super::actual_lrp::{ActualLrp, LrpKey, State};
use super::bounds::INSTANCES;
use super::cell::CellSet;
use super::restart::{Restart, restart};
use super::slot::{Slot, SlotError, Unclaim};
use super::tags::MetricTags;

pub use push::{Push, resolved_tags, tags_differ};

/// An instance that has waited for longer is auctioned again.
const STALE_NS: i64 = 30_000_000_000;

/// The input of a decision besides the records of one process guid.
#[derive(Debug, Clone, Copy)]
pub struct ConvergenceInput<'a> {
    /// The time of the decision, in nanoseconds since 1970. Not before the records were read.
    pub now_ns: i64,
    /// The present cells, which may have been listed long before.
    pub cells: &'a CellSet,
    /// Fresh domains: what they desire is complete.
    pub fresh: &'a BTreeSet<Text>,
    /// Domains that were upserted and are not deleted yet, fresh or not; also in other
    /// spellings, found in orphaned instances, that the database's collation compares as equal.
    pub known: &'a BTreeSet<Text>,
}

impl ConvergenceInput<'_> {
    /// The input of a decision at another time, in nanoseconds since 1970.
    #[must_use]
    pub fn at(&self, now_ns: i64) -> Self {
        Self { now_ns, ..*self }
    }

    /// Whether it is known that the cell of a row is not present.
    pub fn is_on_gone_cell(&self, row: &ActualLrp) -> bool {
        self.cells.is_gone(&row.cell_id, row.since_ns, self.now_ns)
    }
}

/// The number of instances of a desired LRP, and their definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceTarget {
    pub process_guid: Text,
    pub domain: Text,
    pub instances: i32,
    /// Names the current definition.
    pub definition_id: Text,
}

/// The desired LRP, as far as convergence needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredInstances {
    pub target: InstanceTarget,
    /// Host names of the internal routes. `None` if unknown, which disables the comparison.
    pub hostnames: Option<Vec<Text>>,
    /// `None` if unknown, which disables the comparison.
    pub metric_tags: Option<MetricTags>,
}

/// All records of one process guid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessRecords {
    pub wanted: Option<DesiredInstances>,
    pub slots: BTreeMap<i32, Box<Slot>>,
}

/// An action that is due for a slot. Ordered as they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotAction {
    /// The cell of the evacuated container is gone.
    RemoveEvacuating,
    /// The suspect container is not needed any more.
    RemoveSuspect,
    /// The cell of the suspect container is present again.
    Promote,
    /// The cell of the managed container is gone: it becomes suspect, and its replacement waits.
    Suspect,
    /// The cell of the managed container is gone, and there is a suspect one already: the instance
    /// waits.
    Unclaim,
    /// A waiting instance is stale, or a crashed one may restart.
    Start,
    /// The instance is desired and missing.
    Create,
    /// The instance exists and is not desired.
    Retire,
}

impl SlotAction {
    /// Whether a cell is requested at once.
    pub const fn is_auctioned(self) -> bool {
        match self {
            Self::Suspect | Self::Start | Self::Create => true,
            Self::RemoveEvacuating
            | Self::RemoveSuspect
            | Self::Promote
            | Self::Unclaim
            | Self::Retire => false,
        }
    }

    /// Applies the action to the rows. `Retire` changes nothing here: the caller requests the stop
    /// from the cell.
    ///
    /// # Errors
    /// The slot has changed, so that the action does not apply any more.
    pub fn apply(self, slot: &mut Slot, key: &LrpKey, now_ns: i64) -> Result<(), SlotError> {
        match self {
            Self::RemoveEvacuating => slot.evacuating = None,
            Self::RemoveSuspect => slot.suspect = None,
            Self::Promote => slot.promote()?,
            Self::Suspect => {
                slot.suspect()?;
                slot.create_unclaimed(key, now_ns)?;
            }
            Self::Unclaim => slot.unclaim(Unclaim::Any, now_ns)?,
            // A waiting instance is only auctioned again.
            Self::Start => match slot.unclaim(Unclaim::Stale, now_ns) {
                Ok(()) | Err(SlotError::CannotBeUnclaimed) => {}
                Err(refusal) => return Err(refusal),
            },
            Self::Create => slot.create_unclaimed(key, now_ns)?,
            Self::Retire => {}
        }
        Ok(())
    }
}

impl ProcessRecords {
    /// The due actions of each index that is desired or exists.
    pub fn decide(&self, input: &ConvergenceInput<'_>) -> Vec<(i32, Vec<SlotAction>)> {
        let target = self.wanted.as_ref().map(|wanted| &wanted.target);
        // A database may hold more than the API accepts.
        let desired = 0..target.map_or(0, |target| target.instances.min(INSTANCES));
        let missing = desired.filter(|index| !self.slots.contains_key(index));
        let missing = missing.map(|index| (index, vec![SlotAction::Create]));
        let found = self
            .slots
            .iter()
            .map(|(index, slot)| (*index, decide(*index, slot, target, input)));
        found
            .filter(|(_, actions)| !actions.is_empty())
            .chain(missing)
            .collect()
    }

    /// Whether a container runs, or may run, another definition than the current one.
    pub fn has_old_containers(&self) -> bool {
        let Some(wanted) = &self.wanted else {
            return false;
        };
        let rows = self.slots.values().flat_map(|slot| slot.rows());
        rows.into_iter()
            .any(|row| !row.waits() && row.is_old(&wanted.target.definition_id))
    }

    /// The updates that running containers have missed, also those that an update of the desired
    /// LRP replaces: they run until their successors do.
    pub fn pushes(&self, input: &ConvergenceInput<'_>) -> Vec<Push> {
        let Some(wanted) = &self.wanted else {
            return Vec::new();
        };
        let managed = self
            .slots
            .values()
            .flat_map(|slot| slot.ordinary.iter().chain(slot.replaced()));
        let running = managed
            .filter(|row| row.state() == Some(State::Running) && input.cells.has(&row.cell_id));
        running.flat_map(|row| Push::of(wanted, row)).collect()
    }
}

/// The due actions of one slot.
pub fn decide(
    index: i32,
    slot: &Slot,
    target: Option<&InstanceTarget>,
    input: &ConvergenceInput<'_>,
) -> Vec<SlotAction> {
    let mut actions = Vec::new();
    if slot
        .evacuating
        .as_ref()
        .is_some_and(|row| input.is_on_gone_cell(row))
    {
        actions.push(SlotAction::RemoveEvacuating);
    }
    let status = IndexStatus::of(index, target);
    let suspect = of_suspect(slot, status, input);
    actions.extend(suspect);
    if suspect != Some(SlotAction::Promote) {
        actions.extend(of_ordinary(slot, status, input));
    }
    actions
}

/// Whether an instance is desired at an index.
#[derive(Debug, Clone, Copy, PartialEq)]
enum IndexStatus<'a> {
    Desired,
    /// The desired LRP has fewer instances.
    Surplus(&'a InstanceTarget),
    /// The process guid has no desired LRP.
    Orphan,
}

impl<'a> IndexStatus<'a> {
    fn of(index: i32, target: Option<&'a InstanceTarget>) -> Self {
        match target {
            None => Self::Orphan,
            Some(target) if index < target.instances => Self::Desired,
            Some(target) => Self::Surplus(target),
        }
    }
}

/// Whether an instance that is not desired may be removed, which depends on its domain.
fn may_remove(row: &ActualLrp, status: IndexStatus<'_>, input: &ConvergenceInput<'_>) -> bool {
    match status {
        IndexStatus::Desired => false,
        IndexStatus::Surplus(target) => input.fresh.contains(&target.domain),
        IndexStatus::Orphan => input.known.contains(&row.domain),
    }
}

fn of_suspect(
    slot: &Slot,
    status: IndexStatus<'_>,
    input: &ConvergenceInput<'_>,
) -> Option<SlotAction> {
    let row = slot.suspect.as_ref()?;
    let is_replaced = row.state() == Some(State::Running)
        && slot.ordinary.as_ref().is_some_and(ActualLrp::takes_over);
    let is_present = input.cells.has(&row.cell_id);
    let is_unwanted = match status {
        IndexStatus::Desired => false,
        // Once promoted, it is retired by its cell.
        IndexStatus::Surplus(_) => !is_present && may_remove(row, status, input),
        IndexStatus::Orphan => may_remove(row, status, input),
    };
    if is_replaced || is_unwanted {
        return Some(SlotAction::RemoveSuspect);
    }
    is_present.then_some(SlotAction::Promote)
}

fn of_ordinary(
    slot: &Slot,
    status: IndexStatus<'_>,
    input: &ConvergenceInput<'_>,
) -> Option<SlotAction> {
    let Some(row) = &slot.ordinary else {
        return (status == IndexStatus::Desired).then_some(SlotAction::Create);
    };
    if may_remove(row, status, input) {
        return Some(SlotAction::Retire);
    }
    if status == IndexStatus::Orphan {
        return None;
    }
    match row.state()? {
        State::Unclaimed => {
            (row.since_ns < input.now_ns.saturating_sub(STALE_NS)).then_some(SlotAction::Start)
        }
        State::Crashed => (restart(row.crash_count, row.since_ns, input.now_ns) == Restart::Now)
            .then_some(SlotAction::Start),
        State::Claimed | State::Running => is_lost(row, input).then(|| {
            let keeps_another = slot.suspect.is_some();
            if keeps_another {
                SlotAction::Unclaim
            } else {
                SlotAction::Suspect
            }
        }),
    }
}

/// Whether the cell of a container is gone. A container without a cell is lost only if no cell is
/// present at all.
fn is_lost(row: &ActualLrp, input: &ConvergenceInput<'_>) -> bool {
    input.is_on_gone_cell(row) && (!row.cell_id.is_empty() || input.cells.is_empty())
}

#[cfg(test)]
mod tests;
