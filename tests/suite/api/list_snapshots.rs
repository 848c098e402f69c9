//! Lists of several pages are of one moment, and keep it for a limited time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bbs::testing::api::{Answer, Pages, Request};
use bbs::testing::modules::translate::Verb;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::oneshot;

use super::{desire, lrp, remove};
use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::modules::translators;
use crate::harness::server::{Options, Server};
use crate::harness::until;

/// LRPs that stay where they are, between the two places of the one that moves.
const STAYING: usize = 12;
const MOVES: usize = 25;
/// The two ends of the order of keys.
const PLACES: [&str; 2] = ["aa-moves", "zz-moves"];
/// Lists of several pages that SQLite reads at once.
const KEPT: usize = 4;
/// Every list of desired LRPs and of instances, of every version.
const LISTS: [&str; 12] = [
    "v0.9/desired_lrps/list",
    "v0.10/mutable_desired_lrps/list",
    "v0.10/immutable_desired_lrps/list",
    "v1/desired_lrps/list",
    "v1/desired_lrps/list.r1",
    "v1/desired_lrps/list.r2",
    "v1/desired_lrps/list.r3",
    "v1/desired_lrp_scheduling_infos/list",
    "v1.2/desired_lrp_scheduling_infos/list.r1",
    "v1/desired_lrp_routing_infos/list",
    "v1/actual_lrp_groups/list",
    "v1/actual_lrps/list",
];

fn holds(list: &[u8], text: &str) -> bool {
    list.windows(text.len())
        .any(|window| window == text.as_bytes())
}

async fn with_small_pages(kind: Kind) -> Server {
    let options = Options {
        kind,
        page_units: Some(2),
        translators: translators(),
        ..Options::default()
    };
    let server = Server::start(options).await;
    for number in 0..STAYING {
        desire(
            &server,
            proto::DesiredLrp {
                instances: 1,
                ..lrp(&format!("stays-{number:02}"))
            },
        )
        .await;
    }
    server
}

on_layouts_of_sqlite!(lrp_that_is_desired_before_another_is_removed_is_never_missing);
async fn lrp_that_is_desired_before_another_is_removed_is_never_missing(kind: Kind) {
    let server = with_small_pages(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 1,
            ..lrp(PLACES[0])
        },
    )
    .await;
    let has_moved = AtomicBool::new(false);
    let moving = async {
        for number in 0..MOVES {
            desire(
                &server,
                proto::DesiredLrp {
                    instances: 1,
                    ..lrp(PLACES[(number + 1) % 2])
                },
            )
            .await;
            assert_eq!(remove(&server, PLACES[number % 2]).await, None);
        }
        has_moved.store(true, Ordering::Relaxed);
    };
    let listing = async |lists: &[&str]| {
        while !has_moved.load(Ordering::Relaxed) {
            for list in lists {
                let reply = server.post(&format!("/{list}"), []).await;
                assert_eq!(reply.status, 200, "{list}: {}", reply.text());
                let staying = (0..STAYING)
                    .filter(|number| holds(&reply.body, &format!("stays-{number:02}")))
                    .count();
                assert_eq!(staying, STAYING, "{list}");
                assert!(
                    PLACES.iter().any(|place| holds(&reply.body, place)),
                    "{list} has the LRP in neither place"
                );
            }
        }
    };
    let (first, second) = LISTS.split_at(LISTS.len() / 2);
    tokio::join!(moving, listing(first), listing(second));
}

/// How many more lists of several pages may be read now.
fn free_readers(server: &Server) -> usize {
    std::iter::from_fn(|| server.store.try_keep_reader())
        .collect::<Vec<_>>()
        .len()
}

async fn pages(server: &Server) -> Pages {
    let (_, target) = server
        .api
        .find(None, Verb::Post, "desired_lrps/list.r3")
        .expect("a list");
    let request = Request {
        body: Vec::new().into(),
        trace_id: TraceId::NONE,
        abandoned: Default::default(),
    };
    match server.api.call(target, request).await {
        Answer::Pages(pages) => *pages,
        other => panic!("the list fits on one page: {other:?}"),
    }
}

#[tokio::test]
async fn list_that_is_received_too_slowly_ends_with_an_error() {
    let server = with_small_pages(Kind::Sqlite).await;
    let mut slow = pages(&server).await;
    assert!(!slow.next().await.expect("the first page").is_empty());
    // The clock goes on as soon as nothing else can.
    tokio::time::pause();
    let (taken, receipt) = oneshot::channel();
    let client = async {
        until(|| free_readers(&server) == KEPT).await;
        taken.send(()).expect("the list waits");
    };
    let (received, ()) = tokio::join!(slow.wait_for(receipt), client);
    received.expect("the client has the page");
    tokio::time::resume();
    let end = slow.next().await.expect("an error");
    let error = proto::DesiredLrPsResponse::decode(&end[..])
        .unwrap()
        .error
        .expect("an error");
    assert!(
        String::from_utf8_lossy(&error.message).contains("received too slowly"),
        "{error:?}"
    );
    assert_eq!(slow.next().await, None);
}

/// Goal: slow clients of lists keep neither others from reading nor a migration from its cut-over
/// for longer than a list may take.
#[tokio::test(flavor = "multi_thread")]
async fn lists_leave_readers_to_others_and_delay_a_cut_over_until_they_end() {
    let server = with_small_pages(Kind::Sqlite).await;
    let kept: Vec<_> = std::iter::from_fn(|| server.store.try_keep_reader()).collect();
    let server = Arc::new(server);
    let waiting = tokio::spawn({
        let server = Arc::clone(&server);
        async move { pages(&server).await }
    });
    crate::api::get(&server, "stays-00").await;
    assert!(!waiting.is_finished());
    drop(kept);

    let mut listed = waiting.await.unwrap();
    let switch = tokio::spawn({
        let store = server.store.clone();
        async move { drop(store.switch().await) }
    });
    for guid in ["stays-01", "stays-02"] {
        crate::api::get(&server, guid).await;
        assert_eq!(remove(&server, guid).await, None);
    }
    assert!(!switch.is_finished());
    let mut list = Vec::new();
    while let Some(page) = listed.next().await {
        list.extend(page);
    }
    assert!(holds(&list, "stays-02"), "it was removed later");
    switch.await.unwrap();
}
