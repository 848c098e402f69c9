//! The host on a machine as bpm makes it: read-only packages, no executable data, and a kill 15 s after the signal.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::bosh::bpm::BpmWorld;
use crate::harness::database::{Kind, execute, on_each_server};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::Host;

const NEWEST: u64 = 1_795_000_010;
/// Time between the signal of `bpm stop` and the kill.
const BPM_WAITS: Duration = Duration::from_secs(15);
const LRPS: &str = "desired_lrps";

#[track_caller]
fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn version(world: &BpmWorld) -> u64 {
    let status: Value = serde_json::from_str(&succeeded(&world.migrate(&["status", "--json"]))).expect("it is JSON");
    status["found"]["versioned"]["current"].as_u64().expect("a version")
}

/// A host that has migrated the fixture, with this number of desired LRPs.
async fn deployed(kind: Kind, lrps: u64) -> (BpmWorld, Host) {
    let world = BpmWorld::new(kind).set("migration", json!({ "rollback_on_drain_to": VERSION }));
    fixture::write_to(&world.database).await;
    let columns: Vec<_> = fixture::rows(LRPS)[0].keys().filter(|name| *name != "process_guid").cloned().collect();
    let columns: Vec<_> = columns.iter().map(String::as_str).collect();
    let opened = world.database.open().await;
    // Convergence creates no instances of the copies.
    execute(&opened, "UPDATE desired_lrps SET instances = 0").await;
    fixture::multiply(&opened, LRPS, &columns, lrps).await;
    opened.close().await;
    world.install();
    tokio::task::spawn_blocking(|| {
        succeeded(&world.script("pre-start"));
        let host = world.start();
        succeeded(&world.script("post-start"));
        (world, host)
    })
    .await
    .expect("the host serves")
}

on_each_server!(drain_goes_back_however_long_it_takes);
async fn drain_goes_back_however_long_it_takes(kind: Kind) {
    // One server has as many as a large deployment.
    let lrps = if kind == Kind::Postgres { 200_000 } else { 2_000 };
    let (world, mut host) = deployed(kind, lrps).await;
    tokio::task::spawn_blocking(move || {
        assert_eq!(version(&world), NEWEST);
        // So that going back takes longer than bpm waits on a fast machine, too.
        succeeded(&world.migrate(&["rate", &format!("{}/s", lrps / 20)]));
        let began = Instant::now();
        assert_eq!(succeeded(&world.script("drain")), "0\n");
        assert!(began.elapsed() > BPM_WAITS, "{:?}", began.elapsed());
        assert!(host.wait().success());
        assert_eq!(version(&world), VERSION);
        assert_eq!(succeeded(&world.script("drain")), "0\n", "no host is running");
    })
    .await
    .expect("the host is drained");
}

on_each_server!(stop_without_a_drain_ends_in_time_and_does_not_go_back);
async fn stop_without_a_drain_ends_in_time_and_does_not_go_back(kind: Kind) {
    let (world, mut host) = deployed(kind, 0).await;
    tokio::task::spawn_blocking(move || {
        succeeded(&world.bpm_stop());
        assert_eq!(host.wait().code(), Some(0), "it was not killed");
        assert_eq!(version(&world), NEWEST);
        // A restart loads the compiled modules from the data folder.
        let mut again = world.start();
        assert!(again.output().iter().all(|line| !line.contains("modules.not-kept")), "{:#?}", again.output());
        succeeded(&world.bpm_stop());
        assert_eq!(again.wait().code(), Some(0));
    })
    .await
    .expect("the host is stopped");
}

on_each_server!(errand_migrates_a_database_that_no_host_uses);
async fn errand_migrates_a_database_that_no_host_uses(kind: Kind) {
    let (world, mut host) = deployed(kind, 0).await;
    tokio::task::spawn_blocking(move || {
        let errand = |action: &str, to: Value| {
            world.install_errand(&json!({ "bbs_migrate": { "action": action, "to": to } }));
            world.run("/var/vcap/jobs/bbs-migrate/bin/run", &[])
        };
        assert!(succeeded(&errand("status", Value::Null)).contains(&NEWEST.to_string()));
        assert!(!errand("down", VERSION.into()).status.success(), "the host has the lock");
        succeeded(&world.bpm_stop());
        host.wait();
        succeeded(&errand("plan", VERSION.into()));
        assert_eq!(version(&world), NEWEST);
        succeeded(&errand("down", VERSION.into()));
        assert_eq!(version(&world), VERSION);
        succeeded(&errand("up", Value::Null));
        assert_eq!(version(&world), NEWEST);
    })
    .await
    .expect("the errand runs");
}
