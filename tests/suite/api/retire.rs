//! What calls about instances ask of others: a cell to stop what is retired, the auctioneer to place what waits again.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use serde_json::json;

use super::actual_lrps::{
    CLAIM, CRASH, REMOVE, RETIRE, START, claim, crash, instance, key, net_info, remove, rows, said, start, subscribe,
    told,
};
use super::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::{Neighbours, Say};
use crate::harness::server::{Options, Server};

const STOP: &str = "POST /v1/lrps/guid/instances/a/stop";
const FAILS: Say = Say::Status(500);

/// Two instances, of which `cell-a` runs the first.
async fn running(kind: Kind) -> (Server, Neighbours) {
    let neighbours = Neighbours::start();
    let server = Server::start(Options { kind, clients: neighbours.clients(), ..Options::default() }).await;
    desire(&server, lrp("guid")).await;
    said(&server, START, &start(0, "a")).await;
    // Whoever desires may have asked for cells already.
    neighbours.auctions();
    (server, neighbours)
}

/// Since the last time: paths and trace ids.
fn asked_of_rep(neighbours: &Neighbours) -> Vec<(String, String)> {
    let asked = neighbours.rep.heard().into_iter();
    asked.map(|heard| (format!("{} {}", heard.method, heard.path), heard.trace_id.unwrap_or_default())).collect()
}

fn first() -> proto::RetireActualLrpRequest {
    proto::RetireActualLrpRequest { actual_lrp_key: key(0) }
}

on_each_database!(a_cell_is_asked_to_stop_what_is_retired);
async fn a_cell_is_asked_to_stop_what_is_retired(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    let headers = [("x-vcap-request-id", "a-trace")];
    let reply = server.send("POST", RETIRE, &headers, first().encode_to_vec()).await;
    assert_eq!(reply.message::<proto::ActualLrpLifecycleResponse>().error, None);
    assert_eq!(asked_of_rep(&neighbours), [(STOP.to_owned(), "a-trace".to_owned())]);
    // Nobody is to send it anything any more; its row goes when it has ended.
    assert_eq!(told(&server, &mut subscription).await, ["0:RUNNING:a -> "]);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
    assert_eq!(said(&server, REMOVE, &remove(0, Some("a"))).await, None);
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
}

on_each_database!(a_cell_that_fails_is_asked_five_times);
async fn a_cell_that_fails_is_asked_five_times(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    neighbours.rep.say(&[FAILS; 4]);
    assert_eq!(said(&server, RETIRE, &first()).await, None);
    assert_eq!(asked_of_rep(&neighbours), vec![(STOP.to_owned(), String::new()); 5]);
    assert_eq!(told(&server, &mut subscription).await, ["0:RUNNING:a -> "], "it is told once");

    neighbours.rep.say(&[FAILS; 5]);
    let (kind, text) = said(&server, RETIRE, &first()).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("500"), "{text}");
    assert_eq!(asked_of_rep(&neighbours).len(), 5);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
}

on_each_database!(a_cell_without_a_secure_address_is_not_asked);
async fn a_cell_without_a_secure_address_is_not_asked(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    neighbours.show_at("cell-a", "http://127.0.0.1:1");
    let (kind, text) = said(&server, RETIRE, &first()).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("https"), "{text}");
    assert_eq!(asked_of_rep(&neighbours), []);
    assert_eq!(rows(&server).await[0], "0/0/RUNNING/a/1");
}

on_each_database!(what_a_lost_cell_had_is_removed_and_without_locket_nothing_is);
async fn what_a_lost_cell_had_is_removed_and_without_locket_nothing_is(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let mut subscription = subscribe(&server);
    neighbours.locket.hide("cell-a");
    assert_eq!(said(&server, RETIRE, &first()).await, None);
    assert_eq!(rows(&server).await, ["1/0/UNCLAIMED//0"]);
    assert_eq!(told(&server, &mut subscription).await, ["0:RUNNING:a -> "]);

    said(&server, CLAIM, &claim(1, "b")).await;
    told(&server, &mut subscription).await;
    neighbours.locket.be_silent(true);
    let request = proto::RetireActualLrpRequest { actual_lrp_key: key(1) };
    let (kind, text) = said(&server, RETIRE, &request).await.unwrap();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("cells"), "{text}");
    assert_eq!(rows(&server).await, ["1/0/CLAIMED/b/1"]);
    assert_eq!(told(&server, &mut subscription).await, Vec::<String>::new());
    assert_eq!(asked_of_rep(&neighbours), []);
}

on_each_database!(what_may_restart_at_once_is_auctioned);
async fn what_may_restart_at_once_is_auctioned(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let auctioned = || vec![("guid".to_owned(), json!([0]))];
    for expected in [auctioned(), auctioned(), Vec::new()] {
        said(&server, START, &start(0, "a")).await;
        assert_eq!(said(&server, CRASH, &crash(0, "a")).await, None);
        assert_eq!(neighbours.auctions(), expected);
    }
    neighbours.auctioneer.say_always(FAILS);
    said(&server, START, &start(1, "b")).await;
    assert_eq!(said(&server, CRASH, &crash(1, "b")).await, None, "whoever crashed cannot help it");
    assert_eq!(neighbours.auctions(), [("guid".to_owned(), json!([1]))]);
}

on_each_database!(what_is_evacuated_is_auctioned_unless_it_crashed);
async fn what_is_evacuated_is_auctioned_unless_it_crashed(kind: Kind) {
    let (server, neighbours) = running(kind).await;
    let request = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("a"),
        actual_lrp_net_info: net_info("a"),
        ..Default::default()
    };
    for expected in [vec![("guid".to_owned(), json!([0]))], Vec::new()] {
        let answer: proto::EvacuationResponse =
            server.call("/v1/actual_lrps/evacuate_running.r1", &request).await.message();
        assert_eq!((answer.error, answer.keep_container), (None, true));
        assert_eq!(neighbours.auctions(), expected);
    }
    said(&server, CLAIM, &claim(1, "b")).await;
    let claimed =
        proto::EvacuateClaimedActualLrpRequest { actual_lrp_key: key(1), actual_lrp_instance_key: instance("b") };
    server.call("/v1/actual_lrps/evacuate_claimed", &claimed).await;
    assert_eq!(neighbours.auctions(), [("guid".to_owned(), json!([1]))]);
    said(&server, START, &start(1, "b")).await;
    server.call("/v1/actual_lrps/evacuate_crashed", &crash(1, "b")).await;
    assert_eq!(rows(&server).await[2], "1/0/UNCLAIMED//4");
    assert_eq!(neighbours.auctions(), []);
}
