//! The table of due actions, row by row, and that convergence reaches a fixed point.

mod fixed_point;

use super::*;
use crate::actual_lrp::{InstanceKey, Presence};

pub(super) const NOW_NS: i64 = 1_800_000_000_000_000_000;
pub(super) const SECOND_NS: i64 = 1_000_000_000;
/// The latest time at which a waiting instance is not stale yet.
const RECENT_NS: i64 = NOW_NS - STALE_NS;
const STALE_SINCE_NS: i64 = RECENT_NS - 1;

pub(super) fn key(index: i32) -> LrpKey {
    LrpKey {
        process_guid: b"guid".to_vec(),
        index,
        domain: b"domain".to_vec(),
    }
}

pub(super) fn cells(names: &[&str]) -> CellSet {
    CellSet::Known {
        cells: names.iter().map(|name| (*name).into()).collect(),
        listed_at_ns: NOW_NS,
    }
}

pub(super) fn target(instances: i32) -> InstanceTarget {
    InstanceTarget {
        process_guid: b"guid".to_vec(),
        domain: b"domain".to_vec(),
        instances,
        ..InstanceTarget::default()
    }
}

fn wanted(instances: i32) -> DesiredInstances {
    DesiredInstances {
        target: target(instances),
        ..DesiredInstances::default()
    }
}

pub(super) fn row(state: State, presence: Presence, cell: &str) -> ActualLrp {
    let mut row = ActualLrp::unclaimed(&key(0), RECENT_NS);
    row.state = state.at_rest();
    row.presence = presence as i32;
    if matches!(state, State::Claimed | State::Running) {
        row.set_instance(InstanceKey {
            instance_guid: format!("on-{cell}").into(),
            cell_id: cell.into(),
        });
    }
    row
}

fn slot(rows: impl IntoIterator<Item = ActualLrp>) -> Slot {
    Slot::of(rows)
}

fn ordinary(state: State, cell: &str) -> ActualLrp {
    row(state, Presence::Ordinary, cell)
}

fn suspect(state: State, cell: &str) -> ActualLrp {
    row(state, Presence::Suspect, cell)
}

fn waiting(since_ns: i64) -> ActualLrp {
    ActualLrp {
        since_ns,
        ..ordinary(State::Unclaimed, "")
    }
}

fn crashed(crash_count: i32, since_ns: i64) -> ActualLrp {
    ActualLrp {
        crash_count,
        since_ns,
        ..ordinary(State::Crashed, "")
    }
}

/// State of the instance's domain.
#[derive(Clone, Copy)]
enum Domain {
    Fresh,
    Known,
    Forgotten,
}

fn due(
    slot: &Slot,
    target: Option<&InstanceTarget>,
    cells: &CellSet,
    domain: Domain,
) -> Vec<SlotAction> {
    let none = BTreeSet::new();
    let some = BTreeSet::from([b"domain".to_vec()]);
    let (fresh, known) = match domain {
        Domain::Fresh => (&some, &some),
        Domain::Known => (&none, &some),
        Domain::Forgotten => (&none, &none),
    };
    decide(
        0,
        slot,
        target,
        &ConvergenceInput {
            now_ns: NOW_NS,
            cells,
            fresh,
            known,
        },
    )
}

/// The due actions with one instance desired, a fresh domain, and the cell `here`.
fn desired(rows: impl IntoIterator<Item = ActualLrp>) -> Vec<SlotAction> {
    due(
        &slot(rows),
        Some(&target(1)),
        &cells(&["here"]),
        Domain::Fresh,
    )
}

#[test]
fn instances_as_desired_need_no_action() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([ordinary(state, "here")]), []);
    }
    assert_eq!(desired([waiting(RECENT_NS)]), []);
    assert_eq!(
        desired([
            ordinary(State::Running, "here"),
            row(State::Running, Presence::Evacuating, "here")
        ]),
        []
    );
}

#[test]
fn missing_instance_is_created_whatever_else_is_in_the_slot() {
    assert_eq!(desired([]), [SlotAction::Create]);
    assert_eq!(
        desired([row(State::Running, Presence::Evacuating, "here")]),
        [SlotAction::Create]
    );
    assert_eq!(
        desired([suspect(State::Running, "gone")]),
        [SlotAction::Create]
    );
}

#[test]
fn instance_that_waits_for_more_than_half_a_minute_is_auctioned_again() {
    assert_eq!(desired([waiting(STALE_SINCE_NS)]), [SlotAction::Start]);
    assert_eq!(
        due(
            &slot([waiting(STALE_SINCE_NS)]),
            None,
            &cells(&[]),
            Domain::Forgotten
        ),
        [],
        "it is not desired"
    );
}

#[test]
fn crashed_instance_is_restarted_when_due() {
    assert_eq!(desired([crashed(2, NOW_NS)]), [SlotAction::Start]);
    assert_eq!(
        desired([crashed(3, NOW_NS - 30 * SECOND_NS)]),
        [SlotAction::Start]
    );
    assert_eq!(desired([crashed(3, NOW_NS - 30 * SECOND_NS + 1)]), []);
    assert_eq!(desired([crashed(200, 0)]), []);
}

#[test]
fn instance_of_a_gone_cell_is_replaced() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([ordinary(state, "gone")]), [SlotAction::Suspect]);
        for other in [State::Claimed, State::Running] {
            let both = [ordinary(state, "gone"), suspect(other, "gone")];
            let expected = match (state, other) {
                (State::Running, State::Running) => {
                    vec![SlotAction::RemoveSuspect, SlotAction::Unclaim]
                }
                _ => vec![SlotAction::Unclaim],
            };
            assert_eq!(desired(both), expected, "{state:?} {other:?}");
        }
        let in_doubt = due(
            &slot([ordinary(state, "gone")]),
            Some(&target(1)),
            &CellSet::Unknown,
            Domain::Fresh,
        );
        assert_eq!(in_doubt, [], "the cells are unknown");
    }
}

/// One run lists the cells once, and may take longer than any fixed time.
#[test]
fn container_of_a_cell_that_came_after_the_list_is_not_lost_in_a_run_of_twelve_minutes() {
    const MINUTE_NS: i64 = 60 * SECOND_NS;
    let cells = CellSet::Known {
        cells: BTreeSet::new(),
        listed_at_ns: 0,
    };
    let none = BTreeSet::new();
    let input = ConvergenceInput {
        now_ns: 12 * MINUTE_NS,
        cells: &cells,
        fresh: &none,
        known: &none,
    };
    let due = |presence, since_minutes: i64| {
        let row = ActualLrp {
            since_ns: since_minutes * MINUTE_NS,
            ..row(State::Running, presence, "new")
        };
        let actions = decide(0, &slot([row]), Some(&target(1)), &input);
        actions
            .into_iter()
            .filter(|action| *action != SlotAction::Create)
            .collect::<Vec<_>>()
    };
    for (presence, lost) in [
        (Presence::Ordinary, SlotAction::Suspect),
        (Presence::Evacuating, SlotAction::RemoveEvacuating),
    ] {
        assert_eq!(due(presence, 11), [], "{presence:?}");
        assert_eq!(due(presence, 12), [], "{presence:?}");
        assert_eq!(due(presence, 0), [lost], "it had the container before");
        assert_eq!(due(presence, 13), [lost], "by another clock");
    }
}

#[test]
fn instance_without_a_cell_is_lost_only_if_no_cell_is_present() {
    let nowhere = slot([ordinary(State::Running, "")]);
    assert_eq!(
        due(&nowhere, Some(&target(1)), &cells(&["here"]), Domain::Fresh),
        []
    );
    assert_eq!(
        due(&nowhere, Some(&target(1)), &cells(&[]), Domain::Fresh),
        [SlotAction::Suspect]
    );
}

#[test]
fn evacuating_container_is_removed_with_its_cell() {
    let both = |cell| {
        [
            ordinary(State::Running, "here"),
            row(State::Running, Presence::Evacuating, cell),
        ]
    };
    assert_eq!(desired(both("gone")), [SlotAction::RemoveEvacuating]);
    let alone = slot([row(State::Running, Presence::Evacuating, "gone")]);
    for domain in [Domain::Fresh, Domain::Known, Domain::Forgotten] {
        assert_eq!(
            due(&alone, None, &cells(&[]), domain),
            [SlotAction::RemoveEvacuating],
            "desired or not"
        );
        assert_eq!(due(&alone, None, &CellSet::Unknown, domain), []);
    }
}

#[test]
fn suspect_container_is_promoted_when_its_cell_is_back() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([suspect(state, "here")]), [SlotAction::Promote]);
        assert_eq!(
            desired([suspect(state, "here"), waiting(STALE_SINCE_NS)]),
            [SlotAction::Promote]
        );
        assert_eq!(
            desired([suspect(state, "here"), ordinary(State::Claimed, "gone")]),
            [SlotAction::Promote]
        );
        assert_eq!(desired([suspect(state, "gone"), waiting(RECENT_NS)]), []);
    }
}

#[test]
fn suspect_container_is_removed_when_another_runs() {
    for cell in ["here", "gone"] {
        let both = [
            suspect(State::Running, cell),
            ordinary(State::Running, "here"),
        ];
        assert_eq!(desired(both), [SlotAction::RemoveSuspect]);
    }
    assert_eq!(
        desired([
            suspect(State::Claimed, "gone"),
            ordinary(State::Running, "here")
        ]),
        [],
        "it does not run"
    );
}

#[test]
fn surplus_instance_is_retired_only_in_a_fresh_domain() {
    let here = cells(&["here"]);
    for row in [
        ordinary(State::Running, "here"),
        ordinary(State::Running, "gone"),
        waiting(STALE_SINCE_NS),
    ] {
        let surplus = |domain| due(&slot([row.clone()]), Some(&target(0)), &here, domain);
        assert_eq!(surplus(Domain::Fresh), [SlotAction::Retire]);
        assert!(!surplus(Domain::Known).contains(&SlotAction::Retire));
        assert!(!surplus(Domain::Forgotten).contains(&SlotAction::Retire));
    }
    let lost = slot([suspect(State::Running, "gone")]);
    assert_eq!(
        due(&lost, Some(&target(0)), &here, Domain::Fresh),
        [SlotAction::RemoveSuspect]
    );
    assert_eq!(due(&lost, Some(&target(0)), &here, Domain::Known), []);
    let back = slot([suspect(State::Running, "here")]);
    assert_eq!(
        due(&back, Some(&target(0)), &here, Domain::Fresh),
        [SlotAction::Promote],
        "so that it can be asked to end"
    );
}

#[test]
fn orphaned_instance_is_retired_only_in_a_known_domain() {
    let here = cells(&["here"]);
    for (row, action) in [
        (ordinary(State::Running, "here"), SlotAction::Retire),
        (ordinary(State::Claimed, "gone"), SlotAction::Retire),
        (waiting(RECENT_NS), SlotAction::Retire),
        (crashed(1, 0), SlotAction::Retire),
        (suspect(State::Claimed, "gone"), SlotAction::RemoveSuspect),
        (suspect(State::Running, "here"), SlotAction::RemoveSuspect),
    ] {
        for domain in [Domain::Fresh, Domain::Known] {
            assert_eq!(due(&slot([row.clone()]), None, &here, domain), [action]);
        }
        let unsure = due(&slot([row.clone()]), None, &here, Domain::Forgotten);
        assert!(!unsure.contains(&action), "{row:?}");
    }
}

#[test]
fn unknown_state_needs_no_action() {
    let later = ActualLrp {
        state: b"LATER".to_vec(),
        ..ordinary(State::Running, "gone")
    };
    assert_eq!(desired([later]), []);
}

#[test]
fn every_desired_or_existing_index_is_decided() {
    let running = || Box::new(slot([ordinary(State::Running, "here")]));
    let slots = BTreeMap::from([(1, running()), (5, running())]);
    let unit = ProcessRecords {
        wanted: Some(wanted(3)),
        slots,
    };
    let domains = BTreeSet::from([b"domain".to_vec()]);
    let here = cells(&["here"]);
    let input = ConvergenceInput {
        now_ns: NOW_NS,
        cells: &here,
        fresh: &domains,
        known: &domains,
    };
    let create = |index| (index, vec![SlotAction::Create]);
    assert_eq!(
        unit.decide(&input),
        [(5, vec![SlotAction::Retire]), create(0), create(2)]
    );

    let many = ProcessRecords {
        wanted: Some(wanted(i32::MAX)),
        slots: BTreeMap::new(),
    };
    assert_eq!(many.decide(&input).len(), INSTANCES as usize);
    let slots = (0..INSTANCES)
        .map(|index| (index, Box::new(slot([ordinary(State::Running, "here")]))))
        .collect();
    assert_eq!(
        ProcessRecords { slots, ..many }.decide(&input),
        [],
        "no run creates more"
    );
}
