//! The requests to cells to stop replaced containers.

use bbs::testing::domain::Policy;
use bbs::testing::model::lrp_update::MaxInFlight;

use super::*;
use crate::api::actual_lrps::{REMOVE, remove};
use crate::harness::database::on_each_database;
use crate::harness::neighbours::{Neighbours, StubReply};

/// Waits for the next requests to cells; each with its container.
async fn stopped(neighbours: &Neighbours) -> Vec<String> {
    let requests = neighbours.rep.wait_for_requests(1).await;
    let container = |path: &str| path.split('/').nth(5).expect("the path of an instance").to_owned();
    requests.iter().map(|request| container(&request.path)).collect()
}

on_each_database!(container_is_not_stopped_if_its_successor_crashes_before_the_request);
/// One step of the update decides to stop `old-1` and to replace `old-2`. It requests a cell for the latter first, which the
/// auctioneer answers late; meanwhile the successor of `old-1` crashes, so that `old-1` is the only instance with traffic.
async fn container_is_not_stopped_if_its_successor_crashes_before_the_request(kind: Kind) {
    let neighbours = Neighbours::start();
    ["cell-old-0", "cell-old-1", "cell-old-2"].into_iter().for_each(|cell| neighbours.add_cell(cell));
    let policy = Policy { update_max_in_flight: MaxInFlight::Instances(2), ..Policy::default() };
    let options = Options { kind, policy, clients: neighbours.clients(), ..Options::default() };
    let server = running_with(options, 3).await;
    neighbours.auctioneer.take_requests();
    update_to(&server, "version-2").await;
    neighbours.auctioneer.wait_for_requests(1).await;

    // The step that stops `old-0` lasts until its cell answers. The next one finds both changes.
    neighbours.rep.reply_next(&[StubReply::OnceReleased]);
    start_new(&server, 0, "new-0").await;
    assert_eq!(stopped(&neighbours).await, ["old-0"]);
    assert_eq!(call_error(&server, REMOVE, &remove(0, Some("old-0"))).await, None);
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
    assert_eq!(stopped(&neighbours).await, ["old-1"], "it is stopped once it has a successor again");
}
