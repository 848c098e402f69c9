//! Crashes of instances: their count, the restart that follows, their reason.

use bbs::testing::events::Topic;
use bbs_model::change::RecordChange;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;

use super::actual_lrps::{
    CRASH, FAIL, SECOND, START, call_error, cannot, crash, fail, images, not_found, published,
    rows, start, subscribe, with_two_unclaimed,
};
use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{NOW_NS, Server};

on_layouts_of_sqlite!(first_two_crashes_restart_at_once_and_the_third_waits);
async fn first_two_crashes_restart_at_once_and_the_third_waits(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    for (count, state) in [(1, "UNCLAIMED"), (2, "UNCLAIMED"), (3, "CRASHED")] {
        assert_eq!(call_error(&server, START, &start(0, "a")).await, None);
        let running = images(&server).await.remove(0);
        assert_eq!(call_error(&server, CRASH, &crash(0, "a")).await, None);
        let crashed = images(&server).await.remove(0);
        let mut expected = proto::ActualLrp {
            state: state.into(),
            actual_lrp_instance_key: Some(Default::default()),
            actual_lrp_net_info: Some(Default::default()),
            crash_count: count,
            crash_reason: b"it crashed".to_vec(),
            ..running
        };
        expected.modification_tag.as_mut().unwrap().index += 1;
        assert_eq!(crashed, expected);
    }
    let expected = [
        "0:UNCLAIMED: -> 0:RUNNING:a",
        "0:RUNNING:a -> 0:UNCLAIMED: crash",
        "0:UNCLAIMED: -> 0:RUNNING:a",
        "0:RUNNING:a -> 0:UNCLAIMED: crash",
        "0:UNCLAIMED: -> 0:RUNNING:a",
        "0:RUNNING:a -> 0:CRASHED: crash",
    ];
    assert_eq!(published(&server, &mut subscription).await, expected);
    assert_eq!(
        call_error(&server, CRASH, &crash(0, "a")).await,
        cannot(Type::ActualLrpCannotBeCrashed, "crash")
    );
    assert_eq!(
        call_error(&server, START, &start(0, "a")).await,
        cannot(Type::ActualLrpCannotBeStarted, "start")
    );
    // After a long enough run the crash count starts again at one.
    assert_eq!(call_error(&server, START, &start(1, "b")).await, None);
    server
        .sql("UPDATE actual_lrps SET crash_count = 100 WHERE instance_index = 1")
        .await;
    server.clock.set(NOW_NS + SECOND + 300 * SECOND + 1);
    assert_eq!(call_error(&server, CRASH, &crash(1, "b")).await, None);
    assert_eq!(images(&server).await[1].crash_count, 1);
}

on_layouts_of_sqlite!(crash_of_an_undesired_instance_is_stored_and_answered_with_not_found);
async fn crash_of_an_undesired_instance_is_stored_and_answered_with_not_found(kind: Kind) {
    let server = Server::empty(kind).await;
    call_error(&server, START, &start(0, "a")).await;
    assert_eq!(
        call_error(&server, CRASH, &crash(0, "a")).await,
        not_found()
    );
    assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//1"]);
}

on_layouts_of_sqlite!(crash_reason_is_stored_truncated_and_published_whole);
async fn crash_reason_is_stored_truncated_and_published_whole(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let long = "é".repeat(3000);
    for (given, kept) in [
        (&b"\xff\xfe"[..], "\u{fffd}\u{fffd}".to_owned()),
        (long.as_bytes(), format!("{}(truncated)", "é".repeat(506))),
    ] {
        call_error(&server, START, &start(0, "a")).await;
        let mut subscription = server.service.events().subscribe(Topic::Lrps).unwrap();
        let request = proto::CrashActualLrpRequest {
            error_message: given.to_vec(),
            ..crash(0, "a")
        };
        assert_eq!(call_error(&server, CRASH, &request).await, None);
        assert_eq!(
            String::from_utf8(images(&server).await[0].crash_reason.clone()).unwrap(),
            kept
        );
        let next = subscription.next().await.unwrap();
        let RecordChange::Slot { after, .. } = &next.change else {
            panic!("a slot changed")
        };
        assert_eq!(after.ordinary.as_ref().unwrap().crash_reason, given);
    }
    let request = proto::FailActualLrpRequest {
        error_message: long.into(),
        ..fail(1)
    };
    assert_eq!(call_error(&server, FAIL, &request).await, None);
    assert!(
        images(&server).await[1]
            .placement_error
            .ends_with(b"(truncated)")
    );
}

on_layouts_of_sqlite!(crash_of_a_suspect_container_deletes_its_row);
async fn crash_of_a_suspect_container_deletes_its_row(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "lost")).await;
    server
        .sql("UPDATE actual_lrps SET presence = 2 WHERE instance_index = 0")
        .await;
    let mut subscription = subscribe(&server);
    assert_eq!(call_error(&server, CRASH, &crash(0, "lost")).await, None);
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
    assert_eq!(
        published(&server, &mut subscription).await,
        ["2:RUNNING:lost ->  crash"]
    );
}
