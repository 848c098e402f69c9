//! Runs of convergence that take long: cells join after a run has listed those that are present,
//! and desired LRPs change before it calls the cells.

use std::time::Duration;

use bbs::testing::clients::Clients;
use bbs::testing::domain::Policy;

use super::*;
use crate::harness::database::on_each_database;
use crate::harness::neighbours::ReceivedRequest;
use crate::harness::server::Options;

const LONG_NS: i64 = 11 * 60 * SECOND_NS;

/// A server whose convergence works on one instance, and calls one cell, after the other.
async fn with_one_worker(kind: Kind) -> ConvergenceTest {
    let neighbours = Neighbours::start();
    let clients = neighbours.clients();
    with_one_worker_and(clients, neighbours, kind).await
}

/// [`with_one_worker`] with these clients of these neighbours.
async fn with_one_worker_and(
    clients: Clients,
    neighbours: Neighbours,
    kind: Kind,
) -> ConvergenceTest {
    let policy = Policy {
        convergence_workers: 1,
        ..Policy::default()
    };
    let options = Options {
        clients,
        policy,
        ..Options::on(kind)
    };
    let server = Server::start(options).await;
    ConvergenceTest { server, neighbours }
}

on_each_database!(container_of_a_cell_that_joined_during_a_run_of_eleven_minutes_stays);
/// Method: the run works on one instance after the other, and waits for Locket to look up the cell
/// of the first one, which is gone. Meanwhile a cell joins and claims the second one, which was due
/// for an auction.
async fn container_of_a_cell_that_joined_during_a_run_of_eleven_minutes_stays(kind: Kind) {
    let test = with_one_worker(kind).await;
    for guid in ["p", "q"] {
        let one = proto::DesiredLrp {
            instances: 1,
            ..lrp(guid)
        };
        desire(&test.server, one).await;
    }
    test.start(0, "cell-a").await;
    test.keep_fresh(0).await;
    test.server
        .sql("UPDATE desired_lrps SET instances = 0 WHERE process_guid = 'p'")
        .await;
    let stale_ns = NOW_NS + 31 * SECOND_NS;
    test.server.clock.set(stale_ns);
    test.take_requests();
    let locket = &test.neighbours.locket;
    locket.remove_presence("cell-a");
    test.neighbours.add_cell("cell-c");
    locket.hold_lookups();
    let join = async {
        locket.wait_for_lookup().await;
        test.server.clock.set(stale_ns + LONG_NS);
        let claim = proto::ClaimActualLrpRequest {
            process_guid: b"q".to_vec(),
            index: 0,
            actual_lrp_instance_key: instance(0, "cell-b"),
        };
        assert_eq!(
            lrps::call_error(&test.server, lrps::CLAIM, &claim).await,
            None
        );
        locket.release_lookups();
    };
    let (converged, ()) = tokio::join!(convergence::run(&test.server.service), join);
    assert_eq!(converged.unwrap().lrps.claimed, 1);
    assert_eq!(test.rows().await, ["q/0 CLAIMED 0 cell-b"]);
}

on_each_database!(container_gets_the_routes_of_the_moment_of_its_call);
/// Method: the rep answers the call about the first container once a client has changed the routes
/// again; the call about the second one was collected before.
async fn container_gets_the_routes_of_the_moment_of_its_call(kind: Kind) {
    let test = with_one_worker(kind).await;
    desire(&test.server, lrp("p")).await;
    for index in [0, 1] {
        test.start(index, "cell-a").await;
    }
    test.keep_fresh(0).await;
    let rep = &test.neighbours.rep;
    test.update(internal_routes()).await;
    rep.wait_for_requests(2).await;
    rep.reply_next(&[StubReply::OnceReleased]);
    let change = async {
        let first = rep.wait_for_requests(1).await;
        let later = routes(&[("internal-router", r#"[{"hostname":"later.internal"}]"#)]);
        let update = proto::DesiredLrpUpdate {
            routes: Some(later),
            ..Default::default()
        };
        test.update(update).await;
        // Those of the client's call.
        rep.wait_for_requests(2).await;
        rep.release();
        first
    };
    let (converged, first) = tokio::join!(convergence::run(&test.server.service), change);
    converged.unwrap();
    let hostnames = |requests: Vec<ReceivedRequest>| {
        let sent = requests.into_iter().map(|request| request.body);
        sent.filter_map(|body| {
            body["internal_routes"][0]["hostname"]
                .as_str()
                .map(str::to_owned)
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(hostnames(first), ["app.internal"]);
    assert_eq!(hostnames(rep.take_requests()), ["later.internal"]);
}

on_each_database!(cell_that_does_not_answer_gets_three_calls_of_a_run);
/// Goal: such a cell delays neither other cells nor the next run by all of its containers. Method:
/// the first four of five containers to retire are on it.
async fn cell_that_does_not_answer_gets_three_calls_of_a_run(kind: Kind) {
    const TIMEOUT: Duration = Duration::from_millis(250);
    let neighbours = Neighbours::start();
    let clients = neighbours.clients_with_timeout(TIMEOUT);
    let test = with_one_worker_and(clients, neighbours, kind).await;
    let Neighbours { rep, receiver, .. } = &test.neighbours;
    test.neighbours.add_cell_at("cell-b", &receiver.url());
    let five = proto::DesiredLrp {
        instances: 5,
        ..lrp("p")
    };
    desire(&test.server, five).await;
    for index in 0..4 {
        test.start(index, "cell-a").await;
    }
    test.start(4, "cell-b").await;
    test.keep_fresh(0).await;
    test.server
        .sql("UPDATE desired_lrps SET instances = 0")
        .await;
    rep.reply_always(StubReply::Never);
    let (counts, requests) = test.converge(1).await;
    let stop = |container: &str| format!("/v1/lrps/p/instances/on-{container}/stop");
    let mut paths: Vec<_> = requests.into_iter().map(|(path, _)| path).collect();
    // A retirement has several attempts.
    paths.dedup();
    assert_eq!(
        paths,
        [0, 1, 2].map(|index| stop(&format!("cell-a-{index}")))
    );
    let other = receiver.take_requests().into_iter();
    let mut paths: Vec<_> = other.map(|request| request.path).collect();
    paths.dedup();
    assert_eq!(paths, [stop("cell-b-4")]);
    assert_eq!(counts.failed, 4, "the next run retries them");
}
