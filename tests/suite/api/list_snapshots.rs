//! Lists of several pages are of one moment, and keep it for a limited time.

mod translated;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bbs::testing::api::{Answer, Api, LONGEST_WAIT, NativeVersion, Pages, Request, routes};
use bbs::testing::modules::translate::Verb;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{desire, lrp, remove};
use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::modules::translators;
use crate::harness::server::{Options, Server};
use crate::harness::until;
use crate::tasks;

/// LRPs that stay where they are, between the two places of the one that moves.
const STAYING: usize = 16;
const MOVES: usize = 25;
/// The two ends of the order of keys.
const PLACES: [&str; 2] = ["aa-moves", "zz-moves"];
/// Shorter than a list may wait for its client, and so often that the whole list takes too long.
const PAUSE: Duration = Duration::from_secs(4);
/// Time after which a rep, an auctioneer and Cloud Controller give up a call.
const CLIENTS_GIVE_UP: Duration = Duration::from_secs(10);
/// Lists of several pages that SQLite reads at once.
const KEPT: usize = 8;
/// Every list of desired LRPs and of instances, of every version.
const LISTS: [&str; 16] = [
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
    "v1/actual_lrps/list_by_process_guids",
    "v1.2/desired_lrps/list.r3",
    "v1.2/desired_lrp_routing_infos/list",
    "v1.2/actual_lrps/list",
];
/// Every list of tasks, of every version.
const TASK_LISTS: [&str; 4] = [
    "v0.11/tasks/list",
    "v1/tasks/list.r1",
    "v1/tasks/list.r2",
    "v1/tasks/list.r3",
];

#[test]
fn each_list_of_several_pages_is_tested() {
    let tested = LISTS.iter().chain(&TASK_LISTS);
    let tested: BTreeSet<_> = tested
        .filter_map(|list| list.split_once('/').map(|(_, path)| path))
        .collect();
    let versions = [NativeVersion::Diego, NativeVersion::Definitions];
    let paged = versions.into_iter().flat_map(routes);
    let paged = paged.filter(|route| route.is_paged).map(|route| route.path);
    let missing: BTreeSet<_> = paged.filter(|path| !tested.contains(path)).collect();
    assert_eq!(missing, BTreeSet::from([]));
}

fn holds(list: &[u8], text: &str) -> bool {
    list.windows(text.len())
        .any(|window| window == text.as_bytes())
}

fn staying() -> impl Iterator<Item = String> {
    (0..STAYING).map(|number| format!("stays-{number:02}"))
}

async fn with_small_pages(kind: Kind, units: u32) -> Server {
    let options = Options {
        page_units: Some(units),
        translators: translators(),
        ..Options::on(kind)
    };
    let server = Server::start(options).await;
    for guid in staying() {
        desire_one(&server, &guid).await;
    }
    server
}

/// Desires an LRP of one instance.
async fn desire_one(server: &Server, process_guid: &str) {
    let one = proto::DesiredLrp {
        instances: 1,
        ..lrp(process_guid)
    };
    desire(server, one).await;
}

/// Requests the lists until nothing moves any more. Each list has what stays and what moves.
async fn assert_complete(server: &Server, lists: &[&str], has_moved: &AtomicBool) {
    let of_all = proto::ActualLrPsByProcessGuidsRequest {
        process_guids: staying()
            .chain(PLACES.map(str::to_owned))
            .map(String::into_bytes)
            .collect(),
    };
    while !has_moved.load(Ordering::Relaxed) {
        for list in lists {
            let request = if list.ends_with("by_process_guids") {
                of_all.encode_to_vec()
            } else {
                Vec::new()
            };
            let reply = server.post(&format!("/{list}"), request).await;
            assert_eq!(reply.status, 200, "{list}: {}", reply.text());
            for guid in staying() {
                assert!(holds(&reply.body, &guid), "{list} lacks {guid}");
            }
            assert!(
                PLACES.iter().any(|place| holds(&reply.body, place)),
                "{list} has neither place"
            );
        }
    }
}

on_layouts_of_sqlite!(lrp_that_is_desired_before_another_is_removed_is_never_missing);
async fn lrp_that_is_desired_before_another_is_removed_is_never_missing(kind: Kind) {
    let server = with_small_pages(kind, 2).await;
    desire_one(&server, PLACES[0]).await;
    let has_moved = AtomicBool::new(false);
    let moving = async {
        for number in 0..MOVES {
            desire_one(&server, PLACES[(number + 1) % 2]).await;
            assert_eq!(remove(&server, PLACES[number % 2]).await, None);
        }
        has_moved.store(true, Ordering::Relaxed);
    };
    let (first, second) = LISTS.split_at(LISTS.len() / 2);
    tokio::join!(
        moving,
        assert_complete(&server, first, &has_moved),
        assert_complete(&server, second, &has_moved)
    );
}

on_layouts_of_sqlite!(task_that_is_desired_before_another_is_deleted_is_never_missing);
async fn task_that_is_desired_before_another_is_deleted_is_never_missing(kind: Kind) {
    let server = with_small_pages(kind, 2).await;
    for guid in staying().chain([PLACES[0].to_owned()]) {
        tasks::desire(&server, &guid).await.unwrap();
    }
    let has_moved = AtomicBool::new(false);
    let moving = async {
        for number in 0..MOVES {
            tasks::desire(&server, PLACES[(number + 1) % 2])
                .await
                .unwrap();
            for call in ["cancel", "resolving", "delete"] {
                tasks::by_guid(&server, call, PLACES[number % 2])
                    .await
                    .unwrap();
            }
        }
        has_moved.store(true, Ordering::Relaxed);
    };
    tokio::join!(moving, assert_complete(&server, &TASK_LISTS, &has_moved));
}

/// How many more lists of several pages may be read now.
fn free_readers(server: &Server) -> usize {
    std::iter::from_fn(|| server.store.try_keep_reader())
        .collect::<Vec<_>>()
        .len()
}

async fn pages(server: &Server) -> Pages {
    pages_of(&server.api).await
}

async fn pages_of(api: &Arc<Api>) -> Pages {
    let (_, target) = api
        .find(None, Verb::Post, "desired_lrps/list.r3")
        .expect("a list");
    let request = Request {
        body: Vec::new().into(),
        trace_id: TraceId::NONE,
        abandoned: Default::default(),
        waits_until: Instant::now() + LONGEST_WAIT,
    };
    match api.call(target, request).await {
        Answer::Pages(pages) => *pages,
        other => panic!("the list fits on one page: {other:?}"),
    }
}

/// Asserts that a page is the end of a list that was received too slowly.
#[track_caller]
fn assert_too_slow(end: &[u8]) {
    let answer = proto::DesiredLrPsResponse::decode(end).unwrap();
    let error = answer.error.expect("an error");
    assert!(
        String::from_utf8_lossy(&error.message).contains("received too slowly"),
        "{error:?}"
    );
}

#[tokio::test]
async fn list_that_is_received_too_slowly_ends_with_an_error() {
    let server = with_small_pages(Kind::Sqlite, 2).await;
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
    assert_too_slow(&slow.next().await.expect("an error"));
    assert_eq!(slow.next().await, None);
}

/// Goal: with a short `lock_ttl`, too, a list that is received too slowly ends with the error that
/// says so. Method: the pause is measured after which the list gives its transaction back.
#[tokio::test]
async fn slow_client_is_given_up_before_the_database_ends_the_transaction() {
    const IDLE_LIMIT: Duration = Duration::from_secs(3);
    let server = with_small_pages(Kind::Sqlite, 2).await;
    let api = Api::new(server.service.clone(), translators(), None).unwrap();
    let api = Arc::new(api.with_page_units(2).with_idle_limit(IDLE_LIMIT));
    let mut slow = pages_of(&api).await;
    assert!(!slow.next().await.expect("the first page").is_empty());
    tokio::time::pause();
    let began = Instant::now();
    let (taken, receipt) = oneshot::channel();
    let client = async {
        until(|| free_readers(&server) == KEPT).await;
        taken.send(()).expect("the list waits");
    };
    let (received, ()) = tokio::join!(slow.wait_for(receipt), client);
    received.expect("the client has the page");
    assert!(began.elapsed() < IDLE_LIMIT, "{:?}", began.elapsed());
    tokio::time::resume();
    assert_too_slow(&slow.next().await.expect("an error"));
}

#[tokio::test]
async fn list_that_takes_too_long_in_all_ends_with_an_error() {
    let server = with_small_pages(Kind::Sqlite, 1).await;
    let mut slow = pages(&server).await;
    let mut end = Vec::new();
    let mut received = 0;
    while let Some(page) = slow.next().await {
        received += 1;
        end = page;
        tokio::time::pause();
        slow.wait_for(tokio::time::advance(PAUSE)).await;
        tokio::time::resume();
    }
    assert!(received <= STAYING, "the list has all of its pages");
    assert_too_slow(&end);
    assert_eq!(free_readers(&server), KEPT);
}

#[tokio::test]
async fn list_that_gets_no_reader_is_answered_with_503() {
    let server = with_small_pages(Kind::Sqlite, 2).await;
    let kept: Vec<_> = std::iter::from_fn(|| server.store.try_keep_reader()).collect();
    let mut reply = None;
    // On a busy machine the clock may go on before the list has read its first page.
    for _ in 0..4 {
        let waiting = server.post("/v1/desired_lrps/list.r3", []);
        let mut waiting = std::pin::pin!(waiting);
        // Native calls are answered meanwhile, so the list has read its first page and waits.
        tokio::select! {
            biased;
            reply = &mut waiting => panic!("it was answered: {}", reply.status),
            _ = crate::api::get(&server, "stays-00") => {}
        }
        let began = tokio::time::Instant::now();
        tokio::time::pause();
        reply = Some(waiting.await).filter(|_| began.elapsed() < CLIENTS_GIVE_UP);
        tokio::time::resume();
        if reply.as_ref().is_some_and(|reply| reply.status == 503) {
            break;
        }
    }
    let reply = reply.expect("an answer in time");
    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").parse::<u32>().unwrap() >= 1);
    drop(kept);
}

/// Goal: slow clients of lists keep neither others from reading nor a migration from its cut-over
/// for longer than a list may take.
#[tokio::test(flavor = "multi_thread")]
async fn lists_leave_readers_to_others_and_delay_a_cut_over_until_they_end() {
    let server = with_small_pages(Kind::Sqlite, 2).await;
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

/// Goal: a cut-over or reload that waits for the slow client of a list refuses no other list.
#[tokio::test]
async fn switch_lets_further_lists_begin_while_a_client_receives_one_slowly() {
    let server = with_small_pages(Kind::Sqlite, 2).await;
    let slow = server.store.keep_reader().await;
    tokio::time::pause();
    let mut switch = std::pin::pin!(server.store.switch_between_lists());
    assert!(futures_util::poll!(switch.as_mut()).is_pending());
    assert!(server.store.try_keep_reader().is_none());
    let further = async {
        let permit = tokio::time::timeout(LONGEST_WAIT, server.store.keep_reader()).await;
        drop(permit.expect("the list begins"));
        drop(slow);
    };
    let (switch, ()) = tokio::join!(switch, further);
    assert!(switch.is_open());
    tokio::time::resume();
}
