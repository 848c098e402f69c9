//! Evacuation of a cell: the answer for each of its containers, and the effect on their rows.

use bbs_proto::models as proto;
use bbs_proto::models::desired_lrp::UpdateStrategy;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;

use super::actual_lrps::{
    CLAIM, START, call_error, claim, images, instance, key, net_info, not_found, published, rows,
    start, subscribe, with_two_unclaimed,
};
use super::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{Reply, Server};

const CLAIMED: &str = "/v1/actual_lrps/evacuate_claimed";
pub(crate) const RUNNING: &str = "/v1/actual_lrps/evacuate_running.r1";
const CRASHED: &str = "/v1/actual_lrps/evacuate_crashed";
const STOPPED: &str = "/v1/actual_lrps/evacuate_stopped";
const REMOVE: &str = "/v1/actual_lrps/remove_evacuating";

/// `keep_container` and the error of an evacuation call.
pub(crate) type EvacuationAnswer = (bool, Option<(Type, String)>);

const NOT_KEPT: EvacuationAnswer = (false, None);
pub(crate) const KEPT: EvacuationAnswer = (true, None);

fn answer(reply: &Reply) -> EvacuationAnswer {
    let answer: proto::EvacuationResponse = reply.message();
    let error = answer
        .error
        .map(|error| (error.r#type(), String::from_utf8(error.message).unwrap()));
    (answer.keep_container, error)
}

pub(crate) async fn evacuate(
    server: &Server,
    path: &str,
    request: &impl Message,
) -> EvacuationAnswer {
    answer(&server.call(path, request).await)
}

fn claimed(index: i32, name: &str) -> proto::EvacuateClaimedActualLrpRequest {
    proto::EvacuateClaimedActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
    }
}

fn stopped(index: i32, name: &str) -> proto::EvacuateStoppedActualLrpRequest {
    proto::EvacuateStoppedActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
    }
}

fn crashed(index: i32, name: &str) -> proto::EvacuateCrashedActualLrpRequest {
    let error_message = b"it crashed".to_vec();
    let actual_lrp_instance_key = instance(name);
    proto::EvacuateCrashedActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key,
        error_message,
    }
}

pub(crate) fn running(index: i32, name: &str) -> proto::EvacuateRunningActualLrpRequest {
    proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
        actual_lrp_net_info: net_info(name),
        availability_zone: b"z9".to_vec(),
        ..Default::default()
    }
}

async fn remove(server: &Server, index: i32, name: &str) -> Option<(Type, String)> {
    let request = proto::RemoveEvacuatingActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
    };
    let answer: proto::RemoveEvacuatingActualLrpResponse =
        server.call(REMOVE, &request).await.message();
    answer
        .error
        .map(|error| (error.r#type(), String::from_utf8(error.message).unwrap()))
}

on_layouts_of_sqlite!(evacuated_container_is_kept_until_its_replacement_runs);
async fn evacuated_container_is_kept_until_its_replacement_runs(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    assert_eq!(call_error(&server, CLAIM, &claim(0, "old")).await, None);
    assert_eq!(call_error(&server, START, &start(0, "old")).await, None);
    let before = images(&server).await.remove(0);
    let mut subscription = subscribe(&server);
    for _ in 0..2 {
        assert_eq!(evacuate(&server, RUNNING, &running(0, "old")).await, KEPT);
        assert_eq!(
            rows(&server).await,
            ["0/0/UNCLAIMED//3", "0/1/RUNNING/old/0", "1/0/UNCLAIMED//0"]
        );
    }
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:old -> 0:UNCLAIMED:+1:RUNNING:old"]
    );
    let aside = images(&server).await.remove(1);
    let tag = aside.modification_tag.clone();
    let presence = proto::actual_lrp::Presence::Evacuating.into();
    assert_eq!(
        aside,
        proto::ActualLrp {
            presence,
            modification_tag: tag,
            ..before
        }
    );

    call_error(&server, CLAIM, &claim(0, "new")).await;
    assert_eq!(evacuate(&server, RUNNING, &running(0, "old")).await, KEPT);
    published(&server, &mut subscription).await;
    call_error(&server, START, &start(0, "new")).await;
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:CLAIMED:new+1:RUNNING:old -> 0:RUNNING:new"]
    );
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "old")).await,
        NOT_KEPT
    );
    assert_eq!(rows(&server).await[0], "0/0/RUNNING/new/5");
    assert_eq!(
        published(&server, &mut subscription).await,
        Vec::<String>::new()
    );
}

on_layouts_of_sqlite!(evacuated_container_without_a_row_gets_an_evacuating_one);
async fn evacuated_container_without_a_row_gets_an_evacuating_one(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    assert_eq!(evacuate(&server, RUNNING, &running(0, "old")).await, KEPT);
    let aside = images(&server).await.remove(1);
    assert_eq!(
        (aside.routable, &aside.availability_zone[..]),
        (Some(true), &b"z9"[..])
    );
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "another")).await,
        NOT_KEPT
    );
    let moved = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_net_info: net_info("moved"),
        routable: Some(false),
        ..running(0, "old")
    };
    assert_eq!(evacuate(&server, RUNNING, &moved).await, KEPT);
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//0", "0/1/RUNNING/old/1", "1/0/UNCLAIMED//0"]
    );
    let image = images(&server).await.remove(1);
    assert_eq!(
        (image.actual_lrp_net_info, image.routable),
        (net_info("moved"), Some(true))
    );
}

on_each_database!(undesired_container_is_not_kept_on_evacuation);
async fn undesired_container_is_not_kept_on_evacuation(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    assert_eq!(
        evacuate(&server, RUNNING, &running(7, "old")).await,
        NOT_KEPT
    );
    evacuate(&server, RUNNING, &running(0, "old")).await;
    server.sql("DELETE FROM desired_lrps").await;
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "old")).await,
        NOT_KEPT
    );
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//0", "1/0/UNCLAIMED//0"]
    );
    call_error(&server, START, &start(0, "mine")).await;
    let mut subscription = subscribe(&server);
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "mine")).await,
        NOT_KEPT
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:mine -> "],
        "routers learn that the container goes"
    );
    assert_eq!(
        rows(&server).await[0],
        "0/0/RUNNING/mine/1",
        "convergence removes running instances that are not desired"
    );
}

on_layouts_of_sqlite!(recreated_instances_are_evacuated_one_at_a_time);
async fn recreated_instances_are_evacuated_one_at_a_time(kind: Kind) {
    let server = Server::empty(kind).await;
    let recreated = proto::DesiredLrp {
        update_strategy: UpdateStrategy::Recreate.into(),
        ..lrp("guid")
    };
    desire(&server, recreated).await;
    call_error(&server, START, &start(0, "a")).await;
    assert_eq!(evacuate(&server, RUNNING, &running(0, "a")).await, KEPT);
    call_error(&server, START, &start(1, "b")).await;
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/RUNNING/b/1"]);
    assert_eq!(evacuate(&server, RUNNING, &running(0, "a")).await, NOT_KEPT);
    assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//2", "1/0/RUNNING/b/1"]);
    assert_eq!(evacuate(&server, RUNNING, &running(1, "b")).await, KEPT);
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "a")).await,
        NOT_KEPT,
        "it has no row any more"
    );
    call_error(&server, START, &start(0, "c")).await;
    assert_eq!(evacuate(&server, RUNNING, &running(1, "b")).await, NOT_KEPT);
}

on_layouts_of_sqlite!(evacuated_claimed_instance_is_unclaimed);
async fn evacuated_claimed_instance_is_unclaimed(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, CLAIM, &claim(0, "a")).await;
    let mut subscription = subscribe(&server);
    assert_eq!(
        evacuate(&server, CLAIMED, &claimed(0, "b")).await,
        (false, not_found())
    );
    assert_eq!(evacuate(&server, CLAIMED, &claimed(0, "a")).await, NOT_KEPT);
    assert_eq!(
        evacuate(&server, CLAIMED, &claimed(0, "a")).await,
        (false, not_found())
    );
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//2", "1/0/UNCLAIMED//0"]
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:CLAIMED:a -> 0:UNCLAIMED:"]
    );
    // An inconsistent row: unclaimed, but with a container.
    server.sql("UPDATE actual_lrps SET instance_guid = 'a', cell_id = 'cell-a' WHERE instance_index = 0").await;
    let error = (
        Type::ActualLrpCannotBeUnclaimed,
        "cannot unclaim actual LRP".to_owned(),
    );
    assert_eq!(
        evacuate(&server, CLAIMED, &claimed(0, "a")).await,
        (true, Some(error))
    );
}

on_layouts_of_sqlite!(crash_during_evacuation_is_counted_and_published_as_a_change);
async fn crash_during_evacuation_is_counted_and_published_as_a_change(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    for (count, row) in [
        (1, "0/0/UNCLAIMED//2"),
        (2, "0/0/UNCLAIMED//4"),
        (3, "0/0/CRASHED//6"),
    ] {
        call_error(&server, START, &start(0, "a")).await;
        let mut subscription = subscribe(&server);
        assert_eq!(evacuate(&server, CRASHED, &crashed(0, "a")).await, NOT_KEPT);
        assert_eq!(
            (
                images(&server).await[0].crash_count,
                &rows(&server).await[0][..]
            ),
            (count, row)
        );
        let state = row.split('/').nth(2).unwrap();
        assert_eq!(
            published(&server, &mut subscription).await,
            [format!("0:RUNNING:a -> 0:{state}:")]
        );
    }
    assert_eq!(
        evacuate(&server, CRASHED, &crashed(0, "a")).await,
        (false, not_found())
    );
    let elsewhere = proto::ActualLrpKey {
        domain: b"elsewhere".to_vec(),
        ..key(1).unwrap()
    };
    call_error(&server, START, &start(1, "b")).await;
    let elsewhere = proto::EvacuateCrashedActualLrpRequest {
        actual_lrp_key: Some(elsewhere),
        ..crashed(1, "b")
    };
    assert_eq!(
        evacuate(&server, CRASHED, &elsewhere).await,
        NOT_KEPT,
        "in any domain, as Diego"
    );
    assert_eq!(images(&server).await[1].crash_count, 1);
}

on_layouts_of_sqlite!(evacuation_deletes_stopped_and_replaced_containers);
async fn evacuation_deletes_stopped_and_replaced_containers(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "a")).await;
    assert_eq!(
        evacuate(&server, STOPPED, &stopped(0, "b")).await,
        (false, not_found())
    );
    assert_eq!(evacuate(&server, STOPPED, &stopped(0, "a")).await, NOT_KEPT);
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
    for presence in [1, 2] {
        for path in [CLAIMED, CRASHED, STOPPED] {
            call_error(&server, START, &start(0, "old")).await;
            server
                .sql(&format!(
                    "UPDATE actual_lrps SET presence = {presence} WHERE instance_index = 0"
                ))
                .await;
            // The requests of the three routes share their first fields, so one message serves all.
            assert_eq!(
                evacuate(&server, path, &crashed(0, "old")).await,
                NOT_KEPT,
                "{path}"
            );
            assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"], "{path}");
        }
    }
}

on_layouts_of_sqlite!(remove_evacuating_deletes_only_the_named_container);
async fn remove_evacuating_deletes_only_the_named_container(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "old")).await;
    assert_eq!(remove(&server, 0, "old").await, not_found());
    evacuate(&server, RUNNING, &running(0, "old")).await;
    assert_eq!(remove(&server, 0, "another").await, not_found());
    let mut subscription = subscribe(&server);
    assert_eq!(remove(&server, 0, "old").await, None);
    assert_eq!(remove(&server, 0, "old").await, not_found());
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:UNCLAIMED:+1:RUNNING:old -> 0:UNCLAIMED:"]
    );
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//2", "1/0/UNCLAIMED//0"]
    );
}

on_layouts_of_sqlite!(evacuated_suspect_container_becomes_evacuating);
async fn evacuated_suspect_container_becomes_evacuating(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(7, "lost")).await;
    server
        .sql("UPDATE actual_lrps SET presence = 2, instance_index = 0 WHERE instance_index = 7")
        .await;
    let mut subscription = subscribe(&server);
    assert_eq!(evacuate(&server, RUNNING, &running(0, "lost")).await, KEPT);
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//0", "0/1/RUNNING/lost/0", "1/0/UNCLAIMED//0"]
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:UNCLAIMED:+2:RUNNING:lost -> 0:UNCLAIMED:+1:RUNNING:lost"]
    );
}

on_each_database!(failed_evacuation_keeps_a_container_that_may_run);
async fn failed_evacuation_keeps_a_container_that_may_run(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "a")).await;
    let garbage = "the request received is invalid";
    let no_keys = "Invalid field: actual_lrp_key, Invalid field: actual_lrp_instance_key";
    for (path, keeps, text) in [
        (CLAIMED, true, no_keys.to_owned()),
        (
            RUNNING,
            true,
            format!("{no_keys}, Invalid field: actual_lrp_net_info"),
        ),
        (
            CRASHED,
            false,
            format!("{no_keys}, Invalid field: error_message"),
        ),
        (STOPPED, false, no_keys.to_owned()),
    ] {
        let invalid = |text: &str| (keeps, Some((Type::InvalidRequest, text.to_owned())));
        assert_eq!(
            answer(&server.post(path, []).await),
            invalid(&text),
            "{path}"
        );
        assert_eq!(
            answer(&server.post(path, *b"\x0a\xff").await),
            invalid(garbage),
            "{path}"
        );
    }
    assert_eq!(
        server.post(REMOVE, []).await.error(),
        (Type::InvalidRequest, no_keys.to_owned())
    );
    assert_eq!(
        server.post(REMOVE, *b"\x0a\xff").await.error(),
        (Type::InvalidRequest, garbage.to_owned())
    );

    server
        .sql("UPDATE actual_lrps SET metric_tags = 'garbage' WHERE instance_index = 0")
        .await;
    let unreadable = || Some((Type::Deserialize, "could not deserialize record".to_owned()));
    assert_eq!(
        evacuate(&server, CLAIMED, &claimed(0, "a")).await,
        (true, unreadable())
    );
    assert_eq!(
        evacuate(&server, RUNNING, &running(0, "a")).await,
        (true, unreadable())
    );
    assert_eq!(
        evacuate(&server, CRASHED, &crashed(0, "a")).await,
        (false, unreadable())
    );
    assert_eq!(
        evacuate(&server, STOPPED, &stopped(0, "a")).await,
        (false, unreadable())
    );
    assert_eq!(remove(&server, 0, "a").await, unreadable());
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);

    server.sql("UPDATE bbs_fence SET token = token + 1").await;
    let refused = server.call(RUNNING, &running(1, "b")).await;
    assert!(refused.repeat_reason().contains("no longer the master"));
}
