//! The whole story, told through the executable alone: a database that Diego wrote is taken over, answers as
//! Diego answered, is handed back, goes further back than Diego's own migrations can, and comes up again.

use std::net::SocketAddr;

use bbs::database::sql;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::api::answers::{in_order, same, task_in_order};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::stored::{Rows, Stored};

/// Routes plain, no presence, metric tags in `run_info` alone.
const OLDEST: u64 = 1_471_030_898;

/// Sends what Diego's client sent; gives the host's answer and Diego's.
async fn both<M: Message + Default>(address: SocketAddr, call: &str, path: &str) -> (M, M) {
    let (request, expected) = fixture::expected(call);
    let response =
        crate::harness::http_client().post(format!("http://{address}{path}")).body(request).send().await.unwrap();
    let answer = response.bytes().await.unwrap();
    (M::decode(&answer[..]).unwrap(), M::decode(&expected[..]).unwrap())
}

pub(crate) async fn answers_as_diego_did(address: SocketAddr) {
    for (call, path) in [
        ("desired_lrps_list.r3", "/v1/desired_lrps/list.r3"),
        ("desired_lrps_list.r3.domain", "/v1/desired_lrps/list.r3"),
        ("desired_lrp_routing_infos_list", "/v1/desired_lrp_routing_infos/list"),
    ] {
        let (found, expected): (proto::DesiredLrPsResponse, proto::DesiredLrPsResponse) =
            both(address, call, path).await;
        let ordered = |lrps: Vec<proto::DesiredLrp>| lrps.into_iter().map(in_order).collect();
        same(ordered(found.desired_lrps), ordered(expected.desired_lrps), |lrp| lrp.process_guid.clone());
    }
    let (found, expected): (proto::TasksResponse, proto::TasksResponse) =
        both(address, "tasks_list.r3", "/v1/tasks/list.r3").await;
    let ordered = |tasks: Vec<proto::Task>| tasks.into_iter().map(task_in_order).collect();
    same(ordered(found.tasks), ordered(expected.tasks), |task| task.task_guid.clone());
    let (found, expected): (proto::DomainsResponse, proto::DomainsResponse) =
        both(address, "domains_list", "/v1/domains/list").await;
    same(found.domains, expected.domains, Clone::clone);
}

async fn rows(installation: &Installation, version: u64) -> Rows {
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let rows = stored.rows(version).await;
    stored.context.database.close().await;
    rows
}

on_each_database!(a_diego_database_is_taken_over_served_handed_back_and_taken_over_again);
async fn a_diego_database_is_taken_over_served_handed_back_and_taken_over_again(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    let original = rows(&installation, VERSION).await;

    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    assert!(host.terminate().success());

    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(rows(&installation, VERSION).await, original);

    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let oldest = rows(&installation, OLDEST).await;
    assert!(oldest["desired_lrps"][0]["routes"].starts_with('{'), "routes are plain");
    assert!(!oldest["actual_lrps"][0].contains_key("presence"));

    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    assert!(host.terminate().success());
}

on_each_database!(status_and_plan_say_what_is_there_and_what_would_be_done);
async fn status_and_plan_say_what_is_there_and_what_would_be_done(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    let status = installation.succeed(&["migrate", "status"]);
    for part in [
        "Version    1722634733",
        "Key        key-2024",
        "665 actual_lrps",
        "1772581987",
        "`bbs migrate plan` shows what going to",
    ] {
        assert!(status.contains(part), "{part:?} is not in:\n{status}");
    }
    let plan = installation.succeed(&["migrate", "plan"]);
    for part in ["From 1722634733 up to", "desired_lrps", "in place", "Reversible yes"] {
        assert!(plan.contains(part), "{part:?} is not in:\n{plan}");
    }
    let down = installation.succeed(&["migrate", "plan", "--to", &OLDEST.to_string()]);
    assert!(down.contains("copied (300 rows"), "{down}");
    let json: serde_json::Value =
        serde_json::from_str(&installation.succeed(&["migrate", "status", "--json"])).unwrap();
    assert_eq!(json["found"]["versioned"]["current"], VERSION);
}

on_each_database!(a_database_pinned_below_the_handlers_is_served_as_it_is);
async fn a_database_pinned_below_the_handlers_is_served_as_it_is(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind).set("pin_data_version", VERSION);
    fixture::write_to(&installation.database).await;
    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    assert!(host.terminate().success());
    let status = installation.succeed(&["migrate", "status"]);
    assert!(status.contains(&format!("Version    {VERSION}")), "{status}");
}

#[test]
fn a_mistyped_database_is_told_and_not_made() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    for arguments in [&["migrate", "status"][..], &["migrate", "plan"], &["migrate", "down", "--to", "1722634733"]] {
        let refused = installation.run(arguments);
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no database at"), "{arguments:?}");
    }
    assert!(!installation.database.path().exists());
}

on_each_database!(a_command_waits_for_no_host_that_serves);
async fn a_command_waits_for_no_host_that_serves(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    let host = installation.serve();
    let refused = installation.run(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("another host holds the lock"), "{said}");
    answers_as_diego_did(host.address).await;
}

on_each_database!(a_standby_keeps_its_port_closed_and_takes_over_from_a_killed_master);
async fn a_standby_keeps_its_port_closed_and_takes_over_from_a_killed_master(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    let master = installation.serve();
    let standby = installation.command(&["serve"]);
    let taken_over = tokio::task::spawn_blocking(move || crate::harness::host::Host::start(standby, "serving"));
    // The standby says nothing while it waits; the master answers.
    assert!(crate::harness::http_client().post(master.url("/v1/ping")).send().await.unwrap().status().is_success());
    assert!(!taken_over.is_finished());
    master.kill();
    let host = taken_over.await.unwrap();
    assert!(crate::harness::http_client().post(host.url("/v1/ping")).send().await.unwrap().status().is_success());
}

on_each_database!(from_the_moment_it_is_the_master_a_host_says_how_far_it_is);
async fn from_the_moment_it_is_the_master_a_host_says_how_far_it_is(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    // Somebody else is writing: the host has to wait before it can migrate.
    let other = installation.database.open().await;
    let mut writing = other.write().await.unwrap();
    match kind {
        Kind::Sqlite => {}
        Kind::Postgres => drop(writing.execute(sql("LOCK TABLE configurations")).await.unwrap()),
        Kind::Mysql => drop(writing.execute(sql("LOCK TABLES configurations WRITE")).await.unwrap()),
    }

    let mut host = crate::harness::host::Host::start(installation.command(&["serve"]), "listening");
    let reply = crate::harness::http_client().post(host.url("/v1/desired_lrps/list.r3")).send().await.unwrap();
    assert_eq!(reply.status(), 503);
    assert!(reply.headers().contains_key("retry-after"));
    let progress: serde_json::Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
    assert!(progress["phase"].is_string(), "{progress}");

    drop(writing);
    other.close().await;
    host.wait_for_line(|line| line.contains("serving"));
    answers_as_diego_did(host.address).await;
}

on_each_database!(a_key_that_no_record_knows_is_refused_loudly);
async fn a_key_that_no_record_knows_is_refused_loudly(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    let installation =
        installation.set("encryption_keys", serde_json::json!({"new": "x"})).set("active_key_label", "new");
    let refused = installation.run(&["serve"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("existing encryption key version (key-2024) is not among the known keys"), "{said}");
}
