//! Start and termination of the host: what it completes, what it does not wait for, health, and
//! exit codes.

use std::io::{Read, Write};
use std::net::TcpStream;

use bbs::testing::database::sql;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::ping;
use crate::harness::database::{Kind, on_each_database, on_each_server};
use crate::harness::deployment::Deployment;
use crate::harness::fixture;
use crate::harness::host::Host;
use crate::harness::locket::Locket;
use crate::harness::ports::free_address;
use crate::harness::proxy::Proxy;
use crate::harness::{http_client, until, until_async};

/// The `uuid` of the host in the sample configuration.
const UUID: &str = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";

pub(super) async fn end(host: Host) -> (Option<i32>, String) {
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    (status.code(), output)
}

/// Waits until the health port answers that the host is alive.
async fn until_healthy(deployment: &Deployment) {
    let client = http_client();
    until_async(async || {
        let call = client.get(format!("http://{}/ping", deployment.health));
        let answer = call.send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    })
    .await;
}

/// A deployment without TLS, for requests that are sent in parts.
fn without_tls() -> Deployment {
    let keys = ["ca_file", "cert_file", "key_file", "auctioneer_address"];
    keys.iter()
        .fold(Deployment::new(Kind::Sqlite), |deployment, key| {
            deployment.without(key)
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_completes_active_requests_and_rejects_new_ones() {
    let deployment = without_tls();
    let host = deployment.serve().await;
    let body = proto::UpsertDomainRequest {
        domain: "late".into(),
        ttl: 0,
    }
    .encode_to_vec();
    let mut under_way = TcpStream::connect(host.address).unwrap();
    let head = format!(
        "POST /v1/domains/upsert HTTP/1.1\r\nhost: bbs\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    under_way.write_all(head.as_bytes()).unwrap();
    under_way.write_all(&body[..1]).unwrap();
    // Once this request is answered, the host has read the beginning of the earlier one.
    host.ping().await;
    host.signal("TERM");
    until(|| TcpStream::connect(host.address).is_err()).await;
    under_way.write_all(&body[1..]).unwrap();
    let mut answer = Vec::new();
    under_way.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(end(host).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_the_host_without_waiting_for_requests() {
    let deployment = without_tls();
    let host = deployment.serve().await;
    let mut under_way = TcpStream::connect(host.address).unwrap();
    under_way
        .write_all(b"POST /v1/domains/upsert HTTP/1.1\r\nhost: bbs\r\ncontent-length: 10\r\n\r\nx")
        .unwrap();
    host.ping().await;
    host.signal("INT");
    until(|| TcpStream::connect(host.address).is_err()).await;
    host.signal("TERM");
    assert_eq!(end(host).await.0, Some(0));
    assert_eq!(
        deployment.locket.holder(),
        None,
        "the lock was released in any case"
    );
}

/// A deployment whose database can be stalled.
fn through_a_proxy(kind: Kind) -> (Proxy, Deployment) {
    let proxy = Proxy::to(kind.engine().address());
    let deployment = Deployment::new(kind);
    let through = deployment.database.through(proxy.address()).configuration();
    (
        proxy,
        deployment.set(
            "database_connection_string",
            through["database_connection_string"].clone(),
        ),
    )
}

on_each_server!(sigquit_releases_the_lock_while_the_database_does_not_answer);
async fn sigquit_releases_the_lock_while_the_database_does_not_answer(kind: Kind) {
    let (proxy, deployment) = through_a_proxy(kind);
    let host = deployment.serve().await;
    proxy.stall();
    let call = deployment
        .client()
        .post(format!("https://{}/v1/desired_lrps/list.r3", host.address));
    let in_flight = tokio::spawn(call.send());
    until(|| proxy.held() > 0).await;
    host.signal("QUIT");
    let (code, output) = end(host).await;
    assert_eq!(code, Some(0), "{output}");
    // A host that waits for the database to its limits logs these.
    for late in [
        "is still in use after the longest wait",
        "failed while this host was stopping",
    ] {
        assert!(!output.contains(late), "{output}");
    }
    assert_eq!(deployment.locket.holder(), None, "the lock was released");
    // The connection is cut, or the host answers with an error before.
    if let Ok(answer) = in_flight.await.unwrap() {
        let body = answer.bytes().await.expect("a whole answer");
        let listed = proto::DesiredLrPsResponse::decode(body).expect("an answer of the API");
        assert!(listed.error.is_some(), "the database has not answered");
    }
}

on_each_server!(sigquit_during_the_takeover_releases_the_lock_while_the_database_does_not_answer);
async fn sigquit_during_the_takeover_releases_the_lock_while_the_database_does_not_answer(
    kind: Kind,
) {
    lock_is_released_after_a_signal_during_the_takeover(kind, "-QUIT").await;
}

on_each_server!(sigterm_during_the_takeover_releases_the_lock_while_the_database_does_not_answer);
async fn sigterm_during_the_takeover_releases_the_lock_while_the_database_does_not_answer(
    kind: Kind,
) {
    lock_is_released_after_a_signal_during_the_takeover(kind, "-TERM").await;
}

async fn lock_is_released_after_a_signal_during_the_takeover(kind: Kind, signal: &str) {
    let (proxy, deployment) = through_a_proxy(kind);
    deployment.locket.grant_to("another");
    let mut command = deployment.command();
    let log = deployment.path("takeover.log");
    let mut host = command
        .stdout(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until(|| deployment.locket.callers().len() > 1).await;
    proxy.stall();
    deployment.locket.grant_to(UUID);
    until(|| {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("bbs.locket-lock.acquired-lock")
    })
    .await;
    until(|| proxy.held() > 0).await;
    let sent = std::process::Command::new("kill")
        .args([signal, &host.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let status = tokio::task::spawn_blocking(move || host.wait().unwrap())
        .await
        .unwrap();
    let output = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0), "{output}");
    assert_eq!(deployment.locket.holder(), None, "the lock was released");
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_is_healthy_does_not_log_started_and_ends_with_0() {
    let deployment =
        Deployment::new(Kind::Sqlite).set("listen_address", free_address().to_string());
    deployment.locket.grant_to("another");
    let mut command = deployment.command();
    let log = deployment.path("standby.log");
    command.stdout(std::fs::File::create(&log).unwrap());
    let mut standby = command.spawn().unwrap();
    until_healthy(&deployment).await;
    until(|| deployment.locket.callers().len() >= 2).await;
    let stopped = std::process::Command::new("kill")
        .args(["-TERM", &standby.id().to_string()])
        .status()
        .unwrap();
    assert!(stopped.success());
    let status = tokio::task::spawn_blocking(move || standby.wait().unwrap())
        .await
        .unwrap();
    let output = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(
        output.contains("bbs.starting")
            && output.contains("bbs.exited")
            && !output.contains("bbs.started"),
        "{output}"
    );
    assert_eq!(
        output.matches("bbs.locket-lock.started").count(),
        1,
        "{output}"
    );
    assert_eq!(deployment.locket.holder().as_deref(), Some("another"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_ends_the_host_with_1() {
    let deployment = Deployment::new(Kind::Sqlite).set("lock_ttl", "6s");
    let host = deployment.serve().await;
    deployment.locket.grant_to("another");
    let (code, output) = end(host).await;
    assert_eq!(code, Some(1));
    assert!(
        output.contains("bbs.locket-lock.lost-lock") && output.contains("bbs.exited-with-failure"),
        "{output}"
    );
}

/// Waits until the health check has written its row, to a table that may be created first.
async fn row_of_the_health_check(deployment: &Deployment) {
    let database = deployment.database.open().await;
    until_async(async || {
        let mut read = database.read().await.unwrap();
        let checked = sql("SELECT id FROM bbs_health_check WHERE time > 0");
        let rows = read.fetch(checked).await;
        rows.is_ok_and(|rows| !rows.is_empty())
    })
    .await;
    database.close().await;
}

on_each_database!(health_check_writes_once_an_online_migration_has_created_its_table);
async fn health_check_writes_once_an_online_migration_has_created_its_table(kind: Kind) {
    let deployment = Deployment::new(kind)
        .set("enable_db_health_check", true)
        .set("health_check_interval", "10ms")
        .set("migration_mode", "online");
    fixture::write_to(&deployment.database).await;
    let host = deployment.serve().await;
    row_of_the_health_check(&deployment).await;
    host.end().await;
}

on_each_database!(healthy_database_passes_the_health_check);
async fn healthy_database_passes_the_health_check(kind: Kind) {
    let deployment = Deployment::new(kind)
        .set("enable_db_health_check", true)
        .set("health_check_interval", "10ms");
    let host = deployment.serve().await;
    row_of_the_health_check(&deployment).await;
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_database_health_check_ends_the_host_with_1() {
    let deployment = Deployment::new(Kind::Sqlite)
        .set("enable_db_health_check", true)
        .set("health_check_interval", "10ms")
        .set("health_check_failure_threshold", 2);
    let host = deployment.serve().await;
    let database = deployment.database.open().await;
    crate::harness::database::execute(&database, "DROP TABLE bbs_health_check").await;
    database.close().await;
    let (code, output) = end(host).await;
    assert_eq!(code, Some(1));
    assert!(
        output.contains("bbs.db-healthcheck.failed") && output.contains("bbs.exited-with-failure"),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn host_compiling_its_modules_is_not_healthy_yet_and_ends_on_sigterm() {
    let deployment = Deployment::new(Kind::Sqlite).set("module_cache_dir", "cold");
    let mut command = deployment.command();
    let log = deployment.path("cold.log");
    let mut host = command
        .stdout(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let client = http_client();
    let mut answered = None;
    until_async(async || {
        let call = client.get(format!("http://{}/ping", deployment.health));
        answered = call.send().await.ok();
        answered.is_some()
    })
    .await;
    let answer = answered.expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    assert!(answer.text().await.unwrap().starts_with("the host starts"));
    assert_eq!(deployment.locket.holder(), None);
    let stopped = std::process::Command::new("kill")
        .args(["-TERM", &host.id().to_string()])
        .status()
        .unwrap();
    assert!(stopped.success());
    let status = tokio::task::spawn_blocking(move || host.wait().unwrap())
        .await
        .unwrap();
    let output = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(
        output.contains("bbs.exited") && !output.contains("bbs.locket-lock.acquired-lock"),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_termination() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let client = deployment.keeping_client();
    assert!(ping(&client, host.address).await.unwrap());
    host.signal("TERM");
    // Idle connections are closed by the host.
    assert_eq!(end(host).await.0, Some(0));
    let lines = std::fs::read_to_string(deployment.path("access.log")).unwrap();
    assert_eq!(lines.lines().count(), 2);
}

/// Opens an event stream that is not read.
fn open_stream(host: &Host) -> TcpStream {
    let mut stream = TcpStream::connect(host.address).unwrap();
    stream
        .write_all(b"POST /v1/events/tasks.r1 HTTP/1.1\r\nhost: bbs\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_host() {
    let deployment = without_tls();
    let host = deployment.serve().await;
    let mut stream = open_stream(&host);
    host.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(
        rest.ends_with(b"0\r\n\r\n"),
        "{:?}",
        String::from_utf8_lossy(&rest)
    );
    assert_eq!(end(host).await.0, Some(0));
}

on_each_database!(missing_table_is_an_unrecoverable_error_that_ends_the_host_with_0);
async fn missing_table_is_an_unrecoverable_error_that_ends_the_host_with_0(kind: Kind) {
    let deployment = Deployment::new(kind);
    let host = deployment.serve().await;
    let database = deployment.database.open().await;
    crate::harness::database::execute(&database, "DROP TABLE tasks").await;
    database.close().await;
    let answer: proto::TasksResponse = deployment.call(&host, "tasks/list.r3", &()).await;
    let error = answer.error.unwrap();
    assert_eq!(error.r#type(), proto::error::Type::Unrecoverable);
    assert!(
        error.message.starts_with(b"Unrecoverable Error: "),
        "{error:?}"
    );
    let (code, output) = end(host).await;
    assert!(
        code == Some(0)
            && output.contains("bbs.unrecoverable")
            && output.contains("tasks")
            && output.contains("restore the database from a backup")
            && output.contains("bbs.exited"),
        "{code:?} {output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn host_waits_for_locket_to_start() {
    let address = free_address();
    let deployment = Deployment::new(Kind::Sqlite).set("locket_address", address.to_string());
    let command = deployment.command();
    let host = tokio::task::spawn_blocking(move || Host::start(command, "bbs.started"));
    until_healthy(&deployment).await;
    let locket = Locket::start_at(address);
    let host = host.await.unwrap();
    assert!(locket.holder().is_some());
    assert!(ping(&deployment.client(), host.address).await.unwrap());
}
