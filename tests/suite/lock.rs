//! Whole hosts that want the same database: one serves, the others wait, and none goes on that lost the lock.

pub(crate) mod locket;

use std::net::{SocketAddr, TcpListener};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::{Kind, TestDatabase, execute, on_each_database, on_each_server};
use crate::harness::host::{Host, Installation};
use crate::harness::modules;

/// The shortest that a configuration takes, with room for a machine that has other things to do.
const TTL: &str = "2s";

pub(crate) fn host(database: &TestDatabase, name: &str) -> Installation {
    let installation = Installation::on(database.clone(), &modules::modules());
    installation.set("uuid", name).set("lock_ttl", TTL).set("lock_retry_interval", "100ms")
}

/// A host that starts and waits; what comes back serves.
pub(crate) fn standby(installation: &Installation) -> tokio::task::JoinHandle<Host> {
    let command = installation.command(&["serve"]);
    tokio::task::spawn_blocking(move || Host::start(command, "serving"))
}

pub(crate) async fn upsert_domain(address: SocketAddr, domain: &str) -> Result<(), String> {
    let request = proto::UpsertDomainRequest { domain: domain.into(), ttl: 0 };
    let call = crate::harness::http_client().post(format!("http://{address}/v1/domains/upsert"));
    let response = call.body(request.encode_to_vec()).send().await.map_err(|error| error.to_string())?;
    let (status, body) = (response.status(), response.bytes().await.map_err(|error| error.to_string())?);
    let answer = proto::UpsertDomainResponse::decode(&body[..]).map_err(|_| format!("{status}: {body:?}"))?;
    match answer.error {
        None if status.is_success() => Ok(()),
        error => Err(format!("{status}: {error:?}")),
    }
}

async fn domains(address: SocketAddr) -> Vec<String> {
    let response =
        crate::harness::http_client().post(format!("http://{address}/v1/domains/list")).send().await.unwrap();
    let answer = proto::DomainsResponse::decode(&response.bytes().await.unwrap()[..]).unwrap();
    assert_eq!(answer.error, None);
    answer.domains.into_iter().map(|domain| String::from_utf8(domain).unwrap()).collect()
}

on_each_server!(a_master_that_froze_past_its_time_writes_nothing_more);
async fn a_master_that_froze_past_its_time_writes_nothing_more(kind: Kind) {
    let database = TestDatabase::new(kind);
    let (one, other) = (host(&database, "one"), host(&database, "other"));
    let frozen = one.serve();
    upsert_domain(frozen.address, "before").await.unwrap();
    let waiting = standby(&other);
    frozen.signal("STOP");
    // It takes the connection, and the request with it, but cannot answer.
    let late = tokio::spawn(upsert_domain(frozen.address, "late"));
    let master = waiting.await.unwrap();
    upsert_domain(master.address, "after").await.unwrap();
    frozen.signal("CONT");
    assert!(late.await.unwrap().is_err(), "it wrote as if it still were the master");
    let (status, said) = tokio::task::spawn_blocking(move || frozen.wait_for_end()).await.unwrap();
    assert!(!status.success() && said.contains("serves no more") || said.contains("no longer the master"), "{said}");
    let mut found = domains(master.address).await;
    found.sort();
    assert_eq!(found, ["after", "before"]);
}

on_each_database!(a_standby_is_healthy_with_its_port_closed_and_follows_a_master_that_ends);
async fn a_standby_is_healthy_with_its_port_closed_and_follows_a_master_that_ends(kind: Kind) {
    let database = TestDatabase::new(kind);
    let master = host(&database, "one").serve();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (health, api) = (free(), free());
    let other = host(&database, "other").set("health_address", health.clone()).set("listen_address", api.clone());
    let waiting = standby(&other);
    let healthy = || async {
        let answer = crate::harness::http_client().get(format!("http://{health}/ping")).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    };
    while !healthy().await {
        tokio::task::yield_now().await;
    }
    assert!(std::net::TcpStream::connect(&api).is_err(), "the port of a standby is closed");
    let ended = tokio::task::spawn_blocking(move || master.terminate()).await.unwrap();
    assert!(ended.success(), "{ended}");
    let host = waiting.await.unwrap();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(healthy().await);
}

on_each_server!(a_lease_that_somebody_took_away_ends_its_host);
async fn a_lease_that_somebody_took_away_ends_its_host(kind: Kind) {
    let database = TestDatabase::new(kind);
    let opened = database.open().await;
    for (statement, said) in [
        ("DELETE FROM bbs_lease", "its row is gone"),
        ("UPDATE bbs_lease SET owner = 'a stranger', token = token + 1, ttl_ms = 1", "a stranger"),
    ] {
        let host = host(&database, "one").serve();
        execute(&opened, statement).await;
        let (status, log) = tokio::task::spawn_blocking(move || host.wait_for_end()).await.unwrap();
        assert!(!status.success() && log.contains(said) && log.contains("serves no more"), "{log}");
    }
}

on_each_server!(a_host_outlives_a_crash_of_its_server);
async fn a_host_outlives_a_crash_of_its_server(kind: Kind) {
    let server = kind.own_engine();
    let database = TestDatabase::on(kind, server.address());
    let host = host(&database, "one").set("lock_ttl", "60s").serve();
    upsert_domain(host.address, "before").await.unwrap();
    server.restart();
    while upsert_domain(host.address, "after").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(domains(host.address).await.len(), 2);
}
