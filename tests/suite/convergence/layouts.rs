//! Convergence of LRPs on every layout: its counts, its changes, the events that it publishes, and
//! that it settles.

use bbs::testing::domain::convergence::{LrpCounts, run_among};
use bbs::testing::events::Subscription;
use bbs_proto::models as proto;

use crate::api::actual_lrps::{self as lrps, published, rows, subscribe};
use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{NOW_NS, Server};

const SECOND_NS: i64 = 1_000_000_000;

/// Runs convergence with these cells. Returns its counts and the changes published meanwhile.
pub(super) async fn converge(
    server: &Server,
    cells: &[&str],
    subscription: &mut Subscription,
) -> (LrpCounts, Vec<String>) {
    let cells = cells.iter().map(|id| proto::CellPresence {
        cell_id: (*id).into(),
        ..Default::default()
    });
    let now_ns = server.service.store().now_ns();
    let counts = run_among(&server.service, Some(cells.collect()), now_ns)
        .await
        .unwrap()
        .lrps;
    (counts, published(server, subscription).await)
}

/// Asserts that a run of convergence changed nothing. It may still send routes and tags to
/// containers.
#[track_caller]
fn assert_converged((counts, changes): &(LrpCounts, Vec<String>)) {
    assert_eq!(
        (counts.missing, counts.extra, counts.started, counts.failed),
        (0, 0, 0, 0)
    );
    assert_eq!(*changes, Vec::<String>::new());
}

pub(super) async fn fresh(server: &Server, domain: &str, ttl_s: u32) {
    let request = proto::UpsertDomainRequest {
        domain: domain.into(),
        ttl: ttl_s,
    };
    let reply = server.call("/v1/domains/upsert", &request).await;
    reply.assert_no_error();
}

async fn start(server: &Server, index: i32, name: &str) {
    assert_eq!(
        lrps::call_error(server, lrps::CLAIM, &lrps::claim(index, name)).await,
        None
    );
    assert_eq!(
        lrps::call_error(server, lrps::START, &lrps::start(index, name)).await,
        None
    );
}

pub(super) async fn removed(server: &Server) {
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    let reply = server.call("/v1/desired_lrp/remove", &request).await;
    reply.assert_no_error();
}

pub(super) async fn scaled(server: &Server, instances: i32) {
    let update = proto::DesiredLrpUpdate {
        instances: Some(instances),
        ..Default::default()
    };
    server.update_lrp("guid", update).await;
}

on_each_layout!(stale_unclaimed_instance_is_auctioned_again_and_running_one_left_unchanged);
async fn stale_unclaimed_instance_is_auctioned_again_and_running_one_left_unchanged(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    start(&server, 0, "a").await;
    published(&server, &mut subscription).await;
    let cell = cell("a");
    let cells = [cell.as_str()];
    assert_converged(&converge(&server, &cells, &mut subscription).await);

    server.clock.set(NOW_NS + 31 * SECOND_NS);
    let (counts, published_changes) = converge(&server, &cells, &mut subscription).await;
    assert_eq!(
        (
            counts.desired,
            counts.running,
            counts.unclaimed,
            counts.started
        ),
        (2, 1, 1, 1)
    );
    assert_eq!(
        published_changes,
        Vec::<String>::new(),
        "its row is unchanged"
    );
}

on_each_layout!(container_becomes_suspect_when_its_cell_leaves_and_ordinary_when_it_returns);
async fn container_becomes_suspect_when_its_cell_leaves_and_ordinary_when_it_returns(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    // Without a claim, as a container that has lost its record.
    assert_eq!(
        lrps::call_error(&server, lrps::START, &lrps::start(0, "a")).await,
        None
    );
    start(&server, 1, "b").await;
    let a = cell("a");
    let b = cell("b");
    let mut subscription = subscribe(&server);
    assert_converged(&converge(&server, &[&a, &b], &mut subscription).await);

    let (counts, published_changes) = converge(&server, &[&b], &mut subscription).await;
    assert_eq!(
        (counts.suspect_cells, counts.started, counts.failed),
        (1, 1, 0)
    );
    assert_eq!(
        published_changes,
        ["0:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a"]
    );
    assert_eq!(
        rows(&server).await[..2],
        ["0/0/UNCLAIMED//0", "0/2/RUNNING/a/1"]
    );
    let (_, published_changes) = converge(&server, &[&b], &mut subscription).await;
    assert_eq!(
        published_changes,
        Vec::<String>::new(),
        "its replacement is not stale yet"
    );

    let (counts, published_changes) = converge(&server, &[&a, &b], &mut subscription).await;
    assert_eq!((counts.suspect_running, counts.started), (1, 0));
    assert_eq!(
        published_changes,
        ["0:UNCLAIMED:+2:RUNNING:a -> 0:RUNNING:a"]
    );
    assert_converged(&converge(&server, &[&a, &b], &mut subscription).await);
}

on_each_layout!(replacement_on_an_absent_cell_is_unclaimed_and_the_suspect_kept);
async fn replacement_on_an_absent_cell_is_unclaimed_and_the_suspect_kept(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    scaled(&server, 1).await;
    start(&server, 0, "a").await;
    let mut subscription = subscribe(&server);
    converge(&server, &[&cell("c")], &mut subscription).await;
    let claim = lrps::call_error(&server, lrps::CLAIM, &lrps::claim(0, "b")).await;
    assert_eq!(claim, None);
    published(&server, &mut subscription).await;
    let (counts, published_changes) = converge(&server, &[&cell("c")], &mut subscription).await;
    assert_eq!(
        (counts.suspect_running, counts.suspect_cells, counts.started),
        (1, 2, 0)
    );
    assert_eq!(
        published_changes,
        ["0:CLAIMED:b+2:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a"]
    );
}

on_each_layout!(undesired_instance_is_removed_once_its_domain_is_fresh);
async fn undesired_instance_is_removed_once_its_domain_is_fresh(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    start(&server, 0, "a").await;
    removed(&server).await;
    assert_eq!(
        rows(&server).await,
        ["0/0/RUNNING/a/2"],
        "its cell removes the row"
    );
    let mut subscription = subscribe(&server);
    assert_converged(&converge(&server, &[], &mut subscription).await);

    fresh(&server, "domain", 100).await;
    let (counts, published_changes) = converge(&server, &[], &mut subscription).await;
    assert_eq!((counts.extra, counts.failed), (1, 0));
    assert_eq!(published_changes, ["0:RUNNING:a -> "]);
    assert_eq!(rows(&server).await, Vec::<String>::new());
    assert_converged(&converge(&server, &[], &mut subscription).await);
}

on_each_layout!(expired_domain_is_deleted);
async fn expired_domain_is_deleted(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    fresh(&server, "domain", 10).await;
    fresh(&server, "unlimited", 0).await;
    let mut subscription = subscribe(&server);
    server.clock.set(NOW_NS + 11 * SECOND_NS - 1);
    converge(&server, &[], &mut subscription).await;
    assert_eq!(
        server
            .texts("SELECT domain FROM domains ORDER BY domain")
            .await,
        ["domain", "unlimited"]
    );
    server.clock.set(NOW_NS + 11 * SECOND_NS);
    converge(&server, &[], &mut subscription).await;
    assert_eq!(
        server
            .texts("SELECT domain FROM domains ORDER BY domain")
            .await,
        ["unlimited"]
    );
}

on_each_layout!(missing_instance_is_created);
async fn missing_instance_is_created(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    assert_eq!(
        lrps::call_error(&server, lrps::REMOVE, &lrps::remove(1, None)).await,
        None
    );
    let mut subscription = subscribe(&server);
    let (counts, published_changes) = converge(&server, &[], &mut subscription).await;
    assert_eq!((counts.missing, counts.started), (1, 1));
    assert_eq!(published_changes, [" -> 0:UNCLAIMED:"]);
    assert_converged(&converge(&server, &[], &mut subscription).await);
}

on_each_layout!(unreadable_instance_is_left_unchanged);
async fn unreadable_instance_is_left_unchanged(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    fresh(&server, "domain", 0).await;
    let mut other = lrp("other");
    other.instances = 1;
    desire(&server, other).await;
    start(&server, 0, "a").await;
    start(&server, 1, "b").await;
    let mut subscription = subscribe(&server);
    server
        .sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE instance_index = 1")
        .await;
    assert_converged(&converge(&server, &[&cell("a"), &cell("b")], &mut subscription).await);
    let (counts, published_changes) = converge(&server, &[&cell("a")], &mut subscription).await;
    assert_eq!(
        (counts.failed, counts.started),
        (1, 0),
        "it cannot be marked as suspect"
    );
    assert_eq!(published_changes, Vec::<String>::new());
}

on_each_database!(instances_of_an_unreadable_desired_lrp_keep_running);
async fn instances_of_an_unreadable_desired_lrp_keep_running(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    fresh(&server, "domain", 0).await;
    start(&server, 0, "a").await;
    let mut subscription = subscribe(&server);
    for column in ["routes", "metric_tags", "run_info"] {
        server
            .sql(&format!("UPDATE desired_lrps SET {column} = '02damaged'"))
            .await;
        assert_converged(&converge(&server, &[&cell("a")], &mut subscription).await);
    }
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/2", "1/0/UNCLAIMED//0"]);
}

on_each_layout!(update_and_removal_publish_a_change_for_every_instance);
async fn update_and_removal_publish_a_change_for_every_instance(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    scaled(&server, 4).await;
    assert_eq!(
        published(&server, &mut subscription).await,
        [" -> 0:UNCLAIMED:", " -> 0:UNCLAIMED:"]
    );
    start(&server, 3, "d").await;
    published(&server, &mut subscription).await;
    scaled(&server, 1).await;
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:UNCLAIMED: -> ", "0:UNCLAIMED: -> "]
    );
    assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//0", "3/0/RUNNING/d/2"]);
    removed(&server).await;
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:UNCLAIMED: -> "]
    );
    let mut many = lrp("guid");
    many.instances = 1203;
    desire(&server, many).await;
    assert_eq!(
        published(&server, &mut subscription).await.len(),
        1202,
        "one row exists already"
    );
}

pub(super) fn cell(name: &str) -> String {
    String::from_utf8(lrps::instance(name).unwrap().cell_id).unwrap()
}
