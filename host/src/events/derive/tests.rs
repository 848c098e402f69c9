//! Every entry of the table, and that a consumer that applies the events of any changes ends with
//! the stored rows.

use std::collections::BTreeMap;

use bbs_model::ModificationTag;
use proptest::prelude::*;

use super::*;

const NO_TRACE: &TraceId = &TraceId::NONE;

/// A waiting instance has neither container nor cell.
fn row(state: &str, presence: Presence, container: &str) -> ActualLrp {
    let (instance_guid, cell_id) = match container {
        "" => Default::default(),
        container => (
            container.into(),
            format!("cell of {container}").into_bytes(),
        ),
    };
    let process_guid = b"guid".to_vec();
    let presence = presence as i32;
    ActualLrp {
        process_guid,
        instance_guid,
        cell_id,
        state: state.into(),
        presence,
        ..ActualLrp::default()
    }
}

fn ordinary(state: &str, container: &str) -> ActualLrp {
    row(state, Presence::Ordinary, container)
}

/// The events in order: `+` created, `~` changed, `-` removed, `!` crashed, and the row.
fn summary(before: &Slot, after: &Slot, cause: Cause) -> Vec<String> {
    let before = Box::new(before.clone());
    let after = Box::new(after.clone());
    let change = RecordChange::Slot {
        before,
        after,
        cause,
        trace_id: TraceId::NONE,
    };
    let name = |row: &ActualLrp| {
        let presence = ["o", "e", "s"][usize::try_from(row.presence).unwrap()];
        let container = String::from_utf8_lossy(&row.instance_guid);
        format!(
            "{presence}{container}{}",
            String::from_utf8_lossy(&row.state[..1])
        )
    };
    events(&change)
        .iter()
        .map(|event| match event {
            Event::InstanceCreated { lrp, .. } => format!("+{}", name(lrp)),
            Event::InstanceChanged { before, after, .. } => {
                format!("~{} {}", name(before), name(after))
            }
            Event::InstanceRemoved { lrp, .. } => format!("-{}", name(lrp)),
            Event::InstanceCrashed { before, .. } => format!("!{}", name(before)),
            other => panic!("a slot has no {other:?}"),
        })
        .collect()
}

fn kinds(before: Option<ActualLrp>, after: Option<ActualLrp>, cause: Cause) -> String {
    let slot = |ordinary| Slot {
        ordinary,
        ..Slot::default()
    };
    summary(&slot(before), &slot(after), cause)
        .iter()
        .map(|event| &event[..1])
        .collect()
}

#[test]
fn events_of_every_state_change_are_diegos() {
    const STATES: [Option<&str>; 6] = [
        None,
        Some("UNCLAIMED"),
        Some("CLAIMED"),
        Some("RUNNING"),
        Some("CRASHED"),
        Some("?"),
    ];
    // From each state to each of them.
    const OTHER: [[&str; 6]; 6] = [
        ["", "+", "+", "+", "+", "+"],
        ["-", "~", "~", "~", "!~", "~"],
        ["-", "+-", "~", "~", "!~", "~"],
        ["-", "+-", "~", "~", "!~", "~"],
        ["-", "+-", "~", "~", "!~", "~"],
        ["-", "+-", "~", "~", "!~", "~"],
    ];
    for (from, line) in STATES.iter().zip(OTHER) {
        for (to, expected) in STATES.iter().zip(line) {
            for presence in Presence::ALL {
                let of =
                    |state: &str| row(state, presence, if state == "UNCLAIMED" { "" } else { "a" });
                let before = from.map(of);
                let tag = ModificationTag {
                    epoch: b"epoch".to_vec(),
                    index: 1,
                };
                let after = to.map(|state| ActualLrp { tag, ..of(state) });
                assert_eq!(
                    kinds(before.clone(), after.clone(), Cause::Other),
                    expected,
                    "{from:?} to {to:?}"
                );
                // A crash that restarts at once still has its event.
                let crashed = if expected == "+-" { "!+-" } else { expected };
                assert_eq!(
                    kinds(before.clone(), after, Cause::Crash),
                    crashed,
                    "{from:?} to {to:?}"
                );
                assert_eq!(kinds(before.clone(), before, Cause::Crash), "", "{from:?}");
            }
        }
    }
}

#[test]
fn desired_lrps_and_tasks_are_created_changed_and_removed() {
    let trace_id = TraceId("trace".into());
    let lrp = DesiredLrp {
        update_strategy: 1,
        ..DesiredLrp::default()
    };
    let change = |before: Option<&DesiredLrp>, after: Option<&DesiredLrp>| {
        let boxed = |lrp: Option<&DesiredLrp>| lrp.cloned().map(Box::new);
        RecordChange::DesiredLrp {
            before: boxed(before),
            after: boxed(after),
            trace_id: trace_id.clone(),
        }
    };
    let before = DesiredLrp::default();
    let trace_id = &trace_id;
    assert_eq!(
        events(&change(None, Some(&lrp))),
        [Event::DesiredLrpCreated {
            lrp: &lrp,
            trace_id
        }]
    );
    let changed = [Event::DesiredLrpChanged {
        before: &before,
        after: &lrp,
        trace_id,
    }];
    assert_eq!(events(&change(Some(&before), Some(&lrp))), changed);
    assert_eq!(
        events(&change(Some(&lrp), None)),
        [Event::DesiredLrpRemoved {
            lrp: &lrp,
            trace_id
        }]
    );
    assert_eq!(events(&change(None, None)), []);

    let before = Task::default();
    let after = Task {
        state: 1,
        ..Task::default()
    };
    let change = |before: Option<&Task>, after: Option<&Task>| {
        let boxed = |task: Option<&Task>| task.cloned().map(Box::new);
        RecordChange::Task {
            before: boxed(before),
            after: boxed(after),
        }
    };
    assert_eq!(
        events(&change(None, Some(&after))),
        [Event::TaskCreated(&after)]
    );
    let changed = [Event::TaskChanged {
        before: &before,
        after: &after,
    }];
    assert_eq!(events(&change(Some(&before), Some(&after))), changed);
    // A call that changed nothing has its event, too.
    assert_eq!(events(&change(Some(&after), Some(&after))).len(), 1);
    assert_eq!(
        events(&change(Some(&after), None)),
        [Event::TaskRemoved(&after)]
    );
    assert_eq!(events(&change(None, None)), []);
}

fn slot(rows: &[(&str, Presence, &str)]) -> Slot {
    Slot::of(
        rows.iter()
            .map(|(state, presence, container)| row(state, *presence, container)),
    )
}

#[test]
fn container_is_followed_to_another_row() {
    use Presence::{Evacuating, Ordinary, Suspect};
    let cases: &[(&str, Slot, Slot, &[&str])] = &[
        (
            "evacuating what runs",
            slot(&[("RUNNING", Ordinary, "a")]),
            slot(&[("RUNNING", Evacuating, "a"), ("UNCLAIMED", Ordinary, "")]),
            &["~oaR eaR", "+oU"],
        ),
        (
            "evacuating a suspect",
            slot(&[("CLAIMED", Ordinary, "b"), ("RUNNING", Suspect, "a")]),
            slot(&[("CLAIMED", Ordinary, "b"), ("RUNNING", Evacuating, "a")]),
            &["~saR eaR"],
        ),
        (
            "evacuating in the place of another",
            slot(&[("RUNNING", Ordinary, "a"), ("RUNNING", Evacuating, "old")]),
            slot(&[("RUNNING", Evacuating, "a"), ("UNCLAIMED", Ordinary, "")]),
            &["~oaR eaR", "-eoldR", "+oU"],
        ),
        (
            "a cell disappears",
            slot(&[("CLAIMED", Ordinary, "a")]),
            slot(&[("CLAIMED", Suspect, "a"), ("UNCLAIMED", Ordinary, "")]),
            &["~oaC saC", "+oU"],
        ),
        (
            "a cell disappears again",
            slot(&[("RUNNING", Ordinary, "b"), ("RUNNING", Suspect, "a")]),
            slot(&[("UNCLAIMED", Ordinary, ""), ("RUNNING", Suspect, "a")]),
            &["+oU", "-obR"],
        ),
        (
            "a cell comes back",
            slot(&[("CLAIMED", Ordinary, "b"), ("RUNNING", Suspect, "a")]),
            slot(&[("RUNNING", Ordinary, "a")]),
            &["~saR oaR", "-obC"],
        ),
        (
            "starting in the place of the evacuated and the suspect",
            slot(&[
                ("CLAIMED", Ordinary, "c"),
                ("RUNNING", Evacuating, "a"),
                ("RUNNING", Suspect, "b"),
            ]),
            slot(&[("RUNNING", Ordinary, "c")]),
            &["~ocC ocR", "-eaR", "-sbR"],
        ),
        (
            "what was evacuated runs here",
            slot(&[("UNCLAIMED", Ordinary, ""), ("RUNNING", Evacuating, "a")]),
            slot(&[("RUNNING", Ordinary, "a")]),
            &["~oU oaR", "-eaR"],
        ),
    ];
    for (what, before, after, expected) in cases {
        assert_eq!(summary(before, after, Cause::Other), *expected, "{what}");
    }
}

#[test]
fn container_that_is_put_back_is_followed_or_its_last_event_is_a_change() {
    let slot = |presence, routable| {
        Slot::of([ActualLrp {
            routable,
            ..row("RUNNING", presence, "a")
        }])
    };
    let moved = &["~eaR oaR"][..];
    let recreated = &["+oaR", "-eaR"][..];
    for (routable, cause, expected) in [
        (false, Cause::Reversion, moved),
        (true, Cause::Reversion, &["+oaR", "-eaR", "~oaR oaR"][..]),
        // Its cell starts it, as in Diego.
        (false, Cause::Other, recreated),
        (true, Cause::Other, recreated),
    ] {
        let before = slot(Presence::Evacuating, routable);
        let after = slot(Presence::Ordinary, routable);
        assert_eq!(
            summary(&before, &after, cause),
            expected,
            "{routable} {cause:?}"
        );
    }
}

#[test]
fn instance_events_concern_the_cell_of_their_container() {
    let waits = ordinary("UNCLAIMED", "");
    let runs = ordinary("RUNNING", "a");
    let other = ordinary("RUNNING", "b");
    let on = |container: &str| Some(vec![format!("cell of {container}").into_bytes()]);
    let changed = |before, after| {
        Event::InstanceChanged {
            before,
            after,
            trace_id: NO_TRACE,
        }
        .cells()
    };
    assert_eq!(
        Event::InstanceCreated {
            lrp: &waits,
            trace_id: NO_TRACE
        }
        .cells(),
        Some(vec![Vec::new()])
    );
    assert_eq!(
        Event::InstanceRemoved {
            lrp: &runs,
            trace_id: NO_TRACE
        }
        .cells(),
        on("a")
    );
    assert_eq!(changed(&waits, &runs), on("a"));
    assert_eq!(changed(&runs, &waits), on("a"));
    assert_eq!(changed(&runs, &other), on("b"));
    assert_eq!(changed(&waits, &waits), Some(vec![Vec::new()]));
    assert_eq!(
        Event::InstanceCrashed {
            before: &runs,
            after: &waits
        }
        .cells(),
        on("a")
    );
    assert_eq!(Event::TaskCreated(&Task::default()).cells(), None);
    let lrp = DesiredLrp::default();
    assert_eq!(
        Event::DesiredLrpCreated {
            lrp: &lrp,
            trace_id: NO_TRACE
        }
        .cells(),
        None
    );
}

fn any_cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(vec![Cause::Other, Cause::Crash, Cause::Reversion])
}

/// A container has one row, as in the store.
fn any_slot() -> impl Strategy<Value = Slot> {
    let state = prop::sample::select(vec!["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED"]);
    let one = prop::option::weighted(0.6, (state, 0..4_usize, 0..3_u32, any::<bool>()));
    prop::array::uniform3(one).prop_map(|rows| {
        let mut slot = Slot::default();
        let mut taken = Vec::new();
        for (presence, (state, container, index, routable)) in Presence::ALL
            .into_iter()
            .zip(rows)
            .filter_map(|(p, r)| Some((p, r?)))
        {
            let container = if matches!(state, "CLAIMED" | "RUNNING") {
                ["a", "b", "c", "d"][container]
            } else {
                ""
            };
            if container.is_empty() || !taken.contains(&container) {
                taken.push(container);
                let tag = ModificationTag {
                    epoch: Vec::new(),
                    index,
                };
                *slot.at_mut(presence) = Some(ActualLrp {
                    tag,
                    routable,
                    ..row(state, presence, container)
                });
            }
        }
        slot
    })
}

#[test]
fn row_that_gets_the_name_of_its_definition_has_no_event() {
    for state in ["RUNNING", "CRASHED", "UNCLAIMED"] {
        let slot = |definition_id: &str| Slot {
            ordinary: Some(ActualLrp {
                definition_id: definition_id.into(),
                ..ordinary(state, "a")
            }),
            ..Slot::default()
        };
        let unnamed = slot("");
        assert_eq!(
            summary(&unnamed, &slot("one"), Cause::Other),
            Vec::<String>::new()
        );
        let mut changed = slot("one");
        changed.ordinary.as_mut().unwrap().tag.index += 1;
        assert_ne!(
            summary(&unnamed, &changed, Cause::Other),
            Vec::<String>::new()
        );
    }
}

/// A consumer that applies events literally: removes the old row, adds the new one.
fn apply(rows: &mut Vec<ActualLrp>, event: &Event<'_>) {
    let mut remove = |removed: &ActualLrp| {
        let at = rows
            .iter()
            .position(|row| row == removed)
            .expect("the removed row was present");
        rows.swap_remove(at);
    };
    match *event {
        Event::InstanceCreated { lrp, .. } => rows.push(lrp.clone()),
        Event::InstanceChanged { before, after, .. } => {
            remove(before);
            rows.push(after.clone());
        }
        Event::InstanceRemoved { lrp, .. } => remove(lrp),
        _ => {}
    }
}

/// A router's table: containers by guid and whether they are evacuating.
type Endpoints = BTreeMap<(Vec<u8>, bool), ActualLrp>;

fn endpoint(row: &ActualLrp) -> Option<(Vec<u8>, bool)> {
    let evacuating = row.presence() == Some(Presence::Evacuating);
    (!row.instance_guid.is_empty()).then(|| (row.instance_guid.clone(), evacuating))
}

fn route(endpoints: &mut Endpoints, event: &Event<'_>) {
    let (gone, come) = match *event {
        Event::InstanceCreated { lrp, .. } => (None, Some(lrp)),
        Event::InstanceChanged { before, after, .. } => (Some(before), Some(after)),
        Event::InstanceRemoved { lrp, .. } => (Some(lrp), None),
        _ => (None, None),
    };
    if let Some(key) = gone.and_then(endpoint) {
        endpoints.remove(&key);
    }
    if let Some((key, row)) = come.and_then(|row| Some((endpoint(row)?, row))) {
        endpoints.insert(key, row.clone());
    }
}

fn is_without_difference(event: &Event<'_>) -> bool {
    matches!(event, Event::InstanceChanged { before, after, .. } if before == after)
}

proptest! {
    #[test]
    fn applying_the_events_gives_the_stored_rows(
        slots in prop::collection::vec((any_slot(), any_cause()), 1..12),
    ) {
        let mut consumer = Vec::new();
        let mut endpoints = Endpoints::new();
        let mut before = Slot::default();
        for (after, cause) in slots {
            let images = (Box::new(before), Box::new(after.clone()));
            let change = RecordChange::Slot { before: images.0, after: images.1, cause, trace_id: TraceId::NONE };
            let events = events(&change);
            for event in &events {
                apply(&mut consumer, event);
                route(&mut endpoints, event);
            }
            let is_repeated = events.last().is_some_and(is_without_difference);
            let others = events.len() - usize::from(is_repeated);
            prop_assert!(events[..others].is_sorted_by_key(Event::rank));
            prop_assert!(!events[..others].iter().any(is_without_difference));
            prop_assert!(!is_repeated || cause == Cause::Reversion);
            consumer.sort_by_key(|row: &ActualLrp| row.presence);
            let mut rows: Vec<_> = after.rows().cloned().collect();
            rows.sort_by_key(|row| row.presence);
            prop_assert_eq!(&consumer, &rows);
            let expected: Endpoints = rows.iter().filter_map(|row| Some((endpoint(row)?, row.clone()))).collect();
            prop_assert_eq!(&endpoints, &expected);
            before = after;
        }
    }
}
