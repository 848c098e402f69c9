//! Clients of older API versions over HTTP, through the translators as components: records written
//! at one version are read at the others, lists are paged, versions outside of the window are
//! refused, a trap fails only its own call.

use std::sync::Arc;

use bbs::testing::modules::catalog::Catalog;
use bbs::testing::modules::sandbox::Limits;
use bbs::testing::modules::translate::Translate;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::{v0_9, v0_10};
use serde_json::{Value, json};

use crate::api::{desire, run_action};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::event_stream::EventStream;
use crate::harness::http_client;
use crate::harness::modules::{self, translators, translators_with_example};
use crate::harness::server::{Options, Server};

fn routes() -> Option<proto::ProtoRoutes> {
    let entry = proto::RouteEntry {
        key: b"cf-router".to_vec(),
        value: b"[]".to_vec(),
    };
    Some(proto::ProtoRoutes {
        routes: vec![entry],
    })
}

/// A desired LRP as a client of 0.9 creates it.
fn old_lrp(process_guid: &str) -> v0_9::DesiredLrp {
    v0_9::DesiredLrp {
        process_guid: process_guid.into(),
        domain: b"domain".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 2,
        action: Some(run_action()),
        start_timeout_s: 30,
        routes: routes(),
        annotation: b"old".to_vec(),
        ..Default::default()
    }
}

async fn create_old(server: &Server, lrp: v0_9::DesiredLrp) -> Option<proto::Error> {
    let request = v0_9::CreateDesiredLrpRequest {
        desired_lrp: Some(lrp),
    };
    server
        .call("/v0.9/desired_lrps/create", &request)
        .await
        .message::<v0_9::CreateDesiredLrpResponse>()
        .error
}

async fn list_old(server: &Server, domain: &str) -> Vec<v0_9::DesiredLrp> {
    let request = v0_9::ListDesiredLrPsRequest {
        domain: domain.into(),
    };
    let list: v0_9::ListDesiredLrPsResponse = server
        .call("/v0.9/desired_lrps/list", &request)
        .await
        .message();
    assert_eq!(list.error, None);
    list.desired_lrps
}

pub async fn list_native(server: &Server) -> Vec<proto::DesiredLrp> {
    let list: proto::DesiredLrPsResponse =
        server.post("/v1/desired_lrps/list.r3", []).await.message();
    assert_eq!(list.error, None);
    list.desired_lrps
}

pub async fn desire_native(server: &Server, process_guid: &str, domain: &str) {
    let value = proto::MetricTagValue {
        r#static: b"source".to_vec(),
        ..Default::default()
    };
    let lrp = proto::DesiredLrp {
        process_guid: process_guid.into(),
        domain: domain.into(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 1,
        action: Some(run_action()),
        start_timeout_ms: 1_500,
        annotation: b"new".to_vec(),
        metric_tags: vec![proto::MetricTagEntry {
            key: b"source_id".to_vec(),
            value: Some(value),
        }],
        ..Default::default()
    };
    desire(server, lrp).await;
}

/// Goal: calls of old clients queue before they begin, and do not fail for lack of a translator
/// instance. Method: one instance per translator, and many concurrent calls.
#[tokio::test(flavor = "multi_thread")]
async fn translated_calls_wait_for_instances_before_they_begin() {
    let limits = Limits {
        instances: 1,
        ..Limits::default()
    };
    let catalog = Catalog::load(&modules::modules(), &modules::sandbox_with(limits)).unwrap();
    let translators = catalog
        .translators()
        .iter()
        .map(|module| Arc::clone(module) as Arc<dyn Translate>)
        .collect();
    let server = Server::start(Options {
        translators,
        ..Options::on(Kind::Sqlite)
    })
    .await;
    let lists = (0..4).map(|_| list_old(&server, ""));
    let lists = futures_util::future::join_all(lists).await;
    assert!(lists.iter().all(Vec::is_empty));
}

on_each_database!(record_of_an_old_client_is_listed_by_native_clients);
async fn record_of_an_old_client_is_listed_by_native_clients(kind: Kind) {
    let server = Server::with_translators(kind).await;
    assert_eq!(create_old(&server, old_lrp("guid")).await, None);
    let [found] = <[_; 1]>::try_from(list_native(&server).await).unwrap();
    assert_eq!(
        (&found.process_guid[..], &found.domain[..], found.instances),
        (&b"guid"[..], &b"domain"[..], 2)
    );
    assert_eq!(
        (found.action, found.routes, &found.annotation[..]),
        (Some(run_action()), routes(), &b"old"[..])
    );
    assert_eq!(
        (found.start_timeout_ms, &found.metrics_guid[..]),
        (30_000, &b"guid"[..])
    );
    assert_eq!(
        server.texts("SELECT instance_index FROM actual_lrps").await,
        ["0", "1"]
    );

    let mut own = list_old(&server, "").await.remove(0);
    assert!(own.modification_tag.take().is_some());
    assert_eq!(
        own,
        v0_9::DesiredLrp {
            metrics_guid: b"guid".to_vec(),
            ..old_lrp("guid")
        }
    );
}

on_each_database!(record_of_a_native_client_is_listed_by_old_clients);
async fn record_of_a_native_client_is_listed_by_old_clients(kind: Kind) {
    let server = Server::with_translators(kind).await;
    desire_native(&server, "guid", "domain").await;
    let [found] = <[_; 1]>::try_from(list_old(&server, "").await).unwrap();
    assert_eq!(
        (&found.process_guid[..], &found.domain[..], found.instances),
        (&b"guid"[..], &b"domain"[..], 1)
    );
    assert_eq!(
        (found.action, &found.annotation[..], found.start_timeout_s),
        (Some(run_action()), &b"new"[..], 2)
    );

    let list: v0_10::ListMutableDesiredLrPsResponse = server
        .post("/v0.10/mutable_desired_lrps/list", [])
        .await
        .message();
    let expected = v0_10::MutableDesiredLrp {
        process_guid: b"guid".to_vec(),
        instances: 1,
        routes: Some(Default::default()),
        annotation: b"new".to_vec(),
    };
    assert_eq!(list.mutable_desired_lrps, [expected]);
    let list: v0_10::ListImmutableDesiredLrPsResponse = server
        .post("/v0.10/immutable_desired_lrps/list", [])
        .await
        .message();
    assert_eq!(list.immutable_desired_lrps[0].domain, b"domain");
}

on_each_database!(record_of_an_intermediate_client_is_listed_at_every_version);
async fn record_of_an_intermediate_client_is_listed_at_every_version(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let request = v0_10::CreateDesiredLrpRequest {
        mutable_desired_lrp: Some(v0_10::MutableDesiredLrp {
            process_guid: b"guid".to_vec(),
            instances: 3,
            ..Default::default()
        }),
        immutable_desired_lrp: Some(v0_10::ImmutableDesiredLrp {
            process_guid: b"guid".to_vec(),
            domain: b"domain".to_vec(),
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            action: Some(run_action()),
            ..Default::default()
        }),
    };
    let reply = server.call("/v0.10/desired_lrps/create", &request).await;
    assert_eq!(
        reply.message::<v0_10::CreateDesiredLrpResponse>().error,
        None
    );
    assert_eq!(list_native(&server).await[0].instances, 3);
    assert_eq!(list_old(&server, "").await[0].instances, 3);
}

on_each_database!(errors_of_native_handlers_reach_old_clients);
async fn errors_of_native_handlers_reach_old_clients(kind: Kind) {
    let server = Server::with_translators(kind).await;
    assert_eq!(create_old(&server, old_lrp("guid")).await, None);
    let again = create_old(&server, old_lrp("guid")).await.unwrap();
    assert_eq!(again.r#type(), Type::ResourceExists);
    let invalid = create_old(
        &server,
        v0_9::DesiredLrp {
            domain: vec![],
            ..old_lrp("other")
        },
    )
    .await
    .unwrap();
    assert_eq!(
        invalid.message,
        b"Invalid field: domain, Invalid field: domain"
    );
    assert_eq!(
        server.post("/v0.9/desired_lrps/create", []).await.error().1,
        "Invalid field: desired_lrp"
    );
    for path in [
        "/v0.9/desired_lrps/create",
        "/v0.9/desired_lrps/list",
        "/v0.10/mutable_desired_lrps/list",
    ] {
        assert_eq!(
            server.post(path, &b"\x0a\x09x"[..]).await.error().0,
            Type::InvalidRequest,
            "{path}"
        );
    }
    assert_eq!(list_native(&server).await.len(), 1);
}

on_each_database!(lists_go_through_the_chain_page_by_page);
async fn lists_go_through_the_chain_page_by_page(kind: Kind) {
    for page_units in [1, 3, 100] {
        let options = Options {
            translators: translators(),
            page_units: Some(page_units),
            ..Options::on(kind)
        };
        let server = Server::start(options).await;
        for number in 0..7 {
            desire_native(
                &server,
                &format!("guid-{number}"),
                if number % 2 == 0 { "even" } else { "odd" },
            )
            .await;
        }
        let guids = |list: Vec<v0_9::DesiredLrp>| -> Vec<_> {
            list.into_iter()
                .map(|lrp| String::from_utf8(lrp.process_guid).unwrap())
                .collect()
        };
        let all: Vec<_> = (0..7).map(|number| format!("guid-{number}")).collect();
        assert_eq!(guids(list_old(&server, "").await), all, "{page_units}");
        assert_eq!(
            guids(list_old(&server, "odd").await),
            ["guid-1", "guid-3", "guid-5"],
            "{page_units}"
        );
        assert_eq!(guids(list_old(&server, "none").await), Vec::<String>::new());
        let reply = server.post("/v0.9/desired_lrps/list", []).await;
        let chunked = if page_units < 100 { "chunked" } else { "" };
        assert_eq!(reply.header("transfer-encoding"), chunked, "{page_units}");
    }
}

on_each_database!(list_larger_than_a_translators_memory_is_served);
async fn list_larger_than_a_translators_memory_is_served(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let file = proto::File {
        path: b"/f".to_vec(),
        content: vec![b'x'; 1_000_000],
    };
    let mut action = run_action();
    action
        .run_action
        .as_mut()
        .unwrap()
        .volume_mounted_files
        .push(file);
    assert_eq!(
        create_old(
            &server,
            v0_9::DesiredLrp {
                action: Some(action),
                ..old_lrp("guid-10")
            }
        )
        .await,
        None
    );
    let guids: Vec<_> = (10..46).map(|number| format!("guid-{number}")).collect();
    server
        .sql(
            "INSERT INTO desired_lrps (process_guid, domain, log_guid, instances, memory_mb, disk_mb, rootfs, routes, \
             volume_placement, modification_tag_epoch, run_info) \
             WITH RECURSIVE numbers (n) AS (SELECT 11 UNION ALL SELECT n + 1 FROM numbers WHERE n < 45) \
             SELECT concat('guid-', n), domain, log_guid, instances, memory_mb, disk_mb, rootfs, routes, \
             volume_placement, modification_tag_epoch, run_info FROM desired_lrps, numbers",
        )
        .await;
    let listed = list_old(&server, "").await;
    let mut listed: Vec<_> = listed
        .into_iter()
        .map(|lrp| String::from_utf8(lrp.process_guid).unwrap())
        .collect();
    listed.sort();
    assert_eq!(listed, guids);
}

on_each_database!(more_clients_than_translator_instances_are_all_served);
async fn more_clients_than_translator_instances_are_all_served(kind: Kind) {
    const CLIENTS: usize = 20;
    let options = Options {
        translators: translators(),
        page_units: Some(8),
        ..Options::on(kind)
    };
    let server = Arc::new(Server::start(options).await);
    for number in 0..3 {
        desire_native(&server, &format!("guid-{number}"), "domain").await;
    }
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let server = Arc::clone(&server);
        clients.spawn(async move {
            assert_eq!(
                create_old(&server, old_lrp(&format!("old-{number}"))).await,
                None
            );
            list_old(&server, "domain").await.len()
        });
    }
    while let Some(listed) = clients.join_next().await {
        assert!(listed.unwrap() >= 4);
    }
    assert_eq!(list_native(&server).await.len(), 3 + CLIENTS);
}

on_each_database!(version_is_read_from_path_or_header);
async fn version_is_read_from_path_or_header(kind: Kind) {
    let server = Server::with_translators(kind).await;
    assert_eq!(create_old(&server, old_lrp("guid")).await, None);
    let list = async |path: &str, header: &str| {
        let headers = [("x-diego-api-version", header)];
        server.send("POST", path, &headers, vec![]).await
    };
    let old: v0_9::ListDesiredLrPsResponse = list("/v1/desired_lrps/list", "0.9").await.message();
    assert_eq!(old.desired_lrps[0].start_timeout_s, 30);
    let new: v0_10::ListMutableDesiredLrPsResponse = list("/v1/mutable_desired_lrps/list", "0.10")
        .await
        .message();
    assert_eq!(new.mutable_desired_lrps[0].instances, 2);
    let path_wins: proto::DesiredLrPsResponse =
        list("/v1.1/desired_lrps/list.r3", "0.9").await.message();
    assert_eq!(path_wins.desired_lrps[0].start_timeout_ms, 30_000);
    let patched: v0_9::ListDesiredLrPsResponse =
        list("/v1/desired_lrps/list", "0.9.3").await.message();
    assert_eq!(patched.desired_lrps, old.desired_lrps);
    for malformed in ["0.9.x", "0.9.3.1", "0.9-", "nine"] {
        assert_eq!(list("/v1/ping", malformed).await.status, 400, "{malformed}");
    }
    assert_eq!(
        list("/v1/ping", "0.9-rc1").await.status,
        406,
        "a side shape that no module has"
    );
    assert_eq!(list("/v1/desired_lrps/list.r3", "0.9").await.status, 404);
    assert_eq!(list("/v1/desired_lrps/list", "1.1").await.status, 404);
}

on_each_database!(unchanged_method_is_served_at_every_version);
async fn unchanged_method_is_served_at_every_version(kind: Kind) {
    let server = Server::with_translators(kind).await;
    for version in ["v0.9", "v0.10", "v1.1", "v1.2", "v1", "v0.9.3", "v1.1.0"] {
        let reply = server.post(&format!("/{version}/ping"), []).await;
        assert!(
            reply.message::<proto::PingResponse>().available,
            "{version}"
        );
    }
    let request = proto::UpsertDomainRequest {
        domain: b"d".to_vec(),
        ttl: 0,
    };
    assert_eq!(
        server.call("/v0.9/domains/upsert", &request).await.status,
        200
    );
    let domains: proto::DomainsResponse = server.post("/v0.10/domains/list", []).await.message();
    assert_eq!(domains.domains, [b"d"]);
}

on_each_database!(method_missing_in_a_version_gets_404);
async fn method_missing_in_a_version_gets_404(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let absent = [
        "/v0.9/mutable_desired_lrps/list",
        "/v0.9/desired_lrps/list.r3",
        "/v0.9/desired_lrp/desire.r2",
        "/v0.10/desired_lrps/list",
        "/v0.10/desired_lrps/get_by_process_guid.r3",
        "/v1/desired_lrps/create",
        "/v1.1/desired_lrps/list",
        "/v1.1/desired_lrp/cancel_update",
        "/v1.1/desired_lrp/definitions/list",
        "/v1.1/desired_lrp_scheduling_infos/list.r1",
        "/v1/desired_lrp/update_status",
        "/v1/desired_lrp_scheduling_infos/list.r1",
        "/v1.2/desired_lrp_scheduling_infos/list",
        "/v1.1/mutable_desired_lrps/list",
    ];
    for path in absent {
        assert_eq!(server.post(path, []).await.status, 404, "{path}");
    }
    let reply = server
        .send("GET", "/v0.9/desired_lrps/list", &[], vec![])
        .await;
    assert_eq!((reply.status, reply.header("allow")), (405, "POST"));
}

#[track_caller]
fn not_acceptable(reply: &crate::harness::server::Reply, max: &str) {
    assert_eq!(reply.status, 406);
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["supported"], json!({ "min": "0.9", "max": max }));
    assert_eq!(
        (
            reply.header("x-diego-api-min-version"),
            reply.header("x-diego-api-max-version")
        ),
        ("0.9", max)
    );
}

on_each_database!(unknown_version_gets_406_with_the_supported_versions);
async fn unknown_version_gets_406_with_the_supported_versions(kind: Kind) {
    let server = Server::with_translators(kind).await;
    // Outside of the translator chain, and between two of its versions.
    for version in ["0.8", "0.0", "1.3", "2.0", "0.57", "0.13", "0.57.1"] {
        not_acceptable(&server.post(&format!("/v{version}/ping"), []).await, "1.2");
        let headers = [("x-diego-api-version", version)];
        not_acceptable(
            &server.send("POST", "/v1/ping", &headers, vec![]).await,
            "1.2",
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_names_the_version_that_has_the_method() {
    let server = Server::with_translators(Kind::Sqlite).await;
    let header = [("X-Diego-Api-Version", "0.10")];
    for (path, headers, version) in [
        ("/v1/domains/list", &[][..], "1.1"),
        ("/v1.2/domains/list", &[], "1.2"),
        ("/v1/domains/list", &header[..], "0.10"),
        ("/v1/tasks/list.r3", &[], "1.1"),
        ("/v1/desired_lrp_scheduling_infos/list", &[], "1.1"),
        ("/v1/tasks/list.r2", &[], "1.0"),
        ("/v1/tasks/list", &[], "0.11"),
        ("/v0.9/desired_lrps/list", &[], "0.9"),
        ("/v0.9.4/ping", &[], "0.9"),
    ] {
        let reply = server.send("POST", path, headers, vec![]).await;
        assert_eq!(
            (reply.status, reply.header("x-diego-api-version")),
            (200, version),
            "{path}"
        );
    }
    let stream = http_client()
        .get(server.url("/v1/events"))
        .send()
        .await
        .unwrap();
    assert_eq!(stream.headers()["x-diego-api-version"], "1.0");
}

on_each_database!(pinned_host_refuses_newer_versions);
async fn pinned_host_refuses_newer_versions(kind: Kind) {
    let options = Options {
        translators: translators(),
        pin: Some("0.10"),
        ..Options::on(kind)
    };
    let server = Server::start(options).await;
    for version in ["1.1", "0.11"] {
        not_acceptable(&server.post(&format!("/v{version}/ping"), []).await, "0.10");
    }
    // Diego's clients fall back to an older revision when a path is not found.
    for path in ["/v1/desired_lrps/list.r3", "/v1/desired_lrp/desire.r2"] {
        assert_eq!(server.post(path, []).await.status, 404, "{path}");
    }
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
    assert_eq!(create_old(&server, old_lrp("guid")).await, None);
    assert_eq!(list_old(&server, "").await.len(), 1);
    assert_eq!(
        server
            .post("/v0.10/mutable_desired_lrps/list", [])
            .await
            .status,
        200
    );
}

/// A server whose first translator is the guest; the second is the real one to the native version.
async fn server_with_a_guest(kind: Kind) -> Server {
    let guest = modules::translator("chatty-translator", &modules::sandbox());
    let mut chain = translators();
    chain[0] = guest;
    Server::start(Options {
        translators: chain,
        ..Options::on(kind)
    })
    .await
}

on_each_database!(a_translator_that_traps_fails_its_own_call_and_no_other);
async fn a_translator_that_traps_fails_its_own_call_and_no_other(kind: Kind) {
    let server = server_with_a_guest(kind).await;
    for _ in 0..2 {
        let (kind, text) = server.post("/v0.9/trap/do", []).await.error();
        assert_eq!(kind, Type::UnknownError);
        assert!(text.contains("chatty"), "{text}");
        let never = server.post("/v0.9/never/do", &b"as it is"[..]).await;
        assert_eq!((never.status, &never.body[..]), (200, &b"as it is"[..]));
    }
    assert_eq!(
        server
            .post("/v0.10/mutable_desired_lrps/list", [])
            .await
            .status,
        200
    );
}

on_each_database!(translator_call_of_an_unknown_method_is_an_error);
async fn translator_call_of_an_unknown_method_is_an_error(kind: Kind) {
    let server = server_with_a_guest(kind).await;
    let (kind, text) = server.post("/v0.9/once/do", []).await.error();
    assert_eq!(kind, Type::UnknownError);
    assert!(
        text.contains("\"Newer\"") && text.contains("API 0.10"),
        "{text}"
    );
}

/// Goal: the translator that authors start from does what the SDK's README says, on a host.
/// Method: starts an instance with a zone; a client of 0.8 lists it and receives its event.
#[tokio::test(flavor = "multi_thread")]
async fn example_of_the_sdk_serves_instances_and_their_events_without_zones() {
    let options = Options {
        translators: translators_with_example(),
        ..Options::on(Kind::Sqlite)
    };
    let server = Server::start(options).await;
    desire_native(&server, "guid", "domain").await;
    let mut events = EventStream::open(server.url("/v0.8/instances/events"), "").await;
    let start = proto::StartActualLrpRequest {
        actual_lrp_key: Some(proto::ActualLrpKey {
            process_guid: "guid".into(),
            index: 0,
            domain: "domain".into(),
        }),
        actual_lrp_instance_key: Some(proto::ActualLrpInstanceKey {
            instance_guid: "instance".into(),
            cell_id: "cell".into(),
        }),
        actual_lrp_net_info: Some(proto::ActualLrpNetInfo {
            address: "10.0.0.1".into(),
            ..Default::default()
        }),
        availability_zone: "z1".into(),
        ..Default::default()
    };
    let reply = server.call("/v1/actual_lrps/start.r1", &start).await;
    reply.assert_no_error();

    let list = async |path| {
        let list: proto::ActualLrPsResponse = server.post(path, []).await.message();
        <[_; 1]>::try_from(list.actual_lrps).unwrap()
    };
    let [native] = list("/v1/actual_lrps/list").await;
    assert_eq!(native.availability_zone, b"z1");
    let [older] = list("/v0.8/instances/list").await;
    assert_eq!(
        older,
        proto::ActualLrp {
            availability_zone: Vec::new(),
            ..native
        }
    );

    let event = events.next().await.unwrap();
    assert_eq!(event.name, "actual_lrp_instance_changed");
    let after = event
        .message::<proto::ActualLrpInstanceChangedEvent>()
        .after
        .unwrap();
    assert_eq!(
        (&after.state[..], &after.availability_zone[..]),
        (&b"RUNNING"[..], &b""[..])
    );
}
