//! Calls of cells and the auctioneer about actual LRPs: claim, start, crash, fail, remove, retire.

use bbs::testing::events::{Subscription, Topic};
use bbs_model::TraceId;
use bbs_model::change::{Cause, RecordChange};
use bbs_model::slot::Slot;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;

use super::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{NOW_NS, RECORD_VERSION, Server};

pub(crate) const CLAIM: &str = "/v1/actual_lrps/claim";
pub(crate) const START: &str = "/v1/actual_lrps/start.r1";
pub(crate) const CRASH: &str = "/v1/actual_lrps/crash";
pub(crate) const FAIL: &str = "/v1/actual_lrps/fail";
pub(crate) const REMOVE: &str = "/v1/actual_lrps/remove";
pub(crate) const RETIRE: &str = "/v1/actual_lrps/retire";

pub(super) const SECOND: i64 = 1_000_000_000;

pub(crate) fn key(index: i32) -> Option<proto::ActualLrpKey> {
    Some(proto::ActualLrpKey {
        process_guid: b"guid".to_vec(),
        index,
        domain: b"domain".to_vec(),
    })
}

pub(crate) fn instance(name: &str) -> Option<proto::ActualLrpInstanceKey> {
    Some(proto::ActualLrpInstanceKey {
        instance_guid: name.into(),
        cell_id: format!("cell-{name}").into(),
    })
}

pub(crate) fn net_info(name: &str) -> Option<proto::ActualLrpNetInfo> {
    let ports = vec![proto::PortMapping {
        container_port: 8080,
        host_port: 61_000,
        ..Default::default()
    }];
    Some(proto::ActualLrpNetInfo {
        address: format!("address-{name}").into(),
        ports,
        ..Default::default()
    })
}

pub(crate) fn claim(index: i32, name: &str) -> proto::ClaimActualLrpRequest {
    let process_guid = b"guid".to_vec();
    proto::ClaimActualLrpRequest {
        process_guid,
        index,
        actual_lrp_instance_key: instance(name),
    }
}

pub(crate) fn start(index: i32, name: &str) -> proto::StartActualLrpRequest {
    proto::StartActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
        actual_lrp_net_info: net_info(name),
        actual_lrp_internal_routes: vec![proto::ActualLrpInternalRoute {
            hostname: b"a.internal".to_vec(),
        }],
        metric_tags: vec![proto::TextEntry {
            key: b"app".to_vec(),
            value: b"<x>".to_vec(),
        }],
        routable: Some(true),
        availability_zone: b"z1".to_vec(),
    }
}

pub(crate) fn crash(index: i32, name: &str) -> proto::CrashActualLrpRequest {
    let error_message = b"it crashed".to_vec();
    proto::CrashActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
        error_message,
    }
}

pub(crate) fn fail(index: i32) -> proto::FailActualLrpRequest {
    proto::FailActualLrpRequest {
        actual_lrp_key: key(index),
        error_message: b"no room".to_vec(),
    }
}

pub(crate) fn remove(index: i32, name: Option<&str>) -> proto::RemoveActualLrpRequest {
    let actual_lrp_instance_key = name.and_then(instance);
    proto::RemoveActualLrpRequest {
        process_guid: b"guid".to_vec(),
        index,
        actual_lrp_instance_key,
    }
}

/// Makes a call and returns its error.
pub(crate) async fn call_error(
    server: &Server,
    path: &str,
    request: &impl Message,
) -> Option<(Type, String)> {
    let error = server
        .call(path, request)
        .await
        .message::<proto::ActualLrpLifecycleResponse>()
        .error?;
    Some((error.r#type(), String::from_utf8(error.message).unwrap()))
}

pub(crate) fn not_found() -> Option<(Type, String)> {
    Some((
        Type::ResourceNotFound,
        "the requested resource could not be found".into(),
    ))
}

pub(super) fn cannot(kind: Type, verb: &str) -> Option<(Type, String)> {
    Some((kind, format!("cannot {verb} actual LRP")))
}

fn invalid(text: &str) -> Option<(Type, String)> {
    Some((Type::InvalidRequest, text.into()))
}

/// All rows, formatted as index, presence, state, container and index of the modification tag.
pub(crate) async fn rows(server: &Server) -> Vec<String> {
    let query = "SELECT concat(instance_index, '/', presence, '/', state, '/', instance_guid, '/', \
         modification_tag_index) FROM actual_lrps ORDER BY process_guid, instance_index, presence";
    server.texts(query).await
}

/// All instances as the API lists them.
pub(crate) async fn images(server: &Server) -> Vec<proto::ActualLrp> {
    let reply = server
        .call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
        .await;
    sorted(reply.message::<proto::ActualLrPsResponse>().actual_lrps)
}

/// Lists have no defined order.
pub(crate) fn sorted(mut lrps: Vec<proto::ActualLrp>) -> Vec<proto::ActualLrp> {
    lrps.sort_by_key(|lrp| (lrp.actual_lrp_key.as_ref().unwrap().index, lrp.presence));
    lrps
}

pub(crate) fn subscribe(server: &Server) -> Subscription {
    server
        .service
        .events()
        .subscribe(Topic::Lrps)
        .expect("the events are open")
}

/// The changes published since the previous call: the rows before and after, each as presence,
/// state and container.
pub(crate) async fn published(server: &Server, subscription: &mut Subscription) -> Vec<String> {
    fn text(slot: &Slot) -> String {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        slot.rows()
            .map(|row| {
                format!(
                    "{}:{}:{}",
                    row.presence,
                    text(&row.state),
                    text(&row.instance_guid)
                )
            })
            .collect::<Vec<_>>()
            .join("+")
    }
    // Changes are published before a call is answered, so this marker follows all of them.
    server.service.events().publish(RecordChange::DesiredLrp {
        before: None,
        after: None,
        trace_id: TraceId::NONE,
    });
    let mut found = Vec::new();
    loop {
        let next = subscription
            .next()
            .await
            .expect("the subscription keeps up");
        match &next.change {
            RecordChange::Slot {
                before,
                after,
                cause,
                ..
            } => {
                let crash = if *cause == Cause::Crash { " crash" } else { "" };
                found.push(format!("{} -> {}{crash}", text(before), text(after)));
            }
            RecordChange::DesiredLrp {
                before: None,
                after: None,
                ..
            } => return found,
            RecordChange::DesiredLrp { .. }
            | RecordChange::UpdateHalt { .. }
            | RecordChange::Task { .. } => {}
        }
    }
}

/// A server with one desired LRP, whose two instances are unclaimed.
pub(crate) async fn with_two_unclaimed(kind: Kind) -> Server {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    server.clock.set(NOW_NS + SECOND);
    server
}

on_layouts_of_sqlite!(repeated_claims_and_starts_change_an_instance_once);
async fn repeated_claims_and_starts_change_an_instance_once(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    assert_eq!(call_error(&server, FAIL, &fail(1)).await, None);
    let waiting = images(&server).await;
    assert_eq!(
        (&waiting[1].placement_error[..], waiting[1].since),
        (&b"no room"[..], NOW_NS + SECOND)
    );
    for _ in 0..2 {
        assert_eq!(call_error(&server, CLAIM, &claim(1, "a")).await, None);
        assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//0", "1/0/CLAIMED/a/2"]);
    }
    assert_eq!(images(&server).await[1].placement_error, b"");
    server.clock.set(NOW_NS + 2 * SECOND);
    for _ in 0..3 {
        assert_eq!(call_error(&server, START, &start(1, "a")).await, None);
        server.clock.set(NOW_NS + 3 * SECOND);
        assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//0", "1/0/RUNNING/a/3"]);
    }
    let expected = proto::ActualLrp {
        actual_lrp_key: key(1),
        actual_lrp_instance_key: instance("a"),
        actual_lrp_net_info: net_info("a"),
        state: b"RUNNING".to_vec(),
        since: NOW_NS + 2 * SECOND,
        modification_tag: Some(proto::ModificationTag {
            epoch: waiting[1].modification_tag.clone().unwrap().epoch,
            index: 3,
        }),
        actual_lrp_internal_routes: start(1, "a").actual_lrp_internal_routes,
        metric_tags: start(1, "a").metric_tags,
        routable: Some(true),
        availability_zone: b"z1".to_vec(),
        ..Default::default()
    };
    assert_eq!(
        images(&server).await,
        [waiting[0].clone(), expected.clone()]
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        [
            "0:UNCLAIMED: -> 0:UNCLAIMED:",
            "0:UNCLAIMED: -> 0:CLAIMED:a",
            "0:CLAIMED:a -> 0:RUNNING:a",
        ]
    );
    let without_routes = proto::StartActualLrpRequest {
        actual_lrp_internal_routes: Vec::new(),
        metric_tags: Vec::new(),
        routable: Some(false),
        ..start(1, "a")
    };
    for _ in 0..2 {
        assert_eq!(call_error(&server, START, &without_routes).await, None);
    }
    let image = images(&server).await.remove(1);
    assert_eq!(
        (
            image.routable,
            image.metric_tags,
            image.modification_tag.unwrap().index
        ),
        (Some(false), vec![], 4)
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:a -> 0:RUNNING:a"]
    );
}

on_each_database!(start_of_an_unknown_container_creates_its_row);
async fn start_of_an_unknown_container_creates_its_row(kind: Kind) {
    let server = Server::empty(kind).await;
    let without_routable = proto::StartActualLrpRequest {
        routable: None,
        ..start(4, "a")
    };
    assert_eq!(call_error(&server, START, &without_routable).await, None);
    let image = images(&server).await.remove(0);
    assert_eq!(
        (image.routable, image.since, image.actual_lrp_key),
        (Some(true), NOW_NS, key(4))
    );
    let version = "SELECT concat(record_version, '') FROM actual_lrps";
    assert_eq!(server.texts(version).await, [RECORD_VERSION.to_string()]);
    assert_eq!(call_error(&server, START, &start(4, "a")).await, None);
    assert_eq!(rows(&server).await, ["4/0/RUNNING/a/0"]);
}

on_layouts_of_sqlite!(calls_that_do_not_fit_the_state_are_rejected);
async fn calls_that_do_not_fit_the_state_are_rejected(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    for (path, found) in [
        (CLAIM, call_error(&server, CLAIM, &claim(7, "a")).await),
        (CLAIM, call_error(&server, CLAIM, &claim(-1, "a")).await),
        (CRASH, call_error(&server, CRASH, &crash(7, "a")).await),
        (REMOVE, call_error(&server, REMOVE, &remove(7, None)).await),
        (
            REMOVE,
            call_error(&server, REMOVE, &remove(0, Some("a"))).await,
        ),
        (
            RETIRE,
            call_error(
                &server,
                RETIRE,
                &proto::RetireActualLrpRequest {
                    actual_lrp_key: key(7),
                },
            )
            .await,
        ),
    ] {
        assert_eq!(found, not_found(), "{path}");
    }
    assert_eq!(call_error(&server, FAIL, &fail(7)).await, None);
    assert_eq!(
        call_error(&server, CRASH, &crash(0, "a")).await,
        cannot(Type::ActualLrpCannotBeCrashed, "crash")
    );
    call_error(&server, START, &start(0, "a")).await;
    published(&server, &mut subscription).await;
    let before = images(&server).await;
    let elsewhere = proto::StartActualLrpRequest {
        actual_lrp_key: Some(elsewhere()),
        ..start(0, "a")
    };
    assert_eq!(
        call_error(&server, CLAIM, &claim(0, "b")).await,
        cannot(Type::ActualLrpCannotBeClaimed, "claim")
    );
    assert_eq!(
        call_error(&server, START, &start(0, "b")).await,
        cannot(Type::ActualLrpCannotBeStarted, "start")
    );
    assert_eq!(
        call_error(&server, START, &elsewhere).await,
        cannot(Type::ActualLrpCannotBeStarted, "start")
    );
    assert_eq!(
        call_error(&server, CRASH, &crash(0, "b")).await,
        cannot(Type::ActualLrpCannotBeCrashed, "crash")
    );
    assert_eq!(
        call_error(&server, FAIL, &fail(0)).await,
        cannot(Type::ActualLrpCannotBeFailed, "fail")
    );
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("b"))).await,
        not_found()
    );
    assert_eq!(images(&server).await, before);
    assert_eq!(
        published(&server, &mut subscription).await,
        Vec::<String>::new()
    );
}

/// The key of the first instance, with another domain than its own.
fn elsewhere() -> proto::ActualLrpKey {
    proto::ActualLrpKey {
        domain: b"elsewhere".to_vec(),
        ..key(0).unwrap()
    }
}

on_layouts_of_sqlite!(crash_is_recorded_whatever_domain_the_call_has);
async fn crash_is_recorded_whatever_domain_the_call_has(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "a")).await;
    let request = proto::CrashActualLrpRequest {
        actual_lrp_key: Some(elsewhere()),
        ..crash(0, "a")
    };
    assert_eq!(call_error(&server, CRASH, &request).await, None);
    let crashed = images(&server).await.remove(0);
    assert_eq!((crashed.crash_count, crashed.actual_lrp_key), (1, key(0)));
}

on_layouts_of_sqlite!(removal_deletes_only_the_named_instance);
async fn removal_deletes_only_the_named_instance(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    call_error(&server, START, &start(1, "a")).await;
    assert_eq!(
        call_error(&server, REMOVE, &remove(1, Some("a"))).await,
        None
    );
    assert_eq!(
        call_error(&server, REMOVE, &remove(1, Some("a"))).await,
        not_found()
    );
    assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//0"]);
    // An empty key names no container.
    let empty_key = Some(proto::ActualLrpInstanceKey::default());
    let request = proto::RemoveActualLrpRequest {
        actual_lrp_instance_key: empty_key,
        ..remove(0, None)
    };
    assert_eq!(call_error(&server, REMOVE, &request).await, None);
    assert_eq!(rows(&server).await, Vec::<String>::new());
    let expected = [
        "0:UNCLAIMED: -> 0:RUNNING:a",
        "0:RUNNING:a -> ",
        "0:UNCLAIMED: -> ",
    ];
    assert_eq!(published(&server, &mut subscription).await, expected);
    call_error(&server, START, &start(1, "a")).await;
    assert_eq!(call_error(&server, REMOVE, &remove(1, None)).await, None);
    assert_eq!(rows(&server).await, Vec::<String>::new());
}

on_layouts_of_sqlite!(suspect_container_keeps_its_row_until_another_runs);
async fn suspect_container_keeps_its_row_until_another_runs(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    assert_eq!(call_error(&server, CLAIM, &claim(0, "old")).await, None);
    assert_eq!(call_error(&server, START, &start(0, "old")).await, None);
    server
        .sql(
            "UPDATE actual_lrps SET presence = 1 WHERE instance_index = 0 AND presence = 0; \
             UPDATE actual_lrps SET instance_index = 0 WHERE instance_index = 1",
        )
        .await;
    let expected = ["0/0/UNCLAIMED//0", "0/1/RUNNING/old/2"];
    assert_eq!(rows(&server).await, expected);
    call_error(
        &server,
        START,
        &proto::StartActualLrpRequest {
            actual_lrp_key: key(9),
            ..start(9, "lost")
        },
    )
    .await;
    server
        .sql("UPDATE actual_lrps SET presence = 2, instance_index = 0 WHERE instance_index = 9")
        .await;
    let mut subscription = subscribe(&server);
    assert_eq!(call_error(&server, CLAIM, &claim(0, "lost")).await, None);
    assert_eq!(call_error(&server, START, &start(0, "lost")).await, None);
    assert_eq!(
        rows(&server).await,
        [
            "0/0/UNCLAIMED//0",
            "0/1/RUNNING/old/2",
            "0/2/RUNNING/lost/0"
        ]
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        Vec::<String>::new()
    );
    assert_eq!(call_error(&server, START, &start(0, "new")).await, None);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/new/1"]);
    let expected = ["0:UNCLAIMED:+1:RUNNING:old+2:RUNNING:lost -> 0:RUNNING:new"];
    assert_eq!(published(&server, &mut subscription).await, expected);
}

on_layouts_of_sqlite!(requests_are_validated_before_the_database_is_read);
async fn requests_are_validated_before_the_database_is_read(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let no_keys = "Invalid field: actual_lrp_key, Invalid field: actual_lrp_instance_key";
    for (path, text) in [
        (
            CLAIM,
            "Invalid field: process_guid, Invalid field: actual_lrp_instance_key".to_owned(),
        ),
        (
            START,
            format!("{no_keys}, Invalid field: actual_lrp_net_info"),
        ),
        (CRASH, no_keys.to_owned()),
        (
            FAIL,
            "Invalid field: actual_lrp_key, Invalid field: error_message".to_owned(),
        ),
        (REMOVE, "Invalid field: process_guid".to_owned()),
        (RETIRE, "Invalid field: actual_lrp_key".to_owned()),
    ] {
        let error = server.post(path, []).await.error();
        assert_eq!(Some(error), invalid(&text), "{path}");
        let garbage = server.post(path, *b"\x0a\xff").await.error();
        assert_eq!(
            Some(garbage),
            invalid("the request received is invalid"),
            "{path}"
        );
    }
    // Values too long or invalid for their column.
    for name in ["x".repeat(256), "x".repeat(4000)] {
        let found = call_error(&server, CLAIM, &claim(0, &name)).await;
        assert_eq!(found, invalid("the request received is invalid"));
    }
    let broken = proto::StartActualLrpRequest {
        availability_zone: b"\xff".to_vec(),
        ..start(0, "a")
    };
    assert_eq!(
        call_error(&server, START, &broken).await,
        invalid("the request received is invalid")
    );
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//0", "1/0/UNCLAIMED//0"]
    );
}

on_layouts_of_sqlite!(unreadable_row_is_reported_and_left_unchanged);
async fn unreadable_row_is_reported_and_left_unchanged(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, START, &start(0, "a")).await;
    server
        .sql("UPDATE actual_lrps SET net_info = 'garbage' WHERE instance_index = 0")
        .await;
    let unreadable = Some((Type::Deserialize, "could not deserialize record".to_owned()));
    let retire = proto::RetireActualLrpRequest {
        actual_lrp_key: key(0),
    };
    for found in [
        call_error(&server, CLAIM, &claim(0, "a")).await,
        call_error(&server, START, &start(0, "a")).await,
        call_error(&server, CRASH, &crash(0, "a")).await,
        call_error(&server, FAIL, &fail(0)).await,
        call_error(&server, REMOVE, &remove(0, Some("a"))).await,
        call_error(&server, RETIRE, &retire).await,
    ] {
        assert_eq!(found, unreadable);
    }
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
    assert_eq!(
        call_error(&server, START, &start(1, "b")).await,
        None,
        "the other instance is readable"
    );
}

on_layouts_of_sqlite!(one_of_many_concurrent_claims_wins);
async fn one_of_many_concurrent_claims_wins(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    let claims = (0..8).map(|at| {
        let server = &server;
        async move { call_error(server, CLAIM, &claim(0, &format!("i{at}"))).await }
    });
    let found = futures_util::future::join_all(claims).await;
    assert_eq!(
        found.iter().filter(|error| error.is_none()).count(),
        1,
        "{found:?}"
    );
    let lost = cannot(Type::ActualLrpCannotBeClaimed, "claim");
    assert!(
        found.iter().all(|error| error.is_none() || *error == lost),
        "{found:?}"
    );
    assert_eq!(published(&server, &mut subscription).await.len(), 1);
    let winner = found.iter().position(Option::is_none).unwrap();
    assert_eq!(rows(&server).await[0], format!("0/0/CLAIMED/i{winner}/1"));
}

on_layouts_of_sqlite!(concurrent_claim_and_crash_are_serialized);
async fn concurrent_claim_and_crash_are_serialized(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    call_error(&server, CLAIM, &claim(0, "a")).await;
    let mut subscription = subscribe(&server);
    let crash = crash(0, "a");
    let claim = claim(0, "b");
    let (crashed, claimed) = tokio::join!(
        call_error(&server, CRASH, &crash),
        call_error(&server, CLAIM, &claim)
    );
    assert_eq!(crashed, None);
    let changes = published(&server, &mut subscription).await;
    if claimed.is_none() {
        assert_eq!(
            changes,
            [
                "0:CLAIMED:a -> 0:UNCLAIMED: crash",
                "0:UNCLAIMED: -> 0:CLAIMED:b"
            ]
        );
    } else {
        assert_eq!(claimed, cannot(Type::ActualLrpCannotBeClaimed, "claim"));
        assert_eq!(changes, ["0:CLAIMED:a -> 0:UNCLAIMED: crash"]);
    }
}

on_each_database!(host_without_the_lock_changes_no_instance);
async fn host_without_the_lock_changes_no_instance(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    server.sql("UPDATE bbs_fence SET token = token + 1").await;
    let reason = server.call(CLAIM, &claim(0, "a")).await.repeat_reason();
    assert!(reason.contains("no longer the master"), "{reason}");
    assert_eq!(
        rows(&server).await,
        ["0/0/UNCLAIMED//0", "1/0/UNCLAIMED//0"]
    );
}

on_layouts_of_sqlite!(unclaimed_instances_and_those_of_unknown_cells_are_retired_at_once);
async fn unclaimed_instances_and_those_of_unknown_cells_are_retired_at_once(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    call_error(&server, START, &start(1, "a")).await;
    for index in [0, 1] {
        let request = proto::RetireActualLrpRequest {
            actual_lrp_key: key(index),
        };
        assert_eq!(call_error(&server, RETIRE, &request).await, None);
        assert_eq!(call_error(&server, RETIRE, &request).await, not_found());
    }
    assert_eq!(rows(&server).await, Vec::<String>::new());
    let expected = [
        "0:UNCLAIMED: -> 0:RUNNING:a",
        "0:UNCLAIMED: -> ",
        "0:RUNNING:a -> ",
    ];
    assert_eq!(published(&server, &mut subscription).await, expected);
}
