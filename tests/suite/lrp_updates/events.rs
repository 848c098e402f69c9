//! Events during an update, as subscribers receive them.

use bbs::testing::domain::convergence;

use super::*;
use crate::harness::database::on_each_database;
use crate::harness::event_stream::{EventStream, GROUPS, INSTANCES};

use crate::harness::layouts::on_each_layout;

/// The stream of instances with their definitions.
const OF_DEFINITIONS: &str = "/v1.2/events/lrp_instances.r1";

on_each_layout!(subscriber_learns_of_a_halt_and_its_end);
async fn subscriber_learns_of_a_halt_and_its_end(kind: Kind) {
    let server = updating(kind, 1).await;
    let mut stream = EventStream::open(server.url(OF_DEFINITIONS), "").await;
    for name in ["new-0", "new-1", "new-2"] {
        crash_new(&server, 0, name).await;
    }
    let halted = status_event(&mut stream).await;
    assert_eq!(
        (halted.failing, &halted.halt_reason[..]),
        (1, &b"it crashed"[..])
    );
    assert_eq!(halted, status(&server).await);
    let halted_updates = async || {
        convergence::run(&server.service)
            .await
            .unwrap()
            .lrps
            .halted_updates
    };
    assert_eq!(halted_updates().await, 1);
    assert_eq!(cancel(&server).await, None);
    let resumed = status_event(&mut stream).await;
    assert_eq!((resumed.failing, &resumed.halt_reason[..]), (0, &b""[..]));
    assert_eq!(halted_updates().await, 0);
}

on_each_layout!(subscribers_of_diego_learn_of_neither_halts_nor_definitions);
async fn subscribers_of_diego_learn_of_neither_halts_nor_definitions(kind: Kind) {
    let server = running(kind, 1).await;
    let mut current = EventStream::open(server.url(INSTANCES), "").await;
    let mut groups = EventStream::get(server.url(GROUPS), "").await;
    let mut newer = EventStream::open(server.url(OF_DEFINITIONS), "").await;
    update_to(&server, "version-2").await;
    until_rows(&server, &REPLACED).await;
    for name in ["new-0", "new-1", "new-2"] {
        crash_new(&server, 0, name).await;
    }
    status_event(&mut newer).await;
    assert_eq!(remove_lrp(&server).await, None);
    for stream in [&mut current, &mut groups] {
        let mut names = Vec::new();
        while names
            .last()
            .is_none_or(|name| name != "desired_lrp_removed")
        {
            let event = stream.next().await.expect("the stream is open");
            for id in ["version-1", "version-2"] {
                let has_id = event
                    .message
                    .windows(id.len())
                    .any(|window| window == id.as_bytes());
                assert!(!has_id, "{} has {id}", event.name);
            }
            if event.name == "desired_lrp_changed" {
                let event: proto::DesiredLrpChangedEvent = event.message();
                assert_ne!(event.before, event.after);
            }
            names.push(event.name);
        }
        assert!(
            names.iter().any(|name| name.contains("crashed")),
            "{names:?}"
        );
    }
}

/// The status of the next event that has one.
async fn status_event(stream: &mut EventStream) -> proto::DesiredLrpUpdateStatus {
    loop {
        let event = stream.next().await.expect("the stream is open");
        if event.name != "desired_lrp_changed" {
            continue;
        }
        let event: proto::DesiredLrpChangedEvent = event.message();
        if let Some(status) = event.update_status {
            assert_eq!(event.before, event.after);
            return status;
        }
    }
}

on_each_layout!(subscriber_learns_of_the_new_instance_before_the_old_one_is_removed);
async fn subscriber_learns_of_the_new_instance_before_the_old_one_is_removed(kind: Kind) {
    let server = running(kind, 1).await;
    let mut stream = EventStream::open(server.url(OF_DEFINITIONS), "").await;
    update_to(&server, "version-2").await;
    until_rows(&server, &REPLACED).await;
    start_new(&server, 0, "new-0").await;
    until_done(&server).await;
    let described = |lrp: Option<proto::ActualLrp>| {
        let lrp = lrp.unwrap_or_default();
        let container = text(
            &lrp.actual_lrp_instance_key
                .unwrap_or_default()
                .instance_guid,
        );
        format!(
            "{} {container} {}",
            text(&lrp.state),
            text(&lrp.desired_lrp_definition_id)
        )
    };
    let mut seen = Vec::new();
    loop {
        let event = stream.next().await.expect("the stream is open");
        let line = match event.name.as_str() {
            "desired_lrp_changed" => {
                let lrp = event
                    .message::<proto::DesiredLrpChangedEvent>()
                    .after
                    .unwrap_or_default();
                format!(
                    "desired {} {}",
                    text(&lrp.definition_id),
                    text(&lrp.previous_definition_id)
                )
            }
            "actual_lrp_instance_created" => {
                format!(
                    "created {}",
                    described(
                        event
                            .message::<proto::ActualLrpInstanceCreatedEvent>()
                            .actual_lrp
                    )
                )
            }
            "actual_lrp_instance_removed" => {
                format!(
                    "removed {}",
                    described(
                        event
                            .message::<proto::ActualLrpInstanceRemovedEvent>()
                            .actual_lrp
                    )
                )
            }
            "actual_lrp_instance_changed" => {
                let changed = event.message::<proto::ActualLrpInstanceChangedEvent>();
                let container = text(
                    &changed
                        .actual_lrp_instance_key
                        .unwrap_or_default()
                        .instance_guid,
                );
                let before = changed.before.unwrap_or_default();
                let after = changed.after.unwrap_or_default();
                assert_eq!(
                    before.desired_lrp_definition_id,
                    after.desired_lrp_definition_id
                );
                let definition = text(&after.desired_lrp_definition_id);
                format!(
                    "changed {} {container} {} {definition}",
                    text(&after.state),
                    after.presence
                )
            }
            other => other.to_owned(),
        };
        let is_last = line == "desired version-2 ";
        seen.push(line);
        if is_last {
            break;
        }
    }
    let expected = [
        "desired version-2 version-1",
        "changed RUNNING old-0 1 version-1",
        "created UNCLAIMED  version-2",
        "changed CLAIMED new-0 0 version-2",
        "changed RUNNING new-0 0 version-2",
        "removed RUNNING old-0 version-1",
        "desired version-2 ",
    ];
    assert_eq!(seen, expected);
}

on_each_database!(event_of_a_crash_names_the_definition_that_crashed);
async fn event_of_a_crash_names_the_definition_that_crashed(kind: Kind) {
    let server = running(kind, 1).await;
    let mut stream = EventStream::open(server.url(OF_DEFINITIONS), "").await;
    assert_eq!(call_error(&server, CRASH, &crash(0, "old-0")).await, None);
    update_to(&server, "version-2").await;
    crash_new(&server, 0, "new-0").await;
    let mut crashes = Vec::new();
    while crashes.len() < 2 {
        let event = stream.next().await.expect("the stream is open");
        if event.name == "actual_lrp_crashed" {
            let crashed: proto::ActualLrpCrashedEvent = event.message();
            let container = text(
                &crashed
                    .actual_lrp_instance_key
                    .unwrap_or_default()
                    .instance_guid,
            );
            crashes.push((container, text(&crashed.desired_lrp_definition_id)));
        }
    }
    assert_eq!(
        crashes,
        [
            ("old-0".into(), "version-1".into()),
            ("new-0".into(), "version-2".into())
        ]
    );
}

/// The next event of a crash, as its container, count and reason.
async fn crash_event(stream: &mut EventStream) -> (String, i32, String) {
    loop {
        let event = stream.next().await.expect("the stream is open");
        if event.name == "actual_lrp_crashed" {
            let crashed: proto::ActualLrpCrashedEvent = event.message();
            let container = crashed.actual_lrp_instance_key.unwrap_or_default();
            return (
                text(&container.instance_guid),
                crashed.crash_count,
                text(&crashed.crash_reason),
            );
        }
    }
}

on_each_layout!(event_of_a_crash_during_an_update_has_its_count_and_reason);
/// Method: an instance that the update has not reached crashes, and waits as one of the new
/// definition, which has not crashed.
async fn event_of_a_crash_during_an_update_has_its_count_and_reason(kind: Kind) {
    let server = running(kind, 3).await;
    update_to(&server, "version-2").await;
    let mut streams = Vec::new();
    for path in [OF_DEFINITIONS, INSTANCES] {
        streams.push(EventStream::open(server.url(path), "").await);
    }
    streams.push(EventStream::get(server.url(GROUPS), "").await);
    assert_eq!(call_error(&server, CRASH, &crash(2, "old-2")).await, None);
    for stream in &mut streams {
        assert_eq!(
            crash_event(stream).await,
            ("old-2".to_owned(), 1, "it crashed".to_owned())
        );
    }
    let rows = rows(&server).await;
    assert!(
        rows.contains(&"2/0 UNCLAIMED  version-2".to_owned()),
        "{rows:?}"
    );
}

on_each_database!(subscriber_learns_of_the_end_of_an_instance_that_a_cancellation_gives_up);
/// The last event of the container that is kept is a change: a route emitter that synchronises
/// keeps the last one alone.
async fn subscriber_learns_of_the_end_of_an_instance_that_a_cancellation_gives_up(kind: Kind) {
    let server = updating(kind, 1).await;
    claim_new(&server, 0, "new-0").await;
    let mut stream = EventStream::open(server.url(INSTANCES), "").await;
    let mut groups = EventStream::get(server.url(GROUPS), "").await;
    assert_eq!(cancel(&server).await, None);
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let event = stream.next().await.expect("the stream is open");
        let container =
            |key: Option<proto::ActualLrpInstanceKey>| text(&key.unwrap_or_default().instance_guid);
        let of_row = |lrp: Option<proto::ActualLrp>| {
            container(lrp.unwrap_or_default().actual_lrp_instance_key)
        };
        match event.name.as_str() {
            "actual_lrp_instance_removed" => {
                let event: proto::ActualLrpInstanceRemovedEvent = event.message();
                seen.push(format!("removed {}", of_row(event.actual_lrp)));
            }
            "actual_lrp_instance_created" => {
                let event: proto::ActualLrpInstanceCreatedEvent = event.message();
                seen.push(format!("created {}", of_row(event.actual_lrp)));
            }
            "actual_lrp_instance_changed" => {
                let event: proto::ActualLrpInstanceChangedEvent = event.message();
                assert_eq!(event.before, event.after);
                seen.push(format!(
                    "changed {}",
                    container(event.actual_lrp_instance_key)
                ));
            }
            name => assert_eq!(name, "desired_lrp_changed"),
        }
    }
    assert_eq!(
        seen,
        [
            "removed new-0",
            "created old-0",
            "removed old-0",
            "changed old-0"
        ]
    );
    let mut names = Vec::new();
    while names.len() < 4 {
        let event = groups.next().await.expect("the stream is open");
        names.extend(event.name.strip_prefix("actual_lrp_").map(str::to_owned));
    }
    assert_eq!(names, ["removed", "created", "removed", "changed"]);
}
