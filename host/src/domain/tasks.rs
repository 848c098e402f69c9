//! Tasks, from the request to run one until its completion callback. The transitions are the
//! model's; here a task is read, changed and written in one transaction, its event is published,
//! and then other components are called.

mod completion;

pub(super) use completion::{Completions, submit};

use bbs_model::TraceId;
use bbs_model::change::RecordChange;
use bbs_model::task::{End, Task, TaskError, TaskFilter, TaskState};
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use super::retry::retry;
use super::{DomainError, Page, Service};
use crate::clients::ClientError;
use crate::clients::auctioneer::TaskStart;
use crate::metrics::CellTaskEvent;
use crate::store::Reader;

/// Lists the tasks of a page that match a filter.
pub async fn list(page: &mut Page, filter: &TaskFilter) -> Result<Vec<Task>, DomainError> {
    let range = page.range();
    let listed = page.reader().tasks(filter, &range).await?;
    Ok(page.records(listed, |task| &task.guid))
}

/// Reads one task.
///
/// # Errors
/// `NotFound` if there is no such task; errors of the store.
pub async fn get(reader: &mut Reader, guid: &[u8]) -> Result<Task, DomainError> {
    reader.task(guid).await?.ok_or(DomainError::NotFound)
}

/// Creates a task and requests its auction.
///
/// # Errors
/// `Exists` if there is a task with this guid; errors of the store.
pub async fn desire(service: &Service, task: Task) -> Result<(), DomainError> {
    let now_ns = service.store().now_ns();
    let task = Task {
        state: TaskState::Pending as i32,
        created_at_ns: now_ns,
        updated_at_ns: now_ns,
        ..task
    };
    {
        let _lock = service.lock_key(&task.guid).await?;
        retry(|| async {
            let mut writer = service.store().writer().await?;
            writer.insert_task(&task).await?;
            Ok(writer.commit().await?)
        })
        .await?;
        service.events().publish_task(None, Some(&task));
    }
    let starts = [TaskStart::of(&task)];
    if let Err(fault) = service.clients().auctioneer.request_tasks(&starts).await {
        tracing::warn!(
            task_guid = %lossy(&task.guid),
            reason = %with_causes(&fault),
            "a task was not auctioned; convergence retries. Check `auctioneer_address` and the auctioneer's log"
        );
    }
    Ok(())
}

/// The answer to a cell that is about to start a task: whether it should, which is not so if it
/// runs the task already.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn start(service: &Service, guid: &[u8], cell_id: &[u8]) -> Result<bool, DomainError> {
    let changed = change_task(service, guid, |task, now_ns| task.start(cell_id, now_ns)).await?;
    let should_start = changed.after.is_some();
    if should_start {
        service.measures().task(cell_id, CellTaskEvent::Started);
    }
    Ok(should_start)
}

/// A cell reports the end of a task.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn complete(
    service: &Service,
    guid: &[u8],
    cell_id: &[u8],
    end: End,
) -> Result<(), DomainError> {
    let changed = change_task(service, guid, |task, now_ns| {
        task.complete(end.clone(), cell_id, now_ns).map(Some)
    })
    .await?;
    service.measures().task(
        cell_id,
        if end.failed {
            CellTaskEvent::Failed
        } else {
            CellTaskEvent::Succeeded
        },
    );
    submit(service, changed.after);
    Ok(())
}

/// Cancels a task and has its cell stop it. Only a cell without an https address fails the call, as
/// in Diego.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn cancel(service: &Service, guid: &[u8], trace_id: &TraceId) -> Result<(), DomainError> {
    let changed = change_task(service, guid, |task, now_ns| task.cancel(now_ns).map(Some)).await?;
    submit(service, changed.after);
    let cell_id = changed.before.cell_id;
    if cell_id.is_empty() {
        return Ok(());
    }
    let task_guid = String::from_utf8_lossy(guid);
    let cell_name = String::from_utf8_lossy(&cell_id);
    let cell = match service.clients().cells.find(&cell_id).await {
        Ok(Some(cell)) => cell,
        Ok(None) => return Ok(()),
        Err(fault) => {
            tracing::warn!(
                %task_guid,
                cell_id = %cell_name,
                reason = %with_causes(&fault),
                "the cell of a cancelled task could not be looked up; its container runs until the cell compares its containers \
                 with the tasks"
            );
            return Ok(());
        }
    };
    match service
        .clients()
        .reps
        .cancel_task(&cell, guid, trace_id)
        .await
    {
        // Diego's answer too, although the task has ended.
        Err(fault @ ClientError::NoSecureAddress { .. }) => Err(DomainError::Client(fault)),
        Err(fault) => {
            tracing::warn!(
                %task_guid,
                cell_id = %cell_name,
                reason = %with_causes(&fault),
                "a cell did not accept the cancellation of its task; the container runs until the cell compares its containers \
                 with the tasks"
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Fails a task.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn fail(service: &Service, guid: &[u8], reason: &[u8]) -> Result<(), DomainError> {
    let changed = change_task(service, guid, |task, now_ns| {
        task.fail(reason, now_ns).map(Some)
    })
    .await?;
    submit(service, changed.after);
    Ok(())
}

/// The auctioneer could not place a task. It is pending again; after `max_task_retries` rejections
/// the next one fails it, and the outcome of the failure is returned, as in Diego, also if the task
/// can neither be rejected nor fail.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn reject(service: &Service, guid: &[u8], reason: &[u8]) -> Result<(), DomainError> {
    let limit = service.policy().max_task_retries;
    let changed = change_task(service, guid, |task, now_ns| {
        let rejected = task.reject(reason, now_ns);
        if task.rejection_count < limit {
            return rejected.map(Some);
        }
        // One change, with one event: Diego publishes no rejection that fails the task.
        let failing = rejected.as_ref().unwrap_or(task);
        failing.fail(reason, now_ns).map(Some)
    })
    .await?;
    let failed = changed
        .after
        .filter(|task| task.state() == TaskState::Completed);
    submit(service, failed);
    Ok(())
}

/// Marks a task as resolving: its result is being delivered.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn resolve(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    change_task(service, guid, |task, now_ns| task.resolve(now_ns).map(Some))
        .await
        .map(drop)
}

/// Deletes a task that is resolving.
///
/// # Errors
/// The task is missing, or its state does not allow it; errors of the store.
pub async fn delete(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    delete_if(service, guid, |task| task.check_deletion().map(|()| true))
        .await
        .map(drop)
}

/// A task before and after a call.
pub(super) struct ChangedTask {
    pub(super) before: Task,
    /// `None` if the call changed nothing.
    pub(super) after: Option<Task>,
}

/// Changes a task: reads it under its key lock, applies `call`, writes it and publishes its event.
/// The only way to do so.
pub(super) async fn change_task(
    service: &Service,
    guid: &[u8],
    call: impl Fn(&Task, i64) -> Result<Option<Task>, TaskError>,
) -> Result<ChangedTask, DomainError> {
    let _lock = service.lock_key(guid).await?;
    let changed = retry(|| async {
        let mut writer = service.store().writer().await?;
        let before = writer.task(guid).await?.ok_or(DomainError::NotFound)?;
        let mut after = call(&before, service.store().now_ns())?;
        if let Some(after) = &mut after {
            writer.update_task(after).await?;
            writer.commit().await?;
        }
        Ok(ChangedTask { before, after })
    })
    .await?;
    if let Some(after) = &changed.after {
        let events = service.events();
        events.publish_task(Some(&changed.before), Some(after));
    }
    Ok(changed)
}

/// Deletes a task if `may_go` still holds in the transaction; whether it was deleted.
pub(super) async fn delete_if(
    service: &Service,
    guid: &[u8],
    may_go: impl Fn(&Task) -> Result<bool, TaskError>,
) -> Result<bool, DomainError> {
    let _lock = service.lock_key(guid).await?;
    let gone = retry(|| async {
        let mut writer = service.store().writer().await?;
        let task = writer.task(guid).await?.ok_or(DomainError::NotFound)?;
        if !may_go(&task)? {
            return Ok(None);
        }
        writer.delete_task(guid).await?;
        writer.commit().await?;
        Ok(Some(task))
    })
    .await?;
    let Some(task) = gone else { return Ok(false) };
    service.events().publish(RecordChange::Task {
        before: Some(Box::new(task)),
        after: None,
    });
    Ok(true)
}
