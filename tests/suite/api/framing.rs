//! Requests and responses at the level of HTTP: the 503 gate, verbs, paths, versions, bodies,
//! headers.

use std::time::Duration;

use bbs::testing::progress::{Counted, TAKEOVER};
use bbs_proto::models as proto;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::pause;
use crate::harness::server::{Options, Server};

on_layouts_of_sqlite!(closed_gate_answers_every_path_with_503_and_retry_after);
async fn closed_gate_answers_every_path_with_503_and_retry_after(kind: Kind) {
    let server = Server::closed(Options::on(kind)).await;
    server
        .progress
        .enter("copy", "desired_lrps", Some(Counted::Units.total(10)));
    server.progress.advance(4);
    for path in ["/v1/ping", "/v0.9/desired_lrps/list", "/nothing", "/"] {
        let reply = server.post(path, []).await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (503, "application/json"),
            "{path}"
        );
        assert!(reply.header("retry-after").parse::<u32>().unwrap() >= 1);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            (&body["phase"], &body["detail"]),
            (&"copy".into(), &"desired_lrps".into())
        );
        assert_eq!((&body["done"], &body["total"]), (&4.into(), &10.into()));
        let message = body["message"].as_str().unwrap();
        assert!(
            message.contains("prepared (copy: desired_lrps), 4 of 10 units done"),
            "{message}"
        );
    }
    server.gate.open(server.api.clone());
    assert!(
        server
            .post("/v1/ping", [])
            .await
            .message::<proto::PingResponse>()
            .available
    );
    server.gate.close();
    assert_eq!(server.post("/v1/ping", []).await.status, 503);
}

/// Less than a request waits for a takeover that does not end.
const BELOW_THE_WAIT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn request_waits_for_the_end_of_a_takeover_and_for_no_migration() {
    let server = Server::closed(Options::on(Kind::Sqlite)).await;
    let status_after = async |end: &dyn Fn()| {
        server.progress.enter(TAKEOVER, "", None);
        let ends = async {
            pause().await;
            end();
        };
        let answered = async { tokio::join!(server.post("/v1/ping", []), ends) };
        let answered = timeout(BELOW_THE_WAIT, answered).await;
        let (reply, ()) = answered.expect("it waits no longer than for the takeover");
        reply.status
    };
    assert_eq!(
        status_after(&|| server.progress.enter("copy", "", None)).await,
        503
    );
    assert_eq!(
        status_after(&|| server.gate.open(server.api.clone())).await,
        200
    );
    server.gate.close();
    assert_eq!(status_after(&|| {}).await, 503);
}

on_layouts_of_sqlite!(unknown_paths_are_answered_with_404);
async fn unknown_paths_are_answered_with_404(kind: Kind) {
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
        "/v1/tasks/desire.r1",
        "/v1.2/nothing",
    ];
    for path in paths {
        let reply = server.post(path, []).await;
        assert_eq!(
            (reply.status, reply.text().trim_end()),
            (404, "404 page not found"),
            "{path}"
        );
        assert!(
            reply.header("content-type").starts_with("text/plain"),
            "{path}"
        );
    }
}

/// Largest body of a request that has only a name and a number, in bytes.
const LARGEST_BODY: usize = 256 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn chunked_body_above_the_limit_is_rejected() {
    let server = Server::empty(Kind::Sqlite).await;
    let mut connection = tokio::net::TcpStream::connect(server.address)
        .await
        .unwrap();
    let length = LARGEST_BODY + 1;
    let head = "POST /v1/domains/upsert HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    connection
        .write_all(format!("{head}{length:x}\r\n").as_bytes())
        .await
        .unwrap();
    connection.write_all(&vec![0; length]).await.unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(
        text.starts_with("HTTP/1.1 413 ") && text.contains("larger than the 262144 bytes"),
        "{text}"
    );
}

on_layouts_of_sqlite!(without_translators_only_the_native_versions_are_served);
async fn without_translators_only_the_native_versions_are_served(kind: Kind) {
    let server = Server::empty(kind).await;
    for version in ["1", "1.1", "1.2"] {
        assert_eq!(
            server.post(&format!("/v{version}/ping"), []).await.status,
            200
        );
    }
    for version in ["0.9", "0.10", "1.0", "1.3", "2.0", "3.0"] {
        let in_path = server.post(&format!("/v{version}/ping"), []).await;
        let in_header = server
            .send(
                "POST",
                "/v1/ping",
                &[("x-diego-api-version", version)],
                vec![],
            )
            .await;
        for reply in [in_path, in_header] {
            assert_eq!(
                (reply.status, reply.header("content-type")),
                (406, "application/json"),
                "{version}"
            );
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(
                body["supported"],
                serde_json::json!({ "min": "1.1", "max": "1.2" })
            );
            assert_eq!(body["requested"], version);
            assert_eq!(
                (
                    reply.header("x-diego-api-min-version"),
                    reply.header("x-diego-api-max-version")
                ),
                ("1.1", "1.2")
            );
        }
    }
    let reply = server
        .send(
            "POST",
            "/v1/ping",
            &[("x-diego-api-version", "one")],
            vec![],
        )
        .await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("major.minor"), "{}", reply.text());
}

on_layouts_of_sqlite!(malformed_trace_ids_are_ignored);
async fn malformed_trace_ids_are_ignored(kind: Kind) {
    let server = Server::empty(kind).await;
    for id in [
        "",
        "7f461654-74d1-1ee5-8367-77d85df2cdab",
        "not hex",
        "\u{e9}",
    ] {
        let reply = server
            .send("POST", "/v1/ping", &[("x-vcap-request-id", id)], vec![])
            .await;
        assert_eq!(reply.status, 200, "{id:?}");
    }
}
