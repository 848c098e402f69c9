//! Requests that follow from calls about instances: a stop from the cell of a retired one, an
//! auction for an unclaimed one.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use serde_json::json;

use super::actual_lrps::{
    CLAIM, CRASH, REMOVE, RETIRE, START, call_error, claim, crash, instance, key, net_info,
    published, remove, rows, start, subscribe,
};
use super::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::{Neighbours, StubReply};
use crate::harness::server::Server;

const STOP: &str = "POST /v1/lrps/guid/instances/a/stop";
const FAILS: StubReply = StubReply::Status(500);

/// A server with two instances; `cell-a` runs the first.
async fn running(kind: Kind) -> (Server, Neighbours) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    desire(&server, lrp("guid")).await;
    call_error(&server, START, &start(0, "a")).await;
    // Drops the auction that follows the desire call.
    neighbours.auctions();
    (server, neighbours)
}

/// Paths and trace ids of the requests to the rep since the previous call.
fn asked_of_rep(neighbours: &Neighbours) -> Vec<(String, String)> {
    let asked = neighbours.rep.take_requests().into_iter();
    asked
        .map(|request| {
            (
                format!("{} {}", request.method, request.path),
                request.trace_id.unwrap_or_default(),
            )
        })
        .collect()
}

fn first() -> proto::RetireActualLrpRequest {
    proto::RetireActualLrpRequest {
        actual_lrp_key: key(0),
    }
}

on_each_database!(retire_requests_a_stop_from_the_cell);
async fn retire_requests_a_stop_from_the_cell(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    let headers = [("x-vcap-request-id", "a-trace")];
    let reply = server
        .send("POST", RETIRE, &headers, first().encode_to_vec())
        .await;
    reply.assert_no_error();
    assert_eq!(
        asked_of_rep(&neighbours),
        [(STOP.to_owned(), "a-trace".to_owned())]
    );
    // The removal is published at once, so that routers stop sending requests; the row is deleted
    // when the container ends.
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:a -> "]
    );
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("a"))).await,
        None
    );
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
}

on_each_database!(retire_tries_a_failing_cell_five_times);
async fn retire_tries_a_failing_cell_five_times(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    neighbours.rep.reply_next(&[FAILS; 4]);
    assert_eq!(call_error(&server, RETIRE, &first()).await, None);
    assert_eq!(
        asked_of_rep(&neighbours),
        vec![(STOP.to_owned(), String::new()); 5]
    );
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:a -> "],
        "the removal is published once"
    );

    neighbours.rep.reply_next(&[FAILS; 5]);
    let (kind, text) = call_error(&server, RETIRE, &first()).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("500"), "{text}");
    assert_eq!(asked_of_rep(&neighbours).len(), 5);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
}

on_each_database!(retire_that_is_tried_again_leaves_the_successor_of_the_instance);
/// Method: the container ends, and another one starts, before the cell answers the first request.
async fn retire_that_is_tried_again_leaves_the_successor_of_the_instance(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    neighbours.add_cell("cell-b");
    neighbours.rep.reply_next(&[StubReply::FailsOnceReleased]);
    let replace = async {
        neighbours.rep.wait_for_requests(1).await;
        for (path, request) in [
            (REMOVE, remove(0, Some("a")).encode_to_vec()),
            (START, start(0, "b").encode_to_vec()),
        ] {
            let answer = server.post(path, request).await;
            let answer = answer.message::<proto::ActualLrpLifecycleResponse>();
            assert_eq!(answer.error, None, "{path}");
        }
        neighbours.rep.release();
    };
    let retire = first();
    let (retired, ()) = tokio::join!(call_error(&server, RETIRE, &retire), replace);
    assert_eq!(retired, None);
    assert_eq!(asked_of_rep(&neighbours), []);
    assert_eq!(rows(&server).await[0], "0/0/RUNNING/b/0");
}

on_each_database!(retire_rejects_a_cell_without_an_https_address);
async fn retire_rejects_a_cell_without_an_https_address(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    neighbours.add_cell_at("cell-a", "http://127.0.0.1:1");
    let (kind, text) = call_error(&server, RETIRE, &first()).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("https"), "{text}");
    assert_eq!(asked_of_rep(&neighbours), []);
    assert_eq!(rows(&server).await[0], "0/0/RUNNING/a/1");
}

on_each_database!(retire_keeps_the_instance_of_a_cell_whose_presence_is_malformed);
async fn retire_keeps_the_instance_of_a_cell_whose_presence_is_malformed(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    neighbours.locket.add_presence("cell-a", "not JSON");
    let (kind, text) = call_error(&server, RETIRE, &first()).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("cannot be parsed"), "{text}");
    assert_eq!(rows(&server).await[0], "0/0/RUNNING/a/1");
}

on_each_database!(retire_removes_instances_of_lost_cells_and_nothing_without_locket);
async fn retire_removes_instances_of_lost_cells_and_nothing_without_locket(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    neighbours.locket.remove_presence("cell-a");
    assert_eq!(call_error(&server, RETIRE, &first()).await, None);
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
    assert_eq!(
        published(&server, &mut subscription).await,
        ["0:RUNNING:a -> "]
    );

    call_error(&server, CLAIM, &claim(1, "b")).await;
    published(&server, &mut subscription).await;
    neighbours.locket.set_unavailable(true);
    let request = proto::RetireActualLrpRequest {
        actual_lrp_key: key(1),
    };
    let (kind, text) = call_error(&server, RETIRE, &request).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("cells"), "{text}");
    assert_eq!(rows(&server).await, ["1/0/CLAIMED/b/1"]);
    assert_eq!(
        published(&server, &mut subscription).await,
        Vec::<String>::new()
    );
    assert_eq!(asked_of_rep(&neighbours), []);
}

on_each_database!(crash_that_may_restart_at_once_requests_an_auction);
async fn crash_that_may_restart_at_once_requests_an_auction(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let auctioned = || vec![("guid".to_owned(), json!([0]))];
    for expected in [auctioned(), auctioned(), Vec::new()] {
        call_error(&server, START, &start(0, "a")).await;
        assert_eq!(call_error(&server, CRASH, &crash(0, "a")).await, None);
        assert_eq!(neighbours.auctions(), expected);
    }
    neighbours.auctioneer.reply_always(FAILS);
    call_error(&server, START, &start(1, "b")).await;
    assert_eq!(
        call_error(&server, CRASH, &crash(1, "b")).await,
        None,
        "a failed auction does not fail the crash call"
    );
    assert_eq!(
        neighbours.auctions(),
        vec![("guid".to_owned(), json!([1])); 3],
        "it gets the request three times"
    );
}

on_each_database!(evacuation_requests_an_auction_unless_the_instance_crashed);
async fn evacuation_requests_an_auction_unless_the_instance_crashed(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let request = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("a"),
        actual_lrp_net_info: net_info("a"),
        ..Default::default()
    };
    for expected in [vec![("guid".to_owned(), json!([0]))], Vec::new()] {
        let answer: proto::EvacuationResponse = server
            .call("/v1/actual_lrps/evacuate_running.r1", &request)
            .await
            .message();
        assert_eq!((answer.error, answer.keep_container), (None, true));
        assert_eq!(neighbours.auctions(), expected);
    }
    call_error(&server, CLAIM, &claim(1, "b")).await;
    let claimed = proto::EvacuateClaimedActualLrpRequest {
        actual_lrp_key: key(1),
        actual_lrp_instance_key: instance("b"),
    };
    server
        .call("/v1/actual_lrps/evacuate_claimed", &claimed)
        .await;
    assert_eq!(neighbours.auctions(), [("guid".to_owned(), json!([1]))]);
    call_error(&server, START, &start(1, "b")).await;
    server
        .call("/v1/actual_lrps/evacuate_crashed", &crash(1, "b"))
        .await;
    assert_eq!(rows(&server).await[2], "1/0/UNCLAIMED//4");
    assert_eq!(neighbours.auctions(), []);
}
