//! The table of what is due, row by row, and that everything comes to rest.

mod rest;

use super::*;
use crate::model::actual_lrp::{InstanceKey, Presence};

pub(super) const NOW_NS: i64 = 1_800_000_000_000_000_000;
pub(super) const SECOND_NS: i64 = 1_000_000_000;
/// An instance that began to wait then is not offered again yet.
const RECENT_NS: i64 = NOW_NS - STALE_NS;
const STALE_SINCE_NS: i64 = RECENT_NS - 1;

pub(super) fn key(index: i32) -> LrpKey {
    LrpKey { process_guid: b"guid".to_vec(), index, domain: b"domain".to_vec() }
}

pub(super) fn cells(names: &[&str]) -> CellSet {
    CellSet::Known(names.iter().map(|name| (*name).into()).collect())
}

pub(super) fn wanted(instances: i32) -> Wanted {
    Wanted { process_guid: b"guid".to_vec(), domain: b"domain".to_vec(), instances, ..Wanted::default() }
}

pub(super) fn row(state: State, presence: Presence, cell: &str) -> ActualLrp {
    let mut row = ActualLrp::unclaimed(&key(0), RECENT_NS);
    row.state = state.at_rest();
    row.presence = presence as i32;
    if matches!(state, State::Claimed | State::Running) {
        row.set_instance(InstanceKey { instance_guid: format!("on-{cell}").into(), cell_id: cell.into() });
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
    ActualLrp { since_ns, ..ordinary(State::Unclaimed, "") }
}

fn crashed(crash_count: i32, since_ns: i64) -> ActualLrp {
    ActualLrp { crash_count, since_ns, ..ordinary(State::Crashed, "") }
}

/// How sure it is what the domain desires.
#[derive(Clone, Copy)]
enum Domain {
    Fresh,
    Known,
    Forgotten,
}

fn due(slot: &Slot, wanted: Option<&Wanted>, cells: &CellSet, domain: Domain) -> Vec<Action> {
    let (none, some) = (BTreeSet::new(), BTreeSet::from([b"domain".to_vec()]));
    let (fresh, known) = match domain {
        Domain::Fresh => (&some, &some),
        Domain::Known => (&none, &some),
        Domain::Forgotten => (&none, &none),
    };
    decide(0, slot, wanted, &World { now_ns: NOW_NS, cells, fresh, known })
}

/// With one instance desired, a fresh domain, and the cell `here`.
fn desired(rows: impl IntoIterator<Item = ActualLrp>) -> Vec<Action> {
    due(&slot(rows), Some(&wanted(1)), &cells(&["here"]), Domain::Fresh)
}

#[test]
fn what_is_as_desired_is_left_alone() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([ordinary(state, "here")]), []);
    }
    assert_eq!(desired([waiting(RECENT_NS)]), []);
    assert_eq!(desired([ordinary(State::Running, "here"), row(State::Running, Presence::Evacuating, "here")]), []);
}

#[test]
fn what_is_missing_is_created_whatever_else_is_in_the_slot() {
    assert_eq!(desired([]), [Action::Create]);
    assert_eq!(desired([row(State::Running, Presence::Evacuating, "here")]), [Action::Create]);
    assert_eq!(desired([suspect(State::Running, "gone")]), [Action::Create]);
}

#[test]
fn what_waits_for_more_than_half_a_minute_is_offered_again() {
    assert_eq!(desired([waiting(STALE_SINCE_NS)]), [Action::Start]);
    assert_eq!(due(&slot([waiting(STALE_SINCE_NS)]), None, &cells(&[]), Domain::Forgotten), [], "nobody desires it");
}

#[test]
fn what_crashed_is_started_when_it_is_due() {
    assert_eq!(desired([crashed(2, NOW_NS)]), [Action::Start]);
    assert_eq!(desired([crashed(3, NOW_NS - 30 * SECOND_NS)]), [Action::Start]);
    assert_eq!(desired([crashed(3, NOW_NS - 30 * SECOND_NS + 1)]), []);
    assert_eq!(desired([crashed(200, 0)]), []);
}

#[test]
fn an_instance_whose_cell_is_gone_is_replaced() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([ordinary(state, "gone")]), [Action::Suspect]);
        for other in [State::Claimed, State::Running] {
            let both = [ordinary(state, "gone"), suspect(other, "gone")];
            let expected = match (state, other) {
                (State::Running, State::Running) => vec![Action::RemoveSuspect, Action::Unclaim],
                _ => vec![Action::Unclaim],
            };
            assert_eq!(desired(both), expected, "{state:?} {other:?}");
        }
        let in_doubt = due(&slot([ordinary(state, "gone")]), Some(&wanted(1)), &CellSet::Unknown, Domain::Fresh);
        assert_eq!(in_doubt, [], "nobody knows the cells");
    }
}

#[test]
fn without_a_cell_an_instance_is_lost_only_where_there_are_no_cells() {
    let nowhere = slot([ordinary(State::Running, "")]);
    assert_eq!(due(&nowhere, Some(&wanted(1)), &cells(&["here"]), Domain::Fresh), []);
    assert_eq!(due(&nowhere, Some(&wanted(1)), &cells(&[]), Domain::Fresh), [Action::Suspect]);
}

#[test]
fn an_evacuated_container_goes_with_its_cell() {
    let both = |cell| [ordinary(State::Running, "here"), row(State::Running, Presence::Evacuating, cell)];
    assert_eq!(desired(both("gone")), [Action::RemoveEvacuating]);
    let alone = slot([row(State::Running, Presence::Evacuating, "gone")]);
    for domain in [Domain::Fresh, Domain::Known, Domain::Forgotten] {
        assert_eq!(due(&alone, None, &cells(&[]), domain), [Action::RemoveEvacuating], "desired or not");
        assert_eq!(due(&alone, None, &CellSet::Unknown, domain), []);
    }
}

#[test]
fn a_suspect_container_is_managed_again_with_its_cell() {
    for state in [State::Claimed, State::Running] {
        assert_eq!(desired([suspect(state, "here")]), [Action::Promote]);
        assert_eq!(desired([suspect(state, "here"), waiting(STALE_SINCE_NS)]), [Action::Promote]);
        assert_eq!(desired([suspect(state, "here"), ordinary(State::Claimed, "gone")]), [Action::Promote]);
        assert_eq!(desired([suspect(state, "gone"), waiting(RECENT_NS)]), []);
    }
}

#[test]
fn a_suspect_container_goes_when_another_runs() {
    for cell in ["here", "gone"] {
        let both = [suspect(State::Running, cell), ordinary(State::Running, "here")];
        assert_eq!(desired(both), [Action::RemoveSuspect]);
    }
    assert_eq!(desired([suspect(State::Claimed, "gone"), ordinary(State::Running, "here")]), [], "it does not run");
}

#[test]
fn surplus_instances_go_only_where_their_domain_is_fresh() {
    let here = cells(&["here"]);
    for row in [ordinary(State::Running, "here"), ordinary(State::Running, "gone"), waiting(STALE_SINCE_NS)] {
        let surplus = |domain| due(&slot([row.clone()]), Some(&wanted(0)), &here, domain);
        assert_eq!(surplus(Domain::Fresh), [Action::Retire]);
        assert!(!surplus(Domain::Known).contains(&Action::Retire));
        assert!(!surplus(Domain::Forgotten).contains(&Action::Retire));
    }
    let lost = slot([suspect(State::Running, "gone")]);
    assert_eq!(due(&lost, Some(&wanted(0)), &here, Domain::Fresh), [Action::RemoveSuspect]);
    assert_eq!(due(&lost, Some(&wanted(0)), &here, Domain::Known), []);
    let back = slot([suspect(State::Running, "here")]);
    assert_eq!(due(&back, Some(&wanted(0)), &here, Domain::Fresh), [Action::Promote], "so that it can be asked to end");
}

#[test]
fn what_nobody_desires_goes_where_its_domain_is_known() {
    let here = cells(&["here"]);
    for (row, action) in [
        (ordinary(State::Running, "here"), Action::Retire),
        (ordinary(State::Claimed, "gone"), Action::Retire),
        (waiting(RECENT_NS), Action::Retire),
        (crashed(1, 0), Action::Retire),
        (suspect(State::Claimed, "gone"), Action::RemoveSuspect),
        (suspect(State::Running, "here"), Action::RemoveSuspect),
    ] {
        for domain in [Domain::Fresh, Domain::Known] {
            assert_eq!(due(&slot([row.clone()]), None, &here, domain), [action]);
        }
        let unsure = due(&slot([row.clone()]), None, &here, Domain::Forgotten);
        assert!(!unsure.contains(&action), "{row:?}");
    }
}

#[test]
fn a_state_that_nobody_knows_stays() {
    let later = ActualLrp { state: b"LATER".to_vec(), ..ordinary(State::Running, "gone") };
    assert_eq!(desired([later]), []);
}

#[test]
fn each_index_is_looked_at() {
    let running = || Box::new(slot([ordinary(State::Running, "here")]));
    let slots = BTreeMap::from([(1, running()), (5, running())]);
    let unit = Unit { wanted: Some(wanted(3)), slots };
    let domains = BTreeSet::from([b"domain".to_vec()]);
    let here = cells(&["here"]);
    let world = World { now_ns: NOW_NS, cells: &here, fresh: &domains, known: &domains };
    let create = |index| (index, vec![Action::Create]);
    assert_eq!(unit.decide(&world), [(5, vec![Action::Retire]), create(0), create(2)]);

    let many = Unit { wanted: Some(wanted(i32::MAX)), slots: BTreeMap::new() };
    assert_eq!(many.decide(&world).len(), MOST_CREATED, "the next run goes on");
}
