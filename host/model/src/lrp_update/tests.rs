//! Which actions are due, how many at once, and when an update is done.

use std::collections::BTreeMap;

use super::*;
use crate::actual_lrp::{ActualLrp, LrpKey, Presence, State};

const OLD: &[u8] = b"version-1";
const NEW: &[u8] = b"version-2";

fn lrp(instances: i32) -> UpdatedLrp<'static> {
    UpdatedLrp {
        definition_id: NEW,
        instances,
        strategy: Replacement::Rolling,
        cancelled_at_ns: None,
        now_ns: 0,
        pace: Pace::default(),
        places: usize::MAX,
        unreadable: &NO_INDICES,
    }
}

fn with<'a>(lrp: &UpdatedLrp<'a>, max_in_flight: MaxInFlight) -> UpdatedLrp<'a> {
    UpdatedLrp {
        pace: Pace {
            max_in_flight,
            ..Pace::default()
        },
        ..*lrp
    }
}

fn row(definition: &[u8], state: State, presence: Presence) -> ActualLrp {
    let mut row = ActualLrp::unclaimed(&LrpKey::default(), 0);
    row.state = state.at_rest();
    row.presence = presence as i32;
    row.routable = true;
    row.definition_id = definition.to_vec();
    row
}

fn slot(definition: &[u8], state: State) -> Box<Slot> {
    Box::new(Slot {
        ordinary: Some(row(definition, state, Presence::Ordinary)),
        ..Slot::default()
    })
}

fn replaced(state: State) -> Box<Slot> {
    let evacuating = Some(row(OLD, State::Running, Presence::Evacuating));
    Box::new(Slot {
        evacuating,
        ..*slot(NEW, state)
    })
}

fn slots(slots: impl IntoIterator<Item = Box<Slot>>) -> BTreeMap<i32, Box<Slot>> {
    (0..).zip(slots).collect()
}

fn old(instances: usize) -> BTreeMap<i32, Box<Slot>> {
    slots(std::iter::repeat_with(|| slot(OLD, State::Running)).take(instances))
}

fn replaced_indices(due: &[(i32, UpdateAction)]) -> Vec<i32> {
    due.iter()
        .filter(|(_, action)| *action == UpdateAction::Replace)
        .map(|(index, _)| *index)
        .collect()
}

#[test]
fn one_instance_or_a_tenth_of_them_is_replaced_at_once() {
    for (instances, most) in [(1, 1), (2, 1), (10, 1), (11, 2), (20, 2), (21, 3)] {
        let due = with(&lrp(instances), MaxInFlight::default()).due(&old(instances as usize));
        assert_eq!(
            replaced_indices(&due),
            (0..most).collect::<Vec<_>>(),
            "{instances}"
        );
    }
    let due = with(&lrp(5), MaxInFlight::Instances(3)).due(&old(5));
    assert_eq!(replaced_indices(&due), [0, 1, 2]);
}

#[test]
fn places_among_all_lrps_limit_what_is_replaced_and_nothing_else() {
    let lrp = with(&lrp(5), MaxInFlight::Instances(3));
    let mut slots = old(5);
    assert_eq!(lrp.demand(&slots), PlaceDemand { taken: 0, next: 3 });
    assert_eq!(
        replaced_indices(&UpdatedLrp { places: 1, ..lrp }.due(&slots)),
        [0]
    );
    slots.insert(0, replaced(State::Running));
    slots.insert(1, replaced(State::Claimed));
    assert_eq!(lrp.demand(&slots), PlaceDemand { taken: 2, next: 1 });
    assert_eq!(
        UpdatedLrp { places: 0, ..lrp }.due(&slots),
        [(0, UpdateAction::StopReplaced)]
    );
    slots.insert(2, slot(NEW, State::Crashed));
    assert_eq!(lrp.demand(&slots), PlaceDemand::default(), "it is halted");
    slots
        .get_mut(&3)
        .unwrap()
        .ordinary
        .as_mut()
        .unwrap()
        .definition_uncertain = true;
    let more = with(&lrp, MaxInFlight::Instances(4));
    assert_eq!(
        more.demand(&slots),
        PlaceDemand { taken: 0, next: 1 },
        "an uncertain container passes a halt"
    );
}

#[test]
fn pending_and_missing_instances_count_as_in_flight() {
    for pending in [
        slot(NEW, State::Unclaimed),
        slot(NEW, State::Claimed),
        replaced(State::Claimed),
    ] {
        let slots = slots([pending, slot(OLD, State::Running)]);
        assert_eq!(with(&lrp(2), MaxInFlight::Instances(1)).due(&slots), []);
    }
    let due = with(&lrp(2), MaxInFlight::Instances(1)).due(&old(1));
    assert_eq!(due, [(1, UpdateAction::Create)], "one is missing");
}

#[test]
fn unreadable_slots_take_no_places_and_keep_the_update_from_its_end() {
    let unreadable = BTreeSet::from([0, 2, 7]);
    let lrp = UpdatedLrp {
        unreadable: &unreadable,
        ..with(&lrp(5), MaxInFlight::Instances(1))
    };
    let mut slots = old(5);
    slots.retain(|index, _| !unreadable.contains(index));
    assert_eq!(lrp.demand(&slots), PlaceDemand { taken: 0, next: 1 });
    assert_eq!(lrp.due(&slots), [(1, UpdateAction::Replace)]);
    slots.remove(&3);
    assert_eq!(
        lrp.due(&slots),
        [(3, UpdateAction::Create)],
        "one is missing"
    );
    for index in [1, 3, 4] {
        slots.insert(index, slot(NEW, State::Running));
    }
    assert_eq!(lrp.demand(&slots), PlaceDemand::default());
    assert_eq!(lrp.due(&slots), []);
    assert!(!lrp.is_done(&slots));
}

#[test]
fn replaced_container_is_stopped_before_the_next_replacement_begins() {
    let slots = slots([replaced(State::Running), slot(OLD, State::Running)]);
    let due = with(&lrp(2), MaxInFlight::Instances(1)).due(&slots);
    assert_eq!(due, [(0, UpdateAction::StopReplaced)]);
}

#[test]
fn failing_instance_halts_the_update() {
    let slots = slots([
        slot(NEW, State::Crashed),
        slot(OLD, State::Running),
        replaced(State::Running),
    ]);
    let due = with(&lrp(3), MaxInFlight::Instances(3)).due(&slots);
    assert_eq!(due, [(2, UpdateAction::StopReplaced)]);
    let progress = lrp(3).progress(&slots);
    assert!(progress.is_halted());
    assert_eq!(
        progress,
        UpdateProgress {
            current: 1,
            old: 2,
            pending: 0,
            failing: 1
        }
    );
}

#[test]
fn uncertain_container_is_replaced_while_the_update_is_halted_if_a_place_is_free() {
    let uncertain = || {
        let mut slot = slot(NEW, State::Running);
        slot.ordinary.as_mut().unwrap().definition_uncertain = true;
        slot
    };
    let slots = slots([
        slot(NEW, State::Crashed),
        slot(OLD, State::Running),
        uncertain(),
        uncertain(),
    ]);
    let due = |lrp: UpdatedLrp<'_>, most| with(&lrp, MaxInFlight::Instances(most)).due(&slots);
    assert_eq!(due(lrp(4), 2), [(2, UpdateAction::Replace)]);
    assert_eq!(
        due(lrp(4), 1),
        [],
        "the failing instance has the only place"
    );
    let recreated = UpdatedLrp {
        strategy: Replacement::Recreate,
        ..lrp(4)
    };
    assert_eq!(
        due(recreated, 2),
        [],
        "it would stop before its successor runs"
    );
}

#[test]
fn instances_that_are_not_desired_are_not_replaced() {
    let surplus = slots([
        slot(NEW, State::Running),
        slot(OLD, State::Running),
        replaced(State::Unclaimed),
    ]);
    let due = with(&lrp(1), MaxInFlight::Instances(3)).due(&surplus);
    assert_eq!(due, [(2, UpdateAction::StopReplaced)]);
}

#[test]
fn recreated_instances_are_stopped_first() {
    let lrp = UpdatedLrp {
        strategy: Replacement::Recreate,
        ..lrp(2)
    };
    assert_eq!(
        with(&lrp, MaxInFlight::Instances(1)).due(&old(2)),
        [(0, UpdateAction::StopFirst)]
    );
}

#[test]
fn slot_alone_decides_about_its_stop_unless_containers_are_recreated() {
    let rolling = with(&lrp(4), MaxInFlight::Instances(2));
    let slots = slots([
        replaced(State::Running),
        replaced(State::Claimed),
        slot(OLD, State::Running),
        slot(NEW, State::Running),
        replaced(State::Claimed),
    ]);
    let stops = |lrp: &UpdatedLrp<'_>| {
        let alone = slots.iter().map(|(index, slot)| lrp.stop_in(*index, slot));
        alone.collect::<Vec<_>>()
    };
    let stopped = Some(UpdateAction::StopReplaced);
    let expected = [stopped, None, None, None, stopped];
    assert_eq!(stops(&rolling), expected);
    let recreated = UpdatedLrp {
        strategy: Replacement::Recreate,
        ..with(&rolling, MaxInFlight::Instances(3))
    };
    assert_eq!(stops(&recreated), expected);
    let stopped_first = (2, UpdateAction::StopFirst);
    assert!(recreated.due(&slots).contains(&stopped_first));
}

#[test]
fn update_is_done_when_nothing_runs_another_definition() {
    let current = || slot(NEW, State::Running);
    assert!(lrp(0).is_done(&BTreeMap::new()));
    assert!(lrp(2).is_done(&slots([current(), current()])));
    for unfinished in [
        slot(OLD, State::Running),
        slot(NEW, State::Claimed),
        replaced(State::Running),
    ] {
        assert!(!lrp(2).is_done(&slots([current(), unfinished])));
    }
    assert!(!lrp(2).is_done(&slots([current()])), "one is missing");
    assert!(
        !lrp(1).is_done(&slots([current(), slot(OLD, State::Running)])),
        "one is not stopped yet"
    );
}

#[test]
fn cancelled_update_is_done_when_nothing_runs_the_cancelled_definition() {
    let lrp = UpdatedLrp {
        cancelled_at_ns: Some(0),
        ..lrp(2)
    };
    for failing in [slot(NEW, State::Crashed), slot(NEW, State::Unclaimed)] {
        assert!(lrp.is_done(&slots([slot(NEW, State::Running), failing])));
    }
    for unfinished in [
        slot(OLD, State::Running),
        replaced(State::Running),
        replaced(State::Crashed),
    ] {
        assert!(!lrp.is_done(&slots([slot(NEW, State::Running), unfinished])));
    }
}

/// One instance fails with the previous definition, and another one still runs the cancelled one.
#[test]
fn update_after_a_halted_cancellation_replaces_all_instances() {
    const NEXT: &[u8] = b"version-3";
    let mut slots = slots([slot(OLD, State::Crashed), slot(NEW, State::Running)]);
    let way_back = UpdatedLrp {
        definition_id: OLD,
        cancelled_at_ns: Some(0),
        ..lrp(2)
    };
    assert_eq!(way_back.due(&slots), [], "it is halted");
    assert!(!way_back.is_done(&slots));

    for slot in slots.values_mut() {
        let given_up = slot.switch_definition(&OLD.to_vec(), &NEXT.to_vec(), 0);
        assert_eq!(given_up, None);
    }
    let named = |slots: &BTreeMap<i32, Box<Slot>>| {
        let rows = slots.values().flat_map(|slot| slot.rows());
        rows.map(|row| row.definition_id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&slots), [NEXT, OLD], "none names the cancelled one");
    let run = |slot: &mut Slot| {
        let row = slot.ordinary.as_mut().unwrap();
        row.state = State::Running.at_rest();
        row.routable = true;
    };
    let next = UpdatedLrp {
        definition_id: NEXT,
        ..lrp(2)
    };
    assert_eq!(next.due(&slots), [], "one is pending");
    run(slots.get_mut(&0).unwrap());
    assert_eq!(next.due(&slots), [(1, UpdateAction::Replace)]);
    let second = slots.get_mut(&1).unwrap();
    second.begin_replacement(&NEXT.to_vec(), 0).unwrap();
    run(second);
    assert_eq!(next.due(&slots), [(1, UpdateAction::StopReplaced)]);
    assert!(!next.is_done(&slots));
    slots.get_mut(&1).unwrap().evacuating = None;
    assert_eq!(next.due(&slots), []);
    assert!(next.is_done(&slots));
    assert_eq!(named(&slots), [NEXT, NEXT]);
}

#[test]
fn cancelled_definition_is_kept_running_only_while_it_receives_traffic() {
    let unroutable = |mut slot: Box<Slot>| {
        for row in [&mut slot.ordinary, &mut slot.evacuating]
            .into_iter()
            .flatten()
        {
            row.routable &= row.definition_id != OLD;
        }
        slot
    };
    let failing = || [replaced(State::Crashed), slot(OLD, State::Running)];
    let cancelled = UpdatedLrp {
        cancelled_at_ns: Some(0),
        ..lrp(2)
    };
    assert_eq!(
        with(&cancelled, MaxInFlight::default()).due(&slots(failing())),
        []
    );
    let unroutable = slots(failing().map(unroutable));
    assert_eq!(with(&lrp(2), MaxInFlight::default()).due(&unroutable), []);
    let stopped = [
        (0, UpdateAction::StopReplaced),
        (1, UpdateAction::StopFirst),
    ];
    assert_eq!(
        with(&cancelled, MaxInFlight::default()).due(&unroutable),
        stopped
    );
}

/// The containers are changed by their cells after the cancellation.
#[test]
fn cancelled_definition_that_is_not_ready_for_a_moment_is_kept_running() {
    const CHANGED_NS: i64 = 1;
    let mut slots = slots([replaced(State::Crashed), slot(OLD, State::Running)]);
    for row in slots
        .values_mut()
        .flat_map(|slot| [&mut slot.ordinary, &mut slot.evacuating])
        .flatten()
        .filter(|row| row.definition_id == OLD)
    {
        (row.routable, row.since_ns) = (false, CHANGED_NS);
    }
    let timeout_ns = i64::try_from(Pace::default().routable_timeout.as_nanos()).unwrap();
    let cancelled = |now_ns, cancelled_at_ns| UpdatedLrp {
        cancelled_at_ns: Some(cancelled_at_ns),
        now_ns,
        ..lrp(2)
    };
    let stopped = [
        (0, UpdateAction::StopReplaced),
        (1, UpdateAction::StopFirst),
    ];
    assert_eq!(cancelled(CHANGED_NS + timeout_ns - 1, 0).due(&slots), []);
    assert_eq!(cancelled(CHANGED_NS + timeout_ns, 0).due(&slots), stopped);
    assert_eq!(
        cancelled(CHANGED_NS, CHANGED_NS).due(&slots),
        stopped,
        "they were not ready when the update was cancelled"
    );
}

#[test]
fn one_of_two_old_containers_is_stopped_and_the_other_one_keeps_receiving_traffic() {
    let both_old = |is_routable: bool| {
        let mut slot = replaced(State::Running);
        for row in [&mut slot.ordinary, &mut slot.evacuating]
            .into_iter()
            .flatten()
        {
            row.definition_uncertain = true;
        }
        slot.ordinary.as_mut().unwrap().routable = is_routable;
        slots([slot])
    };
    assert_eq!(
        with(&lrp(1), MaxInFlight::default()).due(&both_old(true)),
        [(0, UpdateAction::StopReplaced)]
    );
    assert_eq!(
        with(&lrp(1), MaxInFlight::default()).due(&both_old(false)),
        [(0, UpdateAction::StopFirst)]
    );
}

#[test]
fn container_that_may_have_been_asked_to_stop_is_not_kept_by_a_cancellation() {
    let lrp = UpdatedLrp {
        definition_id: OLD,
        cancelled_at_ns: Some(0),
        ..lrp(1)
    };
    let up = slots([replaced(State::Running)]);
    assert_eq!(
        with(&lrp, MaxInFlight::default()).due(&up),
        [(0, UpdateAction::StopReplaced)]
    );
    assert!(!lrp.is_done(&up));
    let pending = slots([replaced(State::Claimed)]);
    assert_eq!(
        with(&lrp, MaxInFlight::default()).due(&pending),
        [(0, UpdateAction::Revert)]
    );
}
