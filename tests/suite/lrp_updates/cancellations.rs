//! Cancelled updates: the replaced instances are reverted.

use bbs::testing::domain::convergence;

use super::archive::definitions;
use super::*;
use crate::harness::database::on_each_database;
use crate::harness::event_stream::{EventStream, INSTANCES};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::NOW_NS;

const SECOND: i64 = 1_000_000_000;

on_each_layout!(credentials_that_are_changed_during_an_update_stay_after_its_cancellation);
async fn credentials_that_are_changed_during_an_update_stay_after_its_cancellation(kind: Kind) {
    let server = running(kind, 1).await;
    update_to(&server, "version-2").await;
    let credentials = proto::DesiredLrpUpdate {
        image_username: Some(b"user".to_vec()),
        image_password: Some(b"next".to_vec()),
        ..Default::default()
    };
    assert_eq!(update(&server, credentials).await, None);
    assert_eq!(cancel(&server).await, None);
    let lrp = get(&server, "guid").await;
    assert_eq!(
        (lrp.image_username, lrp.image_password),
        (b"user".to_vec(), b"next".to_vec())
    );
    until_done(&server).await;
}

on_each_database!(update_whose_definition_has_grown_may_be_cancelled_and_rolled_back_to);
/// Method: two writes within the limit make a definition that is above it.
async fn update_whose_definition_has_grown_may_be_cancelled_and_rolled_back_to(kind: Kind) {
    let server = running(kind, 1).await;
    assert_eq!(update(&server, to(large("version-2"))).await, None);
    let grown = proto::DesiredLrpUpdate {
        metric_tags: vec![tag("source_id", &"x".repeat(2_000_000))],
        ..Default::default()
    };
    assert_eq!(update(&server, grown).await, None);
    assert_eq!(cancel(&server).await, None);
    assert_eq!(get(&server, "guid").await.definition_id, b"version-1");
    until_done(&server).await;
    assert_eq!(roll_back(&server, "version-2").await, None);
    let lrp = get(&server, "guid").await;
    let tag = lrp.metric_tags[0].value.as_ref().unwrap();
    assert_eq!(
        (text(&lrp.definition_id), tag.r#static.len()),
        ("version-2".into(), 2_000_000)
    );
}

on_each_layout!(cancellation_reverts_the_instances_that_were_replaced);
async fn cancellation_reverts_the_instances_that_were_replaced(kind: Kind) {
    let server = updating(kind, 3).await;
    start_new(&server, 0, "new-0").await;
    until_rows(
        &server,
        &[
            "0/0 RUNNING new-0 version-2",
            "1/0 UNCLAIMED  version-2",
            "1/1 RUNNING old-1 version-1",
            "2/0 RUNNING old-2 version-1",
        ],
    )
    .await;
    claim_new(&server, 1, "new-1").await;
    assert_eq!(cancel(&server).await, None);
    let status_now = status(&server).await;
    assert_eq!(
        (text(&status_now.definition_id), status_now.cancelled),
        ("version-1".into(), true)
    );
    // One was replaced and goes back the same way; one keeps its old container; one was not
    // touched.
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-1",
            "0/1 RUNNING new-0 version-2",
            "1/0 RUNNING old-1 version-1",
            "2/0 RUNNING old-2 version-1",
        ],
    )
    .await;
    // The heartbeat of a container that was given up is refused, so that its cell stops it.
    assert_eq!(
        call_error(&server, START, &start(1, "new-1"))
            .await
            .unwrap()
            .0,
        Type::ActualLrpCannotBeStarted
    );
    start_new(&server, 0, "back-0").await;
    until_rows(
        &server,
        &[
            "0/0 RUNNING back-0 version-1",
            "1/0 RUNNING old-1 version-1",
            "2/0 RUNNING old-2 version-1",
        ],
    )
    .await;
    until_done(&server).await;
    assert_eq!(cancel(&server).await, Some(Type::NoUpdateInProgress));
    assert_eq!(
        roll_back(&server, "version-2").await,
        None,
        "the cancelled definition is archived"
    );
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-2",
            "0/1 RUNNING back-0 version-1",
            "1/0 RUNNING old-1 version-1",
            "2/0 RUNNING old-2 version-1",
        ],
    )
    .await;
}

on_each_database!(cancellation_creates_no_row_for_a_container_that_is_not_ready);
/// Goal: no traffic for the container. A route emitter registers each running one whose row is
/// created, also if it is not routable.
async fn cancellation_creates_no_row_for_a_container_that_is_not_ready(kind: Kind) {
    let server = updating(kind, 1).await;
    let not_ready = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "old-0")
    };
    assert_eq!(call_error(&server, START, &not_ready).await, None);
    settle(&server).await;
    let mut stream = EventStream::open(server.url(INSTANCES), "").await;
    assert_eq!(cancel(&server).await, None);
    let mut names = Vec::new();
    let mut changes_of_the_lrp = 0;
    // The cancellation, and the end of the update.
    while changes_of_the_lrp < 2 {
        let event = stream.next().await.expect("the stream is open");
        if event.name == "desired_lrp_changed" {
            changes_of_the_lrp += 1;
        }
        if event.name == "actual_lrp_instance_changed" {
            let changed: proto::ActualLrpInstanceChangedEvent = event.message();
            let container = changed.actual_lrp_instance_key.unwrap_or_default();
            let after = changed.after.unwrap_or_default();
            assert_eq!(
                (&container.instance_guid[..], after.presence, after.routable),
                (&b"old-0"[..], 0, Some(false))
            );
        }
        names.push(event.name);
    }
    let expected = [
        "desired_lrp_changed",
        "actual_lrp_instance_removed",
        "actual_lrp_instance_changed",
        "desired_lrp_changed",
    ];
    assert_eq!(names, expected, "the instance that waited is removed");
    assert_eq!(rows(&server).await, ["0/0 RUNNING old-0 version-1"]);
}

on_each_database!(cancellation_goes_on_beside_a_container_that_crashed_long_ago);
async fn cancellation_goes_on_beside_a_container_that_crashed_long_ago(kind: Kind) {
    let server = running(kind, 2).await;
    crash_three_times(&server, 1, "old-1").await;
    server.clock.set(NOW_NS + 31 * SECOND);
    convergence::run(&server.service).await.unwrap();
    start_new(&server, 1, "old-1").await;
    // Longer than the time after which a crash counts as the first one.
    server.clock.set(NOW_NS + 1000 * SECOND);
    update_to(&server, "version-2").await;
    until_rows(&server, &FIRST_OF_TWO).await;
    start_new(&server, 0, "new-0").await;
    until_rows(&server, &SECOND_OF_TWO).await;
    assert_eq!(cancel(&server).await, None);
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-1",
            "0/1 RUNNING new-0 version-2",
            "1/0 RUNNING old-1 version-1",
        ],
    )
    .await;
    assert_eq!(status(&server).await.failing, 0);
    start_new(&server, 0, "back-0").await;
    until_done(&server).await;
}

on_each_layout!(cancellation_ends_although_the_previous_definition_fails);
async fn cancellation_ends_although_the_previous_definition_fails(kind: Kind) {
    let server = running(kind, 2).await;
    for (index, name) in [(0, "old-0"), (1, "old-1")] {
        crash_three_times(&server, index, name).await;
    }
    update_to(&server, "version-2").await;
    start_new(&server, 0, "new-0").await;
    start_new_unroutable(&server, 1, "new-1").await;
    assert_eq!(cancel(&server).await, None);
    // The container without traffic is stopped at once; the other one is replaced.
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-1",
            "0/1 RUNNING new-0 version-2",
            "1/0 UNCLAIMED  version-1",
        ],
    )
    .await;
    for name in ["back-1", "back-2", "back-3"] {
        crash_new(&server, 0, name).await;
    }
    settle(&server).await;
    let halted = [
        "0/0 CRASHED  version-1",
        "0/1 RUNNING new-0 version-2",
        "1/0 UNCLAIMED  version-1",
    ];
    assert_eq!(rows(&server).await, halted);
    assert_eq!(
        roll_back(&server, "version-0").await,
        Some(Type::DefinitionNotFound)
    );
    assert_eq!(
        roll_back(&server, "version-1").await,
        None,
        "the current one"
    );
    assert!(status(&server).await.cancelled);
    assert_eq!(rows(&server).await, halted);
    // Either the cancelled update is resumed, or the last container of its definition goes.
    assert_eq!(roll_back(&server, "version-2").await, None);
    assert!(!status(&server).await.cancelled);
    until_rows(
        &server,
        &["0/0 RUNNING new-0 version-2", "1/0 UNCLAIMED  version-2"],
    )
    .await;
    assert_eq!(cancel(&server).await, None);
    until_rows(
        &server,
        &["0/0 RUNNING new-0 version-2", "1/0 UNCLAIMED  version-1"],
    )
    .await;
    assert_eq!(call_error(&server, CRASH, &crash(0, "new-0")).await, None);
    until_done(&server).await;
    assert_eq!(update(&server, to(definition("version-3"))).await, None);
}

/// Updates an LRP of two waiting instances from the definition `before` to `cancelled`, which is
/// cancelled. The way back is halted: the container `new-0` of the cancelled definition has
/// traffic, and the other instance fails with the definition from before.
async fn halt_the_way_back(server: &Server, before: &str, cancelled: &str) {
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(2),
        ..Default::default()
    };
    assert_eq!(update(server, scaled).await, None);
    update_to(server, cancelled).await;
    start_new(server, 0, "new-0").await;
    assert_eq!(cancel(server).await, None);
    for name in ["back-1", "back-2", "back-3"] {
        crash_new(server, 1, name).await;
    }
    settle(server).await;
    let halted = [
        format!("0/0 RUNNING new-0 {cancelled}"),
        format!("1/0 CRASHED  {before}"),
    ];
    assert_eq!(rows(server).await, halted);
    let status = status(server).await;
    assert_eq!(
        (status.cancelled, status.failing, status.running_previous),
        (true, 1, 1)
    );
}

// Goal: an app whose previous definition fails can be corrected while it runs the cancelled one.
on_each_layout!(halted_cancellation_is_followed_by_an_update_that_replaces_all_instances);
async fn halted_cancellation_is_followed_by_an_update_that_replaces_all_instances(kind: Kind) {
    let server = running(kind, 0).await;
    halt_the_way_back(&server, "version-1", "version-2").await;
    update_to(&server, "version-3").await;
    assert_eq!(ids(&server).await, ("version-3".into(), "version-1".into()));
    assert!(!status(&server).await.cancelled);
    // Clients find two definitions, so the container names one of them.
    until_rows(
        &server,
        &["0/0 RUNNING new-0 version-1", "1/0 UNCLAIMED  version-3"],
    )
    .await;
    let listed = [
        ("version-3".into(), 128, true),
        ("version-1".into(), 64, true),
        ("version-2".into(), 128, false),
    ];
    assert_eq!(
        definitions(&server).await,
        listed,
        "the cancelled one is archived"
    );
    start_new(&server, 1, "newest-1").await;
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-3",
            "0/1 RUNNING new-0 version-1",
            "1/0 RUNNING newest-1 version-3",
        ],
    )
    .await;
    // The heartbeat of the replaced container.
    assert_eq!(call_error(&server, START, &start(0, "new-0")).await, None);
    start_new(&server, 0, "newest-0").await;
    until_rows(
        &server,
        &[
            "0/0 RUNNING newest-0 version-3",
            "1/0 RUNNING newest-1 version-3",
        ],
    )
    .await;
    until_done(&server).await;
    assert_eq!(definitions(&server).await.len(), 3);
}

on_each_layout!(halted_cancellation_is_followed_by_a_rollback_which_may_be_cancelled);
async fn halted_cancellation_is_followed_by_a_rollback_which_may_be_cancelled(kind: Kind) {
    let server = running(kind, 0).await;
    update_to(&server, "version-2").await;
    until_done(&server).await;
    halt_the_way_back(&server, "version-2", "version-3").await;
    assert_eq!(roll_back(&server, "version-1").await, None);
    assert_eq!(ids(&server).await, ("version-1".into(), "version-2".into()));
    until_rows(
        &server,
        &["0/0 RUNNING new-0 version-2", "1/0 UNCLAIMED  version-1"],
    )
    .await;
    assert_eq!(
        roll_back(&server, "version-3").await,
        Some(Type::UpdateInProgress),
        "this one is not cancelled"
    );
    assert_eq!(cancel(&server).await, None);
    assert_eq!(ids(&server).await, ("version-2".into(), "version-1".into()));
    settle(&server).await;
    let uncertain = ["0/0 RUNNING new-0 version-2", "1/0 UNCLAIMED  version-2"];
    assert_eq!(rows(&server).await, uncertain);
    let status_now = status(&server).await;
    assert_eq!(
        (status_now.running, status_now.running_previous),
        (0, 1),
        "the container is not taken to run the definition that it names"
    );
    start_new(&server, 1, "back-4").await;
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-2",
            "0/1 RUNNING new-0 version-2",
            "1/0 RUNNING back-4 version-2",
        ],
    )
    .await;
    start_new(&server, 0, "back-0").await;
    until_done(&server).await;
    assert_eq!(
        rows(&server).await,
        [
            "0/0 RUNNING back-0 version-2",
            "1/0 RUNNING back-4 version-2"
        ]
    );
}

on_each_layout!(container_with_the_only_traffic_is_kept_while_it_is_not_ready_for_a_moment);
async fn container_with_the_only_traffic_is_kept_while_it_is_not_ready_for_a_moment(kind: Kind) {
    let server = running(kind, 0).await;
    halt_the_way_back(&server, "version-1", "version-2").await;
    server.clock.set(NOW_NS + SECOND);
    let unroutable = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "new-0")
    };
    assert_eq!(call_error(&server, START, &unroutable).await, None);
    settle(&server).await;
    assert_eq!(
        rows(&server).await,
        ["0/0 RUNNING new-0 version-2", "1/0 CRASHED  version-1"]
    );
    // Longer than the time in which an instance has to become routable.
    server.clock.set(NOW_NS + 200 * SECOND);
    convergence::run(&server.service).await.unwrap();
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-1", "1/0 UNCLAIMED  version-1"],
    )
    .await;
    until_done(&server).await;
}

on_each_layout!(update_of_crashed_instances_may_be_cancelled_and_corrected);
async fn update_of_crashed_instances_may_be_cancelled_and_corrected(kind: Kind) {
    let server = running(kind, 1).await;
    crash_three_times(&server, 0, "old-0").await;
    update_to(&server, "version-2").await;
    for name in ["new-0", "new-1", "new-2"] {
        crash_new(&server, 0, name).await;
    }
    assert_eq!(status(&server).await.failing, 1);
    assert_eq!(cancel(&server).await, None);
    until_done(&server).await;
    assert_eq!(update(&server, to(definition("version-3"))).await, None);
    start_new(&server, 0, "newest").await;
    until_done(&server).await;
}
