//! Convergence end to end: instances whose cells join and leave, fresh and expired domains, and the
//! requests to the auctioneer and the rep. The clock is stopped and set by the tests.

mod layouts;
mod long_runs;
mod starts;

use bbs::testing::domain::convergence::{self, LrpCounts};
use bbs_proto::models as proto;
use serde_json::{Value, json};

use crate::api::actual_lrps as lrps;
use crate::api::{desire, lrp, routes};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::{Neighbours, StubReply};
use crate::harness::on_each::on_each_mysql;
use crate::harness::pause;
use crate::harness::server::{NOW_NS, Server};

const SECOND_NS: i64 = 1_000_000_000;
/// All rows, formatted as slot, state, presence and cell.
const ROWS: &str = "SELECT concat(process_guid, '/', instance_index, ' ', state, ' ', presence, ' ', cell_id) \
     FROM actual_lrps ORDER BY process_guid, instance_index, presence";

/// A server with an auctioneer, reps and Locket.
struct ConvergenceTest {
    server: Server,
    neighbours: Neighbours,
}

impl ConvergenceTest {
    async fn new(kind: Kind) -> Self {
        let (server, neighbours) = Server::with_neighbours(kind).await;
        Self { server, neighbours }
    }

    /// The requests to the auctioneer and the rep since the previous call, sorted by path.
    fn take_requests(&self) -> Vec<(String, Value)> {
        let received = [
            self.neighbours.auctioneer.take_requests(),
            self.neighbours.rep.take_requests(),
        ]
        .concat();
        let mut requests: Vec<_> = received
            .into_iter()
            .map(|request| (request.path, request.body))
            .collect();
        requests.sort_by_key(|(path, _)| path.clone());
        requests
    }

    /// Runs convergence `after_s` seconds after the start. Returns its counts and the requests that
    /// it made.
    async fn converge(&self, after_s: i64) -> (LrpCounts, Vec<(String, Value)>) {
        self.server.clock.set(NOW_NS + after_s * SECOND_NS);
        self.take_requests();
        let counts = convergence::run(&self.server.service).await.unwrap().lrps;
        (counts, self.take_requests())
    }

    async fn rows(&self) -> Vec<String> {
        self.server.texts(ROWS).await
    }

    /// Claims an instance and starts it, as its cell does.
    async fn start(&self, index: i32, cell: &str) {
        let claim = proto::ClaimActualLrpRequest {
            process_guid: b"p".to_vec(),
            index,
            actual_lrp_instance_key: instance(index, cell),
        };
        let reply = self.server.call(lrps::CLAIM, &claim).await;
        reply.assert_no_error();
        self.start_unclaimed(index, cell).await;
    }

    /// Starts an instance without a claim, as a cell does whose container has lost its record.
    async fn start_unclaimed(&self, index: i32, cell: &str) {
        let start = proto::StartActualLrpRequest {
            actual_lrp_key: Some(proto::ActualLrpKey {
                process_guid: b"p".into(),
                index,
                domain: b"domain".to_vec(),
            }),
            actual_lrp_instance_key: instance(index, cell),
            actual_lrp_net_info: Some(proto::ActualLrpNetInfo {
                address: b"10.0.0.1".to_vec(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let reply = self.server.call("/v1/actual_lrps/start.r1", &start).await;
        reply.assert_no_error();
    }

    async fn keep_fresh(&self, ttl: u32) {
        let request = proto::UpsertDomainRequest {
            domain: b"domain".to_vec(),
            ttl,
        };
        self.server
            .call("/v1/domains/upsert", &request)
            .await
            .message::<proto::UpsertDomainResponse>();
    }

    async fn update(&self, update: proto::DesiredLrpUpdate) {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: b"p".to_vec(),
            update: Some(update),
        };
        self.server
            .call("/v1/desired_lrp/update", &request)
            .await
            .message::<proto::DesiredLrpLifecycleResponse>();
    }

    /// Two running instances of a fresh domain, of which one has been started without a claim, so
    /// that convergence has nothing to do.
    async fn with_two_running(kind: Kind) -> Self {
        let test = Self::new(kind).await;
        desire(&test.server, lrp("p")).await;
        test.start(0, "cell-a").await;
        test.start_unclaimed(1, "cell-a").await;
        test.keep_fresh(0).await;
        test
    }
}

fn instance(index: i32, cell: &str) -> Option<proto::ActualLrpInstanceKey> {
    Some(proto::ActualLrpInstanceKey {
        instance_guid: format!("on-{cell}-{index}").into(),
        cell_id: cell.into(),
    })
}

/// An update that is sent to running containers.
fn internal_routes() -> proto::DesiredLrpUpdate {
    let internal = routes(&[("internal-router", r#"[{"hostname":"app.internal"}]"#)]);
    proto::DesiredLrpUpdate {
        routes: Some(internal),
        ..Default::default()
    }
}

/// Waits for `count` requests to the rep and returns the containers that it is to stop.
async fn stops(test: &ConvergenceTest, count: usize) -> Vec<String> {
    let asked = test
        .neighbours
        .rep
        .wait_for_requests(count)
        .await
        .into_iter()
        .map(|request| request.path);
    let mut stopped: Vec<_> = asked
        .filter_map(|path| {
            path.strip_prefix("/v1/lrps/p/instances/")?
                .strip_suffix("/stop")
                .map(str::to_owned)
        })
        .collect();
    stopped.sort();
    stopped
}

/// The indices in the only request to the auctioneer.
fn auctioned(requests: &[(String, Value)]) -> Vec<i64> {
    let mut auctions = requests.iter().filter(|(path, _)| path == "/v1/lrps");
    let indices = auctions.next().map(|(_, body)| {
        let indices = body[0]["indices"].as_array().expect("indices").iter();
        indices
            .map(|index| index.as_i64().expect("a number"))
            .collect()
    });
    assert!(
        auctions.next().is_none(),
        "one request for all: {requests:?}"
    );
    indices.unwrap_or_default()
}

on_each_database!(convergence_of_a_converged_state_changes_nothing);
async fn convergence_of_a_converged_state_changes_nothing(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    let before = test
        .server
        .texts("SELECT concat(modification_tag_index, since) FROM actual_lrps")
        .await;
    let (counts, requests) = test.converge(3600).await;
    assert_eq!(
        (counts.running, counts.desired, counts.missing, counts.extra),
        (2, 2, 0, 0)
    );
    assert_eq!((counts.present_cells, counts.suspect_cells), (1, 0));
    assert_eq!(requests, []);
    assert_eq!(
        test.server
            .texts("SELECT concat(modification_tag_index, since) FROM actual_lrps")
            .await,
        before
    );
}

on_each_database!(missing_instances_are_created_and_stale_unclaimed_ones_auctioned_again);
async fn missing_instances_are_created_and_stale_unclaimed_ones_auctioned_again(kind: Kind) {
    let test = ConvergenceTest::new(kind).await;
    desire(&test.server, lrp("p")).await;
    assert_eq!(
        auctioned(&test.take_requests()),
        [0, 1],
        "the desire call requests an auction"
    );
    test.server
        .sql("DELETE FROM actual_lrps WHERE instance_index = 0")
        .await;
    let (counts, requests) = test.converge(30).await;
    assert_eq!(
        (counts.missing, auctioned(&requests)),
        (1, vec![0]),
        "the other is not stale yet"
    );
    assert_eq!(counts.unclaimed, 2, "with the created one");
    let (_, requests) = test.converge(31).await;
    assert_eq!(auctioned(&requests), [1]);
    let (_, requests) = test.converge(61).await;
    assert_eq!(auctioned(&requests), [0, 1]);
    assert_eq!(test.rows().await, ["p/0 UNCLAIMED 0 ", "p/1 UNCLAIMED 0 "]);
}

on_each_database!(auction_reads_no_routes_of_the_desired_lrp);
async fn auction_reads_no_routes_of_the_desired_lrp(kind: Kind) {
    let test = ConvergenceTest::new(kind).await;
    desire(&test.server, lrp("p")).await;
    test.server
        .sql("UPDATE desired_lrps SET routes = '02damaged'")
        .await;
    let (_, requests) = test.converge(31).await;
    assert_eq!(auctioned(&requests), [0, 1]);
    let noted = test.server.store.take_unreadable();
    assert!(noted.is_empty(), "{noted:?}");
}

on_each_database!(container_is_suspect_while_its_cell_is_absent);
async fn container_is_suspect_while_its_cell_is_absent(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.neighbours.add_cell("cell-b");
    test.start(1, "cell-a").await;
    test.neighbours.locket.remove_presence("cell-a");
    let (counts, requests) = test.converge(1).await;
    assert_eq!(
        (counts.suspect_cells, auctioned(&requests)),
        (1, vec![0, 1])
    );
    assert_eq!((counts.unclaimed, counts.running), (2, 0));
    let waiting = [
        "p/0 UNCLAIMED 0 ",
        "p/0 RUNNING 2 cell-a",
        "p/1 UNCLAIMED 0 ",
        "p/1 RUNNING 2 cell-a",
    ];
    assert_eq!(test.rows().await, waiting);

    // One is replaced on another cell, which deletes the suspect row; the other is ordinary again
    // with its cell.
    test.start(0, "cell-b").await;
    test.neighbours.add_cell("cell-a");
    let (_, requests) = test.converge(2).await;
    assert_eq!(auctioned(&requests), Vec::<i64>::new());
    assert_eq!(
        test.rows().await,
        ["p/0 RUNNING 0 cell-b", "p/1 RUNNING 0 cell-a"]
    );
}

on_each_database!(surplus_instances_are_stopped_only_while_their_domain_is_fresh);
async fn surplus_instances_are_stopped_only_while_their_domain_is_fresh(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.server
        .sql("UPDATE desired_lrps SET instances = 1")
        .await;
    test.keep_fresh(10).await;
    let (counts, requests) = test.converge(1).await;
    assert_eq!(counts.extra, 1);
    let stop = "/v1/lrps/p/instances/on-cell-a-1/stop".to_owned();
    assert_eq!(requests, [(stop, Value::Null)]);
    assert_eq!(
        test.rows().await.len(),
        2,
        "the rep removes the row when the container has ended"
    );

    let (counts, requests) = test.converge(11).await;
    assert_eq!(
        (counts.extra, requests.len()),
        (0, 0),
        "the domain has expired"
    );
    assert_eq!(
        test.server.texts("SELECT domain FROM domains").await,
        Vec::<String>::new()
    );
}

on_each_database!(orphans_are_removed_only_in_fresh_domains);
async fn orphans_are_removed_only_in_fresh_domains(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.server.sql("DELETE FROM desired_lrps").await;
    test.server
        .sql("UPDATE actual_lrps SET domain = 'unknown' WHERE instance_index = 1")
        .await;
    test.server
        .sql("UPDATE actual_lrps SET state = 'UNCLAIMED', cell_id = '' WHERE instance_index = 0")
        .await;
    test.converge(1).await;
    assert_eq!(test.rows().await, ["p/1 RUNNING 0 cell-a"]);
}

on_each_mysql!(orphan_is_removed_if_the_database_takes_its_domain_for_a_fresh_one);
/// As by Diego's BBS, which joins the tables.
async fn orphan_is_removed_if_the_database_takes_its_domain_for_a_fresh_one(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.server.sql("DELETE FROM desired_lrps").await;
    for (index, domain) in [(0, "Domain"), (1, "domain-2")] {
        let waits = format!(
            "UPDATE actual_lrps SET state = 'UNCLAIMED', cell_id = '', domain = '{domain}' \
             WHERE instance_index = {index}"
        );
        test.server.sql(&waits).await;
    }
    test.converge(1).await;
    assert_eq!(test.rows().await, ["p/1 UNCLAIMED 0 "]);
}

on_each_database!(convergence_removes_orphans_of_a_cell_that_is_gone_and_no_desired_lrp);
/// A cell that returns, or a benchmark that acts as one, then finds no instance to remove. A
/// desired LRP stays until it is removed by a call.
async fn convergence_removes_orphans_of_a_cell_that_is_gone_and_no_desired_lrp(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    desire(
        &test.server,
        proto::DesiredLrp {
            instances: 0,
            ..lrp("q")
        },
    )
    .await;
    let remove = async |guid: &str| {
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: guid.into(),
        };
        let reply = test.server.call("/v1/desired_lrp/remove", &request).await;
        reply.message::<proto::DesiredLrpLifecycleResponse>().error
    };
    assert_eq!(remove("p").await, None);
    assert_eq!(stops(&test, 2).await.len(), 2);
    test.neighbours.locket.remove_presence("cell-a");
    let (counts, _) = test.converge(1).await;
    assert_eq!(test.rows().await, Vec::<String>::new());
    assert_eq!((counts.running, counts.suspect_cells), (0, 0));
    let instance = proto::ActualLrpInstanceKey {
        instance_guid: b"on-cell-a-0".to_vec(),
        cell_id: b"cell-a".to_vec(),
    };
    let request = proto::RemoveActualLrpRequest {
        process_guid: b"p".to_vec(),
        index: 0,
        actual_lrp_instance_key: Some(instance),
    };
    let reply = test.server.call("/v1/actual_lrps/remove", &request).await;
    assert_eq!(reply.error().0, proto::error::Type::ResourceNotFound);
    assert_eq!(remove("q").await, None);
}

on_each_database!(convergence_sends_new_routes_to_containers);
async fn convergence_sends_new_routes_to_containers(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.update(internal_routes()).await;
    let (_, requests) = test.converge(1).await;
    let updates: Vec<_> = requests
        .iter()
        .filter(|(path, _)| path.starts_with("/v2/lrps/p/instances/on-cell-a-"))
        .collect();
    assert!(updates.len() >= 2, "{requests:?}");
    assert!(
        updates
            .iter()
            .all(|(_, body)| body["internal_routes"] == json!([{ "hostname": "app.internal" }]))
    );
}

on_each_database!(convergence_without_locket_fails_and_changes_nothing);
async fn convergence_without_locket_fails_and_changes_nothing(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.server
        .sql("DELETE FROM actual_lrps WHERE instance_index = 1")
        .await;
    test.neighbours.locket.set_unavailable(true);
    assert!(convergence::run(&test.server.service).await.is_err());
    assert_eq!(test.rows().await, ["p/0 RUNNING 0 cell-a"]);
    test.neighbours.locket.set_unavailable(false);
    test.converge(1).await;
    assert_eq!(test.rows().await.len(), 2);
}

on_each_database!(removal_and_scaling_down_stop_containers_at_their_cells);
async fn removal_and_scaling_down_stop_containers_at_their_cells(kind: Kind) {
    let test = ConvergenceTest::with_two_running(kind).await;
    test.take_requests();
    let update = proto::DesiredLrpUpdate {
        instances: Some(1),
        ..Default::default()
    };
    test.update(update).await;
    assert_eq!(stops(&test, 1).await, ["on-cell-a-1"]);
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: b"p".to_vec(),
    };
    test.server
        .call("/v1/desired_lrp/remove", &request)
        .await
        .message::<proto::DesiredLrpLifecycleResponse>();
    // Both: the container stopped before has not been removed by its cell yet.
    assert_eq!(stops(&test, 2).await, ["on-cell-a-0", "on-cell-a-1"]);
}

/// Desires LRPs without instances, so that those before `q` and after it are on two pages.
async fn fill_page(test: &ConvergenceTest) {
    for number in 0..250 {
        let other = proto::DesiredLrp {
            instances: 0,
            ..lrp(&format!("q-{number}"))
        };
        desire(&test.server, other).await;
    }
}

/// Goal: an error of a later page does not drop the auctions of an earlier one. Method: a
/// retirement on the first page waits for Locket until a table of the second page is hidden.
#[tokio::test(flavor = "multi_thread")]
async fn instances_of_an_earlier_page_are_auctioned_when_a_later_page_cannot_be_read() {
    let test = ConvergenceTest::with_two_running(Kind::Sqlite).await;
    fill_page(&test).await;
    // One is missing; the other is surplus, and its cell is gone.
    test.server
        .sql("UPDATE desired_lrps SET instances = 1 WHERE process_guid = 'p'")
        .await;
    test.server
        .sql("DELETE FROM actual_lrps WHERE instance_index = 0")
        .await;
    let locket = &test.neighbours.locket;
    locket.remove_presence("cell-a");
    test.take_requests();
    locket.hold_lookups();
    let hide = async {
        locket.wait_for_lookup().await;
        while test.rows().await[0] != "p/0 UNCLAIMED 0 " {
            pause().await;
        }
        test.server
            .sql("ALTER TABLE actual_lrps RENAME TO hidden")
            .await;
        locket.release_lookups();
    };
    let (converged, ()) = tokio::join!(convergence::run(&test.server.service), hide);
    assert!(converged.is_err());
    assert_eq!(auctioned(&test.take_requests()), [0]);
}

/// Goal: a cell that does not reply delays no auction, also not that of an instance on a later
/// page. Method: the auctioneer replies after it was found that no cell has been called yet.
#[tokio::test(flavor = "multi_thread")]
async fn cells_are_called_after_the_instances_of_all_pages_are_auctioned() {
    let test = ConvergenceTest::with_two_running(Kind::Sqlite).await;
    fill_page(&test).await;
    let last = proto::DesiredLrp {
        instances: 1,
        ..lrp("r")
    };
    desire(&test.server, last).await;
    let Neighbours {
        auctioneer, rep, ..
    } = &test.neighbours;
    test.update(internal_routes()).await;
    rep.wait_for_requests(2).await;
    test.server
        .sql("UPDATE desired_lrps SET instances = 1 WHERE process_guid = 'p'")
        .await;
    test.server
        .sql("DELETE FROM actual_lrps WHERE process_guid = 'r'")
        .await;
    test.take_requests();
    auctioneer.reply_next(&[StubReply::OnceReleased]);
    let auction = async {
        let requests = auctioneer.wait_for_requests(1).await;
        assert_eq!(rep.take_requests(), []);
        auctioneer.release();
        requests
    };
    let (converged, auctions) = tokio::join!(convergence::run(&test.server.service), auction);
    let counts = converged.unwrap().lrps;
    assert_eq!((counts.missing, counts.extra, counts.failed), (1, 1, 0));
    assert_eq!(auctions[0].body[0]["process_guid"], "r");
    let called = rep.take_requests();
    let is_called = |path: &str| called.iter().any(|request| request.path == path);
    assert!(is_called("/v1/lrps/p/instances/on-cell-a-1/stop"));
    assert!(is_called("/v2/lrps/p/instances/on-cell-a-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_domain_that_cannot_be_deleted_does_not_stop_convergence() {
    let test = ConvergenceTest::with_two_running(Kind::Sqlite).await;
    test.keep_fresh(10).await;
    let refuse =
        "CREATE TRIGGER refused BEFORE DELETE ON domains BEGIN SELECT RAISE(ABORT, 'refused'); END";
    test.server.sql(refuse).await;
    test.server
        .sql("DELETE FROM actual_lrps WHERE instance_index = 0")
        .await;
    let (counts, requests) = test.converge(11).await;
    assert_eq!(auctioned(&requests), [0]);
    assert_eq!(counts.fresh_domains, Vec::<String>::new());
}
