//! Maps a change to its events, in the order in which they are sent. Pure.

use bbs_model::actual_lrp::{ActualLrp, InstanceKey, Presence, State};
use bbs_model::change::{Cause, RecordChange};
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::lrp_update::UpdateStatus;
use bbs_model::slot::Slot;
use bbs_model::task::Task;
use bbs_model::{Text, TraceId};

/// An event of Diego's event streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    DesiredLrpCreated {
        lrp: &'a DesiredLrp,
        trace_id: &'a TraceId,
    },
    DesiredLrpChanged {
        before: &'a DesiredLrp,
        after: &'a DesiredLrp,
        trace_id: &'a TraceId,
    },
    UpdateHalt {
        lrp: &'a DesiredLrp,
        status: &'a UpdateStatus,
    },
    DesiredLrpRemoved {
        lrp: &'a DesiredLrp,
        trace_id: &'a TraceId,
    },
    InstanceCreated {
        lrp: &'a ActualLrp,
        trace_id: &'a TraceId,
    },
    InstanceChanged {
        before: &'a ActualLrp,
        after: &'a ActualLrp,
        trace_id: &'a TraceId,
    },
    InstanceRemoved {
        lrp: &'a ActualLrp,
        trace_id: &'a TraceId,
    },
    InstanceCrashed {
        before: &'a ActualLrp,
        after: &'a ActualLrp,
    },
    TaskCreated(&'a Task),
    TaskChanged {
        before: &'a Task,
        after: &'a Task,
    },
    TaskRemoved(&'a Task),
}

impl Event<'_> {
    /// The instance key of a change: the new one, unless the instance has none any more.
    pub fn changed_key(before: &ActualLrp, after: &ActualLrp) -> InstanceKey {
        let key = after.instance_key();
        if key == InstanceKey::default() {
            before.instance_key()
        } else {
            key
        }
    }

    /// The ids of the cells that it concerns; that of an instance without a cell is empty. `None`
    /// if it concerns every subscriber.
    pub fn cells(&self) -> Option<Vec<Text>> {
        match self {
            Self::DesiredLrpCreated { .. }
            | Self::DesiredLrpChanged { .. }
            | Self::UpdateHalt { .. }
            | Self::DesiredLrpRemoved { .. }
            | Self::TaskCreated(_)
            | Self::TaskChanged { .. }
            | Self::TaskRemoved(_) => None,
            Self::InstanceCreated { lrp, .. }
            | Self::InstanceRemoved { lrp, .. }
            | Self::InstanceCrashed { before: lrp, .. } => Some(vec![lrp.cell_id.clone()]),
            Self::InstanceChanged { before, after, .. } => {
                Some(vec![Self::changed_key(before, after).cell_id])
            }
        }
    }

    /// Sort key. Crashes come first, and running instances before others: a router learns a new
    /// destination before it loses an old one.
    fn rank(&self) -> u8 {
        match self {
            Self::InstanceCrashed { .. } => 0,
            Self::InstanceCreated { lrp, .. } | Self::InstanceChanged { after: lrp, .. }
                if lrp.state() == Some(State::Running) =>
            {
                1
            }
            _ => 2,
        }
    }
}

pub(super) fn events(change: &RecordChange) -> Vec<Event<'_>> {
    match change {
        RecordChange::DesiredLrp {
            before,
            after,
            trace_id,
        } => match (before.as_deref(), after.as_deref()) {
            (None, None) => Vec::new(),
            (None, Some(lrp)) => vec![Event::DesiredLrpCreated { lrp, trace_id }],
            (Some(before), Some(after)) => vec![Event::DesiredLrpChanged {
                before,
                after,
                trace_id,
            }],
            (Some(lrp), None) => vec![Event::DesiredLrpRemoved { lrp, trace_id }],
        },
        RecordChange::UpdateHalt { lrp, status } => vec![Event::UpdateHalt { lrp, status }],
        RecordChange::Slot {
            before,
            after,
            cause,
            trace_id,
        } => {
            let rows = pairs(before, after, *cause);
            let mut events: Vec<_> = rows
                .iter()
                .flat_map(|row| of_row(*row, *cause, trace_id))
                .collect();
            events.sort_by_key(Event::rank);
            if *cause == Cause::Reversion {
                let repeated = repeated_row(&events, after, trace_id);
                events.extend(repeated);
            }
            events
        }
        RecordChange::Task { before, after } => match (before.as_deref(), after.as_deref()) {
            (None, None) => Vec::new(),
            (None, Some(task)) => vec![Event::TaskCreated(task)],
            (Some(before), Some(after)) => vec![Event::TaskChanged { before, after }],
            (Some(task), None) => vec![Event::TaskRemoved(task)],
        },
    }
}

/// The last event of a container that is the managed one again: a change without a difference. A
/// route emitter that synchronises keeps the last event alone of each container. If that were the
/// removal of the evacuating row, it would take the route away. At other times it ignores the
/// change.
fn repeated_row<'a>(
    events: &[Event<'_>],
    after: &'a Slot,
    trace_id: &'a TraceId,
) -> Option<Event<'a>> {
    let row = after.ordinary.as_ref()?;
    let key = row.instance_key();
    let is_removed = events.iter().any(
        |event| matches!(event, Event::InstanceRemoved { lrp, .. } if lrp.instance_key() == key),
    );
    is_removed.then_some(Event::InstanceChanged {
        before: row,
        after: row,
        trace_id,
    })
}

/// A row before and after a change; `None` if it was created or removed.
type Pair<'a> = (Option<&'a ActualLrp>, Option<&'a ActualLrp>);

/// Pairs the rows of two slots by presence, except that a container whose row moved to another
/// presence is paired with it.
fn pairs<'a>(before: &'a Slot, after: &'a Slot, cause: Cause) -> Vec<Pair<'a>> {
    let mut moves: Vec<(Presence, Presence)> = Vec::new();
    for from in Presence::ALL {
        let to = moved_to(before, after, from, cause);
        if let Some(to) = to.filter(|to| moves.iter().all(|(_, taken)| taken != to)) {
            moves.push((from, to));
        }
    }
    let origins = Presence::ALL.into_iter().filter_map(|from| {
        let row = before.at(from)?;
        let followed = moves
            .iter()
            .find(|(moved, _)| *moved == from)
            .map(|(_, to)| *to);
        let replaced = moves.iter().any(|(_, to)| *to == from);
        Some((
            Some(row),
            followed
                .or((!replaced).then_some(from))
                .and_then(|to| after.at(to)),
        ))
    });
    let new = Presence::ALL.into_iter().filter_map(|at| {
        let row = after.at(at)?;
        let came_from_elsewhere = moves.iter().any(|(_, to)| *to == at);
        let stayed = before.at(at).is_some() && !moves.iter().any(|(from, _)| *from == at);
        (!came_from_elsewhere && !stayed).then_some((None, Some(row)))
    });
    origins.chain(new).collect()
}

/// The presence to which the container of a row moved. An evacuating container moves nowhere: it
/// ends when another runs in its place. One that becomes the managed one again without receiving
/// traffic moves, since a route emitter sends traffic to each running container whose row is
/// created, routable or not. With traffic, it does not: a route emitter that learns of a move keeps
/// the endpoint of the evacuating row.
fn moved_to(before: &Slot, after: &Slot, from: Presence, cause: Cause) -> Option<Presence> {
    let row = before.at(from)?;
    let to: &[Presence] = match from {
        Presence::Ordinary => &[Presence::Evacuating, Presence::Suspect],
        Presence::Suspect => &[Presence::Ordinary, Presence::Evacuating],
        Presence::Evacuating if cause == Cause::Reversion && !row.routable => &[Presence::Ordinary],
        Presence::Evacuating => &[],
    };
    let key = row.instance_key();
    let has_key = |slot: &Slot, at| slot.at(at).is_some_and(|row| row.instance_key() == key);
    if key == InstanceKey::default() || has_key(after, from) {
        return None;
    }
    to.iter()
        .copied()
        .find(|to| has_key(after, *to) && !has_key(before, *to))
}

/// Whether a row has got the name of the definition that it is taken to run, which is no change to
/// clients of Diego. Those of 1.2 read the name with the next change.
fn is_only_named(before: &ActualLrp, after: &ActualLrp) -> bool {
    before.definition_id.is_empty()
        && !after.definition_id.is_empty()
        && before.tag == after.tag
        && before.state == after.state
        && before.presence == after.presence
}

/// The events of one row; at most three.
fn of_row<'a>((before, after): Pair<'a>, cause: Cause, trace_id: &'a TraceId) -> Vec<Event<'a>> {
    let (before, after) = match (before, after) {
        (None, None) => return Vec::new(),
        (None, Some(lrp)) => return vec![Event::InstanceCreated { lrp, trace_id }],
        (Some(lrp), None) => return vec![Event::InstanceRemoved { lrp, trace_id }],
        (Some(before), Some(after)) => (before, after),
    };
    if before == after || is_only_named(before, after) {
        return Vec::new();
    }
    let crashed = Event::InstanceCrashed { before, after };
    let changed = Event::InstanceChanged {
        before,
        after,
        trace_id,
    };
    // To subscribers, a row that waits again is a different instance.
    let recreated = [
        Event::InstanceCreated {
            lrp: after,
            trace_id,
        },
        Event::InstanceRemoved {
            lrp: before,
            trace_id,
        },
    ];
    match (cause, before.state(), after.state()) {
        (_, _, Some(State::Crashed)) => vec![crashed, changed],
        (_, Some(State::Unclaimed), Some(State::Unclaimed))
        | (_, _, Some(State::Claimed | State::Running) | None) => vec![changed],
        (Cause::Crash, _, Some(State::Unclaimed)) => [&[crashed][..], &recreated].concat(),
        (Cause::Other | Cause::Reversion, _, Some(State::Unclaimed)) => recreated.to_vec(),
    }
}

#[cfg(test)]
mod tests;
