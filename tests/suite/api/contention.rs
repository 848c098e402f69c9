//! Calls that conflict with another call, or with another transaction in the database: they wait or
//! are retried, and the client sees no error.

use std::time::{Duration, Instant};

use bbs::testing::api::{Answer, Request};
use bbs::testing::database::sql;
use bbs::testing::modules::translate::Verb;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use futures_util::{FutureExt, StreamExt, stream};

use super::actual_lrps::{CLAIM, CRASH, START, call_error, claim, crash, images, rows, start};
use super::{desire, get, lrp};
use crate::harness::PATIENCE;
use crate::harness::database::{Kind, on_each_server};
use crate::harness::on_each::on_each_mysql;
use crate::harness::server::Server;

/// A call that loses a deadlock later than this after it began is not repeated.
pub(crate) const LONGEST_REPEATED: Duration = Duration::from_secs(5);

fn change(update: proto::DesiredLrpUpdate) -> proto::UpdateDesiredLrpRequest {
    proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(update),
    }
}

fn annotate(text: &str) -> proto::UpdateDesiredLrpRequest {
    change(proto::DesiredLrpUpdate {
        annotation: Some(text.into()),
        ..Default::default()
    })
}

on_each_server!(locked_row_delays_an_update);
async fn locked_row_delays_an_update(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let patient = server.test_database.open_with_idle_limit(PATIENCE).await;
    let mut other = patient.write().await.unwrap();
    other
        .execute(sql(
            "UPDATE desired_lrps SET annotation = 'theirs' WHERE process_guid = 'guid'",
        ))
        .await
        .unwrap();
    let release = async {
        server.test_database.wait_for_lock_wait().await;
        other.commit().await.unwrap();
    };
    let request = annotate("ours");
    let (reply, ()) = tokio::join!(server.call("/v1/desired_lrp/update", &request), release);
    reply.assert_no_error();
    assert_eq!(get(&server, "guid").await.annotation, b"ours");
}

on_each_server!(calls_are_answered_while_their_rows_stay_locked);
/// Method: another session keeps its locks until each call has its answer.
async fn calls_are_answered_while_their_rows_stay_locked(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    assert_eq!(call_error(&server, START, &start(0, "a")).await, None);
    let patient = server.test_database.open_with_idle_limit(PATIENCE * 2);
    let patient = patient.await;
    let mut other = patient.write().await.unwrap();
    for table in ["desired_lrps", "actual_lrps"] {
        other
            .execute(sql(format!(
                "UPDATE {table} SET domain = 'theirs' WHERE process_guid = 'guid'"
            )))
            .await
            .unwrap();
    }
    let update = annotate("ours");
    let scale = change(proto::DesiredLrpUpdate {
        instances: Some(5),
        ..Default::default()
    });
    let removal = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    let claim = claim(0, "a");
    let crash = crash(0, "a");
    let answers = tokio::join!(
        server.call("/v1/desired_lrp/update", &update),
        server.call("/v1/desired_lrp/update", &scale),
        server.call("/v1/desired_lrp/remove", &removal),
        server.call(CLAIM, &claim),
        server.call(CRASH, &crash),
    );
    for reply in <[_; 5]>::from(answers) {
        // Calls that wait for an earlier one on the record have to be repeated.
        if reply.status == 503 {
            assert!(reply.repeat_reason().contains("earlier calls"));
        } else {
            let answer: proto::DesiredLrpLifecycleResponse = reply.message();
            assert!(answer.error.is_some(), "the rows are still locked");
        }
    }
    // It has held its locks all the time.
    other.execute(sql("SELECT 1")).await.unwrap();
    drop(other);
    let reply = server.call("/v1/desired_lrp/remove", &removal).await;
    reply.assert_no_error();
}

on_each_server!(deadlocked_update_is_retried);
/// The call locks the fence and then waits for the row; the other transaction locks the row and
/// then waits for the fence.
async fn deadlocked_update_is_retried(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let patient = server.test_database.open_with_idle_limit(PATIENCE).await;
    for _ in 0..4 {
        let mut other = patient.write().await.unwrap();
        other
            .execute(sql(
                "UPDATE desired_lrps SET annotation = 'theirs' WHERE process_guid = 'guid'",
            ))
            .await
            .unwrap();
        let cross = async {
            server.test_database.wait_for_lock_wait().await;
            // The database may abort either transaction; this one is dropped in both cases.
            let _ = other
                .execute(sql("UPDATE bbs_fence SET token = token"))
                .await;
            drop(other);
        };
        let request = annotate("ours");
        let began = Instant::now();
        let (reply, ()) = tokio::join!(server.call("/v1/desired_lrp/update", &request), cross);
        let error = reply.message::<proto::DesiredLrpLifecycleResponse>().error;
        if error.is_none() {
            assert_eq!(get(&server, "guid").await.annotation, b"ours");
            return;
        }
        assert!(began.elapsed() >= LONGEST_REPEATED, "{error:?}");
    }
    panic!("each call waited for so long that it is not repeated");
}

on_each_mysql!(deadlock_in_every_attempt_is_the_error_of_the_call);
async fn deadlock_in_every_attempt_is_the_error_of_the_call(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let deadlocks = "CREATE TRIGGER deadlocks BEFORE UPDATE ON desired_lrps FOR EACH ROW \
         SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'";
    server.sql(deadlocks).await;
    let reply = server
        .call("/v1/desired_lrp/update", &annotate("ours"))
        .await;
    assert_eq!(
        reply.error(),
        (
            Type::Deadlock,
            "the request failed due to deadlock".to_owned()
        )
    );
}

on_each_server!(repeated_start_does_not_wait_for_a_locked_row);
async fn repeated_start_does_not_wait_for_a_locked_row(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(call_error(&server, START, &start(0, "a")).await, None);
    let mut other = server.database.write().await.unwrap();
    other
        .execute(sql(
            "UPDATE actual_lrps SET crash_count = 7 WHERE process_guid = 'guid'",
        ))
        .await
        .unwrap();
    assert_eq!(
        call_error(&server, START, &start(0, "a")).await,
        None,
        "it waited for a locked row"
    );
    drop(other);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/0"]);
}

on_each_server!(claim_waits_for_a_locked_instance);
async fn claim_waits_for_a_locked_instance(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(call_error(&server, START, &start(0, "a")).await, None);
    let patient = server.test_database.open_with_idle_limit(PATIENCE).await;
    let mut other = patient.write().await.unwrap();
    other
        .execute(sql(
            "UPDATE actual_lrps SET crash_count = 7 WHERE process_guid = 'guid'",
        ))
        .await
        .unwrap();
    let release = async {
        server.test_database.wait_for_lock_wait().await;
        other.commit().await.unwrap();
    };
    let request = claim(0, "a");
    let (found, ()) = tokio::join!(call_error(&server, CLAIM, &request), release);
    assert_eq!(
        (found, images(&server).await[0].crash_count),
        (None, 7),
        "the write of the other transaction is read"
    );
    assert_eq!(rows(&server).await, ["0/0/CLAIMED/a/1"]);
}

on_each_server!(unknown_containers_of_many_lrps_start_concurrently);
async fn unknown_containers_of_many_lrps_start_concurrently(kind: Kind) {
    const CONTAINERS: usize = 300;
    let server = Server::empty(kind).await;
    let starts = stream::iter(0..CONTAINERS).map(async |at| {
        let mut request = start(0, "a");
        request.actual_lrp_key.as_mut().unwrap().process_guid = format!("guid-{at}").into();
        call_error(&server, START, &request).await
    });
    // As many as there are sessions: a call that waits longer than calls are repeated may fail.
    let found: Vec<_> = starts.buffer_unordered(20).collect().await;
    assert_eq!(found, vec![None; CONTAINERS]);
    assert_eq!(rows(&server).await, vec!["0/0/RUNNING/a/0"; CONTAINERS]);
}

/// Goal: an LRP that is stored gets all of its instances, however long its call has waited. Method:
/// the waits of the call end as it begins, and another call has the lock of the LRP between two
/// transactions that create its instances.
#[tokio::test]
async fn instances_of_a_stored_lrp_are_created_after_the_waits_of_its_call_have_ended() {
    /// One more than a transaction creates.
    const INSTANCES: i32 = 501;
    /// Longer than a call waits for a lock after its other waits, shorter than the longest wait.
    const HELD: Duration = Duration::from_secs(4);
    let server = Server::empty(Kind::Sqlite).await;
    let desired = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            instances: INSTANCES,
            ..lrp("guid")
        }),
    };
    let found = server.api.find(None, Verb::Post, "desired_lrp/desire.r2");
    let (_, target) = found.expect("a method");
    let request = Request {
        body: desired.encode_to_vec().into(),
        trace_id: TraceId::NONE,
        abandoned: Default::default(),
        waits_until: tokio::time::Instant::now(),
    };
    let before = server.service.lock_key(b"guid").await.unwrap();
    let mut call = std::pin::pin!(server.api.call(target, request));
    let mut next = std::pin::pin!(server.service.lock_key(b"guid"));
    // They get the lock in the order in which they begin to wait for it.
    assert!(call.as_mut().now_or_never().is_none());
    assert!(next.as_mut().now_or_never().is_none());
    drop(before);
    let held = tokio::select! {
        biased;
        answer = &mut call => panic!("it did not wait: {answer:?}"),
        held = &mut next => held.unwrap(),
    };

    tokio::time::pause();
    let ended = tokio::time::timeout(HELD, &mut call).await;
    tokio::time::resume();
    assert!(ended.is_err(), "it does not wait any more: {ended:?}");
    drop(held);
    let Answer::Whole(answer) = call.await else {
        panic!("the call is refused")
    };
    let answer = proto::DesiredLrpLifecycleResponse::decode(&answer[..]).unwrap();
    assert_eq!(answer.error, None);
    let created = server.texts("SELECT COUNT(*) FROM actual_lrps").await;
    assert_eq!(created, [INSTANCES.to_string()]);
}
