//! Tests of tasks over HTTP: every call, the text of each error, callbacks, and convergence.

mod callbacks;
mod calls;
mod cells;
mod convergence;
mod failing_lrps;

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;

use crate::harness::server::Server;

pub(crate) fn definition() -> proto::TaskDefinition {
    let run = proto::RunAction {
        path: b"/bin/job".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    proto::TaskDefinition {
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        action: Some(proto::Action {
            run_action: Some(run),
            ..Default::default()
        }),
        memory_mb: 128,
        ..Default::default()
    }
}

pub(crate) fn desire_request(guid: &str) -> proto::DesireTaskRequest {
    let task_guid = guid.into();
    let domain = b"domain".to_vec();
    proto::DesireTaskRequest {
        task_definition: Some(definition()),
        task_guid,
        domain,
    }
}

/// Makes a call and returns the error of its answer. Every answer about tasks has the error in the
/// same field.
async fn try_call(
    server: &Server,
    path: &str,
    request: &impl Message,
) -> Result<(), (Type, String)> {
    let answer: proto::TaskLifecycleResponse = server.call(path, request).await.message();
    match answer.error {
        None => Ok(()),
        Some(error) => Err((error.r#type(), String::from_utf8(error.message).unwrap())),
    }
}

pub(crate) async fn desire(server: &Server, guid: &str) -> Result<(), (Type, String)> {
    try_call(server, "/v1/tasks/desire.r2", &desire_request(guid)).await
}

async fn start(server: &Server, guid: &str, cell: &str) -> Result<bool, (Type, String)> {
    let request = proto::StartTaskRequest {
        task_guid: guid.into(),
        cell_id: cell.into(),
    };
    let answer: proto::StartTaskResponse = server.call("/v1/tasks/start", &request).await.message();
    match answer.error {
        None => Ok(answer.should_start),
        Some(error) => Err((error.r#type(), String::from_utf8(error.message).unwrap())),
    }
}

async fn complete(server: &Server, guid: &str, cell: &str) -> Result<(), (Type, String)> {
    let request = proto::CompleteTaskRequest {
        task_guid: guid.into(),
        cell_id: cell.into(),
        failed: true,
        failure_reason: b"exit 1".to_vec(),
        result: b"output".to_vec(),
    };
    try_call(server, "/v1/tasks/complete", &request).await
}

async fn reject(server: &Server, guid: &str) -> Result<(), (Type, String)> {
    let request = proto::RejectTaskRequest {
        task_guid: guid.into(),
        rejection_reason: b"no room".to_vec(),
    };
    try_call(server, "/v1/tasks/reject", &request).await
}

/// Makes one of the calls that take only a guid: `cancel`, `resolving` or `delete`.
pub(crate) async fn by_guid(server: &Server, call: &str, guid: &str) -> Result<(), (Type, String)> {
    try_call(
        server,
        &format!("/v1/tasks/{call}"),
        &proto::TaskGuidRequest {
            task_guid: guid.into(),
        },
    )
    .await
}

async fn get(server: &Server, guid: &str) -> Result<proto::Task, (Type, String)> {
    let request = proto::TaskByGuidRequest {
        task_guid: guid.into(),
    };
    let answer: proto::TaskResponse = server
        .call("/v1/tasks/get_by_task_guid.r3", &request)
        .await
        .message();
    match answer.error {
        None => Ok(answer
            .task
            .expect("an answer without an error has the task")),
        Some(error) => Err((error.r#type(), String::from_utf8(error.message).unwrap())),
    }
}

fn not_found<T>() -> Result<T, (Type, String)> {
    Err((
        Type::ResourceNotFound,
        "the requested resource could not be found".into(),
    ))
}

fn no_transition<T>(from: &str, to: &str) -> Result<T, (Type, String)> {
    Err((
        Type::InvalidStateTransition,
        format!("Cannot transition from {from} to {to}"),
    ))
}
