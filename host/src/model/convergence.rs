//! What convergence makes of the instances of one process guid, whether or not that is desired: slot by slot, from
//! what is desired and what there is in the world. Pure; the table of Diego's passes, seen from a slot.
//!
//! Where Diego's passes contradict each other, and do both things in whichever order, one of them is done here: what
//! is not wanted goes, and a container whose cell is there again is better than a new one. Diego counts instances
//! before it looks which there are, so it does not notice a surplus one that makes up for a missing one; here each
//! index is looked at. And a suspect container beyond what is desired goes as well, which Diego keeps until its cell
//! is there again.

mod push;

use std::collections::{BTreeMap, BTreeSet};

use super::Text;
use super::actual_lrp::{ActualLrp, LrpKey, State};
use super::cell::CellSet;
use super::restart::{Restart, restart};
use super::slot::{Refusal, Slot, Unclaim};
use super::tags::MetricTags;

pub use push::{Push, hostnames_differ, resolved_tags, tags_differ};

/// An instance that waits for longer is offered to the auctioneer again.
const STALE_NS: i64 = 30_000_000_000;
/// Instances of one process guid that one run creates. The next run goes on.
const MOST_CREATED: usize = 10_000;

/// What there is beside the records of one process guid.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    pub now_ns: i64,
    pub cells: &'a CellSet,
    /// What these domains desire is complete.
    pub fresh: &'a BTreeSet<Text>,
    /// Somebody spoke for these domains, and was not forgotten yet.
    pub known: &'a BTreeSet<Text>,
}

/// What is desired, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    pub process_guid: Text,
    pub domain: Text,
    pub instances: i32,
    /// Of the internal routes. `None` where they are not known, so that nothing is compared to them.
    pub hostnames: Option<Vec<Text>>,
    /// `None` where they are not known.
    pub metric_tags: Option<MetricTags>,
}

/// Everything of one process guid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    pub wanted: Option<Wanted>,
    pub slots: BTreeMap<i32, Box<Slot>>,
}

/// What is due for a slot. Those that change its rows come in the order in which they are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The cell of the evacuated container is gone.
    RemoveEvacuating,
    /// Nobody needs the suspect container any more.
    RemoveSuspect,
    /// The cell of the suspect container is there again.
    Promote,
    /// The cell of the managed container is gone: what takes its place is waiting.
    Suspect,
    /// The same, where another suspect container is kept already.
    Unclaim,
    /// It waits for too long, or may start again.
    Start,
    /// It is desired and not there.
    Create,
    /// It is there and not desired.
    Retire,
}

impl Action {
    /// Whether a cell is asked for at once.
    pub const fn is_auctioned(self) -> bool {
        match self {
            Self::Suspect | Self::Start | Self::Create => true,
            Self::RemoveEvacuating | Self::RemoveSuspect | Self::Promote | Self::Unclaim | Self::Retire => false,
        }
    }

    /// Does to the rows what is due. Retiring is more than that, and left to whoever can ask a cell.
    pub fn apply(self, slot: &mut Slot, key: &LrpKey, now_ns: i64) -> Result<(), Refusal> {
        match self {
            Self::RemoveEvacuating => slot.evacuating = None,
            Self::RemoveSuspect => slot.suspect = None,
            Self::Promote => slot.promote()?,
            Self::Suspect => {
                slot.suspect()?;
                slot.create_unclaimed(key, now_ns)?;
            }
            Self::Unclaim => slot.unclaim(Unclaim::Any, now_ns)?,
            // One that waits already is only offered again.
            Self::Start => match slot.unclaim(Unclaim::Stale, now_ns) {
                Ok(()) | Err(Refusal::CannotBeUnclaimed) => {}
                Err(refusal) => return Err(refusal),
            },
            Self::Create => slot.create_unclaimed(key, now_ns)?,
            Self::Retire => {}
        }
        Ok(())
    }
}

impl Unit {
    /// What is due, for each index that is desired or there.
    pub fn decide(&self, world: &World<'_>) -> Vec<(i32, Vec<Action>)> {
        let wanted = self.wanted.as_ref();
        let desired = 0..wanted.map_or(0, |wanted| wanted.instances);
        let missing = desired.clone().filter(|index| !self.slots.contains_key(index));
        let missing = missing.take(MOST_CREATED).map(|index| (index, vec![Action::Create]));
        let found = self.slots.iter().map(|(index, slot)| (*index, decide(*index, slot, wanted, world)));
        found.filter(|(_, actions)| !actions.is_empty()).chain(missing).collect()
    }

    /// What running containers have to be told, by index.
    pub fn pushes(&self, world: &World<'_>) -> Vec<Push> {
        let Some(wanted) = &self.wanted else { return Vec::new() };
        let running = self.slots.values().filter_map(|slot| slot.ordinary.as_ref());
        let running = running.filter(|row| row.state() == Some(State::Running) && world.cells.has(&row.cell_id));
        running.flat_map(|row| Push::of(wanted, row)).collect()
    }
}

/// What is due for one slot.
pub fn decide(index: i32, slot: &Slot, wanted: Option<&Wanted>, world: &World<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    if slot.evacuating.as_ref().is_some_and(|row| world.cells.is_gone(&row.cell_id)) {
        actions.push(Action::RemoveEvacuating);
    }
    let place = Place::of(index, wanted);
    let suspect = of_suspect(slot, place, wanted, world);
    actions.extend(suspect);
    if suspect != Some(Action::Promote) {
        actions.extend(of_ordinary(slot, place, wanted, world));
    }
    actions
}

/// Whether there should be an instance at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Desired,
    Surplus,
    /// Nothing of that process guid is desired.
    Orphan,
}

impl Place {
    fn of(index: i32, wanted: Option<&Wanted>) -> Self {
        match wanted {
            None => Self::Orphan,
            Some(wanted) if index < wanted.instances => Self::Desired,
            Some(_) => Self::Surplus,
        }
    }
}

/// Whether what should not be there may go: its domain has to be sure.
fn may_go(row: &ActualLrp, place: Place, wanted: Option<&Wanted>, world: &World<'_>) -> bool {
    match (place, wanted) {
        (Place::Desired, _) => false,
        (Place::Surplus, Some(wanted)) => world.fresh.contains(&wanted.domain),
        (Place::Orphan, _) | (Place::Surplus, None) => world.known.contains(&row.domain),
    }
}

fn of_suspect(slot: &Slot, place: Place, wanted: Option<&Wanted>, world: &World<'_>) -> Option<Action> {
    let row = slot.suspect.as_ref()?;
    let runs = |row: &ActualLrp| row.state() == Some(State::Running);
    let is_replaced = runs(row) && slot.ordinary.as_ref().is_some_and(runs);
    let is_there = world.cells.has(&row.cell_id);
    let is_in_vain = match place {
        Place::Desired => false,
        // As the managed one it can be asked to end.
        Place::Surplus => !is_there && may_go(row, place, wanted, world),
        Place::Orphan => may_go(row, place, wanted, world),
    };
    if is_replaced || is_in_vain {
        return Some(Action::RemoveSuspect);
    }
    is_there.then_some(Action::Promote)
}

fn of_ordinary(slot: &Slot, place: Place, wanted: Option<&Wanted>, world: &World<'_>) -> Option<Action> {
    let Some(row) = &slot.ordinary else { return (place == Place::Desired).then_some(Action::Create) };
    if may_go(row, place, wanted, world) {
        return Some(Action::Retire);
    }
    if place == Place::Orphan {
        return None;
    }
    match row.state()? {
        State::Unclaimed => (row.since_ns < world.now_ns.saturating_sub(STALE_NS)).then_some(Action::Start),
        State::Crashed => {
            (restart(row.crash_count, row.since_ns, world.now_ns) == Restart::Now).then_some(Action::Start)
        }
        State::Claimed | State::Running => is_lost(row, world.cells).then(|| {
            let keeps_another = slot.suspect.is_some();
            if keeps_another { Action::Unclaim } else { Action::Suspect }
        }),
    }
}

/// Whether the cell of a container is gone. One without a cell is lost only where there are no cells at all.
fn is_lost(row: &ActualLrp, cells: &CellSet) -> bool {
    cells.is_gone(&row.cell_id) && (!row.cell_id.is_empty() || cells.is_empty())
}

#[cfg(test)]
mod tests;
