//! Several hosts on one database: one serves, the others wait for the lock, and a host that loses
//! it ends.

pub(crate) mod locket;
mod ports;

use std::net::SocketAddr;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::{Kind, TestDatabase, execute, on_each_database, on_each_server};
use crate::harness::host::{Host, Installation};
use crate::harness::modules;
use crate::harness::ports::free_address;
use crate::harness::until_async;

/// For tests that wait until a lock is renewed or lost.
pub(crate) const SHORT_TTL: &str = "6s";

pub(crate) fn host(database: &TestDatabase, name: &str) -> Installation {
    let installation = Installation::on(database.clone(), &modules::modules());
    installation
        .set("uuid", name)
        .set("lock_retry_interval", "100ms")
}

/// Starts a host that waits for the lock. The task completes once the host serves.
pub(crate) fn standby(installation: &Installation) -> tokio::task::JoinHandle<Host> {
    let command = installation.command(&["serve"]);
    tokio::task::spawn_blocking(move || Host::start(command, "serving"))
}

pub(crate) async fn upsert_domain(address: SocketAddr, domain: &str) -> Result<(), String> {
    let request = proto::UpsertDomainRequest {
        domain: domain.into(),
        ttl: 0,
    };
    let call = crate::harness::http_client().post(format!("http://{address}/v1/domains/upsert"));
    let response = call
        .body(request.encode_to_vec())
        .send()
        .await
        .map_err(|error| error.to_string())?;
    let status = response.status();
    let body = response.bytes().await.map_err(|error| error.to_string())?;
    let answer = proto::UpsertDomainResponse::decode(&body[..])
        .map_err(|_| format!("{status}: {body:?}"))?;
    match answer.error {
        None if status.is_success() => Ok(()),
        error => Err(format!("{status}: {error:?}")),
    }
}

async fn domains(address: SocketAddr) -> Vec<String> {
    let response = crate::harness::http_client()
        .post(format!("http://{address}/v1/domains/list"))
        .send()
        .await
        .unwrap();
    let answer = proto::DomainsResponse::decode(&response.bytes().await.unwrap()[..]).unwrap();
    assert_eq!(answer.error, None);
    answer
        .domains
        .into_iter()
        .map(|domain| String::from_utf8(domain).unwrap())
        .collect()
}

on_each_server!(master_frozen_beyond_its_lease_writes_nothing);
async fn master_frozen_beyond_its_lease_writes_nothing(kind: Kind) {
    let database = TestDatabase::new(kind);
    // Under a lease that lasts as long as the start takes.
    host(&database, "one").succeed(&["migrate", "up"]);
    let one = host(&database, "one").set("lock_ttl", SHORT_TTL);
    let other = host(&database, "other");
    let frozen = one.serve();
    upsert_domain(frozen.address, "before").await.unwrap();
    let waiting = standby(&other);
    frozen.freeze().await;
    // The kernel accepts the connection and the request, but the stopped process does not answer.
    let late = tokio::spawn(upsert_domain(frozen.address, "late"));
    let master = waiting.await.unwrap();
    upsert_domain(master.address, "after").await.unwrap();
    frozen.signal("CONT");
    assert!(
        late.await.unwrap().is_err(),
        "the frozen host wrote after it lost the lock"
    );
    let (status, output) = tokio::task::spawn_blocking(move || frozen.wait_for_end())
        .await
        .unwrap();
    assert!(
        !status.success()
            && (output.contains("serves no more") || output.contains("no longer the master")),
        "{output}"
    );
    let mut found = domains(master.address).await;
    found.sort();
    assert_eq!(found, ["after", "before"]);
}

on_each_database!(standby_is_healthy_with_a_closed_port_and_takes_over_when_the_master_ends);
async fn standby_is_healthy_with_a_closed_port_and_takes_over_when_the_master_ends(kind: Kind) {
    let database = TestDatabase::new(kind);
    let master = host(&database, "one").serve();
    let [health, api] = [(); 2].map(|()| free_address().to_string());
    let other = host(&database, "other")
        .set("health_address", health.clone())
        .set("listen_address", api.clone());
    let waiting = standby(&other);
    let healthy = || async {
        let answer = crate::harness::http_client()
            .get(format!("http://{health}/ping"))
            .send()
            .await;
        answer.is_ok_and(|answer| answer.status().is_success())
    };
    until_async(async || healthy().await).await;
    assert!(
        std::net::TcpStream::connect(&api).is_err(),
        "the port of a standby is closed"
    );
    master.end().await;
    let host = waiting.await.unwrap();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(healthy().await);
}

on_each_database!(status_names_the_holder_of_the_lock_while_it_lives);
/// Goal: an operator without access to the host's admin socket learns which process holds the lock.
/// Method: the status is that of another installation on the same database, with a data folder of
/// its own.
async fn status_names_the_holder_of_the_lock_while_it_lives(kind: Kind) {
    let database = TestDatabase::new(kind);
    let master = host(&database, "one").serve();
    let other = host(&database, "other");
    let holder = format!("one (pid {} on this machine)", master.pid());
    let (ended, texts) = tokio::task::spawn_blocking(move || {
        let status = || {
            (
                other.succeed(&["migrate", "status"]),
                other.succeed(&["migrate", "status", "--json"]),
            )
        };
        let held = status();
        let ended = master.terminate().success();
        (ended, [held, status()])
    })
    .await
    .unwrap();
    assert!(ended);
    let [(held, held_json), (free, free_json)] = texts;
    assert!(
        held.contains(&format!("Lock       held by {holder}\n")),
        "{held}"
    );
    assert!(
        held_json.contains(&format!("\"lock_holder\": \"{holder}\"")),
        "{held_json}"
    );
    assert!(
        !free.contains("Lock ") && free_json.contains("\"lock_holder\": null"),
        "{free} {free_json}"
    );
}

on_each_server!(lost_lease_ends_the_host);
async fn lost_lease_ends_the_host(kind: Kind) {
    let database = TestDatabase::new(kind);
    let opened = database.open().await;
    for (statement, part) in [
        ("DELETE FROM bbs_lease", "its row is gone"),
        (
            "UPDATE bbs_lease SET owner = 'unknown-owner', token = token + 1, ttl_ms = 1",
            "unknown-owner",
        ),
    ] {
        let host = host(&database, "one").serve();
        execute(&opened, statement).await;
        let (status, log) = tokio::task::spawn_blocking(move || host.wait_for_end())
            .await
            .unwrap();
        assert!(
            !status.success() && log.contains(part) && log.contains("serves no more"),
            "{log}"
        );
    }
}

on_each_server!(host_survives_a_crash_of_its_database_server);
async fn host_survives_a_crash_of_its_database_server(kind: Kind) {
    let server = kind.own_engine();
    let database = TestDatabase::on(kind, server.address());
    let host = host(&database, "one").set("lock_ttl", "60s").serve();
    upsert_domain(host.address, "before").await.unwrap();
    server.restart();
    until_async(async || upsert_domain(host.address, "after").await.is_ok()).await;
    assert_eq!(domains(host.address).await.len(), 2);
}
