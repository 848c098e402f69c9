//! The calls: what each accepts, changes and refuses.

use super::*;
use crate::api::routes;
use crate::harness::database::on_each_database;
use crate::harness::layouts::on_each_layout;

on_each_layout!(update_replaces_the_whole_definition_and_keeps_the_rest);
async fn update_replaces_the_whole_definition_and_keeps_the_rest(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let given = proto::DesiredLrp {
        instances: 0,
        annotation: b"note".to_vec(),
        environment_variables: vec![proto::EnvironmentVariable {
            name: b"A".to_vec(),
            value: b"1".to_vec(),
        }],
        cpu_weight: 7,
        log_guid: b"log-1".to_vec(),
        placement_tags: vec![b"gpu".to_vec()],
        image_username: b"user".to_vec(),
        image_password: b"password".to_vec(),
        ..version_1()
    };
    desire(&server, given).await;
    let before = get(&server, "guid").await;
    let next = proto::LrpDefinition {
        log_guid: b"log-2".to_vec(),
        ports: vec![8080],
        ..definition("version-2")
    };
    assert_eq!(update(&server, to(next.clone())).await, None);
    until_done(&server).await;
    let after = get(&server, "guid").await;
    assert_eq!(
        proto::LrpDefinition::from(&after),
        proto::LrpDefinition {
            metrics_guid: b"source".to_vec(),
            ..next
        }
    );
    let kept = |lrp: &proto::DesiredLrp| {
        (
            lrp.process_guid.clone(),
            lrp.domain.clone(),
            lrp.instances,
            lrp.routes.clone(),
            lrp.annotation.clone(),
        )
    };
    assert_eq!(kept(&after), kept(&before));
    assert!(after.modification_tag.unwrap().index > before.modification_tag.unwrap().index);
}

on_each_layout!(definition_and_other_fields_are_updated_together);
async fn definition_and_other_fields_are_updated_together(kind: Kind) {
    let server = running(kind, 1).await;
    let both = proto::DesiredLrpUpdate {
        instances: Some(2),
        annotation: Some(b"note".to_vec()),
        ..to(definition("version-2"))
    };
    assert_eq!(update(&server, both).await, None);
    let lrp = get(&server, "guid").await;
    assert_eq!(
        (lrp.instances, &lrp.annotation[..], lrp.memory_mb),
        (2, &b"note"[..], 128)
    );
    assert_eq!(ids(&server).await, ("version-2".into(), "version-1".into()));
    until_rows(
        &server,
        &["0/0 RUNNING old-0 version-1", "1/0 UNCLAIMED  version-2"],
    )
    .await;
}

on_each_layout!(only_what_belongs_to_the_lrp_may_change_during_an_update);
async fn only_what_belongs_to_the_lrp_may_change_during_an_update(kind: Kind) {
    let server = running(kind, 1).await;
    update_to(&server, "version-2").await;
    assert_eq!(
        update(&server, to(definition("version-3"))).await,
        Some(Type::UpdateInProgress)
    );
    assert_eq!(
        update(&server, to(definition("version-2"))).await,
        Some(Type::UpdateInProgress)
    );
    assert_eq!(
        roll_back(&server, "version-1").await,
        Some(Type::UpdateInProgress)
    );
    assert_eq!(
        roll_back(&server, "version-2").await,
        Some(Type::UpdateInProgress)
    );
    let annotation = proto::DesiredLrpUpdate {
        annotation: Some(b"note".to_vec()),
        ..Default::default()
    };
    assert_eq!(update(&server, annotation).await, None);
    assert_eq!(ids(&server).await, ("version-2".into(), "version-1".into()));
    until_rows(&server, &REPLACED).await;
}

on_each_database!(clients_of_older_versions_update_as_before);
async fn clients_of_older_versions_update_as_before(kind: Kind) {
    let server = running(kind, 1).await;
    for (instances, version) in (2..).zip(["1.1", "1.0", "0.12", "0.11", "0.10", "0.9"]) {
        let changes = proto::DesiredLrpUpdate {
            instances: Some(instances),
            routes: Some(routes(&[("router", &format!("\"{version}\""))])),
            annotation: Some(version.into()),
            ..Default::default()
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
            update: Some(changes.clone()),
        };
        assert_eq!(
            error_of(
                &server,
                &format!("/v{version}/desired_lrp/update"),
                &request
            )
            .await,
            None,
            "{version}"
        );
        let lrp = get(&server, "guid").await;
        assert_eq!(
            (Some(lrp.instances), lrp.routes),
            (changes.instances, changes.routes),
            "{version}"
        );
        assert_eq!(
            (Some(lrp.annotation), &lrp.definition_id[..]),
            (changes.annotation, &b"version-1"[..]),
            "{version}"
        );
        assert_eq!(ids(&server).await, ("version-1".into(), String::new()));
    }
    assert_eq!(rows(&server).await.len(), 7);
}

on_each_layout!(cancellation_without_an_update_is_an_error_and_changes_nothing);
async fn cancellation_without_an_update_is_an_error_and_changes_nothing(kind: Kind) {
    let server = running(kind, 1).await;
    let before = (get(&server, "guid").await, rows(&server).await);
    assert_eq!(cancel(&server).await, Some(Type::NoUpdateInProgress));
    assert_eq!((get(&server, "guid").await, rows(&server).await), before);
}

on_each_layout!(repeated_cancellation_changes_nothing);
async fn repeated_cancellation_changes_nothing(kind: Kind) {
    let server = updating(kind, 2).await;
    // The instance that is not routable keeps the cancelled update under way.
    start_new_unroutable(&server, 0, "new-0").await;
    assert_eq!(cancel(&server).await, None);
    for _ in 0..2 {
        let answer = cancel(&server).await;
        assert!(
            matches!(answer, None | Some(Type::NoUpdateInProgress)),
            "{answer:?}"
        );
        assert_eq!(ids(&server).await.0, "version-1");
    }
    until_rows(
        &server,
        &["0/0 RUNNING old-0 version-1", "1/0 RUNNING old-1 version-1"],
    )
    .await;
    until_done(&server).await;
}

on_each_layout!(absent_lrps_are_answered_with_not_found);
async fn absent_lrps_are_answered_with_not_found(kind: Kind) {
    let server = Server::with_translators(kind).await;
    assert_eq!(
        update(&server, to(definition("version-2"))).await,
        Some(Type::ResourceNotFound)
    );
    assert_eq!(cancel(&server).await, Some(Type::ResourceNotFound));
    assert_eq!(
        roll_back(&server, "version-1").await,
        Some(Type::ResourceNotFound)
    );
    let request = proto::DesiredLrpUpdateStatusRequest {
        process_guid: b"guid".to_vec(),
    };
    for path in ["update_status", "definitions/list"] {
        let answer = error_of(&server, &format!("/v1.2/desired_lrp/{path}"), &request).await;
        assert_eq!(answer, Some(Type::ResourceNotFound), "{path}");
    }
}

on_each_layout!(invalid_requests_are_rejected);
async fn invalid_requests_are_rejected(kind: Kind) {
    let server = running(kind, 0).await;
    for path in [
        "cancel_update",
        "rollback",
        "update_status",
        "definitions/list",
    ] {
        let reply = server.post(&format!("/v1.2/desired_lrp/{path}"), []).await;
        assert!(
            reply.error().1.starts_with("Invalid field: process_guid"),
            "{path}"
        );
    }
    let no_id = proto::RollbackDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        definition_id: Vec::new(),
    };
    assert_eq!(
        server.call(ROLLBACK, &no_id).await.error().1,
        "Invalid field: definition_id"
    );
    for (wrong, finding) in [
        (
            proto::LrpDefinition {
                root_fs: Vec::new(),
                ..definition("v")
            },
            "Invalid field: rootfs",
        ),
        (
            proto::LrpDefinition {
                action: None,
                ..definition("v")
            },
            "invalid action type",
        ),
        (
            proto::LrpDefinition {
                memory_mb: -1,
                ..definition("v")
            },
            "Invalid field: memory_mb",
        ),
        (
            proto::LrpDefinition {
                metric_tags: Vec::new(),
                ..definition("v")
            },
            "metric_tags, of which a definition has",
        ),
    ] {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
            update: Some(to(wrong)),
        };
        let (kind, text) = server.call(UPDATE, &request).await.error();
        assert_eq!(kind, Type::InvalidRequest);
        assert!(
            text.starts_with("Invalid field: lrp_definition") && text.contains(finding),
            "{text}"
        );
    }
    let mixed = proto::DesiredLrpUpdate {
        metric_tags: vec![tag("a", "b")],
        ..to(definition("v"))
    };
    assert_eq!(update(&server, mixed).await, Some(Type::InvalidRequest));
    assert_eq!(
        update(&server, to(definition(&"x".repeat(256)))).await,
        Some(Type::InvalidRequest)
    );
    assert_eq!(ids(&server).await, ("version-1".into(), String::new()));
}

on_each_layout!(scheduling_infos_have_both_definitions_during_an_update);
async fn scheduling_infos_have_both_definitions_during_an_update(kind: Kind) {
    let server = running(kind, 1).await;
    desire(&server, lrp("other")).await;
    update_to(&server, "version-2").await;
    settle(&server).await;
    let root = "/v1.2/desired_lrp_scheduling_infos";
    let parts = |infos: Vec<proto::DesiredLrpSchedulingInfo>| {
        infos
            .into_iter()
            .filter(|info| {
                info.desired_lrp_key
                    .as_ref()
                    .is_some_and(|key| key.process_guid == b"guid")
            })
            .map(|info| {
                (
                    text(&info.definition_id),
                    info.desired_lrp_resource.unwrap_or_default().memory_mb,
                )
            })
            .collect::<Vec<_>>()
    };
    let everything = proto::DesiredLrPsRequest::default();
    let both = [("version-2".to_owned(), 128), ("version-1".to_owned(), 64)];
    let newer: proto::DesiredLrpSchedulingInfosResponse = server
        .call(&format!("{root}/list.r1"), &everything)
        .await
        .message();
    assert_eq!(newer.desired_lrp_scheduling_infos.len(), 3);
    assert_eq!(parts(newer.desired_lrp_scheduling_infos), both);
    for (domain, count) in [("domain", 3), ("elsewhere", 0)] {
        let filter = proto::DesiredLrPsRequest {
            domain: domain.into(),
            ..Default::default()
        };
        let newer: proto::DesiredLrpSchedulingInfosResponse = server
            .call(&format!("{root}/list.r1"), &filter)
            .await
            .message();
        assert_eq!(newer.desired_lrp_scheduling_infos.len(), count, "{domain}");
    }
    let one = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    let newer: proto::DesiredLrpSchedulingInfosResponse = server
        .call(&format!("{root}/get_by_process_guid.r1"), &one)
        .await
        .message();
    assert_eq!(parts(newer.desired_lrp_scheduling_infos), both);
    // Clients of Diego see the current one, without its id.
    let root = "/v1/desired_lrp_scheduling_infos";
    let current = [(String::new(), 128)];
    let older: proto::DesiredLrpSchedulingInfosResponse = server
        .call(&format!("{root}/list"), &everything)
        .await
        .message();
    assert_eq!(older.desired_lrp_scheduling_infos.len(), 2);
    assert_eq!(parts(older.desired_lrp_scheduling_infos), current);
    let older: proto::DesiredLrpSchedulingInfoByProcessGuidResponse = server
        .call(&format!("{root}/get_by_process_guid"), &one)
        .await
        .message();
    assert_eq!(
        parts(older.desired_lrp_scheduling_info.into_iter().collect()),
        current
    );
}

/// Goal: the fields and calls of definitions are unknown to Diego's API, which ignores what it does
/// not know.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_a_client_of_diego_sends_are_ignored() {
    let server = Server::empty(Kind::Sqlite).await;
    let too_long = "x".repeat(256).into_bytes();
    crate::api::desire(
        &server,
        proto::DesiredLrp {
            definition_id: too_long.clone(),
            ..version_1()
        },
    )
    .await;
    let generated = ids(&server).await;
    assert_eq!((generated.0.len(), &generated.1[..]), (36, ""));
    let next = proto::LrpDefinition {
        definition_id: too_long,
        ..definition("")
    };
    let both = proto::DesiredLrpUpdate {
        annotation: Some(b"changed".to_vec()),
        ..to(next)
    };
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(both),
    };
    assert_eq!(
        error_of(&server, "/v1/desired_lrp/update", &request).await,
        None
    );
    assert_eq!(ids(&server).await, generated);
    let found = crate::api::get(&server, "guid").await;
    assert_eq!(
        (&found.annotation[..], found.memory_mb, found.definition_id),
        (&b"changed"[..], 64, Vec::new())
    );
    let of_definitions = [
        "desired_lrp/cancel_update",
        "desired_lrp/rollback",
        "desired_lrp/definitions/list",
        "desired_lrp/update_status",
        "desired_lrp_scheduling_infos/list.r1",
    ];
    for path in of_definitions {
        let reply = server.post(&format!("/v1/{path}"), []).await;
        assert_eq!(reply.status, 404, "{path}");
    }
}

on_each_layout!(missing_ids_are_generated);
async fn missing_ids_are_generated(kind: Kind) {
    let server = Server::with_translators(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            ..lrp("guid")
        },
    )
    .await;
    let first = ids(&server).await.0;
    assert_eq!(update(&server, to(definition(""))).await, None);
    until_done(&server).await;
    let second = ids(&server).await.0;
    assert!(
        first.len() == 36 && second.len() == 36 && first != second,
        "{first} {second}"
    );
    assert_eq!(roll_back(&server, &first).await, None);
    until_done(&server).await;
    assert_eq!(remove_lrp(&server).await, None);
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            memory_mb: 1,
            ..lrp("guid")
        },
    )
    .await;
    assert_ne!(
        ids(&server).await.0,
        first,
        "other content never has the same id"
    );
}

on_each_database!(ids_of_different_lrps_do_not_collide);
async fn ids_of_different_lrps_do_not_collide(kind: Kind) {
    let server = running(kind, 0).await;
    desire(
        &server,
        proto::DesiredLrp {
            process_guid: b"other".to_vec(),
            instances: 0,
            ..version_1()
        },
    )
    .await;
    for guid in ["guid", "other"] {
        let next = proto::LrpDefinition {
            disk_mb: guid.len() as i32,
            ..definition("version-2")
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: guid.into(),
            update: Some(to(next)),
        };
        assert_eq!(error_of(&server, UPDATE, &request).await, None, "{guid}");
    }
    assert_eq!(
        (
            get(&server, "guid").await.disk_mb,
            get(&server, "other").await.disk_mb
        ),
        (4, 5)
    );
}

on_each_database!(damaged_desired_lrp_is_reported);
async fn damaged_desired_lrp_is_reported(kind: Kind) {
    let server = running(kind, 0).await;
    server
        .sql("UPDATE desired_lrps SET run_info = '02AAAA', previous_definition_id = ''")
        .await;
    assert_eq!(
        update(&server, to(definition("version-2"))).await,
        Some(Type::Deserialize)
    );
    assert_eq!(cancel(&server).await, Some(Type::Deserialize));
    assert_eq!(
        roll_back(&server, "version-0").await,
        Some(Type::Deserialize)
    );
    let request = proto::LrpDefinitionsRequest {
        process_guid: b"guid".to_vec(),
    };
    let listed = error_of(&server, "/v1.2/desired_lrp/definitions/list", &request).await;
    assert_eq!(listed, Some(Type::Deserialize));
    assert_eq!(status(&server).await.definition_id, b"version-1");
}

on_each_database!(status_reads_no_network_route_or_tag_of_an_instance);
async fn status_reads_no_network_route_or_tag_of_an_instance(kind: Kind) {
    let server = updating(kind, 2).await;
    settle(&server).await;
    let before = status(&server).await;
    let damage = "UPDATE actual_lrps SET net_info = '02damaged', internal_routes = '02damaged', \
         metric_tags = '02damaged'";
    server.sql(damage).await;
    assert_eq!(status(&server).await, before);
    let noted = server.store.take_unreadable();
    assert!(noted.is_empty(), "{noted:?}");
}

on_each_database!(single_scheduling_info_of_diego_has_an_error_instead_of_an_info);
async fn single_scheduling_info_of_diego_has_an_error_instead_of_an_info(kind: Kind) {
    let server = running(kind, 0).await;
    let path = "/v1/desired_lrp_scheduling_infos/get_by_process_guid";
    let request = |guid: &str| proto::DesiredLrpByProcessGuidRequest {
        process_guid: guid.into(),
    };
    assert_eq!(
        error_of(&server, path, &request("")).await,
        Some(Type::InvalidRequest)
    );
    assert_eq!(
        error_of(&server, path, &request("other")).await,
        Some(Type::ResourceNotFound)
    );
    server
        .sql("UPDATE desired_lrps SET volume_placement = '02AAAA'")
        .await;
    assert_eq!(
        error_of(&server, path, &request("guid")).await,
        Some(Type::Deserialize)
    );
}
