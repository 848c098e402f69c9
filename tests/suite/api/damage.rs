//! Unreadable records: left out of lists, counted, reported as an error when read by guid, and not
//! deleted by any call but one that removes them.

use bbs_lens::layout::schema::Sealing;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;

use super::{actual_lrps as lrps, desire, get, guids, list, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::server::{Server, other_keyring};

/// Damaged values of columns of a desired LRP, each as an SQL expression.
fn damages(kind: Kind) -> Vec<(&'static str, String)> {
    let foreign = |sealing| {
        format!(
            "'{}'",
            String::from_utf8(other_keyring().seal(sealing, b"{}")).unwrap()
        )
    };
    let own = |sealing, plain: &[u8]| {
        let sealed = crate::harness::fixture::keyring().seal(sealing, plain);
        format!("'{}'", String::from_utf8(sealed).unwrap())
    };
    let mut damages = vec![
        ("run_info", "''".into()),
        ("run_info", "'00plain'".into()),
        ("run_info", "'02!!'".into()),
        ("run_info", "'02AAAA'".into()),
        ("run_info", foreign(Sealing::Enveloped)),
        ("run_info", own(Sealing::Enveloped, b"\xff\xff")),
        ("volume_placement", "'02AAAA'".into()),
        ("volume_placement", own(Sealing::Enveloped, b"\x0a\x05x")),
        ("routes", "''".into()),
        ("routes", own(Sealing::Sealed, b"[]")),
        ("routes", own(Sealing::Sealed, b"{")),
        ("metric_tags", own(Sealing::Sealed, b"{\"a\":1}")),
        ("placement_tags", "'{}'".into()),
        ("placement_tags", "''".into()),
        ("modification_tag_index", "-1".into()),
    ];
    // The other databases reject a value out of range.
    if kind == Kind::Sqlite {
        damages.push(("memory_mb", "99999999999".into()));
    }
    damages
}

on_each_database!(unreadable_record_is_left_out_of_lists_and_reported_when_read_by_guid);
async fn unreadable_record_is_left_out_of_lists_and_reported_when_read_by_guid(kind: Kind) {
    for (column, value) in damages(kind) {
        let server = Server::empty(kind).await;
        desire(&server, lrp("a")).await;
        desire(&server, lrp("b")).await;
        desire(&server, lrp("c")).await;
        server
            .sql(&format!(
                "UPDATE desired_lrps SET {column} = {value} WHERE process_guid = 'b'"
            ))
            .await;

        assert_eq!(
            guids(&list(&server, Default::default()).await),
            ["a", "c"],
            "{column} = {value}"
        );
        assert_eq!(server.store.left_out(), 1, "{column} = {value}");
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: b"b".to_vec(),
        };
        let damaged = || (Type::Deserialize, "could not deserialize record".to_owned());
        assert_eq!(
            server
                .call("/v1/desired_lrps/get_by_process_guid.r3", &request)
                .await
                .error(),
            damaged()
        );
        let update = proto::DesiredLrpUpdate {
            instances: Some(9),
            ..Default::default()
        };
        let update = proto::UpdateDesiredLrpRequest {
            process_guid: b"b".to_vec(),
            update: Some(update),
        };
        assert_eq!(
            server.call("/v1/desired_lrp/update", &update).await.error(),
            damaged()
        );

        assert_eq!(
            server
                .texts("SELECT process_guid FROM desired_lrps ORDER BY 1")
                .await,
            ["a", "b", "c"]
        );
        assert_eq!(
            server
                .texts("SELECT instances FROM desired_lrps WHERE process_guid = 'b'")
                .await,
            ["2"]
        );
    }
}

on_each_database!(views_ignore_damage_in_columns_that_they_do_not_show);
async fn views_ignore_damage_in_columns_that_they_do_not_show(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("a")).await;
    server
        .sql("UPDATE desired_lrps SET run_info = '02AAAA'")
        .await;
    let infos: proto::DesiredLrpSchedulingInfosResponse = server
        .post("/v1/desired_lrp_scheduling_infos/list", [])
        .await
        .message();
    assert_eq!(infos.desired_lrp_scheduling_infos.len(), 1);
    server
        .sql("UPDATE desired_lrps SET volume_placement = '02AAAA'")
        .await;
    let infos: proto::DesiredLrPsResponse = server
        .post("/v1/desired_lrp_routing_infos/list", [])
        .await
        .message();
    assert_eq!(infos.desired_lrps.len(), 1);
    assert_eq!(server.store.left_out(), 0);
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"a".to_vec(),
    };
    let reply = server
        .call(
            "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
            &request,
        )
        .await;
    assert_eq!(
        reply.error(),
        (Type::Deserialize, "could not deserialize record".to_owned())
    );
}

on_each_database!(null_columns_are_read_as_empty);
async fn null_columns_are_read_as_empty(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("a")).await;
    server.sql("UPDATE desired_lrps SET annotation = NULL, placement_tags = NULL, metric_tags = NULL, modification_tag_index = NULL").await;
    server.sql("UPDATE actual_lrps SET internal_routes = NULL, metric_tags = '', routable = NULL, net_info = ''").await;
    let found = get(&server, "a").await;
    assert_eq!((found.annotation, found.metric_tags), (vec![], vec![]));
    let found: proto::ActualLrPsResponse = server.post("/v1/actual_lrps/list", []).await.message();
    assert_eq!(
        (found.actual_lrps.len(), found.actual_lrps[0].routable),
        (2, Some(false))
    );
}

/// Only SQLite stores such text.
#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf8_is_returned_unchanged() {
    let server = Server::empty(Kind::Sqlite).await;
    desire(&server, lrp("a")).await;
    desire(&server, lrp("b")).await;
    server.sql("UPDATE desired_lrps SET annotation = CAST(x'ff41' AS TEXT), process_guid = CAST(x'61ff' AS TEXT) WHERE process_guid = 'a'").await;
    let found = list(&server, Default::default()).await;
    assert_eq!(
        found
            .iter()
            .map(|lrp| &lrp.process_guid[..])
            .collect::<Vec<_>>(),
        [&b"a\xff"[..], b"b"]
    );
    assert_eq!(found[0].annotation, b"\xffA");
    let one = list(
        &server,
        proto::DesiredLrPsRequest {
            domain: b"\xff".to_vec(),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(guids(&one), Vec::<String>::new());
}

on_each_database!(unreadable_instances_and_tasks_are_left_out_of_lists);
async fn unreadable_instances_and_tasks_are_left_out_of_lists(kind: Kind) {
    let server = Server::with_fixture(kind).await;
    let guid = server
        .texts("SELECT min(process_guid) FROM actual_lrps")
        .await
        .remove(0);
    server
        .sql(&format!(
            "UPDATE actual_lrps SET net_info = '02AAAA' WHERE process_guid = '{guid}'"
        ))
        .await;
    let damaged: u64 = server
        .texts("SELECT count(*) FROM actual_lrps WHERE net_info = '02AAAA'")
        .await[0]
        .parse()
        .unwrap();
    let found: proto::ActualLrPsResponse = server.post("/v1/actual_lrps/list", []).await.message();
    assert_eq!(
        (found.error, found.actual_lrps.len() as u64),
        (None, 665 - damaged)
    );
    let guid = server.texts("SELECT max(guid) FROM tasks").await.remove(0);
    server
        .sql(&format!(
            "UPDATE tasks SET task_definition = '' WHERE guid = '{guid}'"
        ))
        .await;
    let found: proto::TasksResponse = server.post("/v1/tasks/list.r3", []).await.message();
    assert_eq!((found.error, found.tasks.len()), (None, 59));
    let task_guid = guid.into_bytes();
    let unreadable = || (Type::Deserialize, "could not deserialize record".to_owned());
    let request = proto::TaskByGuidRequest {
        task_guid: task_guid.clone(),
    };
    assert_eq!(
        server
            .call("/v1/tasks/get_by_task_guid.r3", &request)
            .await
            .error(),
        unreadable()
    );
    let cell_id = b"cell".to_vec();
    let start = proto::StartTaskRequest {
        task_guid: task_guid.clone(),
        cell_id: cell_id.clone(),
    };
    assert_eq!(
        server.call("/v1/tasks/start", &start).await.error(),
        unreadable()
    );
    let rejection_reason = b"why".to_vec();
    let reject = proto::RejectTaskRequest {
        task_guid: task_guid.clone(),
        rejection_reason,
    };
    assert_eq!(
        server.call("/v1/tasks/reject", &reject).await.error(),
        unreadable()
    );
    let complete = proto::CompleteTaskRequest {
        task_guid: task_guid.clone(),
        cell_id,
        ..Default::default()
    };
    assert_eq!(
        server.call("/v1/tasks/complete", &complete).await.error(),
        unreadable()
    );
    for path in [
        "/v1/tasks/cancel",
        "/v1/tasks/resolving",
        "/v1/tasks/delete",
    ] {
        let request = proto::TaskGuidRequest {
            task_guid: task_guid.clone(),
        };
        assert_eq!(
            server.call(path, &request).await.error(),
            unreadable(),
            "{path}"
        );
    }
    assert!(server.store.left_out() > damaged);
    assert_eq!(
        server.texts("SELECT count(*) FROM actual_lrps").await,
        ["665"]
    );
    assert_eq!(server.texts("SELECT count(*) FROM tasks").await, ["60"]);
}

on_each_database!(unreadable_desired_lrp_can_be_removed_with_its_instances);
async fn unreadable_desired_lrp_can_be_removed_with_its_instances(kind: Kind) {
    let server = Server::empty(kind).await;
    for (column, value) in damages(kind) {
        desire(&server, lrp("guid")).await;
        server
            .sql(&format!("UPDATE desired_lrps SET {column} = {value}"))
            .await;
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
        };
        let answer: proto::DesiredLrpLifecycleResponse = server
            .call("/v1/desired_lrp/remove", &request)
            .await
            .message();
        assert_eq!(answer.error, None, "{column} = {value}");
        for table in ["desired_lrps", "actual_lrps"] {
            let query = format!("SELECT process_guid FROM {table}");
            assert_eq!(
                server.texts(&query).await,
                Vec::<String>::new(),
                "{table}: {column} = {value}"
            );
        }
    }
}

on_each_database!(scaling_reads_no_instance_that_it_leaves);
async fn scaling_reads_no_instance_that_it_leaves(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    server
        .sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE instance_index = 0")
        .await;
    for (instances, expected) in [
        (1, &["0/0/UNCLAIMED//0"][..]),
        (2, &["0/0/UNCLAIMED//0", "1/0/UNCLAIMED//0"][..]),
    ] {
        let update = proto::DesiredLrpUpdate {
            instances: Some(instances),
            ..Default::default()
        };
        server.update_lrp("guid", update).await;
        assert_eq!(lrps::rows(&server).await, expected);
    }
    let noted = server.store.take_unreadable();
    assert!(noted.is_empty(), "{noted:?}");
}

on_each_database!(crash_of_an_instance_with_an_unreadable_desired_lrp_is_stored_and_reported);
async fn crash_of_an_instance_with_an_unreadable_desired_lrp_is_stored_and_reported(kind: Kind) {
    let server = lrps::with_two_unclaimed(kind).await;
    assert_eq!(
        lrps::call_error(&server, lrps::START, &lrps::start(0, "a")).await,
        None
    );
    server
        .sql("UPDATE desired_lrps SET volume_placement = '02AAAA'")
        .await;
    let unreadable = Some((Type::Deserialize, "could not deserialize record".to_owned()));
    assert_eq!(
        lrps::call_error(&server, lrps::CRASH, &lrps::crash(0, "a")).await,
        unreadable
    );
    assert_eq!(
        lrps::rows(&server).await,
        ["0/0/UNCLAIMED//2", "1/0/UNCLAIMED//0"],
        "no auction follows"
    );
}
