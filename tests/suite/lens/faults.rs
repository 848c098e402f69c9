//! Faults behind a lens: records that it cannot transform, residue of removed records, transactions
//! that lose a deadlock.

use std::time::Instant;

use bbs::testing::database::{is_transient, sql};
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;

use super::{NEWEST, SPLIT, serve_at};
use crate::api::contention::LONGEST_REPEATED;
use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_database, on_each_server};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::server::Server;
use crate::harness::stored::Stored;
use crate::harness::{PATIENCE, until_async};

async fn listed(server: &Server) -> Vec<Vec<u8>> {
    let reply = server
        .call(
            "/v1/desired_lrps/list.r3",
            &proto::DesiredLrPsRequest::default(),
        )
        .await;
    let answer: proto::DesiredLrPsResponse = reply.message();
    assert_eq!(answer.error, None);
    answer
        .desired_lrps
        .into_iter()
        .map(|lrp| lrp.process_guid)
        .collect()
}

on_each_database!(record_that_the_lens_cannot_transform_is_omitted_and_removable);
async fn record_that_the_lens_cannot_transform_is_omitted_and_removable(kind: Kind) {
    let server = serve_at(kind, modules::modules_with_split(), SPLIT).await;
    let guid = fixture::rows("desired_lrps")[5]["process_guid"]
        .as_str()
        .unwrap()
        .to_owned();
    let all = listed(&server).await.len();
    server
        .sql(&format!("UPDATE immutable_desired_lrps SET immutable_run_info = '02xx' WHERE process_guid = '{guid}'"))
        .await;
    let rest = listed(&server).await;
    assert_eq!(
        (rest.len(), rest.contains(&guid.clone().into_bytes())),
        (all - 1, false)
    );
    assert_eq!(server.store.left_out(), 1);
    let process_guid = guid.clone().into_bytes();
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: process_guid.clone(),
    };
    let (kind_of_error, _) = server
        .call("/v1/desired_lrps/get_by_process_guid.r3", &request)
        .await
        .error();
    assert_eq!(kind_of_error, Type::Deserialize);
    let update = Some(proto::DesiredLrpUpdate {
        instances: Some(1),
        ..Default::default()
    });
    let update = proto::UpdateDesiredLrpRequest {
        process_guid: process_guid.clone(),
        update,
    };
    assert_eq!(
        server
            .call("/v1/desired_lrp/update", &update)
            .await
            .error()
            .0,
        Type::Deserialize
    );
    let remove = proto::RemoveDesiredLrpRequest { process_guid };
    let reply = server.call("/v1/desired_lrp/remove", &remove).await;
    reply.assert_no_error();
    for table in ["immutable_desired_lrps", "mutable_desired_lrps"] {
        let left = server
            .texts(&format!(
                "SELECT process_guid FROM {table} WHERE process_guid = '{guid}'"
            ))
            .await;
        assert_eq!(left, Vec::<String>::new(), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_of_a_damaged_record_reports_the_cause() {
    let server = serve_at(Kind::Sqlite, modules::modules_with_split(), SPLIT).await;
    let guid = fixture::rows("desired_lrps")[5]["process_guid"]
        .as_str()
        .unwrap()
        .to_owned();
    server
        .sql(&format!("UPDATE immutable_desired_lrps SET immutable_run_info = '02xx' WHERE process_guid = '{guid}'"))
        .await;
    let mut writer = server.store.writer().await.unwrap();
    for read in ["first", "second"] {
        let fault = writer.desired_lrp(guid.as_bytes()).await.unwrap_err();
        let message = modules::chain(&fault);
        assert!(
            message.contains(
                "column immutable_run_info of table immutable_desired_lrps does not open"
            ),
            "{read}: {message}"
        );
    }
}

/// Through the executable, because the in-process server does not create the host's own tables.
#[tokio::test(flavor = "multi_thread")]
async fn removal_of_a_record_removes_its_residue() {
    let installation = Installation::of_diego(&modules::modules(), Kind::Sqlite)
        .await
        .set("pin_data_version", VERSION);
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    stored.up(NEWEST).await.unwrap();
    let guids: Vec<_> = fixture::rows("desired_lrps")
        .iter()
        .take(2)
        .map(|row| row["process_guid"].as_str().unwrap().to_owned())
        .collect();
    stored
        .execute("UPDATE desired_lrps SET update_strategy = 1")
        .await;
    stored.down(VERSION).await.unwrap();
    let residue = async |guid: &str| {
        let query = format!(
            "SELECT unit FROM bbs_residue WHERE unit = '{guid}' AND table_name = 'desired_lrps'"
        );
        crate::harness::database::texts(&stored.context.database, &query)
            .await
            .len()
    };
    assert_eq!((residue(&guids[0]).await, residue(&guids[1]).await), (1, 1));
    let host = installation.serve();
    let client = crate::harness::http_client();
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: guids[0].clone().into_bytes(),
    };
    let body = bbs_proto::prost::Message::encode_to_vec(&request);
    let url = format!("http://{}/v1/desired_lrp/remove", host.address);
    assert_eq!(
        client
            .post(url)
            .body(body)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16(),
        200
    );
    host.stop();
    assert_eq!((residue(&guids[0]).await, residue(&guids[1]).await), (0, 1));
}

on_each_server!(change_that_loses_a_deadlock_is_retried);
async fn change_that_loses_a_deadlock_is_retried(kind: Kind) {
    let server = Server::empty(kind).await;
    let patient = server.test_database.open_with_idle_limit(PATIENCE).await;
    // The database chooses the victim of a deadlock: MySQL rolls back the transaction that changed
    // fewer rows, and PostgreSQL the one that looks first.
    for attempt in 0..20 {
        let guid = format!("guid-{attempt}");
        desire(&server, lrp(&guid)).await;
        let mut other = patient.write().await.unwrap();
        for number in 0..50 {
            let insert = sql("INSERT INTO domains (domain, expire_time) VALUES (?, 1)");
            other
                .execute(insert.bind(format!("{guid}-{number}")))
                .await
                .unwrap();
        }
        let update = "UPDATE actual_lrps SET since = since + 1 WHERE process_guid = ?";
        other.execute(sql(update).bind(guid.clone())).await.unwrap();
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: guid.clone().into_bytes(),
        };
        let removed = async {
            let began = Instant::now();
            let reply = server.call("/v1/desired_lrp/remove", &request).await;
            let error = reply.message::<proto::DesiredLrpLifecycleResponse>().error;
            // A call that has waited for so long is not repeated.
            let was_long = began.elapsed() >= LONGEST_REPEATED;
            assert!(error.is_none() || was_long, "{error:?}");
            error.is_none()
        };
        let lost = async {
            until_async(async || is_locked(&server, &guid).await).await;
            let update = "UPDATE desired_lrps SET instances = 1 WHERE process_guid = ?";
            match other.execute(sql(update).bind(guid.clone())).await {
                Ok(_) => {
                    other.commit().await.unwrap();
                    false
                }
                Err(fault) => {
                    assert!(is_transient(&fault), "{fault}");
                    drop(other);
                    true
                }
            }
        };
        let (is_removed, lost) = tokio::join!(removed, lost);
        if is_removed && !lost {
            return;
        }
    }
    panic!("the host's transaction was never the victim of the deadlock");
}

/// Whether the host's transaction has locked the record.
async fn is_locked(server: &Server, guid: &str) -> bool {
    let mut probe = server.database.write().await.unwrap();
    let free =
        "SELECT process_guid FROM desired_lrps WHERE process_guid = ? FOR UPDATE SKIP LOCKED";
    let found = probe.fetch(sql(free).bind(guid.to_owned())).await.unwrap();
    probe.commit().await.unwrap();
    found.is_empty()
}
