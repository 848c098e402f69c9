//! The tests of the lock with Locket's lock, which Diego's BBS uses too.

use bbs::testing::migrate::fault::AFTER_BEGIN;
use serde_json::Value;

use super::{SHORT_TTL, domains, host, standby, upsert_domain};
use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::host::{Host, Installation};
use crate::harness::locket::{Locket, certificate};
use crate::harness::output::{errors, refused};
use crate::harness::proxy::Proxy;
use crate::harness::until;

/// Longer than a test, so that the lock neither expires nor is renewed.
const LONG_TTL: &str = "10m";

pub(crate) fn under(locket: &Locket, installation: Installation) -> Installation {
    let Value::Object(keys) = locket.configuration() else {
        panic!("keys are an object")
    };
    keys.into_iter()
        .fold(installation, |installation, (key, value)| {
            installation.set(&key, value)
        })
}

async fn end(host: Host) -> String {
    let (status, log) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(!status.success() && log.contains("serves no more"), "{log}");
    log
}

on_each_database!(one_host_holds_the_lock_and_releases_it_at_termination);
async fn one_host_holds_the_lock_and_releases_it_at_termination(kind: Kind) {
    let locket = Locket::start();
    let database = TestDatabase::new(kind);
    let one = under(&locket, host(&database, "one"));
    let other = under(&locket, host(&database, "other"));
    let master = tokio::task::spawn_blocking(move || one.serve())
        .await
        .unwrap();
    assert_eq!(locket.holder().as_deref(), Some("one"));
    let refused = {
        let same = under(&locket, host(&database, "one"));
        tokio::task::spawn_blocking(move || same.run(&["migrate", "up"]))
            .await
            .unwrap()
    };
    let output = errors(&refused);
    assert!(
        output.contains("another host holds the lock of this database: one;"),
        "a command with the uuid of a host does not share its lock: {output}"
    );
    let waiting = standby(&other);
    until(|| locket.callers().iter().any(|caller| caller == "other")).await;
    assert!(!waiting.is_finished());
    master.end().await;
    let host = waiting.await.unwrap();
    assert_eq!(locket.holder().as_deref(), Some("other"));
    upsert_domain(host.address, "after").await.unwrap();
    assert_eq!(domains(host.address).await, ["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_of_one_configuration_do_not_share_the_lock() {
    let locket = Locket::start();
    let database = TestDatabase::new(Kind::Sqlite);
    // A stopped process does not renew the lock.
    let installation = under(&locket, host(&database, "one")).set("lock_ttl", LONG_TTL);
    let mut command = installation.command(&["migrate", "up"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_BEGIN}"));
    let migration = Host::begin(command);
    migration.until_stopped().await;
    let holder = locket.holder();
    let refused = tokio::task::spawn_blocking(move || installation.run(&["keys", "rotate"]))
        .await
        .unwrap();
    let output = errors(&refused);
    assert!(
        output.contains("holds the lock of this database: one-command-"),
        "{output}"
    );
    assert!(holder.is_some());
    assert_eq!(locket.holder(), holder, "its lock is not released");
    migration.kill();
}

/// Goal: a host that lost the fence to a host of the same `uuid` does not release the lock, which
/// is the other host's. Method: the TTL is so long that no renewal takes a released lock again.
#[tokio::test(flavor = "multi_thread")]
async fn host_replaced_by_one_of_its_uuid_does_not_release_the_lock() {
    let locket = Locket::start();
    let database = TestDatabase::new(Kind::Sqlite);
    let serve = || {
        let installation = under(&locket, host(&database, "one")).set("lock_ttl", LONG_TTL);
        tokio::task::spawn_blocking(move || installation.serve())
    };
    let replaced = serve().await.unwrap();
    let master = serve().await.unwrap();
    upsert_domain(replaced.address, "late").await.unwrap_err();
    let (status, log) = tokio::task::spawn_blocking(move || replaced.wait_for_end())
        .await
        .unwrap();
    assert!(
        !status.success() && log.contains("no longer the master"),
        "{log}"
    );
    assert_eq!(locket.holder().as_deref(), Some("one"));
    upsert_domain(master.address, "after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_lost_to_another_owner_or_not_renewed_ends_the_host() {
    let locket = Locket::start();
    let database = TestDatabase::new(Kind::Sqlite);
    // Under a lock that lasts as long as the start takes.
    let installation = under(&locket, host(&database, "one"));
    tokio::task::spawn_blocking(move || installation.succeed(&["migrate", "up"]))
        .await
        .unwrap();
    let serve = || {
        let installation = under(&locket, host(&database, "one")).set("lock_ttl", SHORT_TTL);
        tokio::task::spawn_blocking(move || installation.serve())
    };
    let master = serve().await.unwrap();
    locket.grant_to("diego");
    let output = end(master).await;
    assert!(output.contains("lock-collision"), "{output}");
    locket.grant_to("one");
    let master = serve().await.unwrap();
    locket.set_unavailable(true);
    let output = end(master).await;
    assert!(output.contains("could not be renewed for 6s"), "{output}");
    // A standby waits while Locket is unavailable.
    let waiting = serve();
    let before = locket.callers().len();
    until(|| locket.callers().len() >= before + 3).await;
    locket.set_unavailable(false);
    waiting.await.unwrap();
}

/// Goal: a machine of Locket that dies does not take the lock with it while another one answers.
/// Method: a proxy forwards nothing on the connections that are open, and new ones as before; the
/// renewals after that take longer than the TTL.
#[tokio::test(flavor = "multi_thread")]
async fn lock_outlives_the_locket_machine_of_its_connection() {
    const RENEWALS: usize = 3;
    let locket = Locket::start();
    let proxy = Proxy::to(locket.address());
    let database = TestDatabase::new(Kind::Sqlite);
    // Under a lock that lasts as long as the start takes.
    let installation = under(&locket, host(&database, "one"));
    tokio::task::spawn_blocking(move || installation.succeed(&["migrate", "up"]))
        .await
        .unwrap();
    let installation = under(&locket, host(&database, "one"))
        .set("locket_address", proxy.address().to_string())
        .set("lock_ttl", SHORT_TTL);
    let master = tokio::task::spawn_blocking(move || installation.serve())
        .await
        .unwrap();
    proxy.stall_open();
    // Look-ups of cells have no `uuid`.
    let renewals = || {
        locket
            .callers()
            .iter()
            .filter(|uuid| *uuid == "one")
            .count()
    };
    let before = renewals();
    until(|| renewals() >= before + RENEWALS).await;
    assert_eq!(locket.holder().as_deref(), Some("one"));
    upsert_domain(master.address, "after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn locket_connection_errors_name_their_cause() {
    let locket = Locket::start();
    let database = TestDatabase::new(Kind::Sqlite);
    let path = |name: &str| Value::from(certificate(name).display().to_string());
    for (changes, wanted) in [
        (
            vec![("locket_ca_cert_file", "/nonexistent/ca.crt".into())],
            "/nonexistent/ca.crt",
        ),
        (
            vec![("locket_address", "127.0.0.1:1".into())],
            "cannot connect to Locket at 127.0.0.1:1",
        ),
        (
            vec![("locket_address", "not an address".into())],
            "is not an address",
        ),
        (
            vec![("locket_ca_cert_file", path("stranger.crt"))],
            "cannot connect to Locket",
        ),
        (
            vec![
                ("locket_client_cert_file", path("stranger.crt")),
                ("locket_client_key_file", path("stranger.key")),
            ],
            "Locket",
        ),
        (
            vec![("locket_client_key_file", path("stranger.key"))],
            "cannot be used together",
        ),
        (vec![("uuid", "ü".into())], "use letters, digits and dashes"),
    ] {
        let installation = under(&locket, host(&database, "one"));
        let installation = changes
            .into_iter()
            .fold(installation, |all, (key, value): (_, Value)| {
                all.set(key, value)
            });
        let output = tokio::task::spawn_blocking(move || installation.run(&["migrate", "up"]))
            .await
            .unwrap();
        refused(output, wanted);
    }
    assert_eq!(locket.holder(), None);
}
