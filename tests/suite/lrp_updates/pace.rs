//! How many instances are replaced at the same time, of one LRP and of all.

use std::num::NonZeroU32;
use std::sync::Arc;

use bbs::testing::api::Api;
use bbs::testing::clients::Clients;
use bbs::testing::domain::Service;
use bbs::testing::events::Events;
use bbs_model::lrp_update::MaxInFlight;

use super::*;
use crate::harness::layouts::on_each_layout;
use crate::harness::neighbours::StubReply;
use crate::harness::until_async;

on_each_layout!(most_instances_in_flight_are_configured);
async fn most_instances_in_flight_are_configured(kind: Kind) {
    let pace = Pace {
        max_in_flight: MaxInFlight::Percent(50),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 3).await;
    update_to(&server, "version-2").await;
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-2",
            "0/1 RUNNING old-0 version-1",
            "1/0 UNCLAIMED  version-2",
            "1/1 RUNNING old-1 version-1",
            "2/0 RUNNING old-2 version-1",
        ],
    )
    .await;
    settle(&server).await;
    assert_eq!(rows(&server).await.len(), 5);
}

/// Desires another LRP of one instance, which runs version-1 in the container `old-GUID`.
async fn run_other(server: &Server, process_guid: &str) {
    let other = proto::DesiredLrp {
        process_guid: process_guid.into(),
        instances: 1,
        ..version_1()
    };
    desire(server, other).await;
    start_other(server, process_guid, &format!("old-{process_guid}")).await;
}

/// A cell claims the instance of the other LRP and starts it.
async fn start_other(server: &Server, process_guid: &str, container: &str) {
    let claimed = proto::ClaimActualLrpRequest {
        process_guid: process_guid.into(),
        ..claim(0, container)
    };
    assert_eq!(call_error(server, CLAIM, &claimed).await, None);
    let key = proto::ActualLrpKey {
        process_guid: process_guid.into(),
        index: 0,
        domain: b"domain".to_vec(),
    };
    let started = proto::StartActualLrpRequest {
        actual_lrp_key: Some(key),
        ..start(0, container)
    };
    assert_eq!(call_error(server, START, &started).await, None);
}

/// Updates the other LRP to version-2.
async fn update_other(server: &Server, process_guid: &str) {
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: process_guid.into(),
        update: Some(to(definition("version-2"))),
    };
    assert_eq!(error_of(server, UPDATE, &request).await, None);
}

// Goal: updates of many LRPs together need no more containers than configured, and a halted one
// keeps no place.
on_each_layout!(most_instances_in_flight_of_all_lrps_are_configured);
async fn most_instances_in_flight_of_all_lrps_are_configured(kind: Kind) {
    let pace = Pace {
        max_in_flight_total: NonZeroU32::new(1).unwrap(),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 1).await;
    run_other(&server, "next").await;
    update_to(&server, "version-2").await;
    let expected = [
        "0/0 UNCLAIMED  version-2",
        "0/0 RUNNING old-next version-1",
        "0/1 RUNNING old-0 version-1",
    ];
    until_rows(&server, &expected).await;
    update_other(&server, "next").await;
    settle(&server).await;
    assert_eq!(rows(&server).await, expected, "it waits");
    for name in ["new-0", "new-1", "new-2"] {
        crash_new(&server, 0, name).await;
    }
    until_async(async || {
        let rows = rows(&server).await;
        rows.iter()
            .any(|row| row == "0/1 RUNNING old-next version-1")
    })
    .await;
    start_other(&server, "next", "new-next").await;
    until(|| !server.service.is_replacing()).await;
    let running = rows(&server)
        .await
        .into_iter()
        .filter(|row| row.contains("new-next"))
        .collect::<Vec<_>>();
    assert_eq!(running, ["0/0 RUNNING new-next version-2"]);
}

on_each_layout!(removed_lrp_without_containers_leaves_its_place_to_another_one);
async fn removed_lrp_without_containers_leaves_its_place_to_another_one(kind: Kind) {
    let pace = Pace {
        max_in_flight_total: NonZeroU32::new(1).unwrap(),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 1).await;
    run_other(&server, "next").await;
    crash_three_times(&server, 0, "old-0").await;
    update_to(&server, "version-2").await;
    settle(&server).await;
    update_other(&server, "next").await;
    settle(&server).await;
    let expected = ["0/0 UNCLAIMED  version-2", "0/0 RUNNING old-next version-1"];
    assert_eq!(rows(&server).await, expected, "the instance has the place");
    assert_eq!(remove_lrp(&server).await, None);
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-2", "0/1 RUNNING old-next version-1"],
    )
    .await;
}

// Goal: a host that takes over gives no place that an earlier one has given. Method: a client
// begins an update before the first convergence.
on_each_layout!(next_host_counts_the_instances_that_an_earlier_one_replaces);
async fn next_host_counts_the_instances_that_an_earlier_one_replaces(kind: Kind) {
    let update_pace = Pace {
        max_in_flight_total: NonZeroU32::new(1).unwrap(),
        ..Pace::default()
    };
    let server = running_at(kind, update_pace, 1).await;
    run_other(&server, "next").await;
    update_to(&server, "version-2").await;
    let expected = [
        "0/0 UNCLAIMED  version-2",
        "0/0 RUNNING old-next version-1",
        "0/1 RUNNING old-0 version-1",
    ];
    until_rows(&server, &expected).await;
    let policy = Policy {
        update_pace,
        ..Policy::default()
    };
    let next_host = Service::new(
        server.store.clone(),
        Events::default(),
        Clients::default(),
        policy,
        server.service.measures().clone(),
    );
    let api = Api::new(next_host.clone(), translators(), None).unwrap();
    server.gate.open(Arc::new(api));
    update_other(&server, "next").await;
    until(|| !next_host.is_replacing()).await;
    assert_eq!(rows(&server).await, expected, "it waits");
    start_new(&server, 0, "new-0").await;
    until_rows(
        &server,
        &[
            "0/0 RUNNING new-0 version-2",
            "0/0 UNCLAIMED  version-2",
            "0/1 RUNNING old-next version-1",
        ],
    )
    .await;
}

/// Goal: many updates that begin together leave the host and the database to the calls of clients.
/// Method: the auctioneer answers no step, so that each keeps its place among those that run.
#[tokio::test(flavor = "multi_thread")]
async fn updates_of_twenty_lrps_advance_at_the_same_time() {
    const CONCURRENT: usize = 20;
    let neighbours = Neighbours::start();
    let options = Options {
        clients: neighbours.clients(),
        ..Options::on(Kind::Sqlite)
    };
    let server = running_with(options, 1).await;
    let others: Vec<_> = (0..CONCURRENT)
        .map(|number| format!("other-{number}"))
        .collect();
    for other in &others {
        run_other(&server, other).await;
    }
    let auctioneer = &neighbours.auctioneer;
    auctioneer.take_requests();
    auctioneer.reply_always(StubReply::OnceReleased);
    update_to(&server, "version-2").await;
    auctioneer.wait_for_requests(1).await;
    for other in &others {
        update_other(&server, other).await;
    }
    let requests = auctioneer.wait_for_requests(CONCURRENT - 1).await;
    assert_eq!(requests.len(), CONCURRENT - 1);
    // Time in which the last one would request its auction.
    for _ in 0..10 {
        pause().await;
    }
    assert_eq!(auctioneer.take_requests(), [], "it waits");
    auctioneer.release();
    assert_eq!(auctioneer.wait_for_requests(1).await.len(), 1);
}
