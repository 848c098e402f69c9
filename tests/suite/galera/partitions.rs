//! Nodes that run outside of the primary component of their cluster, and clusters that have lost
//! it: hosts leave such a node for another one, or wait until there is one.

use tokio::sync::watch;
use tokio::task::block_in_place;

use super::SETTINGS;
use crate::crash::{completion, inspect};
use crate::harness::fixture;
use crate::harness::galera::Cluster;
use crate::harness::layouts::NEWEST;
use crate::harness::load::across::progress;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Report};
use crate::harness::until_async;
use crate::lock::{self, SHORT_TTL, standby};
use crate::online::{taken_down, with_fixture};

/// Calls between two steps of a test.
const CALLS: u64 = 100;

/// Asserts that less than a tenth of the calls failed, and that no read contradicts an acknowledged
/// write.
#[track_caller]
fn assert_served(report: &Report) {
    let succeeded = report.reads.len() + report.writes.len();
    assert_eq!(report.differences, 0, "{report}");
    let calls = report.failures + succeeded;
    assert!(report.failures * 10 < calls, "{report}");
}

/// Asserts that the acknowledged writes are there, and no others.
async fn assert_complete(model: &Model, caller: &Caller) {
    let mut found = model.differences(&everything(caller).await.unwrap());
    found.extend(model.differences_of_instances(caller).await.unwrap());
    assert_eq!(found, Vec::<String>::new());
}

/// Goal: hosts with sessions on all nodes go on over the others while one node is isolated, a
/// standby too: it takes over meanwhile. Method: the node is that of the session over which the
/// standby looks at the lease.
#[tokio::test(flavor = "multi_thread")]
async fn host_leaves_a_node_outside_of_the_primary_component_and_so_does_its_standby() {
    let cluster = Cluster::whole();
    let database = cluster.database();
    fixture::write_to(&database).await;
    let [balancer, observed] = [cluster.balancer(), cluster.observed_balancer()];
    let one = lock::host(&database.through(balancer.address()), "one");
    let master = one.set("lock_ttl", "60s").serve();
    let other = lock::host(&database.through(observed.address()), "other")
        .set("lock_ttl", "60s")
        .set("lock_retry_interval", "20ms");
    let waiting = standby(&other);
    let isolated = cluster.node_in_use().await;
    let (serving, address) = watch::channel(master.url(""));
    let caller = Caller::new(address);
    let model = Model::of(&caller).await.unwrap();
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    load.calls(CALLS).await;
    block_in_place(|| cluster.isolate(isolated));
    load.calls(CALLS).await;
    let (report, model) = load.stop().await;
    assert_served(&report);

    assert!(block_in_place(|| master.terminate()).success());
    let successor = waiting.await.unwrap();
    serving.send_replace(successor.url(""));
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    load.calls(CALLS).await;
    block_in_place(|| cluster.rejoin(isolated));
    load.calls(CALLS).await;
    let (report, model) = load.stop().await;
    assert_served(&report);
    assert_complete(&model, &caller).await;
    assert!(successor.terminate().success());
}

/// Method: each of two hosts has all sessions on a node of its own, and the load follows the one
/// that serves.
#[tokio::test(flavor = "multi_thread")]
async fn master_on_an_isolated_node_is_replaced_and_loses_no_acknowledged_write() {
    let cluster = Cluster::whole();
    let database = cluster.database();
    fixture::write_to(&database).await;
    // Under a lease that lasts as long as a migration takes.
    lock::host(&database, "one").succeed(&["migrate", "up"]);
    let [one, other] = [(0, "one"), (1, "other")].map(|(node, name)| {
        let through = database.through(cluster.node(node));
        lock::host(&through, name).set("lock_ttl", SHORT_TTL)
    });
    let master = one.serve();
    let waiting = standby(&other);
    let (serving, address) = watch::channel(master.url(""));
    let caller = Caller::new(address);
    let model = Model::of(&caller).await.unwrap();
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    load.calls(CALLS).await;
    let (status, log) = block_in_place(|| {
        cluster.isolate(0);
        master.wait_for_end()
    });
    let reason = format!("could not be renewed for {SHORT_TTL}");
    assert!(!status.success() && log.contains(&reason), "{log}");
    let successor = waiting.await.unwrap();
    serving.send_replace(successor.url(""));
    load.calls(CALLS).await;
    block_in_place(|| cluster.rejoin(0));
    load.calls(CALLS).await;
    let (report, model) = load.stop().await;
    assert_eq!(report.differences, 0, "{report}");
    assert_complete(&model, &caller).await;
    assert!(successor.terminate().success());
}

/// Goal: a host whose node is left alone refuses calls, serves again once an operator has
/// bootstrapped the node, and completes an online migration that was under way, without a restart.
/// Method: the other nodes are killed while it copies under a load. All sessions are on the node
/// that is left, so that it has every acknowledged write.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_that_loses_its_primary_component_is_served_again() {
    let cluster = Cluster::whole();
    let database = cluster.database();
    let installation = taken_down(with_fixture(database.clone()).await).await;
    let installation = installation
        // Longer than the test: the host does not lose its lease.
        .set("lock_ttl", "600s")
        // The copy is not complete before the quorum is lost.
        .set("migration_units_per_second", 5);
    let mut host = installation.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let model = Model::of(&caller).await.unwrap();
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    until_async(async || {
        let now = progress(&installation).await;
        now.is_some_and(|now| now.phase == "copy" && now.done > 0)
    })
    .await;
    load.calls(CALLS).await;
    block_in_place(|| cluster.lose_quorum());
    let refused = caller.get(b"absent").await;
    refused.expect_err("the node accepts no statements");
    let (report, model) = load.stop().await;
    assert_eq!(report.differences, 0, "{report}");

    block_in_place(|| cluster.bootstrap());
    until_async(async || caller.get(b"absent").await.is_ok()).await;
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    load.calls(CALLS).await;
    block_in_place(|| {
        installation.succeed(&["migrate", "rate", "none"]);
        let ended = |line: &str| line.contains("cut over") || line.contains("the API continues");
        let line = host.wait_for_line(ended);
        assert!(line.contains("cut over"), "{line}");
    });
    load.calls(CALLS).await;
    let (report, model) = load.stop().await;
    assert_served(&report);
    assert_complete(&model, &caller).await;
    completion(&database).await;
    assert!(host.terminate().success());
    let rows = inspect(&database, NEWEST).await;
    for node in 1..=2 {
        let through = database.through(cluster.node(node));
        assert!(inspect(&through, NEWEST).await == rows, "node {node}");
    }
}
