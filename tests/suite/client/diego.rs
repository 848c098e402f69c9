//! The commands against Diego's own BBS: a server that answers with the bytes that Diego's BBS
//! answered with, in its form, and has no other methods.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bbs_client::{json, models};
use bbs_proto::prost::Message;
use serde_json::Value;

use super::{command, errors, json as printed, succeed};
use crate::harness::fixture::expected;

/// The recorded answers, each with its path.
const RECORDED: [(&str, &str); 5] = [
    ("/v1/desired_lrps/list.r3", "desired_lrps_list.r3"),
    (
        "/v1/desired_lrp_scheduling_infos/list",
        "desired_lrp_scheduling_infos_list",
    ),
    ("/v1/actual_lrps/list", "actual_lrps_list"),
    ("/v1/tasks/list.r3", "tasks_list.r3"),
    ("/v1/domains/list", "domains_list"),
];
/// Methods that change something, which answer without content.
const CHANGES: [&str; 7] = [
    "/v1/desired_lrp/desire.r2",
    "/v1/desired_lrp/update",
    "/v1/desired_lrp/remove",
    "/v1/domains/upsert",
    "/v1/tasks/desire.r2",
    "/v1/tasks/cancel",
    "/v1/tasks/resolving",
];

/// The requests of clients to the methods that change something: path and body.
type Received = Arc<Mutex<Vec<(String, Bytes)>>>;

async fn answer(State(received): State<Received>, uri: Uri, body: Bytes) -> Response {
    let message = |bytes: Vec<u8>| {
        ([(header::CONTENT_TYPE, "application/x-protobuf")], bytes).into_response()
    };
    if let Some((_, call)) = RECORDED.iter().find(|(path, _)| *path == uri.path()) {
        return message(expected(call).1);
    }
    match uri.path() {
        "/v1/desired_lrps/get_by_process_guid.r3" => message(desired_lrp(&body)),
        path if CHANGES.contains(&path) => {
            received.lock().unwrap().push((path.to_owned(), body));
            message(Vec::new())
        }
        _ => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
    }
}

fn desired_lrps() -> Vec<models::DesiredLrp> {
    models::DesiredLrPsResponse::decode(&expected("desired_lrps_list.r3").1[..])
        .unwrap()
        .desired_lrps
}

/// The answer for one LRP of the recorded list.
fn desired_lrp(request: &[u8]) -> Vec<u8> {
    let guid = models::DesiredLrpByProcessGuidRequest::decode(request)
        .unwrap()
        .process_guid;
    let lrp = desired_lrps()
        .into_iter()
        .find(|lrp| lrp.process_guid == guid);
    let not_found = models::Error {
        r#type: models::error::Type::ResourceNotFound.into(),
        message: b"the requested resource could not be found".to_vec(),
    };
    let error = if lrp.is_none() { Some(not_found) } else { None };
    models::DesiredLrpResponse {
        error,
        desired_lrp: lrp,
    }
    .encode_to_vec()
}

/// The address of a server that runs until the test's runtime ends, and what it receives.
async fn diego() -> (String, Received) {
    let received = Received::default();
    let router = axum::Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

fn guids(list: &Value, key: &str) -> Vec<String> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|element| element[key].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_diego_are_shown_in_its_json_form_and_as_tables() {
    let (url, _) = diego().await;
    let lrps = desired_lrps();
    let list = printed(&url, &["lrp", "list"]);
    assert_eq!(list, json::to_values(&lrps));
    assert!(
        !list.to_string().contains("definition_id"),
        "Diego's messages have no definitions"
    );
    let table = succeed(&url, &["lrp", "list"]);
    assert_eq!(table.lines().count(), lrps.len() + 1);

    let instances = models::ActualLrPsResponse::decode(&expected("actual_lrps_list").1[..])
        .unwrap()
        .actual_lrps;
    assert_eq!(
        printed(&url, &["lrp", "instances"]),
        json::to_values(&instances)
    );
    assert_eq!(
        succeed(&url, &["lrp", "instances"]).lines().count(),
        instances.len() + 1
    );
    let tasks = models::TasksResponse::decode(&expected("tasks_list.r3").1[..])
        .unwrap()
        .tasks;
    assert_eq!(printed(&url, &["task", "list"]), json::to_values(&tasks));
    assert_eq!(
        succeed(&url, &["task", "list"]).lines().count(),
        tasks.len() + 1
    );
    let domains = models::DomainsResponse::decode(&expected("domains_list").1[..])
        .unwrap()
        .domains;
    assert_eq!(
        printed(&url, &["domains"]).as_array().unwrap().len(),
        domains.len()
    );

    let guid = guids(&list, "process_guid").remove(0);
    assert_eq!(printed(&url, &["lrp", "show", &guid]), list[0]);
    let shown = succeed(&url, &["lrp", "show", &guid]);
    assert!(
        shown.starts_with(&format!("Process guid {guid}\n")),
        "{shown}"
    );
}

/// Goal: what Diego's BBS has is changed with the requests of Diego's API.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_requests_of_diegos_api() {
    let (url, received) = diego().await;
    let folder = tempfile::tempdir().unwrap();
    // As `cfdot desired-lrp` printed it.
    let shown = json::to_value(&desired_lrps()[0]);
    let lrp = folder.path().join("lrp.json");
    let task = folder.path().join("task.json");
    std::fs::write(&lrp, shown.to_string()).unwrap();
    let tasks = models::TasksResponse::decode(&expected("tasks_list.r3").1[..])
        .unwrap()
        .tasks;
    std::fs::write(&task, json::to_value(&tasks[0]).to_string()).unwrap();
    succeed(&url, &["lrp", "desire", lrp.to_str().unwrap()]);
    succeed(&url, &["lrp", "scale", "app", "3"]);
    succeed(&url, &["lrp", "remove", "app"]);
    succeed(&url, &["task", "desire", task.to_str().unwrap()]);
    succeed(&url, &["task", "cancel", "task"]);
    succeed(&url, &["domains", "set", "cf-apps"]);
    let received = received.lock().unwrap();
    let paths: Vec<_> = received.iter().map(|(path, _)| &**path).collect();
    assert_eq!(
        paths,
        [
            "/v1/desired_lrp/desire.r2",
            "/v1/desired_lrp/update",
            "/v1/desired_lrp/remove",
            "/v1/tasks/desire.r2",
            "/v1/tasks/cancel",
            "/v1/domains/upsert"
        ]
    );
    let desire = models::DesireLrpRequest::decode(&received[0].1[..]).unwrap();
    assert_eq!(json::to_value(&desire.desired_lrp.unwrap()), shown);
    let update = models::UpdateDesiredLrpRequest::decode(&received[1].1[..])
        .unwrap()
        .update
        .unwrap();
    assert_eq!(
        update,
        models::DesiredLrpUpdate {
            instances: Some(3),
            ..Default::default()
        }
    );
    let desired = models::DesireTaskRequest::decode(&received[3].1[..]).unwrap();
    assert_eq!(
        (&desired.task_guid, &desired.domain),
        (&tasks[0].task_guid, &tasks[0].domain)
    );
    let upsert = models::UpsertDomainRequest::decode(&received[5].1[..]).unwrap();
    assert_eq!((&*upsert.domain, upsert.ttl), (&b"cf-apps"[..], 120));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_about_definitions_say_that_diego_has_none() {
    let (url, _) = diego().await;
    for arguments in [
        &["lrp", "status", "app"][..],
        &["lrp", "cancel", "app"],
        &["lrp", "rollback", "app", "1"],
        &["lrp", "definitions", "app"],
        &["lrp", "watch", "app"],
    ] {
        let output = command(&url, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = errors(&output);
        assert!(
            error.contains("definitions need version 1.2 of the API"),
            "{arguments:?}: {error}"
        );
    }
    let missing = command(&url, &["lrp", "show", "absent"]).output().unwrap();
    assert!(
        errors(&missing).contains("there is no LRP absent"),
        "{}",
        errors(&missing)
    );
}
