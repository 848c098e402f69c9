//! Calls that change desired LRPs and their unclaimed instances.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;

use super::domains::upsert;
use super::{desire, get, guids, list, lrp, remove, routes, tag};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{NOW_NS, RECORD_VERSION, Server};
use crate::harness::until_async;

const INSTANCES: &str = "SELECT concat(process_guid, '/', instance_index, '/', state, '/', presence) \
     FROM actual_lrps ORDER BY process_guid, instance_index, presence";

fn exists() -> (Type, String) {
    (
        Type::ResourceExists,
        "the requested resource already exists".into(),
    )
}

fn not_found() -> (Type, String) {
    (
        Type::ResourceNotFound,
        "the requested resource could not be found".into(),
    )
}

fn invalid(text: &str) -> (Type, String) {
    (Type::InvalidRequest, text.into())
}

fn invalid_request() -> (Type, String) {
    invalid("the request received is invalid")
}

async fn desire_error(server: &Server, lrp: proto::DesiredLrp) -> (Type, String) {
    server
        .call(
            "/v1/desired_lrp/desire.r2",
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp),
            },
        )
        .await
        .error()
}

/// Goal: a fault between an update and the instances that it adds leaves no acknowledged update
/// without them, for convergence to find. Method: the database refuses the instances.
#[tokio::test]
async fn update_whose_instances_cannot_be_created_changes_nothing() {
    let server = Server::empty(Kind::Sqlite).await;
    desire(&server, lrp("guid")).await;
    let before = get(&server, "guid").await;
    let there = server.texts(INSTANCES).await;
    let refuse = "CREATE TRIGGER refused BEFORE INSERT ON actual_lrps BEGIN SELECT RAISE(ABORT, 'refused'); END";
    server.sql(refuse).await;
    let more = proto::DesiredLrpUpdate {
        instances: Some(before.instances + 2),
        ..Default::default()
    };
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(more.clone()),
    };
    let (kind, _) = server
        .call("/v1/desired_lrp/update", &request)
        .await
        .error();
    assert_eq!(kind, Type::UnknownError);
    assert_eq!(get(&server, "guid").await, before);
    server.sql("DROP TRIGGER refused").await;
    server.update_lrp("guid", more).await;
    let after = server.texts(INSTANCES).await;
    assert_eq!(after.len(), there.len() + 2);
}

on_each_database!(desired_lrp_is_read_back_with_the_fields_that_the_host_sets);
async fn desired_lrp_is_read_back_with_the_fields_that_the_host_sets(kind: Kind) {
    let server = Server::empty(kind).await;
    let given = proto::DesiredLrp {
        annotation: b"an annotation".to_vec(),
        ports: vec![8080, 2222, 8080],
        routes: Some(routes(&[
            ("cf-router", "[ {\"port\": 8080, \"a\":\"<&>\"} ]"),
            ("gone", "null"),
        ])),
        volume_mounts: vec![
            proto::VolumeMount {
                driver: b"nfs".to_vec(),
                mode: b"r".to_vec(),
                ..Default::default()
            },
            proto::VolumeMount {
                driver: b"local".to_vec(),
                mode: b"rw".to_vec(),
                ..Default::default()
            },
            proto::VolumeMount {
                driver: b"nfs".to_vec(),
                mode: b"r".to_vec(),
                ..Default::default()
            },
        ],
        placement_tags: vec![b"gpu".to_vec(), b"<b>".to_vec()],
        metric_tags: vec![tag("source_id", "source"), tag("app", "x")],
        modification_tag: Some(proto::ModificationTag {
            epoch: b"mine".to_vec(),
            index: 9,
        }),
        update_strategy: proto::desired_lrp::UpdateStrategy::Recreate.into(),
        deprecated_start_timeout_s: 5,
        start_timeout_ms: 6,
        max_pids: 7,
        ..lrp("guid")
    };
    desire(&server, given.clone()).await;
    let mut found = get(&server, "guid").await;
    found.metric_tags.sort_by(|a, b| b.key.cmp(&a.key));
    let tag = found.modification_tag.take().unwrap();
    assert_eq!((tag.epoch.len(), tag.index), (36, 0));
    let expected = proto::DesiredLrp {
        ports: vec![8080, 2222],
        routes: Some(routes(&[(
            "cf-router",
            r#"[{"port":8080,"a":"\u003c\u0026\u003e"}]"#,
        )])),
        metrics_guid: b"source".to_vec(),
        modification_tag: None,
        deprecated_start_timeout_s: 0,
        ..given
    };
    assert_eq!(found, expected);

    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    let reply = server
        .call(
            "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
            &request,
        )
        .await;
    let info = reply
        .message::<proto::DesiredLrpSchedulingInfoByProcessGuidResponse>()
        .desired_lrp_scheduling_info;
    let info = info.unwrap();
    assert_eq!(
        info.volume_placement.unwrap().driver_names,
        [b"nfs".to_vec(), b"local".to_vec(), b"nfs".to_vec()]
    );
    assert_eq!(info.placement_tags, [b"gpu".to_vec(), b"<b>".to_vec()]);
    assert_eq!(
        server
            .texts("SELECT placement_tags FROM desired_lrps")
            .await,
        [r#"["gpu","\u003cb\u003e"]"#]
    );
    assert_eq!(
        server
            .texts("SELECT record_version FROM desired_lrps")
            .await,
        [RECORD_VERSION.to_string()]
    );
}

on_each_database!(desiring_an_lrp_creates_unclaimed_instances);
async fn desiring_an_lrp_creates_unclaimed_instances(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            ..lrp("none")
        },
    )
    .await;
    assert_eq!(
        server.texts(INSTANCES).await,
        ["guid/0/UNCLAIMED/0", "guid/1/UNCLAIMED/0"]
    );
    let request = proto::ActualLrPsRequest {
        process_guid: b"guid".to_vec(),
        index: Some(1),
        ..Default::default()
    };
    let answer: proto::ActualLrPsResponse = server
        .call("/v1/actual_lrps/list", &request)
        .await
        .message();
    let [mut found] = <[_; 1]>::try_from(answer.actual_lrps).unwrap();
    assert_eq!(found.modification_tag.take().unwrap().epoch.len(), 36);
    let key = proto::ActualLrpKey {
        process_guid: b"guid".to_vec(),
        index: 1,
        domain: b"domain".to_vec(),
    };
    let expected = proto::ActualLrp {
        actual_lrp_key: Some(key),
        actual_lrp_instance_key: Some(proto::ActualLrpInstanceKey::default()),
        actual_lrp_net_info: Some(proto::ActualLrpNetInfo::default()),
        state: b"UNCLAIMED".to_vec(),
        since: NOW_NS,
        routable: Some(false),
        ..Default::default()
    };
    assert_eq!(found, expected);
    assert_eq!(
        server
            .texts("SELECT DISTINCT record_version FROM actual_lrps")
            .await,
        [RECORD_VERSION.to_string()]
    );
}

on_each_layout!(more_instances_than_one_transaction_takes_are_all_created);
async fn more_instances_than_one_transaction_takes_are_all_created(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 1_203,
            ..lrp("guid")
        },
    )
    .await;
    let indices =
        server.texts("SELECT concat(count(*), '/', min(instance_index), '/', max(instance_index)) FROM actual_lrps");
    assert_eq!(indices.await, ["1203/0/1202"]);
}

on_each_layout!(removal_during_desire_leaves_no_instances);
async fn removal_during_desire_leaves_no_instances(kind: Kind) {
    let server = std::sync::Arc::new(Server::empty(kind).await);
    let desiring = {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move {
            desire(
                &server,
                proto::DesiredLrp {
                    instances: 10_000,
                    ..lrp("guid")
                },
            )
            .await
        })
    };
    until_async(async || !server.texts(INSTANCES).await.is_empty()).await;
    assert_eq!(remove(&server, "guid").await, None);
    desiring.await.unwrap();
    assert_eq!(server.texts(INSTANCES).await, Vec::<String>::new());
}

on_each_layout!(desiring_an_existing_guid_is_rejected_and_changes_nothing);
async fn desiring_an_existing_guid_is_rejected_and_changes_nothing(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let before = get(&server, "guid").await;
    let again = proto::DesiredLrp {
        instances: 5,
        annotation: b"again".to_vec(),
        ..lrp("guid")
    };
    assert_eq!(desire_error(&server, again).await, exists());
    assert_eq!(get(&server, "guid").await, before);
    assert_eq!(server.texts(INSTANCES).await.len(), 2);
}

on_each_layout!(running_instance_is_adopted_when_its_lrp_is_desired_again);
async fn running_instance_is_adopted_when_its_lrp_is_desired_again(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    server
        .sql("UPDATE actual_lrps SET state = 'RUNNING', cell_id = 'cell' WHERE instance_index = 1")
        .await;
    assert_eq!(remove(&server, "guid").await, None);
    assert_eq!(server.texts(INSTANCES).await, ["guid/1/RUNNING/0"]);
    desire(
        &server,
        proto::DesiredLrp {
            instances: 3,
            ..lrp("guid")
        },
    )
    .await;
    assert_eq!(
        server.texts(INSTANCES).await,
        [
            "guid/0/UNCLAIMED/0",
            "guid/1/RUNNING/0",
            "guid/2/UNCLAIMED/0"
        ]
    );
}

on_each_layout!(values_too_long_or_invalid_for_a_column_are_rejected_and_those_in_messages_kept);
async fn values_too_long_or_invalid_for_a_column_are_rejected_and_those_in_messages_kept(
    kind: Kind,
) {
    let server = Server::empty(kind).await;
    let broken = || b"\xff\xfe".to_vec();
    let refusals = [
        proto::DesiredLrp {
            domain: broken(),
            ..lrp("a")
        },
        proto::DesiredLrp {
            annotation: broken(),
            ..lrp("a")
        },
        proto::DesiredLrp {
            log_guid: broken(),
            ..lrp("a")
        },
        proto::DesiredLrp {
            root_fs: b"docker://x/\xff".to_vec(),
            ..lrp("a")
        },
        proto::DesiredLrp {
            domain: "d".repeat(256).into(),
            ..lrp("a")
        },
        proto::DesiredLrp {
            root_fs: format!("docker://{}", "x".repeat(1016)).into(),
            ..lrp("a")
        },
        lrp(&"g".repeat(256)),
        proto::DesiredLrp {
            routes: Some(routes(&[("cf-router", "not JSON")])),
            ..lrp("a")
        },
        proto::DesiredLrp {
            routes: Some(routes(&[("cf-router", "")])),
            ..lrp("a")
        },
    ];
    for given in refusals {
        assert_eq!(
            desire_error(&server, given.clone()).await,
            invalid_request(),
            "{given:?}"
        );
    }
    assert_eq!(
        guids(&list(&server, Default::default()).await),
        Vec::<String>::new()
    );
    assert_eq!(server.texts(INSTANCES).await, Vec::<String>::new());

    let kept = proto::DesiredLrp {
        log_source: broken(),
        environment_variables: vec![proto::EnvironmentVariable {
            name: broken(),
            value: broken(),
        }],
        domain: "é".repeat(255).into(),
        ..lrp(&"g".repeat(255))
    };
    desire(&server, kept.clone()).await;
    let found = get(&server, &"g".repeat(255)).await;
    assert_eq!(
        (found.log_source, found.environment_variables),
        (kept.log_source, kept.environment_variables)
    );
}

on_each_layout!(update_changes_only_the_named_fields_and_increments_the_modification_tag);
async fn update_changes_only_the_named_fields_and_increments_the_modification_tag(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            annotation: b"old".to_vec(),
            routes: Some(routes(&[("a", "1")])),
            ..lrp("guid")
        },
    )
    .await;
    let before = get(&server, "guid").await;

    server
        .update_lrp("guid", proto::DesiredLrpUpdate::default())
        .await;
    let mut expected = before.clone();
    expected.modification_tag.as_mut().unwrap().index = 1;
    assert_eq!(get(&server, "guid").await, expected);

    server
        .update_lrp(
            "guid",
            proto::DesiredLrpUpdate {
                instances: Some(3),
                annotation: Some(vec![]),
                routes: Some(routes(&[])),
                metric_tags: vec![tag("source_id", "other")],
                image_username: Some(b"user".to_vec()),
                image_password: Some(b"password".to_vec()),
                lrp_definition: None,
            },
        )
        .await;
    expected.modification_tag.as_mut().unwrap().index = 2;
    let changed = proto::DesiredLrp {
        instances: 3,
        annotation: vec![],
        routes: Some(routes(&[])),
        metric_tags: vec![tag("source_id", "other")],
        metrics_guid: b"other".to_vec(),
        image_username: b"user".to_vec(),
        image_password: b"password".to_vec(),
        ..expected
    };
    assert_eq!(get(&server, "guid").await, changed);
}

on_each_layout!(update_creates_and_deletes_only_instances_that_no_cell_runs);
async fn update_creates_and_deletes_only_instances_that_no_cell_runs(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 5,
            ..lrp("guid")
        },
    )
    .await;
    desire(&server, lrp("other")).await;
    server.sql(
        "UPDATE actual_lrps SET state = 'CRASHED' WHERE process_guid = 'guid' AND instance_index = 3; \
         UPDATE actual_lrps SET state = 'RUNNING' WHERE process_guid = 'guid' AND instance_index = 4; \
         INSERT INTO actual_lrps (process_guid, instance_index, domain, state, net_info, modification_tag_epoch, presence) \
         SELECT process_guid, instance_index, domain, 'UNCLAIMED', net_info, modification_tag_epoch, 1 \
         FROM actual_lrps WHERE process_guid = 'guid' AND instance_index = 2",
    ).await;
    let instances = |count| proto::DesiredLrpUpdate {
        instances: Some(count),
        ..Default::default()
    };
    server.update_lrp("guid", instances(1)).await;
    // A running instance is stopped by its cell, and an evacuating one is removed by its
    // evacuation.
    let others = ["other/0/UNCLAIMED/0", "other/1/UNCLAIMED/0"];
    let waiting = [
        "guid/0/UNCLAIMED/0",
        "guid/2/UNCLAIMED/1",
        "guid/4/RUNNING/0",
    ];
    assert_eq!(
        server.texts(INSTANCES).await,
        [&waiting[..], &others].concat()
    );

    server.update_lrp("guid", instances(3)).await;
    let waiting = [
        "guid/0/UNCLAIMED/0",
        "guid/1/UNCLAIMED/0",
        "guid/2/UNCLAIMED/0",
        "guid/2/UNCLAIMED/1",
        "guid/4/RUNNING/0",
    ];
    assert_eq!(
        server.texts(INSTANCES).await,
        [&waiting[..], &others].concat()
    );

    server.update_lrp("guid", instances(6)).await;
    assert_eq!(
        server
            .texts(
                "SELECT state FROM actual_lrps WHERE process_guid = 'guid' AND instance_index = 4"
            )
            .await,
        ["RUNNING"]
    );

    assert_eq!(remove(&server, "guid").await, None);
    assert_eq!(
        server.texts(INSTANCES).await,
        [&["guid/2/UNCLAIMED/1", "guid/4/RUNNING/0"][..], &others].concat()
    );
    assert_eq!(guids(&list(&server, Default::default()).await), ["other"]);
}

on_each_layout!(update_that_does_not_scale_down_deletes_no_instance);
async fn update_that_does_not_scale_down_deletes_no_instance(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    // Above the desired number of instances: left to convergence by an update that does not scale
    // down.
    server
        .sql(
            "UPDATE actual_lrps SET instance_index = 7, state = 'CRASHED' WHERE instance_index = 1",
        )
        .await;
    server
        .update_lrp(
            "guid",
            proto::DesiredLrpUpdate {
                annotation: Some(b"x".to_vec()),
                ..Default::default()
            },
        )
        .await;
    server
        .update_lrp(
            "guid",
            proto::DesiredLrpUpdate {
                instances: Some(2),
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        server.texts(INSTANCES).await,
        ["guid/0/UNCLAIMED/0", "guid/7/CRASHED/0"]
    );
}

on_each_layout!(absent_desired_lrps_are_answered_with_not_found);
async fn absent_desired_lrps_are_answered_with_not_found(kind: Kind) {
    let server = Server::empty(kind).await;
    let update = proto::UpdateDesiredLrpRequest {
        process_guid: b"no".to_vec(),
        update: Some(Default::default()),
    };
    assert_eq!(
        server.call("/v1/desired_lrp/update", &update).await.error(),
        not_found()
    );
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: b"no".to_vec(),
    };
    assert_eq!(
        server
            .call("/v1/desired_lrp/remove", &request)
            .await
            .error(),
        not_found()
    );
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"\xff".to_vec(),
    };
    for path in [
        "desired_lrps/get_by_process_guid.r3",
        "desired_lrp_scheduling_infos/get_by_process_guid",
    ] {
        assert_eq!(
            server.call(&format!("/v1/{path}"), &request).await.error(),
            not_found()
        );
    }
}

on_each_layout!(invalid_requests_are_rejected_by_each_method);
async fn invalid_requests_are_rejected_by_each_method(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let no_update = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: None,
    };
    assert_eq!(
        server
            .call("/v1/desired_lrp/update", &no_update)
            .await
            .error(),
        invalid("Invalid field: update")
    );
    let negative = proto::DesiredLrpUpdate {
        instances: Some(-1),
        ..Default::default()
    };
    let negative = proto::UpdateDesiredLrpRequest {
        update: Some(negative),
        ..no_update
    };
    assert_eq!(
        server
            .call("/v1/desired_lrp/update", &negative)
            .await
            .error(),
        invalid("Invalid field: instances")
    );
    for path in [
        "desired_lrp/remove",
        "desired_lrps/get_by_process_guid.r3",
        "desired_lrp_scheduling_infos/get_by_process_guid",
    ] {
        assert_eq!(
            server.post(&format!("/v1/{path}"), []).await.error(),
            invalid("Invalid field: process_guid")
        );
    }
    assert_eq!(
        server.post("/v1/desired_lrp/desire.r2", []).await.error(),
        invalid("Invalid field: desired_lrp")
    );
    assert_eq!(
        server.post("/v1/domains/upsert", []).await.error(),
        invalid("Invalid field: domain")
    );
    let reply = server
        .post("/v1/actual_lrps/list_by_process_guids", [])
        .await;
    assert_eq!(reply.error(), invalid("process_guids must not be empty"));
    let bad_update = proto::DesiredLrpUpdate {
        annotation: Some(b"\xff".to_vec()),
        ..Default::default()
    };
    let bad_update = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(bad_update),
    };
    assert_eq!(
        server
            .call("/v1/desired_lrp/update", &bad_update)
            .await
            .error(),
        invalid_request()
    );
    assert_eq!(
        get(&server, "guid").await.modification_tag.unwrap().index,
        0
    );
}

on_each_database!(host_without_the_lock_changes_nothing);
async fn host_without_the_lock_changes_nothing(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    server.sql("UPDATE bbs_fence SET token = token + 1").await;
    let late = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("late")),
    };
    let removal = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    for refused in [
        server.call("/v1/desired_lrp/desire.r2", &late).await,
        server.call("/v1/desired_lrp/remove", &removal).await,
        upsert(&server, b"d", 1).await,
    ] {
        let reason = refused.repeat_reason();
        assert!(reason.contains("no longer the master"), "{reason}");
    }
    assert_eq!(guids(&list(&server, Default::default()).await), ["guid"]);
}
