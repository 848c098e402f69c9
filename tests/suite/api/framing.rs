//! Requests and answers as HTTP: the gate, verbs, paths, versions, bodies, headers.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{Options, Server};

/// Every route of this release, and whether it reads its body.
const ROUTES: [(&str, bool); 14] = [
    ("ping", false),
    ("domains/list", false),
    ("domains/upsert", true),
    ("actual_lrps/list", true),
    ("actual_lrps/list_by_process_guids", true),
    ("desired_lrp_scheduling_infos/list", true),
    ("desired_lrp_scheduling_infos/get_by_process_guid", true),
    ("desired_lrp_routing_infos/list", true),
    ("desired_lrps/list.r3", true),
    ("desired_lrps/get_by_process_guid.r3", true),
    ("desired_lrp/desire.r2", true),
    ("desired_lrp/update", true),
    ("desired_lrp/remove", true),
    ("tasks/list.r3", true),
];

on_each_layout!(until_the_gate_opens_every_path_is_told_to_come_back);
async fn until_the_gate_opens_every_path_is_told_to_come_back(kind: Kind) {
    let server = Server::closed(Options { kind, ..Options::default() }).await;
    server.progress.enter("copy", "desired_lrps", Some(10));
    server.progress.advance(4);
    for path in ["/v1/ping", "/v0.9/desired_lrps/list", "/nothing", "/"] {
        let reply = server.post(path, []).await;
        assert_eq!((reply.status, reply.header("content-type")), (503, "application/json"), "{path}");
        assert!(reply.header("retry-after").parse::<u32>().unwrap() >= 1);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((&body["phase"], &body["detail"]), (&"copy".into(), &"desired_lrps".into()));
        assert_eq!((&body["done"], &body["total"]), (&4.into(), &10.into()));
    }
    server.gate.open(server.api.clone());
    assert!(server.post("/v1/ping", []).await.message::<proto::PingResponse>().available);
    server.gate.close();
    assert_eq!(server.post("/v1/ping", []).await.status, 503);
}

on_each_layout!(every_route_answers_a_post_and_no_other_verb);
async fn every_route_answers_a_post_and_no_other_verb(kind: Kind) {
    let server = Server::empty(kind).await;
    for (path, _) in ROUTES {
        let path = format!("/v1/{path}");
        let reply = server.post(&path, []).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-protobuf"), "{path}");
        assert_eq!(reply.header("content-length"), reply.body.len().to_string(), "{path}");
        for verb in ["GET", "PUT", "DELETE", "PATCH"] {
            let reply = server.send(verb, &path, &[], vec![]).await;
            assert_eq!((reply.status, reply.header("allow")), (405, "POST"), "{verb} {path}");
            assert_eq!(reply.text(), "Method Not Allowed");
        }
    }
}

on_each_layout!(a_body_that_is_no_message_is_refused_by_every_route_that_reads_it);
async fn a_body_that_is_no_message_is_refused_by_every_route_that_reads_it(kind: Kind) {
    let server = Server::empty(kind).await;
    for (path, reads_body) in ROUTES {
        // A field number 0, a message cut short, a number where a message or text must be.
        for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
            let reply = server.post(&format!("/v1/{path}"), garbage).await;
            if reads_body {
                assert_eq!(reply.error(), (Type::InvalidRequest, "the request received is invalid".into()), "{path}");
            } else {
                assert_eq!(reply.body, server.post(&format!("/v1/{path}"), []).await.body, "{path}");
            }
        }
    }
}

on_each_layout!(other_paths_do_not_exist);
async fn other_paths_do_not_exist(kind: Kind) {
    let server = Server::empty(kind).await;
    let paths = [
        "/",
        "/v1",
        "/v1/",
        "/v1/ping/",
        "/v1//ping",
        "/ping",
        "/v2/ping",
        "/vx/ping",
        "/v1/desired_lrps/list",
        "/v1/desired_lrps/list.r4",
        "/v1/Ping",
        "/v1/tasks/desire.r2",
        "/v1.1/nothing",
    ];
    for path in paths {
        let reply = server.post(path, []).await;
        assert_eq!((reply.status, reply.text().trim_end()), (404, "404 page not found"), "{path}");
        assert!(reply.header("content-type").starts_with("text/plain"), "{path}");
    }
}

on_each_layout!(a_body_over_the_limit_is_not_read);
async fn a_body_over_the_limit_is_not_read(kind: Kind) {
    let server = Server::empty(kind).await;
    let reply = server.post("/v1/domains/upsert", vec![0; bbs::http::LARGEST_BODY + 1]).await;
    assert_eq!(reply.status, 413);
    assert!(reply.text().contains("larger than the 67108864 bytes"), "{}", reply.text());
    assert!(server.post("/v1/ping", []).await.message::<proto::PingResponse>().available);
}

on_each_layout!(a_body_that_breaks_off_is_answered_as_diego_does);
async fn a_body_that_breaks_off_is_answered_as_diego_does(kind: Kind) {
    let server = Server::empty(kind).await;
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = "POST /v1/domains/upsert HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("the request failed for an unknown reason"), "{text}");
}

on_each_layout!(without_translators_only_the_native_version_is_served);
async fn without_translators_only_the_native_version_is_served(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(server.post("/v1.1/ping", []).await.status, 200);
    for version in ["0.9", "0.10", "1.0", "1.2", "2.0", "3.0"] {
        let in_path = server.post(&format!("/v{version}/ping"), []).await;
        let in_header = server.send("POST", "/v1/ping", &[("x-diego-api-version", version)], vec![]).await;
        for reply in [in_path, in_header] {
            assert_eq!((reply.status, reply.header("content-type")), (406, "application/json"), "{version}");
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(body["supported"], serde_json::json!({ "min": "1.1", "max": "1.1" }));
            assert_eq!(body["requested"], version);
            assert_eq!(
                (reply.header("x-diego-api-min-version"), reply.header("x-diego-api-max-version")),
                ("1.1", "1.1")
            );
        }
    }
    let reply = server.send("POST", "/v1/ping", &[("x-diego-api-version", "one")], vec![]).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("major.minor"), "{}", reply.text());
}

on_each_layout!(a_trace_id_of_any_kind_does_no_harm);
async fn a_trace_id_of_any_kind_does_no_harm(kind: Kind) {
    let server = Server::empty(kind).await;
    for id in ["", "7f461654-74d1-1ee5-8367-77d85df2cdab", "not hex", "\u{e9}"] {
        let reply = server.send("POST", "/v1/ping", &[("x-vcap-request-id", id)], vec![]).await;
        assert_eq!(reply.status, 200, "{id:?}");
    }
}
