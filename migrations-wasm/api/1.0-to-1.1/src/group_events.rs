//! Events of actual LRPs in groups: the group before and after an operation, compared slot by slot.
//!
//! After a crash, an event of a change has the complete groups, otherwise only the slot that
//! changed. An operation with the event of a crash is one: Diego's BBS sends only the slot when a
//! cell that is being evacuated reports it.
//!
//! A container that an update has put back has the events of two slots, also if it receives no
//! traffic: route emitters that subscribe to groups know nothing of `routable`, and keep the
//! endpoint of an evacuating row until its removal.

use bbs_proto::fields::actual_lrp_changed_event::{AFTER, BEFORE};
use bbs_proto::fields::actual_lrp_created_event::ACTUAL_LRP_GROUP as GROUP;
use bbs_proto::fields::actual_lrp_group::{EVACUATING, INSTANCE};
use bbs_proto::fields::actual_lrp_instance_changed_event as instance_change;
use bbs_proto::models::{ActualLrp, ActualLrpCrashedEvent};
use bbs_sdk::wire::{self, Value};
use bbs_sdk::{Event, Fault, Operation};
use prost::Message;

use crate::groups::{Group, Row};

const CRASHED: &str = "actual_lrp_crashed";
const INSTANCE_CHANGED: &str = "actual_lrp_instance_changed";
/// What the names of an instance's events begin with; those of a crash are the same for groups.
const OF_INSTANCES: &str = "actual_lrp_instance_";

/// The events of the group stream: those of groups instead of those of instances, and all others.
pub(crate) fn of(operation: Operation) -> Result<Vec<Event>, Fault> {
    let Operation { changes, events } = operation;
    let is_crash = events.iter().any(|event| event.name == CRASHED);
    let rows = || {
        changes
            .iter()
            .filter(|change| change.message == "ActualLRP")
    };
    let before = group(rows().filter_map(|change| change.before.as_deref()))?;
    let after = group(rows().filter_map(|change| change.after.as_deref()))?;
    let mut group_events = Vec::new();
    for slot in [INSTANCE, EVACUATING] {
        let (old, new) = (before.slot(slot), after.slot(slot));
        if old.map(|row| row.encoded) == new.map(|row| row.encoded) {
            continue;
        }
        if is_crash && old.is_some() && new.is_some() {
            group_events.extend([crashed(old, new)?, changed(&before, &after)?]);
        } else {
            group_events.extend(of_slot(old, new, &before.only(slot), &after.only(slot))?);
        }
    }
    group_events.sort_by_key(|(rank, _)| *rank);
    if ends_with_repeated_row(&events)? {
        let instance = after.only(INSTANCE);
        group_events.push(changed(&instance, &instance)?);
    }
    let others = events
        .into_iter()
        .filter(|event| event.name != CRASHED && !event.name.starts_with(OF_INSTANCES));
    Ok(others
        .chain(group_events.into_iter().map(|(_, event)| event))
        .collect())
}

/// Whether the newer events end with a change without a difference. The host sends it after the
/// removal of the evacuating row of a container that an update has put back: a route emitter that
/// synchronises keeps the last event alone of each container.
fn ends_with_repeated_row(events: &[Event]) -> Result<bool, Fault> {
    let Some(last) = events.last().filter(|last| last.name == INSTANCE_CHANGED) else {
        return Ok(false);
    };
    let before = wire::get_bytes(&last.payload, instance_change::BEFORE)?;
    let after = wire::get_bytes(&last.payload, instance_change::AFTER)?;
    Ok(before == after)
}

/// The place of an event among those of an operation. Running instances come before others: a
/// router learns a new destination before it loses an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Crashed,
    Running,
    Other,
}

type Ranked = (Rank, Event);

fn group<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Result<Group<'a>, Fault> {
    let mut group = Group::default();
    for row in rows {
        group.add(Row::read(row)?);
    }
    Ok(group)
}

/// The events of a slot that changed, from a group that has only the old row to one that has only
/// the new one.
fn of_slot(
    old: Option<&Row<'_>>,
    new: Option<&Row<'_>>,
    before: &Group<'_>,
    after: &Group<'_>,
) -> Result<Vec<Ranked>, Fault> {
    let (Some(old_row), Some(new_row)) = (old, new) else {
        return Ok(if new.is_some() {
            vec![created(after)?]
        } else {
            vec![removed(before)?]
        });
    };
    if new_row.is("CRASHED") {
        return Ok(vec![crashed(old, new)?, changed(before, after)?]);
    }
    if new_row.is("CLAIMED") || new_row.is("RUNNING") {
        let (old_key, new_key) = (
            decoded(old_row)?.actual_lrp_instance_key,
            decoded(new_row)?.actual_lrp_instance_key,
        );
        let had_container = old_key
            .as_ref()
            .is_some_and(|key| *key != Default::default());
        // An instance took the place of a suspect one.
        let is_another = had_container && old_key != new_key;
        return Ok(if is_another {
            vec![created(after)?, removed(before)?]
        } else {
            vec![changed(before, after)?]
        });
    }
    Ok(if new_row.is("UNCLAIMED") {
        vec![changed(before, after)?]
    } else {
        Vec::new()
    })
}

fn created(group: &Group<'_>) -> Result<Ranked, Fault> {
    Ok((rank(group), event("actual_lrp_created", &[(GROUP, group)])?))
}

fn removed(group: &Group<'_>) -> Result<Ranked, Fault> {
    Ok((Rank::Other, event("actual_lrp_removed", &[(GROUP, group)])?))
}

fn changed(before: &Group<'_>, after: &Group<'_>) -> Result<Ranked, Fault> {
    Ok((
        rank(after),
        event("actual_lrp_changed", &[(BEFORE, before), (AFTER, after)])?,
    ))
}

fn crashed(old: Option<&Row<'_>>, new: Option<&Row<'_>>) -> Result<Ranked, Fault> {
    let decode = |row: Option<&Row<'_>>| row.map_or_else(|| Ok(ActualLrp::default()), decoded);
    let (old, new) = (decode(old)?, decode(new)?);
    let instance_key = old.actual_lrp_instance_key.unwrap_or_default();
    let cells = Some(vec![instance_key.cell_id.clone()]);
    let message = ActualLrpCrashedEvent {
        actual_lrp_key: Some(new.actual_lrp_key.unwrap_or_default()),
        actual_lrp_instance_key: Some(instance_key),
        crash_count: new.crash_count,
        crash_reason: new.crash_reason,
        since: new.since,
        ..ActualLrpCrashedEvent::default()
    };
    Ok((
        Rank::Crashed,
        Event {
            name: CRASHED.to_owned(),
            payload: message.encode_to_vec(),
            cells,
        },
    ))
}

fn rank(group: &Group<'_>) -> Rank {
    if group.resolved().is_some_and(|row| row.is("RUNNING")) {
        Rank::Running
    } else {
        Rank::Other
    }
}

/// An event of groups, which concerns the cells of their resolved instances.
fn event(name: &str, groups: &[(u32, &Group<'_>)]) -> Result<Event, Fault> {
    let (mut payload, mut cells) = (Vec::new(), Vec::new());
    for (number, group) in groups {
        wire::append(&mut payload, *number, Value::Bytes(&group.encoded()));
        if let Some(row) = group.resolved() {
            cells.push(
                decoded(row)?
                    .actual_lrp_instance_key
                    .unwrap_or_default()
                    .cell_id,
            );
        }
    }
    Ok(Event {
        name: name.to_owned(),
        payload,
        cells: Some(cells),
    })
}

fn decoded(row: &Row<'_>) -> Result<ActualLrp, Fault> {
    ActualLrp::decode(row.encoded).map_err(|error| Fault::new(error.to_string()))
}
