//! Lists through a translator, which keep a transaction while it runs. The translator is one of
//! this process, so that a test decides when it goes on.

use std::sync::Arc;
use std::time::Duration;

use bbs::testing::api::{Answer, Api, LONGEST_WAIT, NativeVersion, Request};
use bbs::testing::modules::translate::{
    AnswerForm, ApiVersion, CallProgress, ChangedRecord, Method, NextAnswer, NextCall, Translate,
    TranslateError, TranslatedCall, TranslatedEvent, TranslatorManifest, Verb,
};
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{CLIENTS_GIVE_UP, KEPT};
use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_server};
use crate::harness::http_client;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{Options, Server};

const SERVES: ApiVersion = ApiVersion::new(1, 0);
/// An answer of more bytes is too large for the translator.
const LARGEST_ANSWER: usize = 4_000;
/// A list with this text makes the translator panic.
const PANICS: &[u8] = b"panics";
/// The domain that the method `Others` lists.
const OTHERS: &str = "others";

/// A translator whose method `Waits` stops before it calls the next version and before it answers;
/// `Joins` lists the records of the request, and then all; `Others`, then those of [`OTHERS`];
/// `Instances`, then their instances.
struct ListTranslator {
    manifest: TranslatorManifest,
    instances: usize,
    /// A permit for each time that a call has stopped.
    stops: Semaphore,
    /// A permit for each time that a call goes on.
    goes_on: Semaphore,
}

struct ListTranslatorCall<'a> {
    translator: &'a ListTranslator,
    waits: bool,
    /// The lists of the next version that are still to be called, the next one last.
    lists: Vec<NextCall>,
}

impl ListTranslator {
    /// A translator with a single instance.
    fn new() -> Arc<Self> {
        Self::with_instances(1)
    }

    fn with_instances(instances: usize) -> Arc<Self> {
        let method = |name: &str| Method {
            name: name.to_owned(),
            verb: Verb::Post,
            path: name.to_lowercase(),
            answer: AnswerForm::Pages,
        };
        Arc::new(Self {
            manifest: TranslatorManifest {
                serves: SERVES,
                onto: NativeVersion::Diego.number(),
                name: "lists".to_owned(),
                summary: "Lists desired LRPs.".to_owned(),
                methods: ["Waits", "Joins", "Others", "Instances"].map(method).into(),
                hides: Vec::new(),
            },
            instances,
            stops: Semaphore::new(0),
            goes_on: Semaphore::new(0),
        })
    }

    /// Waits until one more call has stopped.
    async fn stopped(&self) {
        let permit = self.stops.acquire().await;
        permit.expect("the semaphore is never closed").forget();
    }
}

impl Translate for ListTranslator {
    fn manifest(&self) -> &TranslatorManifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn call(&self, method: &str, request: Bytes) -> Box<dyn TranslatedCall + '_> {
        let later = match method {
            "Joins" => Some(desired_lrps(of_domain("").encode_to_vec())),
            "Others" => Some(desired_lrps(of_domain(OTHERS).encode_to_vec())),
            "Instances" => Some(NextCall {
                method: "ActualLRPs".to_owned(),
                request: Vec::new(),
            }),
            _ => None,
        };
        let first = desired_lrps(request.to_vec());
        Box::new(ListTranslatorCall {
            translator: self,
            waits: method == "Waits",
            lists: later.into_iter().chain([first]).collect(),
        })
    }

    fn events(
        &self,
        _: &str,
        _: &Arc<[ChangedRecord]>,
        newer: Vec<TranslatedEvent>,
    ) -> BoxFuture<'_, Result<Vec<TranslatedEvent>, TranslateError>> {
        async move { Ok(newer) }.boxed()
    }
}

impl TranslatedCall for ListTranslatorCall<'_> {
    fn resume(&mut self, answer: Option<NextAnswer>) -> BoxFuture<'_, CallProgress> {
        let resumed = async move {
            if self.waits {
                self.translator.stops.add_permits(1);
                let permit = self.translator.goes_on.acquire().await;
                permit.expect("the semaphore is never closed").forget();
            }
            if let Some(list) = self.lists.pop() {
                return CallProgress::Next(list);
            }
            let list = answer.expect("the answer to the last list");
            CallProgress::Answered(list.and_then(of_limited_size))
        };
        resumed.boxed()
    }
}

/// The list of desired LRPs of the next version.
fn desired_lrps(request: Vec<u8>) -> NextCall {
    NextCall {
        method: "DesiredLRPs_r3".to_owned(),
        request,
    }
}

fn of_limited_size(list: Vec<u8>) -> NextAnswer {
    let panics = list.windows(PANICS.len()).any(|text| text == PANICS);
    assert!(!panics, "a fault of the host");
    if list.len() <= LARGEST_ANSWER {
        return Ok(list);
    }
    Err(TranslateError {
        reason: "the list is too large".to_owned(),
        exceeds_limits: true,
    })
}

async fn with_translator(kind: Kind, translator: &Arc<ListTranslator>, page_units: u32) -> Server {
    Server::start(Options {
        translators: vec![Arc::clone(translator) as Arc<dyn Translate>],
        page_units: Some(page_units),
        ..Options::on(kind)
    })
    .await
}

async fn desire_annotated(server: &Server, guid: &str, domain: &str, annotation_bytes: usize) {
    let desired = proto::DesiredLrp {
        domain: domain.into(),
        instances: 1,
        annotation: vec![b'x'; annotation_bytes],
        ..lrp(guid)
    };
    desire(server, desired).await;
}

/// A request for the desired LRPs of a domain; without one, for all.
fn of_domain(domain: &str) -> proto::DesiredLrPsRequest {
    proto::DesiredLrPsRequest {
        domain: domain.into(),
        ..Default::default()
    }
}

/// The answer to a request for all desired LRPs.
fn listed(server: &Server, path: &str) -> impl Future<Output = Answer> + use<> {
    listed_by(&server.api, path, &of_domain(""))
}

fn listed_by(
    api: &Arc<Api>,
    path: &str,
    request: &proto::DesiredLrPsRequest,
) -> impl Future<Output = Answer> + use<> {
    let found = api.find(Some(SERVES), Verb::Post, path);
    let (_, target) = found.expect("a method of the translator");
    let api = Arc::clone(api);
    let request = Request {
        body: request.encode_to_vec().into(),
        trace_id: TraceId::NONE,
        abandoned: Default::default(),
        waits_until: Instant::now() + LONGEST_WAIT,
    };
    async move { api.call(target, request).await }
}

on_each_server!(page_that_is_begun_again_delays_a_switch_as_the_first_one_does);
/// Goal: a switch of the store waits for a translator at a point where short calls go on. Method:
/// the server ends the session of a page before its list is read, so that the page begins again.
async fn page_that_is_begun_again_delays_a_switch_as_the_first_one_does(kind: Kind) {
    let translator = ListTranslator::new();
    let server = with_translator(kind, &translator, 10).await;
    desire_annotated(&server, "guid", "domain", 0).await;
    let list = tokio::spawn(listed(&server, "waits"));
    translator.stopped().await;
    let is_switch_pending = || server.store.pending_switch().now_or_never().is_none();
    assert!(is_switch_pending(), "the first page");
    server.test_database.end_sessions();
    translator.goes_on.add_permits(1);
    translator.stopped().await;
    assert!(is_switch_pending(), "the page that is begun again");
    translator.goes_on.add_permits(1);
    let Answer::Whole(list) = list.await.unwrap() else {
        panic!("the list fits on one page")
    };
    let list = proto::DesiredLrPsResponse::decode(&list[..]).unwrap();
    assert_eq!((list.error, list.desired_lrps.len()), (None, 1));
}

/// Goal: the database does not end the transaction of a list while its next page waits. Method: the
/// client pauses while another list has the only instance of the translator.
#[tokio::test]
async fn pause_of_the_client_and_wait_for_an_instance_have_one_limit() {
    const PAUSE: Duration = Duration::from_secs(3);
    /// Half of the default of `lock_ttl`.
    const LONGEST_IDLE: Duration = Duration::from_millis(7_500);
    let translator = ListTranslator::new();
    let server = with_translator(Kind::Sqlite, &translator, 2).await;
    for guid in ["a", "b", "c", "d"] {
        desire_annotated(&server, guid, "domain", 0).await;
    }
    let Answer::Pages(mut list) = listed(&server, "joins").await else {
        panic!("the list has several pages")
    };
    let read_at = Instant::now();
    list.next().await.expect("the first page");
    let other = tokio::spawn(listed(&server, "waits"));
    translator.stopped().await;

    tokio::time::pause();
    // A busy machine has paused for a part of it.
    let rest = PAUSE.saturating_sub(read_at.elapsed());
    list.wait_for(tokio::time::advance(rest)).await;
    let end = list.next().await.expect("an error");
    let idle = read_at.elapsed();
    tokio::time::resume();
    assert!(idle < LONGEST_IDLE, "{idle:?}");
    let end = proto::DesiredLrPsResponse::decode(&end[..]).unwrap();
    let error = end.error.expect("an error");
    let message = String::from_utf8_lossy(&error.message);
    assert!(message.contains("as many calls"), "{message}");
    other.abort();
}

/// Goal: all waits of a call end together. Method: a list waits for a place among the large ones,
/// and then for the only instance of its translator, which another list has taken meanwhile.
#[tokio::test]
async fn waits_for_a_place_and_then_for_a_run_have_one_limit() {
    const FOR_A_PLACE: Duration = Duration::from_secs(3);
    let translator = ListTranslator::new();
    let server = with_translator(Kind::Sqlite, &translator, 2).await;
    for guid in ["a", "b", "c", "d"] {
        desire_annotated(&server, guid, "domain", 0).await;
    }
    let kept: Vec<_> = std::iter::from_fn(|| server.store.try_keep_reader()).collect();
    let began = Instant::now();
    let list = tokio::spawn(listed(&server, "waits"));
    translator.stopped().await;
    let other = tokio::spawn(listed(&server, "waits"));
    translator.goes_on.add_permits(1);
    translator.stopped().await;
    translator.goes_on.add_permits(1);
    // The other one, which has the instance as soon as the first page of the list is read.
    translator.stopped().await;

    tokio::time::pause();
    tokio::time::advance(FOR_A_PLACE).await;
    drop(kept);
    let answer = list.await.unwrap();
    let waited = began.elapsed();
    tokio::time::resume();
    assert!(matches!(answer, Answer::Busy), "{answer:?}");
    assert!(waited < CLIENTS_GIVE_UP, "{waited:?}");
    other.abort();
}

/// Goal: a page that is read again does not wait for another run. Method: the page is too large for
/// the only instance of the translator, for which another list waits meanwhile.
#[tokio::test]
async fn page_that_is_read_again_keeps_its_run() {
    let translator = ListTranslator::new();
    let server = with_translator(Kind::Sqlite, &translator, 2).await;
    for guid in ["a", "b"] {
        desire_annotated(&server, guid, "domain", LARGEST_ANSWER / 2).await;
    }
    let list = tokio::spawn(listed(&server, "waits"));
    translator.stopped().await;
    let mut other = std::pin::pin!(listed(&server, "joins"));
    assert!(other.as_mut().now_or_never().is_none(), "it waits");
    // Two for each time that the page is read.
    translator.goes_on.add_permits(4);
    let Answer::Pages(mut list) = list.await.unwrap() else {
        panic!("the page has one record, and another one follows")
    };
    let page = list.next().await.expect("the first page");
    let page = proto::DesiredLrPsResponse::decode(&page[..]).unwrap();
    assert_eq!((page.error, page.desired_lrps.len()), (None, 1));
    assert!(matches!(other.await, Answer::Pages(_)));
}

/// Goal: lists of the translators before and after a reload leave readers to other calls. Method:
/// those before it have as many readers as translated calls may have.
#[tokio::test]
async fn lists_of_translators_before_and_after_a_reload_share_their_readers() {
    let before = ListTranslator::with_instances(2 * KEPT);
    let server = with_translator(Kind::Sqlite, &before, 10).await;
    desire_annotated(&server, "guid", "domain", 0).await;
    let lists: Vec<_> = (0..KEPT)
        .map(|_| tokio::spawn(listed(&server, "waits")))
        .collect();
    for _ in &lists {
        before.stopped().await;
    }
    let after = ListTranslator::with_instances(2 * KEPT);
    let translators = vec![Arc::clone(&after) as Arc<dyn Translate>];
    let api = Arc::new(Api::new(server.service.clone(), translators, None).unwrap());
    tokio::time::pause();
    let refused = listed_by(&api, "waits", &of_domain("")).await;
    tokio::time::resume();
    assert!(matches!(refused, Answer::Busy), "{refused:?}");

    before.goes_on.add_permits(2 * KEPT);
    for list in lists {
        assert!(matches!(list.await.unwrap(), Answer::Whole(_)));
    }
    after.goes_on.add_permits(2);
    let answered = listed_by(&api, "waits", &of_domain("")).await;
    assert!(matches!(answered, Answer::Whole(_)), "{answered:?}");
}

on_each_layout!(later_list_of_a_page_is_bounded_and_complete);
/// Goal: no list of a page has more units than a page. Method: the first list of each page has one
/// record at most, after which the table ends for it, and the later one has all.
async fn later_list_of_a_page_is_bounded_and_complete(kind: Kind) {
    const UNITS: usize = 2;
    let server = with_translator(kind, &ListTranslator::new(), UNITS as u32).await;
    for guid in ["a", "b", "c", "d", "e", "f", "g"] {
        let domain = if guid == "d" { "first" } else { OTHERS };
        desire_annotated(&server, guid, domain, 0).await;
    }
    let Answer::Pages(mut list) = listed_by(&server.api, "joins", &of_domain("first")).await else {
        panic!("the list has several pages")
    };
    let mut guids = Vec::new();
    while let Some(page) = list.next().await {
        let page = proto::DesiredLrPsResponse::decode(&page[..]).unwrap();
        assert_eq!(page.error, None);
        assert!(page.desired_lrps.len() <= UNITS, "{:?}", page.desired_lrps);
        guids.extend(page.desired_lrps.into_iter().map(|lrp| lrp.process_guid));
    }
    assert_eq!(guids.concat(), b"abcdefg");
}

/// Goal: a later list with several records of each unit has the units of a whole page, also of the
/// last one, at whose end the first list has no other unit to stop at.
#[tokio::test]
async fn later_list_with_several_records_of_a_unit_does_not_cut_the_page() {
    /// With more than one, the units of a page have more records than its first list reads.
    const INSTANCES: i32 = 2;
    let server = with_translator(Kind::Sqlite, &ListTranslator::new(), 2).await;
    for guid in ["a", "b", "c", "d", "e", "f"] {
        let desired = proto::DesiredLrp {
            instances: INSTANCES,
            ..lrp(guid)
        };
        desire(&server, desired).await;
    }
    let Answer::Pages(mut list) = listed(&server, "instances").await else {
        panic!("the list has several pages")
    };
    let mut found = Vec::new();
    while let Some(page) = list.next().await {
        let page = proto::ActualLrPsResponse::decode(&page[..]).unwrap();
        assert_eq!(page.error, None);
        found.push(page.actual_lrps.len());
    }
    assert_eq!(found, [4, 4, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_list_that_is_too_large_for_the_translator_is_read_in_smaller_pages() {
    let server = with_translator(Kind::Sqlite, &ListTranslator::new(), 8).await;
    desire_annotated(&server, "a", "first", 0).await;
    for guid in ["b", "c", "d", "e", "f"] {
        desire_annotated(&server, guid, OTHERS, LARGEST_ANSWER / 4).await;
    }
    let reply = server.call("/v1.0/joins", &of_domain("first")).await;
    let answer: proto::DesiredLrPsResponse = reply.message();
    assert_eq!((answer.error, answer.desired_lrps.len()), (None, 6));
    assert_eq!(server.store.left_out(), 0);
}

/// Goal: a client does not take the end of an incomplete list for the end of the list.
#[tokio::test(flavor = "multi_thread")]
async fn list_whose_later_page_panics_ends_with_an_error() {
    let server = with_translator(Kind::Sqlite, &ListTranslator::new(), 2).await;
    for guid in ["a", "b", "c", "panics"] {
        desire_annotated(&server, guid, "domain", 0).await;
    }
    let list = http_client().post(server.url("/v1.0/joins"));
    let body = match list.send().await {
        Ok(answer) => answer.bytes().await,
        // The connection may end before its head is sent.
        Err(error) => Err(error),
    };
    assert!(body.is_err(), "{body:?}");
}

/// Goal: a list is not answered as complete without records that are small. Method: the smallest
/// page has two records, one of each list.
#[tokio::test(flavor = "multi_thread")]
async fn too_large_page_of_several_records_is_an_error() {
    let server = with_translator(Kind::Sqlite, &ListTranslator::new(), 8).await;
    desire_annotated(&server, "a", "first", 0).await;
    desire_annotated(&server, "b", OTHERS, LARGEST_ANSWER).await;
    let reply = server.call("/v1.0/others", &of_domain("first")).await;
    let answer: proto::DesiredLrPsResponse = reply.message();
    let error = answer.error.expect("an error");
    assert_eq!(&error.message[..], b"the list is too large");
    assert_eq!((answer.desired_lrps.len(), server.store.left_out()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn single_record_that_is_too_large_is_left_out_of_joined_lists() {
    let server = with_translator(Kind::Sqlite, &ListTranslator::new(), 8).await;
    for guid in ["a", "b-large", "c", "d-large"] {
        let annotation = if guid.ends_with("large") {
            LARGEST_ANSWER
        } else {
            0
        };
        desire_annotated(&server, guid, "domain", annotation).await;
    }
    let reply = server.post("/v1.0/joins", []).await;
    let answer: proto::DesiredLrPsResponse = reply.message();
    let guids = answer.desired_lrps.iter().map(|lrp| &lrp.process_guid[..]);
    assert!(guids.eq([&b"a"[..], b"c"]), "{:?}", answer.desired_lrps);
    assert_eq!((answer.error, server.store.left_out()), (None, 2));
}
