//! Tasks: what is asked of them, from the wish that one runs to the word that it is over. How a task changes is the
//! model's; here it is read, changed and written as one, told to whoever listens, and then to whoever has to act.

mod completion;

pub(super) use completion::{Completions, submit};

use super::attempts::repeated;
use super::{DomainError, Page, Service};
use crate::clients::ClientError;
use crate::metrics::TaskMark;
use crate::model::change::Change;
use crate::model::task::{End, Refusal, State, Task, TaskFilter};
use crate::model::{Text, TraceId};
use crate::store::Reader;

pub async fn list(page: &mut Page, filter: &TaskFilter) -> Result<Vec<Task>, DomainError> {
    let listed = page.reader.tasks(filter, &page.range()).await?;
    Ok(page.records(listed))
}

pub async fn get(reader: &mut Reader, guid: &[u8]) -> Result<Task, DomainError> {
    reader.task(guid).await?.ok_or(DomainError::NotFound)
}

/// Makes a new one and asks for a cell.
pub async fn desire(service: &Service, task: Task) -> Result<(), DomainError> {
    let now_ns = service.store().now_ns();
    let task = Task { state: State::Pending as i32, created_at_ns: now_ns, updated_at_ns: now_ns, ..task };
    {
        let _turn = service.turn(&task.guid).await;
        repeated(|| async {
            let mut writer = service.store().writer(&task.guid).await?;
            writer.insert_task(&task).await?;
            Ok(writer.commit().await?)
        })
        .await?;
        service.events().publish(Change::Task { before: None, after: Some(Box::new(task.clone())) });
    }
    if let Err(fault) = service.clients().auctioneer.request_tasks(&[task], &TraceId::NONE).await {
        tracing::warn!(reason = %fault, "no cell was asked for; convergence asks again");
    }
    Ok(())
}

/// Whether the cell is to start it, and not running it already.
pub async fn start(service: &Service, guid: &[u8], cell_id: &[u8]) -> Result<bool, DomainError> {
    let changed = change(service, guid, |task, now_ns| task.start(cell_id, now_ns)).await?;
    let should_start = changed.after.is_some();
    if should_start {
        service.measures().task(cell_id, TaskMark::Started);
    }
    Ok(should_start)
}

pub async fn complete(service: &Service, guid: &[u8], cell_id: &[u8], end: End) -> Result<(), DomainError> {
    let changed = change(service, guid, |task, now_ns| task.complete(end.clone(), cell_id, now_ns).map(Some)).await?;
    service.measures().task(cell_id, if end.failed { TaskMark::Failed } else { TaskMark::Succeeded });
    submit(service, changed.after);
    Ok(())
}

pub async fn cancel(service: &Service, guid: &[u8], trace_id: &TraceId) -> Result<(), DomainError> {
    let changed = change(service, guid, |task, now_ns| task.cancel(now_ns).map(Some)).await?;
    submit(service, changed.after);
    let cell_id = changed.before.cell_id;
    if cell_id.is_empty() {
        return Ok(());
    }
    let cell = match service.clients().cells.find(&cell_id).await {
        Ok(Some(cell)) => cell,
        Ok(None) => return Ok(()),
        Err(fault) => {
            tracing::warn!(reason = %fault, "the cell of a cancelled task could not be found");
            return Ok(());
        }
    };
    match service.clients().reps.cancel_task(&cell, guid, trace_id).await {
        // Diego says so too, although the task is over already.
        Err(fault @ ClientError::NoSecureAddress { .. }) => Err(DomainError::Client(fault)),
        Err(fault) => {
            tracing::warn!(reason = %fault, "a cell was not told that its task is cancelled");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

pub async fn fail(service: &Service, guid: &[u8], reason: &[u8]) -> Result<(), DomainError> {
    let changed = change(service, guid, |task, now_ns| task.fail(reason, now_ns).map(Some)).await?;
    submit(service, changed.after);
    Ok(())
}

/// No cell takes it. It waits again, until that was said too often.
pub async fn reject(service: &Service, guid: &[u8], reason: &[u8]) -> Result<(), DomainError> {
    let changed = change(service, guid, |task, now_ns| task.reject(reason, now_ns).map(Some)).await?;
    if changed.before.rejection_count >= service.policy().max_task_retries {
        return fail(service, guid, reason).await;
    }
    Ok(())
}

pub async fn resolve(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    change(service, guid, |task, now_ns| task.resolve(now_ns).map(Some)).await.map(drop)
}

/// Forgets one whose end was told.
pub async fn delete(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    delete_if(service, guid, |task| task.check_deletion().map(|()| true)).await.map(drop)
}

/// What a call did to a task.
pub(super) struct Changed {
    pub(super) before: Task,
    /// Nothing where it is as it was.
    pub(super) after: Option<Task>,
}

/// The one way in which a task changes: read under its turn, changed by the model, written, told.
pub(super) async fn change(
    service: &Service,
    guid: &[u8],
    call: impl Fn(&Task, i64) -> Result<Option<Task>, Refusal>,
) -> Result<Changed, DomainError> {
    let _turn = service.turn(guid).await;
    let changed = repeated(|| async {
        let mut writer = service.store().writer(guid).await?;
        let before = writer.task(guid).await?.ok_or(DomainError::NotFound)?;
        let after = call(&before, service.store().now_ns())?;
        if let Some(after) = &after {
            writer.update_task(after).await?;
            writer.commit().await?;
        }
        Ok(Changed { before, after })
    })
    .await?;
    if let Some(after) = &changed.after {
        let (before, after) = (Box::new(changed.before.clone()), Box::new(after.clone()));
        service.events().publish(Change::Task { before: Some(before), after: Some(after) });
    }
    Ok(changed)
}

/// Deletes a task if it still is what it is deleted for. Whether it did.
pub(super) async fn delete_if(
    service: &Service,
    guid: &[u8],
    may_go: impl Fn(&Task) -> Result<bool, Refusal>,
) -> Result<bool, DomainError> {
    let _turn = service.turn(guid).await;
    let gone = repeated(|| async {
        let mut writer = service.store().writer(guid).await?;
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
    service.events().publish(Change::Task { before: Some(Box::new(task)), after: None });
    Ok(true)
}

/// A task as a client desires it.
pub fn desired(guid: Text, domain: Text, definition: bbs_proto::models::TaskDefinition) -> Task {
    Task { guid, domain, definition, ..Task::default() }
}
