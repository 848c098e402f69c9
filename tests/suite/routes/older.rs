//! Routes that translators add: which ones they are, and each error of theirs that native routes
//! report too.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;

use super::{Verb, empty, routes_of_translators};
use crate::api::actual_lrps::{START, call_error, instance, key, net_info, rows, start};
use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::event_stream::EventStream;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{Reply, Server};

/// Diego's names, verbs and paths of the routes that Diego deprecates.
const DEPRECATED: [(&str, Verb, &str); 14] = [
    ("ActualLRPGroups", Verb::Post, "actual_lrp_groups/list"),
    (
        "ActualLRPGroupsByProcessGuid",
        Verb::Post,
        "actual_lrp_groups/list_by_process_guid",
    ),
    (
        "ActualLRPGroupsByProcessGuidAndIndex",
        Verb::Post,
        "actual_lrp_groups/get_by_process_guid_and_index",
    ),
    ("StartActualLRP_r0", Verb::Post, "actual_lrps/start"),
    (
        "EvacuateRunningActualLRP_r0",
        Verb::Post,
        "actual_lrps/evacuate_running",
    ),
    ("DesiredLRPs_r2", Verb::Post, "desired_lrps/list.r2"),
    (
        "DesiredLRPByProcessGuid_r2",
        Verb::Post,
        "desired_lrps/get_by_process_guid.r2",
    ),
    ("Tasks_r2", Verb::Post, "tasks/list.r2"),
    ("TaskByGuid_r2", Verb::Post, "tasks/get_by_task_guid.r2"),
    ("FailTask", Verb::Post, "tasks/fail"),
    ("EventStream", Verb::Get, "events.r1"),
    ("EventStream_r0", Verb::Get, "events"),
    ("TaskEventStream_r0", Verb::Post, "events/tasks"),
    (
        "LrpInstanceEventStream_r0",
        Verb::Post,
        "events/lrp_instances",
    ),
];

/// The names, verbs and paths that routes had when Diego dropped them on 2018-03-01.
const DROPPED: [(&str, Verb, &str); 13] = [
    ("DesiredLRPs", Verb::Post, "desired_lrps/list"),
    ("DesiredLRPs_r1", Verb::Post, "desired_lrps/list.r1"),
    (
        "DesiredLRPByProcessGuid",
        Verb::Post,
        "desired_lrps/get_by_process_guid",
    ),
    (
        "DesiredLRPByProcessGuid_r1",
        Verb::Post,
        "desired_lrps/get_by_process_guid.r1",
    ),
    ("DesireDesiredLRP", Verb::Post, "desired_lrp/desire"),
    ("DesireDesiredLRP_r1", Verb::Post, "desired_lrp/desire.r1"),
    ("Tasks", Verb::Post, "tasks/list"),
    ("Tasks_r1", Verb::Post, "tasks/list.r1"),
    ("TaskByGuid", Verb::Get, "tasks/get_by_task_guid"),
    ("TaskByGuid_r1", Verb::Post, "tasks/get_by_task_guid.r1"),
    ("DesireTask", Verb::Post, "tasks/desire"),
    ("DesireTask_r1", Verb::Post, "tasks/desire.r1"),
    ("Cells_r1", Verb::Get, "cells/list.r1"),
];

/// Diego numbers the revisions of a name differently over time; the path has the one that clients
/// see.
#[test]
fn translators_add_the_routes_that_were_deprecated_and_dropped() {
    let unrevised = |name: &str| {
        ["_r0", "_r1", "_r2"]
            .iter()
            .fold(name.to_owned(), |name, end| name.replace(end, ""))
    };
    let routes = DEPRECATED.into_iter().chain(DROPPED);
    let expected: BTreeSet<_> = routes
        .map(|(name, verb, path)| (unrevised(name), verb, path.to_owned()))
        .collect();
    let found = routes_of_translators();
    assert_eq!(found.len(), expected.len());
    let found: BTreeSet<_> = found
        .into_iter()
        .map(|route| (unrevised(&route.name), route.verb, route.path))
        .collect();
    assert_eq!(found, expected);
}

const UNREADABLE: (Type, &str) = (Type::Deserialize, "could not deserialize record");
const NOT_FOUND: (Type, &str) = (
    Type::ResourceNotFound,
    "the requested resource could not be found",
);
const EXISTS: (Type, &str) = (
    Type::ResourceExists,
    "the requested resource already exists",
);

fn assert_error(reply: &Reply, (kind, text): (Type, &str), of: &str) {
    assert_eq!(reply.error(), (kind, text.to_owned()), "{of}");
}

on_each_database!(reading_a_desired_lrp_at_each_older_revision_reports_its_errors);
async fn reading_a_desired_lrp_at_each_older_revision_reports_its_errors(kind: Kind) {
    let server = empty(kind).await;
    desire(&server, lrp("damaged")).await;
    server
        .sql("UPDATE desired_lrps SET run_info = '02AAAA'")
        .await;
    for revision in ["", ".r1", ".r2"] {
        let path = format!("/v1/desired_lrps/get_by_process_guid{revision}");
        for (process_guid, error) in [
            ("", (Type::InvalidRequest, "Invalid field: process_guid")),
            ("absent", NOT_FOUND),
            ("damaged", UNREADABLE),
        ] {
            let request = proto::DesiredLrpByProcessGuidRequest {
                process_guid: process_guid.into(),
            };
            assert_error(&server.call(&path, &request).await, error, &path);
        }
        let list = server
            .post(&format!("/v1/desired_lrps/list{revision}"), [])
            .await;
        assert_eq!(
            list.message::<proto::DesiredLrPsResponse>(),
            Default::default(),
            "{revision}"
        );
    }
}

on_each_database!(reading_a_task_at_each_older_revision_reports_its_errors);
async fn reading_a_task_at_each_older_revision_reports_its_errors(kind: Kind) {
    let server = empty(kind).await;
    server
        .call(
            "/v1/tasks/desire.r2",
            &crate::tasks::desire_request("damaged"),
        )
        .await;
    server.sql("UPDATE tasks SET task_definition = ''").await;
    for (verb, revision) in [("GET", ""), ("POST", ".r1"), ("POST", ".r2")] {
        let path = format!("/v1/tasks/get_by_task_guid{revision}");
        for (task_guid, error) in [
            ("", (Type::InvalidRequest, "Invalid field: task_guid")),
            ("absent", NOT_FOUND),
            ("damaged", UNREADABLE),
        ] {
            let request = proto::TaskByGuidRequest {
                task_guid: task_guid.into(),
            };
            let reply = server.send(verb, &path, &[], request.encode_to_vec()).await;
            assert_error(&reply, error, &path);
        }
        let list = server.post(&format!("/v1/tasks/list{revision}"), []).await;
        assert_eq!(
            list.message::<proto::TasksResponse>(),
            Default::default(),
            "{revision}"
        );
    }
    let request = proto::FailTaskRequest {
        task_guid: b"damaged".to_vec(),
        failure_reason: b"why".to_vec(),
    };
    assert_error(
        &server.call("/v1/tasks/fail", &request).await,
        UNREADABLE,
        "fail",
    );
}

on_layouts_of_sqlite!(desiring_at_each_older_revision_reports_its_errors);
async fn desiring_at_each_older_revision_reports_its_errors(kind: Kind) {
    let server = empty(kind).await;
    desire(&server, lrp("guid")).await;
    server
        .call("/v1/tasks/desire.r2", &crate::tasks::desire_request("guid"))
        .await;
    for revision in ["", ".r1"] {
        let path = format!("/v1/desired_lrp/desire{revision}");
        let desire = async |lrp| {
            server
                .call(
                    &path,
                    &proto::DesireLrpRequest {
                        desired_lrp: Some(lrp),
                    },
                )
                .await
        };
        assert_error(&desire(lrp("guid")).await, EXISTS, &path);
        let reply = desire(proto::DesiredLrp {
            root_fs: Vec::new(),
            ..lrp("other")
        })
        .await;
        assert_error(
            &reply,
            (
                Type::InvalidRequest,
                "Invalid field: rootfs, Invalid field: rootfs",
            ),
            &path,
        );
        let without = (Type::InvalidRequest, "Invalid field: desired_lrp");
        assert_error(&server.post(&path, []).await, without, &path);

        let path = format!("/v1/tasks/desire{revision}");
        assert_error(
            &server
                .call(&path, &crate::tasks::desire_request("guid"))
                .await,
            EXISTS,
            &path,
        );
        let without = proto::DesireTaskRequest {
            task_definition: None,
            ..crate::tasks::desire_request("other")
        };
        let error = (Type::InvalidRequest, "Invalid field: task_definition");
        assert_error(&server.call(&path, &without).await, error, &path);
    }
}

/// The error of an evacuation at the first revision; the container is kept.
async fn evacuation_error(server: &Server, body: Vec<u8>) -> Option<(Type, String)> {
    let answer: proto::EvacuationResponse = server
        .post("/v1/actual_lrps/evacuate_running", body)
        .await
        .message();
    assert!(answer.keep_container);
    answer
        .error
        .map(|error| (error.r#type(), String::from_utf8(error.message).unwrap()))
}

on_each_database!(start_and_evacuation_at_the_first_revision_report_their_errors);
async fn start_and_evacuation_at_the_first_revision_report_their_errors(kind: Kind) {
    const FIRST_START: &str = "/v1/actual_lrps/start";
    let server = empty(kind).await;
    desire(&server, lrp("guid")).await;
    assert_eq!(call_error(&server, START, &start(0, "a")).await, None);
    let cannot = (
        Type::ActualLrpCannotBeStarted,
        "cannot start actual LRP".to_owned(),
    );
    assert_eq!(
        call_error(&server, FIRST_START, &start(0, "b")).await,
        Some(cannot)
    );
    let invalid = |text: &str| Some((Type::InvalidRequest, text.to_owned()));
    let missing = "Invalid field: actual_lrp_key, Invalid field: actual_lrp_instance_key, \
                   Invalid field: actual_lrp_net_info";
    assert_eq!(
        call_error(
            &server,
            FIRST_START,
            &proto::StartActualLrpRequest::default()
        )
        .await,
        invalid(missing)
    );
    assert_eq!(
        evacuation_error(&server, Vec::new()).await,
        invalid(missing)
    );
    assert_eq!(
        evacuation_error(&server, b"\x0a\xff".to_vec()).await,
        invalid("the request received is invalid")
    );

    server
        .sql("UPDATE actual_lrps SET net_info = 'garbage' WHERE instance_index = 0")
        .await;
    let unreadable = Some((UNREADABLE.0, UNREADABLE.1.to_owned()));
    assert_eq!(
        call_error(&server, FIRST_START, &start(0, "a")).await,
        unreadable
    );
    let running = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("a"),
        actual_lrp_net_info: net_info("a"),
        ..Default::default()
    };
    assert_eq!(
        evacuation_error(&server, running.encode_to_vec()).await,
        unreadable
    );
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
}

on_layouts_of_sqlite!(invalid_requests_for_groups_are_rejected);
async fn invalid_requests_for_groups_are_rejected(kind: Kind) {
    let server = empty(kind).await;
    let invalid = |text: &'static str| (Type::InvalidRequest, text);
    let path = "/v1/actual_lrp_groups/list_by_process_guid";
    assert_error(
        &server.post(path, []).await,
        invalid("Invalid field: process_guid"),
        path,
    );
    let path = "/v1/actual_lrp_groups/get_by_process_guid_and_index";
    let get = async |process_guid: &str, index| {
        let process_guid = process_guid.into();
        server
            .call(
                path,
                &proto::ActualLrpGroupByProcessGuidAndIndexRequest {
                    process_guid,
                    index,
                },
            )
            .await
    };
    assert_error(
        &get("", 0).await,
        invalid("Invalid field: process_guid"),
        path,
    );
    assert_error(
        &get("guid", -1).await,
        invalid("Invalid field: index"),
        path,
    );
    assert_error(&get("guid", 0).await, NOT_FOUND, path);
}

/// The verb and path of each event stream of a translator, and whether it reads its body.
const STREAMS: [(Verb, &str, bool); 4] = [
    (Verb::Get, "/v1/events.r1", true),
    (Verb::Get, "/v1/events", true),
    (Verb::Post, "/v1/events/lrp_instances", true),
    (Verb::Post, "/v1/events/tasks", false),
];

async fn open(server: &Server, verb: Verb, path: &str) -> EventStream {
    match verb {
        Verb::Get => EventStream::get(server.url(path), "").await,
        Verb::Post => EventStream::open(server.url(path), "").await,
    }
}

on_layouts_of_sqlite!(requests_for_older_streams_are_answered_as_diego_answers_them);
async fn requests_for_older_streams_are_answered_as_diego_answers_them(kind: Kind) {
    let server = empty(kind).await;
    for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
        for (verb, path, _) in STREAMS.into_iter().filter(|(_, _, reads_body)| *reads_body) {
            let reply = server.send(verb.name(), path, &[], garbage.to_vec()).await;
            assert_eq!((reply.status, reply.body.len()), (500, 0), "{path}");
        }
    }
    let client = crate::harness::http_client();
    let ignored = client
        .post(server.url("/v1/events/tasks"))
        .body(&b"\x00"[..])
        .send()
        .await
        .unwrap();
    assert_eq!(
        ignored.status(),
        200,
        "the stream of tasks ignores the body of its request"
    );
    server.gate.end_streams();
    for (verb, path, _) in STREAMS {
        let reply = server.send(verb.name(), path, &[], vec![]).await;
        assert_eq!(
            (reply.status, reply.body.len()),
            (500, 0),
            "{path} is opened after the end"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_ends_every_older_stream_cleanly_after_published_events() {
    let server = empty(Kind::Sqlite).await;
    let mut streams = Vec::new();
    for (verb, path, _) in STREAMS {
        streams.push((path, open(&server, verb, path).await));
    }
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            ..lrp("guid")
        },
    )
    .await;
    server
        .call("/v1/tasks/desire.r2", &crate::tasks::desire_request("task"))
        .await;
    server.gate.close();
    for (path, stream) in streams {
        let names: Vec<_> = stream
            .rest()
            .await
            .into_iter()
            .map(|event| event.name)
            .collect();
        let expected = if path.ends_with("/tasks") {
            "task_created"
        } else {
            "desired_lrp_created"
        };
        assert_eq!(names, [expected], "{path}");
    }
    for (verb, path, _) in STREAMS {
        assert_eq!(
            server.send(verb.name(), path, &[], vec![]).await.status,
            503,
            "{path}"
        );
    }
}
