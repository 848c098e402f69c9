//! Group events against an oracle of Diego's rules: of generated changes of an instance's rows,
//! over HTTP.

use bbs_model::actual_lrp::{ActualLrp, Presence};
use bbs_model::change::{Cause, RecordChange};
use bbs_model::slot::Slot;
use bbs_model::{ModificationTag, TraceId};
use fastrand::Rng;

use super::*;
use crate::harness::event_stream::{EventStream, GROUPS, INSTANCES, ReceivedEvent};

const GENERATED: usize = 10_000;
/// Published before any of their events is read; fewer than a subscriber's queue holds.
const BATCH: usize = 500;

/// Rows of two containers have two tags: no change is without a difference.
fn row(state: &str, presence: Presence, container: &str) -> ActualLrp {
    ActualLrp {
        tag: ModificationTag {
            epoch: container.into(),
            index: 0,
        },
        process_guid: b"guid".to_vec(),
        state: state.into(),
        presence: presence as i32,
        instance_guid: container.into(),
        cell_id: container.into(),
        ..ActualLrp::default()
    }
}

fn change(before: Slot, after: Slot, cause: Cause) -> RecordChange {
    RecordChange::Slot {
        before: Box::new(before),
        after: Box::new(after),
        cause,
        trace_id: TraceId::NONE,
    }
}

/// An instance that runs on one cell, and then on another; an empty cell is none.
pub(super) fn moved(from: &str, to: &str) -> RecordChange {
    let slot = |cell: &str| Slot {
        ordinary: (!cell.is_empty()).then(|| row("RUNNING", Presence::Ordinary, cell)),
        ..Slot::default()
    };
    change(slot(from), slot(to), Cause::Other)
}

fn any_slot(random: &mut Rng) -> Slot {
    let mut slot = Slot::default();
    for presence in Presence::ALL {
        if random.u8(..10) < 6 {
            let state = ["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED", "?"][random.usize(..5)];
            let has_container = matches!(state, "CLAIMED" | "RUNNING" | "?");
            let container = if has_container {
                ["a", "b", "c"][random.usize(..3)]
            } else {
                ""
            };
            *slot.at_mut(presence) = Some(ActualLrp {
                since_ns: random.i64(..2),
                ..row(state, presence, container)
            });
        }
    }
    slot
}

/// The rows that a group shows: the instance and the evacuating one.
type Group = [Option<ActualLrp>; 2];

fn is(row: Option<&ActualLrp>, states: &[&str]) -> bool {
    row.is_some_and(|row| states.iter().any(|state| row.state == state.as_bytes()))
}

fn group(slot: &Slot) -> Group {
    let ordinary = slot.at(Presence::Ordinary);
    let suspect = slot.at(Presence::Suspect);
    let suspect_counts = ordinary.is_none() || is(suspect, &["RUNNING", "CLAIMED"]);
    let instance = if is(ordinary, &["RUNNING"]) || !suspect_counts {
        ordinary
    } else {
        suspect.or(ordinary)
    };
    [instance, slot.at(Presence::Evacuating)].map(Option::<&ActualLrp>::cloned)
}

/// The order of events: crashes, then what runs afterwards.
const CRASH: u8 = 0;
const RUNS: u8 = 1;
const OTHER: u8 = 2;

fn order([instance, evacuating]: &Group) -> u8 {
    let counts = is(instance.as_ref(), &["RUNNING", "CRASHED"]) || evacuating.is_none();
    let resolved = if counts { instance } else { evacuating };
    if is(resolved.as_ref(), &["RUNNING"]) {
        RUNS
    } else {
        OTHER
    }
}

fn text(text: &[u8]) -> String {
    String::from_utf8(text.to_vec()).unwrap()
}

fn name(row: Option<&ActualLrp>) -> String {
    row.map_or_else(
        || "none".to_owned(),
        |row| {
            format!(
                "{}{} {} {}",
                row.presence,
                row.since_ns,
                text(&row.state),
                text(&row.cell_id)
            )
        },
    )
}

fn names(groups: &[&Group]) -> String {
    let rows = groups.iter().flat_map(|group| group.iter());
    rows.map(|row| name(row.as_ref()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The events of an operation in order, each with what it is about.
fn expected(before: &Slot, after: &Slot, is_crash: bool) -> Vec<String> {
    let old = group(before);
    let new = group(after);
    let mut events: Vec<(u8, String)> = Vec::new();
    for slot in 0..2 {
        let only = |group: &Group| [0, 1].map(|at| group[at].clone().filter(|_| at == slot));
        let old_row = old[slot].as_ref();
        let new_row = new[slot].as_ref();
        let crashed = || {
            (
                CRASH,
                format!("actual_lrp_crashed {}", text(&old_row.unwrap().cell_id)),
            )
        };
        let changed = |from: &Group, to: &Group| {
            (
                order(to),
                format!("actual_lrp_changed {}", names(&[from, to])),
            )
        };
        let created = |to: &Group| (order(to), format!("actual_lrp_created {}", names(&[to])));
        let removed = |from: &Group| (OTHER, format!("actual_lrp_removed {}", names(&[from])));
        let from = only(&old);
        let to = only(&new);
        let (Some(old_row_of), Some(new_row_of)) = (old_row, new_row) else {
            events.extend(old_row.map(|_| removed(&from)));
            events.extend(new_row.map(|_| created(&to)));
            continue;
        };
        if old_row_of == new_row_of {
            continue;
        }
        let moved = !old_row_of.instance_guid.is_empty()
            && old_row_of.instance_guid != new_row_of.instance_guid;
        if is_crash {
            events.extend([crashed(), changed(&old, &new)]);
        } else if is(new_row, &["CRASHED"]) {
            events.extend([crashed(), changed(&from, &to)]);
        } else if is(new_row, &["CLAIMED", "RUNNING"]) && moved {
            events.extend([created(&to), removed(&from)]);
        } else if is(new_row, &["UNCLAIMED", "CLAIMED", "RUNNING"]) {
            events.push(changed(&from, &to));
        }
    }
    events.sort_by_key(|(order, _)| *order);
    events.into_iter().map(|(_, event)| event).collect()
}

fn received_row(row: proto::ActualLrp) -> ActualLrp {
    let key = row.actual_lrp_instance_key.unwrap();
    ActualLrp {
        presence: row.presence,
        since_ns: row.since,
        state: row.state,
        cell_id: key.cell_id,
        ..ActualLrp::default()
    }
}

fn received_group(group: Option<proto::ActualLrpGroup>) -> Group {
    let group = group.unwrap();
    [
        group.instance.map(received_row),
        group.evacuating.map(received_row),
    ]
}

/// The subject of an event, as the oracle names it; a crash by the cell.
fn received(event: &ReceivedEvent) -> String {
    let groups = match event.name.as_str() {
        "actual_lrp_created" => {
            vec![received_group(
                event
                    .message::<proto::ActualLrpCreatedEvent>()
                    .actual_lrp_group,
            )]
        }
        "actual_lrp_removed" => {
            vec![received_group(
                event
                    .message::<proto::ActualLrpRemovedEvent>()
                    .actual_lrp_group,
            )]
        }
        "actual_lrp_changed" => {
            let message: proto::ActualLrpChangedEvent = event.message();
            vec![
                received_group(message.before),
                received_group(message.after),
            ]
        }
        "actual_lrp_crashed" => {
            let key = event
                .message::<proto::ActualLrpCrashedEvent>()
                .actual_lrp_instance_key
                .unwrap();
            return format!("{} {}", event.name, text(&key.cell_id));
        }
        other => panic!("{other} is not an event of groups"),
    };
    format!(
        "{} {}",
        event.name,
        names(&groups.iter().collect::<Vec<_>>())
    )
}

/// The events until the end of an operation.
async fn operation(stream: &mut EventStream) -> Vec<ReceivedEvent> {
    let mut events = Vec::new();
    loop {
        let event = stream.next().await.expect("the stream goes on");
        if event.name == "desired_lrp_created" {
            return events;
        }
        events.push(event);
    }
}

/// Goal: subscribers of groups receive what Diego's BBS makes of the same rows. Method: a generated
/// change of the rows, followed by a desired LRP, whose event ends the operation on both streams.
#[tokio::test(flavor = "multi_thread")]
async fn group_events_agree_with_the_rules_of_diego() {
    let server = served::server(Kind::Sqlite, None).await;
    let mut groups = EventStream::get(server.url(GROUPS), "").await;
    let mut instances = EventStream::open(server.url(INSTANCES), "").await;
    let mut random = Rng::with_seed(20_180_302);
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..GENERATED / BATCH {
        let changes: Vec<_> = (0..BATCH)
            .map(|_| (any_slot(&mut random), any_slot(&mut random), random.bool()))
            .collect();
        for (before, after, crash) in &changes {
            let cause = if *crash { Cause::Crash } else { Cause::Other };
            server
                .service
                .events()
                .publish(change(before.clone(), after.clone(), cause));
            let before = None;
            let after = Some(Box::default());
            server.service.events().publish(RecordChange::DesiredLrp {
                before,
                after,
                trace_id: TraceId::NONE,
            });
        }
        for (before, after, _) in &changes {
            let is_crash = operation(&mut instances)
                .await
                .iter()
                .any(|event| event.name == "actual_lrp_crashed");
            let events = operation(&mut groups).await;
            let found: Vec<_> = events.iter().map(received).collect();
            assert_eq!(
                found,
                expected(before, after, is_crash),
                "{before:?} to {after:?}"
            );
            events
                .into_iter()
                .for_each(|event| *kinds.entry(event.name).or_default() += 1);
        }
    }
    assert!(
        kinds.len() == 4 && kinds.values().all(|count| *count > GENERATED / 10),
        "{kinds:?}"
    );
}
