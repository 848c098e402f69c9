//! The requests to cells to stop replaced containers.

use std::time::Duration;

use bbs_model::lrp_update::MaxInFlight;
use bbs_proto::models::actual_lrp::Presence;

use super::*;
use crate::api::actual_lrps::{REMOVE, published, remove, subscribe};
use crate::harness::database::on_each_database;
use crate::harness::neighbours::StubReply;
use crate::harness::server::NOW_NS;

/// Waits for the next requests to cells; each with its container.
async fn stopped(neighbours: &Neighbours) -> Vec<String> {
    let requests = neighbours.rep.wait_for_requests(1).await;
    let container = |path: &str| {
        path.split('/')
            .nth(5)
            .expect("the path of an instance")
            .to_owned()
    };
    requests
        .iter()
        .map(|request| container(&request.path))
        .collect()
}

on_each_database!(container_is_not_stopped_if_its_successor_crashes_before_the_request);
/// One step of the update decides to stop `old-1` and to replace `old-2`. It requests a cell for
/// the latter first, which the auctioneer answers late; meanwhile the successor of `old-1` crashes,
/// so that `old-1` is the only instance with traffic.
async fn container_is_not_stopped_if_its_successor_crashes_before_the_request(kind: Kind) {
    let neighbours = Neighbours::start();
    ["cell-old-0", "cell-old-1", "cell-old-2"]
        .into_iter()
        .for_each(|cell| neighbours.add_cell(cell));
    let pace = Pace {
        max_in_flight: MaxInFlight::Instances(2),
        ..Pace::default()
    };
    let policy = Policy {
        update_pace: pace,
        ..Policy::default()
    };
    let options = Options {
        policy,
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 3).await;
    neighbours.auctioneer.take_requests();
    update_to(&server, "version-2").await;
    neighbours.auctioneer.wait_for_requests(1).await;

    // The step that stops `old-0` lasts until its cell answers. The next one finds both changes.
    neighbours.rep.reply_next(&[StubReply::OnceReleased]);
    start_new(&server, 0, "new-0").await;
    assert_eq!(stopped(&neighbours).await, ["old-0"]);
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("old-0"))).await,
        None
    );
    start_new(&server, 1, "new-1").await;
    neighbours.auctioneer.reply_next(&[StubReply::OnceReleased]);
    neighbours.rep.release();
    neighbours.auctioneer.wait_for_requests(1).await;

    assert_eq!(call_error(&server, CRASH, &crash(1, "new-1")).await, None);
    neighbours.auctioneer.release();
    start_new(&server, 2, "new-2").await;
    // Steps follow each other, so the one that waited for the auctioneer has ended.
    assert_eq!(stopped(&neighbours).await, ["old-2"]);
    start_new(&server, 1, "newer-1").await;
    assert_eq!(
        stopped(&neighbours).await,
        ["old-1"],
        "it is stopped once it has a successor again"
    );
}

/// A server with an LRP of one instance, whose container `old-0` receives traffic beside its
/// successor `new-0` for a minute. The cell of `old-0` is present.
async fn overlapping(kind: Kind, neighbours: &Neighbours) -> Server {
    neighbours.add_cell("cell-old-0");
    let pace = Pace {
        overlap: Duration::from_secs(60),
        ..Pace::default()
    };
    let policy = Policy {
        update_pace: pace,
        ..Policy::default()
    };
    let options = Options {
        policy,
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 1).await;
    update_to(&server, "version-2").await;
    until_rows(&server, &REPLACED).await;
    start_new(&server, 0, "new-0").await;
    server.clock.sleepers(1).await;
    server
}

/// A cell that is drained reports a container; whether it keeps it.
async fn evacuate(server: &Server, name: &str) -> bool {
    let proto::StartActualLrpRequest {
        actual_lrp_key,
        actual_lrp_instance_key,
        actual_lrp_net_info,
        routable,
        ..
    } = start(0, name);
    let request = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key,
        actual_lrp_instance_key,
        actual_lrp_net_info,
        routable,
        ..Default::default()
    };
    let answer = server
        .call("/v1.2/actual_lrps/evacuate_running.r1", &request)
        .await;
    answer.message::<proto::EvacuationResponse>().keep_container
}

on_each_database!(replaced_container_keeps_its_traffic_for_the_overlap);
async fn replaced_container_keeps_its_traffic_for_the_overlap(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = overlapping(kind, &neighbours).await;
    let mut subscription = subscribe(&server);
    // The successor crashes within the overlap, which begins again with the next one.
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(call_error(&server, CRASH, &crash(0, "new-0")).await, None);
    start_new(&server, 0, "newer-0").await;
    server.clock.advance(Duration::from_secs(30));
    server.clock.sleepers(1).await;
    server.clock.advance(Duration::from_secs(29));
    let changes = published(&server, &mut subscription).await;
    assert!(
        changes
            .iter()
            .all(|change| change.contains("1:RUNNING:old-0")),
        "{changes:?}"
    );
    assert_eq!(neighbours.rep.take_requests().len(), 0);
    assert_eq!(server.clock.run(1, stopped(&neighbours)).await, ["old-0"]);
    let changes = published(&server, &mut subscription).await;
    assert_eq!(
        changes,
        ["0:RUNNING:newer-0+1:RUNNING:old-0 -> 0:RUNNING:newer-0"]
    );
}

on_each_database!(overlap_begins_again_once_a_successor_that_was_not_ready_is);
async fn overlap_begins_again_once_a_successor_that_was_not_ready_is(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = overlapping(kind, &neighbours).await;
    server.clock.advance(Duration::from_secs(30));
    let not_ready = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "new-0")
    };
    for report in [not_ready, start(0, "new-0")] {
        assert_eq!(call_error(&server, START, &report).await, None);
    }
    settle(&server).await;
    assert_eq!(server.clock.run(1, stopped(&neighbours)).await, ["old-0"]);
    assert_eq!(server.store.now_ns(), NOW_NS + 90 * 1_000_000_000);
}

/// A server with an LRP of one instance, whose container `old-0` was to stop because `new-0` has
/// replaced it. Its cell has not removed it yet.
async fn stopping(kind: Kind, neighbours: &Neighbours) -> Server {
    let server = replacing(kind, neighbours).await;
    start_new(&server, 0, "new-0").await;
    assert_eq!(stopped(neighbours).await, ["old-0"]);
    settle(&server).await;
    server
}

on_each_database!(report_of_a_container_that_is_stopping_publishes_it_no_more);
/// Its removal was published, so that route emitters would register it again.
async fn report_of_a_container_that_is_stopping_publishes_it_no_more(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = stopping(kind, &neighbours).await;
    let before = images(&server).await;
    let mut subscription = subscribe(&server);
    let report = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "old-0")
    };
    assert_eq!(call_error(&server, START, &report).await, None);
    assert_eq!(published(&server, &mut subscription).await, [""; 0]);
    assert_eq!(images(&server).await, before);
}

on_each_database!(cell_gets_a_request_to_stop_a_container_again_only_after_a_time);
async fn cell_gets_a_request_to_stop_a_container_again_only_after_a_time(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = stopping(kind, &neighbours).await;
    // Each change of an instance is followed by a step of the update.
    let change = async |zone: &str| {
        let changed = proto::StartActualLrpRequest {
            availability_zone: zone.into(),
            ..start(0, "new-0")
        };
        assert_eq!(call_error(&server, START, &changed).await, None);
        settle(&server).await;
        neighbours.rep.take_requests().len()
    };
    assert_eq!(change("z2").await, 0);
    server.clock.advance(Duration::from_secs(20));
    assert_eq!(change("z3").await, 1);
}

on_each_database!(container_that_was_asked_to_stop_does_not_take_over_again);
/// The replacement is evacuated while the replaced container ends, so that the instance waits for a
/// cell. The last report of the replaced container is late.
async fn container_that_was_asked_to_stop_does_not_take_over_again(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = replacing(kind, &neighbours).await;
    start_new(&server, 0, "new-0").await;
    assert_eq!(stopped(&neighbours).await, ["old-0"]);
    assert!(evacuate(&server, "new-0").await);
    assert_successor_moves(&server).await;
}

on_each_database!(replaced_container_that_is_evacuated_keeps_its_traffic_for_the_overlap);
async fn replaced_container_that_is_evacuated_keeps_its_traffic_for_the_overlap(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = overlapping(kind, &neighbours).await;
    assert!(evacuate(&server, "old-0").await);
    let both = ["0/0 RUNNING new-0 version-2", "0/1 RUNNING old-0 version-1"];
    assert_eq!(rows(&server).await, both);
    assert_eq!(server.clock.run(1, stopped(&neighbours)).await, ["old-0"]);
    assert_eq!(server.store.now_ns(), NOW_NS + 60 * 1_000_000_000);
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("old-0"))).await,
        None
    );
    until_done(&server).await;
}

on_each_database!(replaced_container_is_stopped_if_its_successor_is_evacuated_within_the_overlap);
async fn replaced_container_is_stopped_if_its_successor_is_evacuated_within_the_overlap(
    kind: Kind,
) {
    let neighbours = Neighbours::start();
    let server = overlapping(kind, &neighbours).await;
    neighbours.rep.reply_next(&[StubReply::Status(500)]);
    assert!(evacuate(&server, "new-0").await);
    assert_successor_moves(&server).await;
    assert_eq!(stopped(&neighbours).await, ["old-0"]);
    // A cell reports its containers again after 30 s.
    server.clock.advance(Duration::from_secs(30));
    assert_successor_moves(&server).await;
}

/// Asserts that the report of `old-0` is refused, and that `new-0` stays until the instance that
/// waits runs on another cell.
async fn assert_successor_moves(server: &Server) {
    let refused = call_error(server, START, &start(0, "old-0"))
        .await
        .map(|(kind, _)| kind);
    assert_eq!(refused, Some(Type::ActualLrpCannotBeStarted));
    let rows = images(server).await;
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.presence(), text(&row.state), container(row)))
        .collect();
    let ordinary = (Presence::Ordinary, "UNCLAIMED".to_owned(), String::new());
    assert_eq!(
        rows,
        [
            ordinary,
            (
                Presence::Evacuating,
                "RUNNING".to_owned(),
                "new-0".to_owned()
            )
        ]
    );
}

fn container(row: &proto::ActualLrp) -> String {
    text(
        &row.actual_lrp_instance_key
            .clone()
            .unwrap_or_default()
            .instance_guid,
    )
}
