//! Calls that meet somebody else's transaction in the database: they wait, or lose and are done again, and the client
//! notices neither.

use std::time::Duration;

use bbs::database::sql;
use bbs_proto::models as proto;

use super::actual_lrps::{CLAIM, START, claim, images, rows, said, start};
use super::{desire, get, lrp};
use crate::harness::database::{Kind, on_each_server};
use crate::harness::server::Server;

/// Long enough for a call to reach the row that is locked. Were it not, nothing would be tested, and nothing fail.
const MEANWHILE: Duration = Duration::from_millis(500);

fn annotate(text: &str) -> proto::UpdateDesiredLrpRequest {
    let update = proto::DesiredLrpUpdate { annotation: Some(text.into()), ..Default::default() };
    proto::UpdateDesiredLrpRequest { process_guid: b"guid".to_vec(), update: Some(update) }
}

on_each_server!(a_row_that_somebody_holds_only_delays);
async fn a_row_that_somebody_holds_only_delays(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let mut other = server.database.write().await.unwrap();
    other.execute(sql("UPDATE desired_lrps SET annotation = 'theirs' WHERE process_guid = 'guid'")).await.unwrap();
    let release = async {
        tokio::time::sleep(MEANWHILE).await;
        other.commit().await.unwrap();
    };
    let request = annotate("ours");
    let (reply, ()) = tokio::join!(server.call("/v1/desired_lrp/update", &request), release);
    assert_eq!(reply.message::<proto::DesiredLrpLifecycleResponse>().error, None);
    assert_eq!(get(&server, "guid").await.annotation, b"ours");
}

on_each_server!(a_deadlock_is_tried_again);
/// The call holds the fence and wants the row; the other has the row and wants the fence.
async fn a_deadlock_is_tried_again(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let mut other = server.database.write().await.unwrap();
    other.execute(sql("UPDATE desired_lrps SET annotation = 'theirs' WHERE process_guid = 'guid'")).await.unwrap();
    let cross = async {
        tokio::time::sleep(MEANWHILE).await;
        // Whichever of the two the database lets go on: this one has nothing to lose.
        let _ = other.execute(sql("UPDATE bbs_fence SET token = token WHERE id = 1")).await;
        drop(other);
    };
    let request = annotate("ours");
    let (reply, ()) = tokio::join!(server.call("/v1/desired_lrp/update", &request), cross);
    assert_eq!(reply.message::<proto::DesiredLrpLifecycleResponse>().error, None);
    assert_eq!(get(&server, "guid").await.annotation, b"ours");
}

on_each_server!(a_cell_that_says_again_what_it_runs_waits_for_nobody);
async fn a_cell_that_says_again_what_it_runs_waits_for_nobody(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(said(&server, START, &start(0, "a")).await, None);
    let mut other = server.database.write().await.unwrap();
    other.execute(sql("UPDATE actual_lrps SET crash_count = 7 WHERE process_guid = 'guid'")).await.unwrap();
    assert_eq!(said(&server, START, &start(0, "a")).await, None, "it waited for a row that somebody holds");
    drop(other);
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/0"]);
}

on_each_server!(a_call_about_an_instance_that_somebody_holds_waits);
async fn a_call_about_an_instance_that_somebody_holds_waits(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(said(&server, START, &start(0, "a")).await, None);
    let mut other = server.database.write().await.unwrap();
    other.execute(sql("UPDATE actual_lrps SET crash_count = 7 WHERE process_guid = 'guid'")).await.unwrap();
    let release = async {
        tokio::time::sleep(MEANWHILE).await;
        other.commit().await.unwrap();
    };
    let request = claim(0, "a");
    let (found, ()) = tokio::join!(said(&server, CLAIM, &request), release);
    assert_eq!((found, images(&server).await[0].crash_count), (None, 7), "what the other wrote is seen");
    assert_eq!(rows(&server).await, ["0/0/CLAIMED/a/1"]);
}

on_each_server!(containers_that_no_row_has_may_all_begin_theirs_at_once);
async fn containers_that_no_row_has_may_all_begin_theirs_at_once(kind: Kind) {
    const CONTAINERS: usize = 300;
    let server = Server::empty(kind).await;
    let starts = (0..CONTAINERS).map(|at| {
        let server = &server;
        async move {
            let mut request = start(0, "a");
            request.actual_lrp_key.as_mut().unwrap().process_guid = format!("guid-{at}").into();
            said(server, START, &request).await
        }
    });
    let found = futures_util::future::join_all(starts).await;
    assert_eq!(found, vec![None; CONTAINERS]);
    assert_eq!(rows(&server).await, vec!["0/0/RUNNING/a/0"; CONTAINERS]);
}
