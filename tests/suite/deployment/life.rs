//! How the host ends: what it finishes, what it does not wait for, and what it says by its exit code.

use std::io::{Read, Write};
use std::net::TcpStream;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::ping;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::deployment::{Deployment, free_address};
use crate::harness::host::Host;
use crate::harness::locket::Locket;

pub(super) async fn end(host: Host) -> (Option<i32>, String) {
    let (status, said) = tokio::task::spawn_blocking(move || host.wait_for_end()).await.unwrap();
    (status.code(), said)
}

/// Speaks plainly, for requests that are sent in parts.
fn alone() -> Deployment {
    let keys = ["ca_file", "cert_file", "key_file", "auctioneer_address"];
    keys.iter().fold(Deployment::new(Kind::Sqlite), |deployment, key| deployment.without(key))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_finished_and_a_new_one_is_not_begun() {
    let deployment = alone();
    let host = deployment.serve().await;
    let body = proto::UpsertDomainRequest { domain: "late".into(), ttl: 0 }.encode_to_vec();
    let mut under_way = TcpStream::connect(host.address).unwrap();
    let head = format!("POST /v1/domains/upsert HTTP/1.1\r\nhost: bbs\r\ncontent-length: {}\r\n\r\n", body.len());
    under_way.write_all(head.as_bytes()).unwrap();
    under_way.write_all(&body[..1]).unwrap();
    // An answer to somebody else shows that the host has seen what came before.
    assert!(reqwest::Client::new().post(host.url("/v1/ping")).send().await.unwrap().status().is_success());
    host.signal("TERM");
    while TcpStream::connect(host.address).is_ok() {
        tokio::task::yield_now().await;
    }
    under_way.write_all(&body[1..]).unwrap();
    let mut answer = Vec::new();
    under_way.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{:?}", String::from_utf8_lossy(&answer));
    assert_eq!(end(host).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_does_not_wait_for_anybody() {
    let deployment = alone();
    let host = deployment.serve().await;
    let mut under_way = TcpStream::connect(host.address).unwrap();
    under_way.write_all(b"POST /v1/domains/upsert HTTP/1.1\r\nhost: bbs\r\ncontent-length: 10\r\n\r\nx").unwrap();
    assert!(reqwest::Client::new().post(host.url("/v1/ping")).send().await.unwrap().status().is_success());
    host.signal("INT");
    while TcpStream::connect(host.address).is_ok() {
        tokio::task::yield_now().await;
    }
    host.signal("TERM");
    assert_eq!(end(host).await.0, Some(0));
    assert_eq!(deployment.locket.holder(), None, "the lock was given back all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_healthy_says_not_that_it_started_and_ends_with_0() {
    let deployment = Deployment::new(Kind::Sqlite).set("listen_address", free_address().to_string());
    deployment.locket.give_to("another");
    let mut command = deployment.command();
    let log = deployment.path("standby.log");
    command.stdout(std::fs::File::create(&log).unwrap());
    let mut standby = command.spawn().unwrap();
    while !reqwest::get(format!("http://{}/ping", deployment.health))
        .await
        .is_ok_and(|found| found.status().is_success())
        || deployment.locket.callers().len() < 2
    {
        tokio::task::yield_now().await;
    }
    let stopped = std::process::Command::new("kill").args(["-TERM", &standby.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let status = tokio::task::spawn_blocking(move || standby.wait().unwrap()).await.unwrap();
    let said = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(said.contains("bbs.starting") && said.contains("bbs.exited") && !said.contains("bbs.started"), "{said}");
    assert_eq!(said.matches("bbs.locket-lock.started").count(), 1, "{said}");
    assert_eq!(deployment.locket.holder().as_deref(), Some("another"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_lost_ends_the_host_with_1() {
    let deployment = Deployment::new(Kind::Sqlite).set("lock_ttl", "2s");
    let host = deployment.serve().await;
    deployment.locket.give_to("another");
    let (code, said) = end(host).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("bbs.locket-lock.lost-lock") && said.contains("bbs.exited-with-failure"), "{said}");
}

on_each_database!(a_database_that_is_well_passes_its_probe);
async fn a_database_that_is_well_passes_its_probe(kind: Kind) {
    let deployment = Deployment::new(kind).set("enable_db_health_check", true).set("health_check_interval", "10ms");
    let host = deployment.serve().await;
    let database = deployment.database.open().await;
    loop {
        let mut read = database.read().await.unwrap();
        let rows = read.fetch(bbs::database::sql("SELECT id FROM bbs_health_check WHERE time > 0")).await.unwrap();
        if !rows.is_empty() {
            break;
        }
        drop(read);
        tokio::task::yield_now().await;
    }
    database.close().await;
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    let status = tokio::task::spawn_blocking(move || host.terminate()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_fails_its_probe_ends_the_host_with_1() {
    let deployment = Deployment::new(Kind::Sqlite)
        .set("enable_db_health_check", true)
        .set("health_check_interval", "10ms")
        .set("health_check_failure_threshold", 2);
    let host = deployment.serve().await;
    let database = deployment.database.open().await;
    crate::harness::database::execute(&database, "DROP TABLE bbs_health_check").await;
    database.close().await;
    let (code, said) = end(host).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("bbs.db-healthcheck.failed") && said.contains("bbs.exited-with-failure"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_still_compiles_its_modules_is_healthy_and_ends_when_told_to() {
    let deployment = Deployment::new(Kind::Sqlite).set("module_cache_dir", "cold");
    let mut command = deployment.command();
    let log = deployment.path("cold.log");
    let mut host = command.stdout(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    while !reqwest::get(format!("http://{}/ping", deployment.health))
        .await
        .is_ok_and(|found| found.status().is_success())
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(deployment.locket.holder(), None);
    let stopped = std::process::Command::new("kill").args(["-TERM", &host.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let status = tokio::task::spawn_blocking(move || host.wait().unwrap()).await.unwrap();
    let said = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(said.contains("bbs.exited") && !said.contains("bbs.locket-lock.acquired-lock"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_kept_open_do_not_hold_up_the_end() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let client = deployment.keeping_client();
    assert!(ping(&client, host.address).await.unwrap());
    host.signal("TERM");
    // A client that waits for its next request is told that there will be none.
    assert_eq!(end(host).await.0, Some(0));
    let lines = std::fs::read_to_string(deployment.path("access.log")).unwrap();
    assert_eq!(lines.lines().count(), 2);
}

/// A client that listens and never takes what it is told.
fn listening(host: &Host) -> TcpStream {
    let mut stream = TcpStream::connect(host.address).unwrap();
    stream.write_all(b"POST /v1/events/tasks.r1 HTTP/1.1\r\nhost: bbs\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_host() {
    let deployment = alone();
    let host = deployment.serve().await;
    let mut stream = listening(&host);
    host.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
    assert_eq!(end(host).await.0, Some(0));
}

on_each_database!(a_table_that_is_gone_is_said_to_the_client_and_ends_the_host_with_0);
async fn a_table_that_is_gone_is_said_to_the_client_and_ends_the_host_with_0(kind: Kind) {
    let deployment = Deployment::new(kind);
    let host = deployment.serve().await;
    let database = deployment.database.open().await;
    crate::harness::database::execute(&database, "DROP TABLE tasks").await;
    database.close().await;
    let call = deployment.client().post(format!("https://{}/v1/tasks/list.r3", host.address));
    let body = call.send().await.unwrap().bytes().await.unwrap();
    let error = proto::TasksResponse::decode(&body[..]).unwrap().error.unwrap();
    assert_eq!(error.r#type(), proto::error::Type::Unrecoverable);
    assert!(error.message.starts_with(b"Unrecoverable Error: "), "{error:?}");
    let (code, said) = end(host).await;
    assert!(code == Some(0) && said.contains("bbs.unrecoverable") && said.contains("bbs.exited"), "{code:?} {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locket_that_is_started_later_is_waited_for() {
    let address = free_address();
    let deployment = Deployment::new(Kind::Sqlite).set("locket_address", address.to_string());
    let command = deployment.command();
    let host = tokio::task::spawn_blocking(move || Host::start(command, "bbs.started"));
    while !reqwest::get(format!("http://{}/ping", deployment.health))
        .await
        .is_ok_and(|found| found.status().is_success())
    {
        tokio::task::yield_now().await;
    }
    let locket = Locket::start_at(address);
    let host = host.await.unwrap();
    assert!(locket.holder().is_some());
    assert!(ping(&deployment.client(), host.address).await.unwrap());
}
