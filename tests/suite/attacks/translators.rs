//! Translators that compute without end, call newer versions without end, or use all that they have
//! of stack and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bbs::testing::api::{Answer, LONGEST_WAIT, NativeVersion, Request};
use bbs::testing::database::sql;
use bbs::testing::modules::sandbox::Limits;
use bbs::testing::modules::translate::{
    ApiVersion, ChangedRecord, Translate, TranslateError, TranslatedCall, TranslatedEvent,
    TranslatorManifest, Verb,
};
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::on_each::on_one_server;
use crate::harness::server::{Options, Server};
use crate::harness::{PATIENCE, modules, pause, until};
use crate::translators::{desire_native, list_native};

/// A host with the hostile translator beside those of all versions, which are newer. What limits
/// its calls is their run, which may take far longer than a call waits for its place.
async fn hostile(kind: Kind) -> Server {
    let mut translators = modules::translators();
    let limits = Limits {
        call_time: Duration::from_secs(60),
        ..Limits::default()
    };
    let sandbox = modules::sandbox_with(limits);
    translators.push(modules::translator("hostile-translator", &sandbox));
    Server::start(Options {
        kind,
        translators,
        ..Options::default()
    })
    .await
}

on_each_database!(flood_of_translated_calls_delays_neither_native_nor_newer_ones);
/// Goal: clients of an old version cannot keep those of newer ones from being answered, whatever
/// their translator does, and what it does ends with its client. Method: many lists through a
/// translator that never returns, each with a page of the database open, beside as many long lists
/// of native clients as may be open. No call of a native client waits until one of them ends, nor
/// for a reload, which does; those that find no place get 503, while clients of newer versions get
/// their lists; when the clients have gone, others are served at once.
async fn flood_of_translated_calls_delays_neither_native_nor_newer_ones(kind: Kind) {
    let server = Arc::new(hostile(kind).await);
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let server = Arc::clone(&server);
        flood.spawn(async move { server.post("/v1.2-hostile/spins", []).await });
    }
    until(|| server.store.switch().now_or_never().is_none()).await;
    let mut kept = Vec::new();
    while let Some(permit) = server.store.try_keep_reader() {
        kept.push((permit, server.store.reader().await.unwrap()));
    }
    let store = server.store.clone();
    let reload = tokio::spawn(async move { drop(store.switch().await) });
    pause().await;
    for at in 0..10 {
        assert_eq!(list_native(&server).await.len(), at);
        desire_native(&server, &format!("guid-{at}"), "domain").await;
    }
    assert!(!reload.is_finished(), "the native calls came first");
    let first = flood.join_next().await.unwrap().unwrap();
    assert_eq!(
        (first.status, first.header("retry-after")),
        (503, "5"),
        "a call without a place waits for less than the run that has it takes"
    );
    for newer in [
        "/v0.9/desired_lrps/list",
        "/v0.10/mutable_desired_lrps/list",
        "/v1/desired_lrps/list.r2",
        "/v1.2/desired_lrps/list.r3",
        "/v1/desired_lrp_scheduling_infos/list",
    ] {
        let reply = server.post(newer, []).await;
        assert_eq!(reply.status, 200, "{newer}: {}", reply.text());
    }
    drop(kept);
    flood.shutdown().await;
    reload.await.unwrap();
    let answered = async {
        loop {
            let reply = server.post("/v1.2-hostile/once", []).await;
            if reply.status != 503 {
                return reply;
            }
        }
    };
    let reply = tokio::time::timeout(PATIENCE, answered).await;
    let reply = reply.expect("the calls without a client end");
    assert!(
        reply.message::<proto::PingResponse>().available,
        "no place is taken by what has no client"
    );
}

on_one_server!(
    translated_calls_wait_for_a_database_that_stands_still,
    postgres
);
/// Goal: the reads of Cloud Controller, at the revision before the current one, survive a database
/// that stands still for some seconds, as those of the current revision do. Method: a table is
/// locked for longer than calls commonly wait, with more calls than run at once. Their waits end
/// later than those of clients, so that a pause of the machine ends none of them.
async fn translated_calls_wait_for_a_database_that_stands_still() {
    const CALLS: usize = 40;
    const STANDSTILL: Duration = Duration::from_secs(6);
    const { assert!(STANDSTILL.as_secs() < LONGEST_WAIT.as_secs()) };
    let server = Server::with_translators(Kind::Postgres).await;
    desire(&server, lrp("guid")).await;
    let other = server.test_database.open_with_idle_limit(PATIENCE).await;
    let mut locking = other.write().await.unwrap();
    locking
        .execute(sql("LOCK TABLE desired_lrps"))
        .await
        .unwrap();
    let began = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for revision in ["r2", "r3"].repeat(CALLS) {
        let process_guid = b"guid".to_vec();
        let body = proto::DesiredLrpByProcessGuidRequest { process_guid };
        let path = format!("desired_lrps/get_by_process_guid.{revision}");
        let found = server.api.find(None, Verb::Post, &path);
        let (_, target) = found.expect("a method of Diego");
        let request = Request {
            body: body.encode_to_vec().into(),
            trace_id: TraceId::NONE,
            abandoned: Default::default(),
            waits_until: tokio::time::Instant::now() + PATIENCE,
        };
        let api = Arc::clone(&server.api);
        calls.spawn(async move { api.call(target, request).await });
    }
    while began.elapsed() < STANDSTILL {
        pause().await;
    }
    locking.commit().await.unwrap();
    for answer in calls.join_all().await {
        let Answer::Whole(answer) = answer else {
            panic!("{answer:?}")
        };
        let answer = proto::DesiredLrpResponse::decode(&answer[..]).unwrap();
        assert_eq!(answer.error, None);
    }
}

/// Goal: large records of an old version do not take the place of its small calls. Method: many
/// more of them at once than are translated at once, again and again; a list through the same
/// translators is answered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn large_records_of_an_old_version_do_not_delay_its_lists() {
    const RECORDS: usize = 32;
    let options = Options {
        kind: Kind::Sqlite,
        translators: modules::translators(),
        ..Options::default()
    };
    let server = Arc::new(Server::start(options).await);
    let is_listed = Arc::new(AtomicBool::new(false));
    let (first, mut is_flooded) = mpsc::channel(1);
    let mut flood = tokio::task::JoinSet::new();
    for at in 0..RECORDS {
        let variable = proto::EnvironmentVariable {
            name: b"LARGE".to_vec(),
            value: vec![b'x'; 3_000_000],
        };
        let lrp = proto::DesiredLrp {
            environment_variables: vec![variable],
            ..lrp(&format!("guid-{at}"))
        };
        let server = Arc::clone(&server);
        let request = proto::DesireLrpRequest {
            desired_lrp: Some(lrp),
        };
        let is_listed = Arc::clone(&is_listed);
        let first = first.clone();
        flood.spawn(async move {
            while !is_listed.load(Ordering::SeqCst) {
                let request = request.encode_to_vec();
                let reply = server.post("/v1/desired_lrp/desire.r1", request).await;
                assert!([200, 503].contains(&reply.status), "{}", reply.text());
                let _ = first.try_send(());
            }
        });
    }
    is_flooded.recv().await.expect("a call is answered");
    let listed = server.post("/v1/desired_lrps/list.r2", []).await;
    listed.assert_no_error();
    is_listed.store(true, Ordering::SeqCst);
    flood.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_newer_versions_are_counted_for_the_whole_request() {
    let server = hostile(Kind::Sqlite).await;
    let (kind, message) = server.post("/v1.2-hostile/forever", []).await.error();
    assert_eq!(kind, Type::UnknownError);
    for word in [
        "\"hostile\"",
        "called the next version more than 1000 times",
    ] {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_request_of_a_translator_reaches_no_handler() {
    let server = hostile(Kind::Sqlite).await;
    let (kind, message) = server.post("/v1.2-hostile/enlarges", []).await.error();
    assert_eq!(kind, Type::UnknownError);
    for word in ["\"hostile\"", "with 16777216 bytes"] {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

/// A cell deletes a container unless the answer keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn container_is_kept_when_a_translator_fails_at_its_evacuation() {
    let server = hostile(Kind::Sqlite).await;
    let reply = server
        .post("/v1.2-hostile/evacuaterunningactuallrp", [])
        .await;
    let (kind, message) = reply.error();
    assert_eq!(kind, Type::UnknownError);
    assert!(message.contains("fails after the call"), "{message:?}");
    assert!(reply.message::<proto::EvacuationResponse>().keep_container);
}

/// A translator under another version.
struct Renumbered {
    translator: Arc<dyn Translate>,
    manifest: TranslatorManifest,
}

impl Translate for Renumbered {
    fn manifest(&self) -> &TranslatorManifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        self.translator.instances()
    }

    fn call(&self, method: &str, request: Bytes) -> Box<dyn TranslatedCall + '_> {
        self.translator.call(method, request)
    }

    fn events(
        &self,
        method: &str,
        changes: &Arc<[ChangedRecord]>,
        newer: Vec<TranslatedEvent>,
    ) -> BoxFuture<'_, Result<Vec<TranslatedEvent>, TranslateError>> {
        self.translator.events(method, changes, newer)
    }
}

/// Goal: a chain may be as long as the line of versions: each translator has a stack of its own.
/// Method: a guest under many versions, each of which uses most of its stack when it calls the
/// next.
#[tokio::test(flavor = "multi_thread")]
async fn each_translator_of_a_chain_has_its_own_stack() {
    let deep: Arc<dyn Translate> = modules::translator("hostile-translator", &modules::sandbox());
    let minors = 1..=15;
    let versions: Vec<_> = minors
        .map(|minor| ApiVersion::new(0, minor))
        .chain([NativeVersion::Diego.number()])
        .collect();
    let steps = versions.windows(2).map(|pair| {
        let manifest = TranslatorManifest {
            serves: pair[0],
            onto: pair[1],
            ..deep.manifest().clone()
        };
        Arc::new(Renumbered {
            translator: Arc::clone(&deep),
            manifest,
        }) as Arc<dyn Translate>
    });
    let translators = steps.collect();
    let server = Server::start(Options {
        kind: Kind::Sqlite,
        translators,
        ..Options::default()
    })
    .await;
    let reply = server.post("/v0.1/deep", [14]).await;
    assert!(reply.message::<proto::PingResponse>().available);
}
