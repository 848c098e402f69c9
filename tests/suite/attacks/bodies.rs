//! Bodies of requests that take far more memory than bytes, are large, or are sent slowly, many at
//! once.

use std::net::SocketAddr;

use bbs_proto::models as proto;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::lrp;
use crate::harness::database::Kind;
use crate::harness::host::{Host, Installation};
use crate::harness::modules;
use crate::harness::watch::Watch;

const DESIRE: &str = "/v1/desired_lrp/desire.r2";
/// Number of clients that send at the same time.
const CLIENTS: usize = 24;
/// Bodies of 3 MiB for which there is memory while they are incomplete.
const INCOMPLETE: usize = 10;

fn serve() -> (Installation, Host) {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    (installation, host)
}

/// An encoded field of a message or text.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(content);
    field
}

/// A request to desire an LRP whose action holds this number of empty actions, of two bytes each.
fn empty_actions(count: usize) -> Vec<u8> {
    let parallel = [0x0a, 0].repeat(count);
    // `DesireLRPRequest.desired_lrp.action.parallel_action`
    field(1, &field(7, &field(7, &parallel)))
}

async fn post(address: SocketAddr, path: &str, body: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).await.expect("the host accepts");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // The host may answer and close before it has read everything.
    let _ = connection
        .write_all(&[head.as_bytes(), body].concat())
        .await;
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Goal: a refusal reaches a client that is still sending, as one of Go's servers does. Method: the
/// body follows its head in two parts, on a connection that then has another request.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_answered_after_the_body_and_leaves_the_connection_usable() {
    const LENGTH: usize = 200 << 10;
    let (_installation, host) = serve();
    let mut connection = TcpStream::connect(host.address)
        .await
        .expect("the host accepts");
    for (path, refusal) in [
        ("/v1/no/such/method", "HTTP/1.1 404 "),
        ("/v9.9/ping", "HTTP/1.1 406 "),
        ("/v1/ping", "HTTP/1.1 200 "),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {LENGTH}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.expect("a head");
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let part = [0; LENGTH / 2];
            connection.write_all(&part).await.expect("a part");
        }
        let answer = next_answer(&mut connection).await;
        assert!(answer.starts_with(refusal), "{path}: {answer}");
    }
}

/// An answer with its whole body, from a connection that stays open.
async fn next_answer(connection: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    loop {
        let read = connection.read_buf(&mut answer).await.expect("an answer");
        let text = String::from_utf8_lossy(&answer);
        assert!(read > 0, "the host has closed the connection: {text}");
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .expect("a length");
        if body.len().to_string() == length {
            return text.into_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_many_tiny_elements_are_rejected_within_the_limit_of_memory() {
    let (_installation, host) = serve();
    let watch = Watch::on(&host);
    // Above the limit of a body, below it, and far below it on several connections at once.
    let answer = post(host.address, DESIRE, &empty_actions(10 << 20)).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413 "),
        "{answer}"
    );
    let body = empty_actions(1 << 20);
    let answer = post(host.address, DESIRE, &body).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("elements"),
        "{answer}"
    );
    let body = empty_actions(20_000);
    let address = host.address;
    let posts = (0..CLIENTS).map(|_| post(address, DESIRE, &body));
    for answer in futures_util::future::join_all(posts).await {
        assert!(
            answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 "),
            "{answer}"
        );
    }
    watch.assert_unharmed().await;
}

/// Security groups of Cloud Foundry may have as many, and Diego has no bound.
#[tokio::test(flavor = "multi_thread")]
async fn lrp_with_many_rules_of_security_groups_is_desired_and_read_back() {
    let (_installation, host) = serve();
    let rule = proto::SecurityGroupRule {
        protocol: b"tcp".to_vec(),
        destinations: vec![b"10.0.0.0-10.255.255.255".to_vec()],
        port_range: Some(proto::PortRange { start: 1, end: 9 }),
        annotations: vec![b"security_group_id:2e8d9b5c-6f0a-4a39-8d55-3a3ad0d5f8a1".to_vec()],
        ..Default::default()
    };
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            egress_rules: vec![rule; 25_000],
            ..lrp("guid")
        }),
    };
    let desired: proto::DesiredLrpLifecycleResponse = host.call(DESIRE, &request).await;
    assert_eq!(desired.error, None);
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    let path = "/v1/desired_lrps/get_by_process_guid.r3";
    let found: proto::DesiredLrpResponse = host.call(path, &request).await;
    let found = found.desired_lrp.expect("it was desired");
    assert_eq!(found.egress_rules.len(), 25_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_large_bodies_are_rejected_and_small_calls_are_served() {
    let (_installation, host) = serve();
    let watch = Watch::on(&host);
    let part = vec![0; 3 << 20];
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = TcpStream::connect(host.address)
            .await
            .expect("the host accepts");
        let head = format!(
            "POST {DESIRE} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            4 << 20
        );
        // The host may answer and close before it has read everything.
        let _ = connection
            .write_all(&[head.as_bytes(), &part].concat())
            .await;
        connections.push(connection);
    }
    let answers = connections.iter_mut().map(|connection| async {
        let mut answer = Vec::new();
        let _ = connection.read_buf(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    let rejected = answers
        .collect::<FuturesUnordered<_>>()
        .take(CLIENTS - INCOMPLETE);
    for text in rejected.collect::<Vec<_>>().await {
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 503 "),
            "{text}"
        );
    }
    let domain = field(1, b"domain");
    let answer = post(host.address, "/v1/domains/upsert", &domain).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    watch.assert_unharmed().await;
}

/// Every method of this host and of its translators has a limit, and those of small messages a
/// small one.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_limited_by_method() {
    let (_installation, host) = serve();
    for (path, largest) in [
        ("/v1/ping", 256 << 10),
        ("/v1/tasks/start", 256 << 10),
        ("/v1/desired_lrps/list.r3", 4 << 20),
        ("/v1/desired_lrps/list.r2", 4 << 20),
        ("/v1/desired_lrps/list", 4 << 20),
        ("/v1/events/tasks.r1", 16 << 10),
        (DESIRE, 4 << 20),
        ("/v1/tasks/desire.r2", 4 << 20),
        ("/v0.9/desired_lrps/create", 4 << 20),
    ] {
        for (length, is_rejected) in [(largest + 1, true), (largest, false)] {
            let mut connection = TcpStream::connect(host.address)
                .await
                .expect("the host accepts");
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            connection
                .write_all(head.as_bytes())
                .await
                .expect("the host reads");
            connection.shutdown().await.expect("the host reads");
            let mut answer = Vec::new();
            let _ = connection.read_to_end(&mut answer).await;
            let text = String::from_utf8_lossy(&answer);
            assert_eq!(
                text.starts_with("HTTP/1.1 413 "),
                is_rejected,
                "{path} with {length}: {text}"
            );
        }
    }
}
