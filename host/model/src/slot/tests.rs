//! Every transition in every state, and invariants after any sequence of them.

mod calls;
mod evacuation;
mod replacement;
mod sequences;

use super::*;
use crate::ModificationTag;
use crate::actual_lrp::{LrpKey, State};
use DefinitionCount::Several;
use bbs_proto::models::ActualLrpNetInfo;

const NOW_NS: i64 = 1_800_000_000_000_000_000;
const BEFORE_NS: i64 = NOW_NS - 1_000_000_000;

fn key() -> LrpKey {
    LrpKey {
        process_guid: b"guid".to_vec(),
        index: 3,
        domain: b"domain".to_vec(),
    }
}

fn instance(name: &str) -> InstanceKey {
    InstanceKey {
        instance_guid: name.into(),
        cell_id: format!("cell-of-{name}").into(),
    }
}

fn container(name: &str) -> Container {
    Container {
        key: key(),
        instance: instance(name),
        net_info: ActualLrpNetInfo {
            address: format!("address-of-{name}").into(),
            ..ActualLrpNetInfo::default()
        },
        internal_routes: vec![b"host".to_vec()],
        metric_tags: [(b"tag".to_vec(), b"value".to_vec())].into(),
        routable: true,
        availability_zone: b"zone".to_vec(),
    }
}

/// A row in a reachable state, with a value in every field.
fn row(state: State, presence: Presence, name: &str) -> ActualLrp {
    let mut row = container(name).recorded(presence, Several, BEFORE_NS);
    row.state = state.at_rest();
    row.tag = ModificationTag {
        epoch: format!("epoch-of-{name}").into(),
        index: 7,
    };
    row.definition_uncertain = false;
    row.crash_count = 4;
    row.crash_reason = b"earlier".to_vec();
    row.placement_error = b"no room".to_vec();
    if matches!(state, State::Unclaimed | State::Crashed) {
        row.leave_cell();
    }
    row
}

fn ordinary(state: State) -> Slot {
    Slot {
        ordinary: Some(row(state, Presence::Ordinary, "mine")),
        ..Slot::default()
    }
}

/// With an evacuating and a suspect container besides.
fn crowded(state: State) -> Slot {
    Slot {
        evacuating: Some(row(State::Running, Presence::Evacuating, "old")),
        suspect: Some(row(State::Running, Presence::Suspect, "lost")),
        ..ordinary(state)
    }
}

/// Applies a transition to a copy; returns the copy and the result.
fn after<T>(slot: &Slot, call: impl FnOnce(&mut Slot) -> T) -> (Slot, T) {
    let mut slot = slot.clone();
    let result = call(&mut slot);
    (slot, result)
}

/// Asserts that a transition is rejected and changes nothing.
#[track_caller]
fn rejected<T: std::fmt::Debug + PartialEq>(
    slot: &Slot,
    refusal: SlotError,
    call: impl FnOnce(&mut Slot) -> Result<T, SlotError>,
) {
    let (after, result) = after(slot, call);
    assert_eq!(result, Err(refusal));
    assert_eq!(after, *slot);
}
