//! Calls about tasks.

use bbs_model::task::{End, Task, TaskFilter};

use super::{DomainError, HandlerCall, HandlerResult, Message, Page, Reader, Service, proto, wire};
use crate::api::methods::TaskChange;
use crate::domain::tasks;

pub(super) async fn list(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let proto::TasksRequest { domain, cell_id } = call.decode()?;
    let filter = TaskFilter {
        domain,
        cell_id,
        ..TaskFilter::default()
    };
    let tasks = tasks::list(page, &filter).await?;
    Ok(proto::TasksResponse {
        error: None,
        tasks: tasks.into_iter().map(wire::task_to).collect(),
    }
    .encode_to_vec())
}

pub(super) async fn get(reader: &mut Reader, call: HandlerCall<'_>) -> HandlerResult {
    let guid = call.valid::<proto::TaskByGuidRequest>()?.task_guid;
    let task = Some(wire::task_to(tasks::get(reader, &guid).await?));
    Ok(proto::TaskResponse { error: None, task }.encode_to_vec())
}

/// Except for a start, the answer holds only an error, if there is one.
pub(super) async fn change(
    service: &Service,
    method: TaskChange,
    call: HandlerCall<'_>,
) -> HandlerResult {
    match method {
        TaskChange::Desire => desire(service, call).await?,
        TaskChange::Start => {
            let proto::StartTaskRequest { task_guid, cell_id } = call.valid()?;
            let should_start = tasks::start(service, &task_guid, &cell_id).await?;
            return Ok(proto::StartTaskResponse {
                error: None,
                should_start,
            }
            .encode_to_vec());
        }
        TaskChange::Cancel => {
            let guid = call.valid::<proto::TaskGuidRequest>()?.task_guid;
            tasks::cancel(service, &guid, call.trace_id).await?;
        }
        TaskChange::Fail => {
            let proto::FailTaskRequest {
                task_guid,
                failure_reason,
            } = call.valid()?;
            tasks::fail(service, &task_guid, &failure_reason).await?;
        }
        TaskChange::Reject => {
            let proto::RejectTaskRequest {
                task_guid,
                rejection_reason,
            } = call.valid()?;
            tasks::reject(service, &task_guid, &rejection_reason).await?;
        }
        TaskChange::Complete => complete(service, call).await?,
        TaskChange::Resolving => {
            let guid = call.valid::<proto::TaskGuidRequest>()?.task_guid;
            tasks::resolve(service, &guid).await?;
        }
        TaskChange::Delete => {
            let guid = call.valid::<proto::TaskGuidRequest>()?.task_guid;
            tasks::delete(service, &guid).await?;
        }
    }
    Ok(Vec::new())
}

async fn desire(service: &Service, call: HandlerCall<'_>) -> Result<(), DomainError> {
    let proto::DesireTaskRequest {
        task_definition,
        task_guid,
        domain,
    } = call.valid()?;
    let task = Task {
        guid: task_guid,
        domain,
        definition: task_definition.unwrap_or_default(),
        ..Task::default()
    };
    tasks::desire(service, task).await
}

async fn complete(service: &Service, call: HandlerCall<'_>) -> Result<(), DomainError> {
    let proto::CompleteTaskRequest {
        task_guid,
        cell_id,
        failed,
        failure_reason,
        result,
    } = call.valid()?;
    let end = End {
        failed,
        failure_reason,
        result,
    };
    tasks::complete(service, &task_guid, &cell_id, end).await
}
