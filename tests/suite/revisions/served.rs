//! Older revisions over HTTP.

use super::*;
use crate::api::answers::{in_order, task_in_order};
use crate::api::{desire, lrp};
use crate::harness::fixture;

pub(super) async fn server(kind: Kind, pin: Option<&'static str>) -> Server {
    Server::start(Options {
        translators: translators(),
        pin,
        ..Options::on(kind)
    })
    .await
}

async fn with_fixture(kind: Kind) -> Server {
    Server::start(Options {
        with_fixture: true,
        translators: translators(),
        ..Options::on(kind)
    })
    .await
}

/// A list as Diego's BBS answered.
fn recorded<M: Message + Default>(call: &str) -> M {
    M::decode(&fixture::expected(call).1[..]).unwrap()
}

on_layouts_of_sqlite!(reads_without_layers_agree_with_diego);
async fn reads_without_layers_agree_with_diego(kind: Kind) {
    let server = with_fixture(kind).await;
    for lrp in recorded::<proto::DesiredLrPsResponse>("desired_lrps_list.r2")
        .desired_lrps
        .into_iter()
        .step_by(10)
    {
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: lrp.process_guid.clone(),
        };
        let reply = server
            .call("/v1/desired_lrps/get_by_process_guid.r2", &request)
            .await;
        assert_eq!(
            reply
                .message::<proto::DesiredLrpResponse>()
                .desired_lrp
                .map(in_order),
            Some(in_order(lrp))
        );
    }
    for task in recorded::<proto::TasksResponse>("tasks_list.r2")
        .tasks
        .into_iter()
        .step_by(10)
    {
        let request = proto::TaskByGuidRequest {
            task_guid: task.task_guid.clone(),
        };
        let reply = server.call("/v1/tasks/get_by_task_guid.r2", &request).await;
        assert_eq!(
            reply
                .message::<proto::TaskResponse>()
                .task
                .map(task_in_order),
            Some(task_in_order(task))
        );
    }
}

on_layouts_of_sqlite!(groups_agree_with_diego);
async fn groups_agree_with_diego(kind: Kind) {
    type Groups = proto::ActualLrpGroupsResponse;
    let server = with_fixture(kind).await;
    let of = |group: &proto::ActualLrpGroup| {
        let row = group
            .instance
            .as_ref()
            .or(group.evacuating.as_ref())
            .unwrap();
        row.actual_lrp_key.clone().unwrap()
    };
    let key = |group: &proto::ActualLrpGroup| {
        [&of(group).process_guid[..], &of(group).index.to_be_bytes()].concat()
    };
    let ordered = |mut group: proto::ActualLrpGroup| {
        for row in [&mut group.instance, &mut group.evacuating]
            .into_iter()
            .flatten()
        {
            row.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
        }
        group
    };
    let expected = recorded::<Groups>("actual_lrp_groups_list")
        .actual_lrp_groups
        .into_iter();
    let expected: Vec<_> = expected.map(ordered).collect();
    let sorted = |mut groups: Vec<proto::ActualLrpGroup>| {
        groups.sort_by_key(key);
        groups
    };
    for group in expected.iter().step_by(10) {
        let proto::ActualLrpKey {
            process_guid,
            index,
            ..
        } = of(group);
        let request = proto::ActualLrpGroupsByProcessGuidRequest {
            process_guid: process_guid.clone(),
        };
        let reply = server
            .call("/v1/actual_lrp_groups/list_by_process_guid", &request)
            .await;
        let found: Vec<_> = reply
            .message::<Groups>()
            .actual_lrp_groups
            .into_iter()
            .map(ordered)
            .collect();
        let of_process = expected
            .iter()
            .filter(|group| of(group).process_guid == process_guid)
            .cloned()
            .collect();
        assert_eq!(sorted(found), sorted(of_process));
        let request = proto::ActualLrpGroupByProcessGuidAndIndexRequest {
            process_guid,
            index,
        };
        let reply = server
            .call(
                "/v1/actual_lrp_groups/get_by_process_guid_and_index",
                &request,
            )
            .await;
        assert_eq!(
            reply
                .message::<proto::ActualLrpGroupResponse>()
                .actual_lrp_group
                .map(ordered)
                .as_ref(),
            Some(group)
        );
    }
    let request = proto::ActualLrpGroupByProcessGuidAndIndexRequest {
        process_guid: b"unknown".to_vec(),
        index: 0,
    };
    let reply = server
        .call(
            "/v1/actual_lrp_groups/get_by_process_guid_and_index",
            &request,
        )
        .await;
    assert_eq!(reply.error().0, proto::error::Type::ResourceNotFound);
}

/// The only instance.
async fn instance(server: &Server) -> proto::ActualLrp {
    let rows: proto::ActualLrPsResponse = server.post("/v1/actual_lrps/list", []).await.message();
    let [row] = <[_; 1]>::try_from(rows.actual_lrps).unwrap();
    row
}

on_layouts_of_sqlite!(start_at_the_first_revision_erases_routes_and_tags);
async fn start_at_the_first_revision_erases_routes_and_tags(kind: Kind) {
    let server = server(kind, None).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 1,
            ..lrp("guid")
        },
    )
    .await;
    let row = instance(&server).await;
    let instance_key = proto::ActualLrpInstanceKey {
        instance_guid: b"instance".to_vec(),
        cell_id: b"cell".to_vec(),
    };
    let start = proto::StartActualLrpRequest {
        actual_lrp_key: row.actual_lrp_key,
        actual_lrp_instance_key: Some(instance_key),
        actual_lrp_net_info: Some(proto::ActualLrpNetInfo {
            address: b"10.0.0.1".to_vec(),
            ..Default::default()
        }),
        actual_lrp_internal_routes: vec![proto::ActualLrpInternalRoute {
            hostname: b"h".to_vec(),
        }],
        metric_tags: vec![proto::TextEntry {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
        }],
        routable: Some(false),
        availability_zone: b"z1".to_vec(),
    };
    for (path, kept) in [
        ("/v1/actual_lrps/start.r1", 1),
        ("/v1/actual_lrps/start", 0),
    ] {
        let reply = server.call(path, &start).await;
        assert_eq!(
            reply.message::<proto::ActualLrpLifecycleResponse>().error,
            None,
            "{path}"
        );
        let row = instance(&server).await;
        assert_eq!(
            (row.actual_lrp_internal_routes.len(), row.metric_tags.len()),
            (kept, kept),
            "{path}"
        );
        assert_eq!(
            (&row.state[..], row.routable, &row.availability_zone[..]),
            (&b"RUNNING"[..], Some(false), &b"z1"[..])
        );
    }
    let evacuate = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: start.actual_lrp_key.clone(),
        actual_lrp_instance_key: Some(proto::ActualLrpInstanceKey {
            cell_id: b"other".to_vec(),
            instance_guid: b"other".to_vec(),
        }),
        actual_lrp_net_info: start.actual_lrp_net_info.clone(),
        metric_tags: start.metric_tags.clone(),
        ..Default::default()
    };
    let reply = server
        .call("/v1/actual_lrps/evacuate_running", &evacuate)
        .await;
    reply.assert_no_error();
}

/// Goal: a client falls back to an older revision where the newer one is not found, and finds it
/// there.
#[tokio::test(flavor = "multi_thread")]
async fn host_pinned_below_the_current_revisions_serves_the_deprecated_ones() {
    let server = server(Kind::Sqlite, Some("1.0")).await;
    for family in ["desired_lrps/list", "tasks/list", "actual_lrps/start"] {
        let (newer, older) = if family == "actual_lrps/start" {
            (".r1", "")
        } else {
            (".r3", ".r2")
        };
        assert_eq!(
            server
                .post(&format!("/v1/{family}{newer}"), [])
                .await
                .status,
            404,
            "{family}"
        );
        assert_eq!(
            server
                .post(&format!("/v1/{family}{older}"), [])
                .await
                .status,
            200,
            "{family}"
        );
        assert_eq!(
            server
                .post(&format!("/v1.0/{family}{older}"), [])
                .await
                .status,
            200,
            "{family}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_are_listed_by_both_verbs() {
    let server = server(Kind::Sqlite, None).await;
    let path = "/v1/cells/list.r1";
    let by_post = server.post(path, []).await;
    let by_get = server.send("GET", path, &[], vec![]).await;
    assert_eq!((by_get.status, &by_get.body), (200, &by_post.body));
    let reply = server.send("PUT", path, &[], vec![]).await;
    assert_eq!((reply.status, reply.header("allow")), (405, "GET, POST"));
}

/// Goal: a revision belongs to its module. Without the module its routes are not found.
#[tokio::test(flavor = "multi_thread")]
async fn routes_of_a_translator_that_is_taken_out_are_not_found() {
    let server = Server::empty(Kind::Sqlite).await;
    for method in &translator("1.0").manifest().methods {
        let path = &method.path;
        assert_eq!(
            server
                .send(method.verb.name(), path, &[], vec![])
                .await
                .status,
            404,
            "{path}"
        );
    }
}

/// The actions of what an old client desires and of what it reads back: a timeout in nanoseconds,
/// and then in both units.
fn timeout(timeout_ms: i64) -> proto::Action {
    let run = proto::RunAction {
        path: b"/bin/app".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    let action = proto::Action {
        run_action: Some(run),
        ..Default::default()
    };
    let action = Some(Box::new(action));
    let deprecated_timeout_ns = 5_000_000_000;
    let timeout = proto::TimeoutAction {
        action,
        deprecated_timeout_ns,
        timeout_ms,
        ..Default::default()
    };
    proto::Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    }
}

fn old_lrp(guid: &str) -> proto::DesiredLrp {
    proto::DesiredLrp {
        process_guid: guid.into(),
        domain: b"domain".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 1,
        log_guid: b"log".to_vec(),
        metrics_guid: b"metrics".to_vec(),
        annotation: b"old".to_vec(),
        legacy_download_user: b"vcap".to_vec(),
        ..Default::default()
    }
}

async fn desired(server: &Server, path: &str, lrp: &proto::DesiredLrp) {
    let reply = server
        .call(
            path,
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp.clone()),
            },
        )
        .await;
    assert_eq!(
        reply.message::<proto::DesiredLrpLifecycleResponse>().error,
        None,
        "{path}"
    );
}

async fn read(server: &Server, revision: &str, guid: &[u8]) -> proto::DesiredLrp {
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: guid.to_vec(),
    };
    let reply = server
        .call(
            &format!("/v1/desired_lrps/get_by_process_guid{revision}"),
            &request,
        )
        .await;
    let one = reply
        .message::<proto::DesiredLrpResponse>()
        .desired_lrp
        .unwrap();
    let list: proto::DesiredLrPsResponse = server
        .post(&format!("/v1/desired_lrps/list{revision}"), [])
        .await
        .message();
    assert_eq!(list.desired_lrps, std::slice::from_ref(&one), "{revision}");
    one
}

on_layouts_of_sqlite!(desired_lrp_of_the_first_revision_is_read_back_and_by_newer_clients);
async fn desired_lrp_of_the_first_revision_is_read_back_and_by_newer_clients(kind: Kind) {
    let server = server(kind, None).await;
    let old = proto::DesiredLrp {
        action: Some(timeout(0)),
        deprecated_start_timeout_s: 61,
        ..old_lrp("guid")
    };
    desired(&server, "/v1/desired_lrp/desire", &old).await;
    for revision in ["", ".r1", ".r2", ".r3"] {
        let found = read(&server, revision, b"guid").await;
        assert_eq!(
            (found.action, found.start_timeout_ms),
            (Some(timeout(5_000)), 61_000),
            "{revision}"
        );
        let start_timeout_s = if revision.is_empty() || revision == ".r1" {
            61
        } else {
            found.deprecated_start_timeout_s
        };
        assert_eq!(
            found.deprecated_start_timeout_s, start_timeout_s,
            "{revision}"
        );
        assert_eq!(
            (&found.annotation[..], &found.metrics_guid[..]),
            (&b"old"[..], &b"metrics"[..]),
            "{revision}"
        );
    }
    let path = "/v1/desired_lrps/list";
    let absent = proto::DesiredLrPsRequest {
        domain: b"other".to_vec(),
        ..Default::default()
    };
    assert_eq!(
        server
            .call(path, &absent)
            .await
            .message::<proto::DesiredLrPsResponse>()
            .desired_lrps,
        []
    );
}

on_layouts_of_sqlite!(layers_and_dependencies_are_downloads_at_the_first_revision);
async fn layers_and_dependencies_are_downloads_at_the_first_revision(kind: Kind) {
    let server = server(kind, None).await;
    let layer = proto::ImageLayer {
        url: b"http://layer".to_vec(),
        destination_path: b"/layer".to_vec(),
        layer_type: proto::image_layer::Type::Shared.into(),
        media_type: proto::image_layer::MediaType::Tgz.into(),
        ..Default::default()
    };
    let lrp = proto::DesiredLrp {
        image_layers: vec![layer],
        legacy_download_user: b"vcap".to_vec(),
        instances: 1,
        ..lrp("guid")
    };
    desire(&server, lrp).await;
    let kinds = |lrp: &proto::DesiredLrp| (lrp.image_layers.len(), lrp.cached_dependencies.len());
    for (revision, expected) in [
        (".r3", (1, 0)),
        (".r2", (0, 1)),
        (".r1", (0, 1)),
        ("", (0, 0)),
    ] {
        let found = read(&server, revision, b"guid").await;
        assert_eq!(kinds(&found), expected, "{revision}");
        let downloads = found.setup.and_then(|setup| setup.serial_action);
        assert_eq!(downloads.is_some(), revision.is_empty(), "{revision}");
    }
}

/// A volume mount of the old form, for reading alone.
#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct OldMount {
    #[prost(bytes = "vec", tag = "1")]
    driver: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    volume_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    container_dir: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    config: Vec<u8>,
}

/// The volume mounts of a desired LRP.
#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct OldMounts {
    #[prost(message, repeated, tag = "25")]
    volume_mounts: Vec<OldMount>,
}

#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct DesireEncoded {
    #[prost(bytes = "vec", tag = "1")]
    desired_lrp: Vec<u8>,
}

on_layouts_of_sqlite!(old_volume_mount_is_converted_at_revision_1);
async fn old_volume_mount_is_converted_at_revision_1(kind: Kind) {
    let server = server(kind, None).await;
    let mount = OldMount {
        driver: b"driver".to_vec(),
        volume_id: b"volume".to_vec(),
        container_dir: b"/dir".to_vec(),
        config: b"{}".to_vec(),
    };
    let lrp = proto::DesiredLrp {
        action: Some(timeout(5_000)),
        ..old_lrp("guid")
    };
    let lrp = [
        lrp.encode_to_vec(),
        OldMounts {
            volume_mounts: vec![mount],
        }
        .encode_to_vec(),
    ]
    .concat();
    let request = DesireEncoded { desired_lrp: lrp }.encode_to_vec();
    let reply = server
        .post("/v1/desired_lrp/desire.r1", request.clone())
        .await;
    reply.assert_no_error();
    let found = read(&server, ".r3", b"guid").await.volume_mounts;
    let shared = Some(proto::SharedDevice {
        volume_id: b"volume".to_vec(),
        mount_config: b"{}".to_vec(),
    });
    let expected = proto::VolumeMount {
        driver: b"driver".to_vec(),
        container_dir: b"/dir".to_vec(),
        mode: b"r".to_vec(),
        shared,
        dedicated: None,
    };
    assert_eq!(found, [expected]);
    let reply = server.post("/v1/desired_lrp/desire", request).await;
    assert_eq!(
        reply.error().0,
        proto::error::Type::InvalidRequest,
        "the first revision rejects it"
    );
}

on_layouts_of_sqlite!(task_of_an_old_client_is_read_back_and_by_newer_clients);
async fn task_of_an_old_client_is_read_back_and_by_newer_clients(kind: Kind) {
    let server = server(kind, None).await;
    for (guid, path, timeout_ms) in [
        ("r0", "/v1/tasks/desire", 0),
        ("r1", "/v1/tasks/desire.r1", 5_000),
    ] {
        let task_definition = Some(proto::TaskDefinition {
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            action: Some(timeout(timeout_ms)),
            ..Default::default()
        });
        let request = proto::DesireTaskRequest {
            task_definition,
            task_guid: guid.into(),
            domain: b"domain".to_vec(),
        };
        let reply = server.call(path, &request).await;
        assert_eq!(
            reply.message::<proto::TaskLifecycleResponse>().error,
            None,
            "{path}"
        );
        for revision in ["", ".r1", ".r2", ".r3"] {
            let request = proto::TaskByGuidRequest {
                task_guid: guid.into(),
            };
            let verb = if revision.is_empty() { "GET" } else { "POST" };
            let path_of_one = format!("/v1/tasks/get_by_task_guid{revision}");
            let reply = server
                .send(verb, &path_of_one, &[], request.encode_to_vec())
                .await;
            let found = reply.message::<proto::TaskResponse>().task.unwrap();
            assert_eq!(
                found.task_definition.unwrap().action,
                Some(timeout(5_000)),
                "{path} {revision}"
            );
        }
    }
    for revision in ["", ".r1", ".r2", ".r3"] {
        let list: proto::TasksResponse = server
            .post(&format!("/v1/tasks/list{revision}"), [])
            .await
            .message();
        assert_eq!(list.tasks.len(), 2, "{revision}");
    }
}
