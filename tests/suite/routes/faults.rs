//! The answer of every call when none can succeed: missing tables, a lost lock, an unreachable
//! database, no Locket.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use futures_util::FutureExt;

use super::{ServedRoute, calls, empty};
use crate::api::lrp;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::modules::translators;
use crate::harness::neighbours::Neighbours;
use crate::harness::server::{Options, Server};

const TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];
/// Calls that read no table.
pub(super) const WITHOUT_TABLES: [&str; 2] = ["ping", "cells/list.r1"];

/// A valid request of this route. Those of all revisions have their messages in common.
fn request(route: &ServedRoute) -> Vec<u8> {
    let path = route
        .path
        .rsplit_once(".r")
        .map_or(&route.path[..], |(path, _)| path);
    let guid = || b"guid".to_vec();
    let text = || b"text".to_vec();
    match path.split_once('/').map_or(path, |(resource, _)| resource) {
        "actual_lrps" => instance(path),
        "actual_lrp_groups" => group(path),
        "tasks" => task(path),
        "domains" => proto::UpsertDomainRequest {
            domain: text(),
            ttl: 1,
        }
        .encode_to_vec(),
        "desired_lrp" => match path {
            "desired_lrp/desire" => proto::DesireLrpRequest {
                desired_lrp: Some(lrp("guid")),
            }
            .encode_to_vec(),
            _ => {
                let update = Some(proto::DesiredLrpUpdate {
                    annotation: Some(text()),
                    ..Default::default()
                });
                proto::UpdateDesiredLrpRequest {
                    process_guid: guid(),
                    update,
                }
                .encode_to_vec()
            }
        },
        _ if path.contains("/get_") => proto::DesiredLrpByProcessGuidRequest {
            process_guid: guid(),
        }
        .encode_to_vec(),
        _ => Vec::new(),
    }
}

fn instance(path: &str) -> Vec<u8> {
    let process_guid = b"guid".to_vec();
    let actual_lrp_key = Some(proto::ActualLrpKey {
        process_guid: process_guid.clone(),
        index: 0,
        domain: b"domain".to_vec(),
    });
    let actual_lrp_instance_key = Some(proto::ActualLrpInstanceKey {
        instance_guid: b"instance".to_vec(),
        cell_id: b"cell".to_vec(),
    });
    let actual_lrp_net_info = Some(proto::ActualLrpNetInfo {
        address: b"10.0.0.1".to_vec(),
        ..Default::default()
    });
    let error_message = b"why".to_vec();
    match path {
        "actual_lrps/list" => Vec::new(),
        "actual_lrps/list_by_process_guids" => proto::ActualLrPsByProcessGuidsRequest {
            process_guids: vec![process_guid],
        }
        .encode_to_vec(),
        "actual_lrps/claim" => proto::ClaimActualLrpRequest {
            process_guid,
            index: 0,
            actual_lrp_instance_key,
        }
        .encode_to_vec(),
        "actual_lrps/remove" => proto::RemoveActualLrpRequest {
            process_guid,
            index: 0,
            actual_lrp_instance_key,
        }
        .encode_to_vec(),
        "actual_lrps/fail" => proto::FailActualLrpRequest {
            actual_lrp_key,
            error_message,
        }
        .encode_to_vec(),
        "actual_lrps/start" | "actual_lrps/evacuate_running" => {
            let start = proto::StartActualLrpRequest {
                actual_lrp_key,
                actual_lrp_instance_key,
                ..Default::default()
            };
            proto::StartActualLrpRequest {
                actual_lrp_net_info,
                ..start
            }
            .encode_to_vec()
        }
        // The other requests share their first fields.
        _ => proto::CrashActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
            error_message,
        }
        .encode_to_vec(),
    }
}

fn group(path: &str) -> Vec<u8> {
    let process_guid = b"guid".to_vec();
    match path {
        "actual_lrp_groups/list" => Vec::new(),
        "actual_lrp_groups/list_by_process_guid" => {
            proto::ActualLrpGroupsByProcessGuidRequest { process_guid }.encode_to_vec()
        }
        _ => proto::ActualLrpGroupByProcessGuidAndIndexRequest {
            process_guid,
            index: 0,
        }
        .encode_to_vec(),
    }
}

fn task(path: &str) -> Vec<u8> {
    let task_guid = b"task".to_vec();
    let cell_id = b"cell".to_vec();
    match path {
        "tasks/list" => Vec::new(),
        "tasks/desire" => {
            let task_definition = Some(crate::tasks::definition());
            let domain = b"domain".to_vec();
            proto::DesireTaskRequest {
                task_definition,
                task_guid,
                domain,
            }
            .encode_to_vec()
        }
        "tasks/start" => proto::StartTaskRequest { task_guid, cell_id }.encode_to_vec(),
        "tasks/complete" => proto::CompleteTaskRequest {
            task_guid,
            cell_id,
            ..Default::default()
        }
        .encode_to_vec(),
        "tasks/fail" => proto::FailTaskRequest {
            task_guid,
            failure_reason: b"why".to_vec(),
        }
        .encode_to_vec(),
        "tasks/reject" => proto::RejectTaskRequest {
            task_guid,
            rejection_reason: b"why".to_vec(),
        }
        .encode_to_vec(),
        _ => proto::TaskGuidRequest { task_guid }.encode_to_vec(),
    }
}

/// Asserts that each call that reads tables is answered with an error whose text begins so, and no
/// other call.
async fn assert_table_calls_fail(server: &Server, expected: Type, beginning: &str) {
    for route in calls() {
        let reply = route.send(server, request(route)).await;
        let key = route.key();
        if route.reads_tables() {
            let (error, text) = reply.error();
            assert_eq!(error, expected, "{key}: {text}");
            assert!(text.starts_with(beginning), "{key}: {text}");
        } else {
            assert_eq!(reply.status, 200, "{key}");
        }
    }
}

on_each_database!(calls_on_missing_tables_are_answered_as_unrecoverable);
async fn calls_on_missing_tables_are_answered_as_unrecoverable(kind: Kind) {
    let server = empty(kind).await;
    for table in TABLES {
        server.sql(&format!("DROP TABLE {table}")).await;
    }
    assert_table_calls_fail(&server, Type::Unrecoverable, "Unrecoverable Error: ").await;
}

/// Each call in turn is the first one on the missing tables.
#[tokio::test(flavor = "multi_thread")]
async fn any_call_on_missing_tables_ends_the_host() {
    let translators = translators();
    for route in calls().filter(|route| route.reads_tables()) {
        let options = Options {
            kind: Kind::Sqlite,
            translators: translators.clone(),
            ..Options::default()
        };
        let server = Server::start(options).await;
        for table in TABLES {
            server.sql(&format!("DROP TABLE {table}")).await;
        }
        route.send(&server, request(route)).await;
        let given_up = server.service.given_up().now_or_never();
        assert!(
            given_up
                .as_ref()
                .is_some_and(|error| TABLES.iter().any(|table| error.contains(table))),
            "{}: {given_up:?}",
            route.key()
        );
    }
}

/// Whether a call changes records. Calls that only read are answered also after the lock is lost.
pub(super) fn changes(path: &str) -> bool {
    !path.contains("list")
        && !path.contains("/get_")
        && !path.contains("status")
        && !WITHOUT_TABLES.contains(&path)
}

on_each_database!(host_without_the_lock_answers_reads_and_rejects_changes);
async fn host_without_the_lock_answers_reads_and_rejects_changes(kind: Kind) {
    let server = empty(kind).await;
    server.sql("UPDATE bbs_fence SET token = token + 1").await;
    for route in calls() {
        let reply = route.send(&server, request(route)).await;
        let key = route.key();
        if changes(&route.path) {
            let reason = reply.repeat_reason();
            assert!(reason.contains("no longer the master"), "{key}: {reason}");
        } else {
            assert_eq!(reply.status, 200, "{key}");
        }
    }
    assert!(calls().any(|route| changes(&route.path)));
}

on_each_database!(unreachable_database_is_reported_by_every_call_and_does_not_end_the_host);
async fn unreachable_database_is_reported_by_every_call_and_does_not_end_the_host(kind: Kind) {
    let server = empty(kind).await;
    server.database.close().await;
    assert_table_calls_fail(&server, Type::UnknownError, "cannot ").await;
    assert_eq!(
        server.service.given_up().now_or_never(),
        None,
        "the database may return"
    );
}

on_each_database!(host_without_clients_lists_no_cells);
async fn host_without_clients_lists_no_cells(kind: Kind) {
    let server = empty(kind).await;
    assert_eq!(cells(&server).await, proto::CellsResponse::default());
}

/// The path of two routes, one for each verb.
const CELLS: &str = "/v1/cells/list.r1";

/// The answer to both verbs.
async fn cells(server: &Server) -> proto::CellsResponse {
    let answer = async |verb| {
        let mut answer: proto::CellsResponse =
            server.send(verb, CELLS, &[], vec![]).await.message();
        answer
            .cells
            .sort_by(|one, other| one.cell_id.cmp(&other.cell_id));
        answer
    };
    let by_post = answer("POST").await;
    assert_eq!(answer("GET").await, by_post);
    by_post
}

async fn server_with(kind: Kind, neighbours: &Neighbours) -> Server {
    let options = Options {
        kind,
        clients: neighbours.clients(),
        translators: translators(),
        ..Options::default()
    };
    Server::start(options).await
}

on_each_database!(cells_are_listed_as_locket_knows_them);
async fn cells_are_listed_as_locket_knows_them(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = server_with(kind, &neighbours).await;
    neighbours.locket.add_presence("no-cell", "no JSON");
    let capacity = serde_json::json!({ "memory_mb": 3, "disk_mb": 2, "containers": 1 });
    let providers = serde_json::json!([{ "name": "preloaded", "properties": ["cflinuxfs4"] }, { "name": "docker" }]);
    let presence = serde_json::json!({
        "cell_id": "cell-b", "rep_address": "http://10.0.0.1:1800", "zone": "z1", "capacity": capacity,
        "rootfs_provider_list": providers, "placement_tags": ["gpu"], "optional_placement_tags": ["ssd"],
        "rep_url": "https://cell-b:1801", "annotations": { "rack": "7" },
    });
    neighbours
        .locket
        .add_presence("cell-b", &presence.to_string());
    let provider = |name: &str, properties: &[&str]| proto::Provider {
        name: name.into(),
        properties: properties
            .iter()
            .map(|property| property.as_bytes().to_vec())
            .collect(),
    };
    let first = proto::CellPresence {
        cell_id: b"cell-a".to_vec(),
        rep_address: b"http://127.0.0.1:1".to_vec(),
        rep_url: neighbours.rep.url().into(),
        ..Default::default()
    };
    let second = proto::CellPresence {
        cell_id: b"cell-b".to_vec(),
        rep_address: b"http://10.0.0.1:1800".to_vec(),
        zone: b"z1".to_vec(),
        capacity: Some(proto::CellCapacity {
            memory_mb: 3,
            disk_mb: 2,
            containers: 1,
        }),
        rootfs_providers: vec![
            provider("preloaded", &["cflinuxfs4"]),
            provider("docker", &[]),
        ],
        placement_tags: vec![b"gpu".to_vec()],
        optional_placement_tags: vec![b"ssd".to_vec()],
        rep_url: b"https://cell-b:1801".to_vec(),
        annotations: vec![proto::TextEntry {
            key: b"rack".to_vec(),
            value: b"7".to_vec(),
        }],
    };
    assert_eq!(
        cells(&server).await,
        proto::CellsResponse {
            error: None,
            cells: vec![first, second]
        }
    );
    for cell in ["cell-a", "cell-b", "no-cell"] {
        neighbours.locket.remove_presence(cell);
    }
    assert_eq!(cells(&server).await, proto::CellsResponse::default());
}

on_each_database!(listing_cells_without_locket_is_an_error);
async fn listing_cells_without_locket_is_an_error(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = server_with(kind, &neighbours).await;
    neighbours.locket.set_unavailable(true);
    for verb in ["POST", "GET"] {
        let (kind, text) = server.send(verb, CELLS, &[], vec![]).await.error();
        assert_eq!(kind, Type::UnknownError, "{verb}");
        assert!(text.contains("could not list the cells"), "{verb}: {text}");
    }
    neighbours.locket.set_unavailable(false);
    assert_eq!(cells(&server).await.cells.len(), 1);
}
