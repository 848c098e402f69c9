//! Convergence of tasks.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::domain::tasks::{change, delete_if, submit};
use crate::domain::{DomainError, Page, Service, tasks};
use crate::metrics::TaskCounts;
use crate::model::cell::CellSet;
use crate::model::task::{Action, State, Task, TaskFilter, World};
use crate::model::{Text, TraceId};

const PAGE_TASKS: u32 = 250;

pub(super) async fn run(service: &Service, cells: &CellSet) -> Result<TaskCounts, DomainError> {
    let policy = service.policy();
    let ns = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let world = World {
        now_ns: service.store().now_ns(),
        cells,
        kick_ns: ns(policy.kick_task),
        expire_pending_ns: ns(policy.expire_pending_task),
        expire_completed_ns: ns(policy.expire_completed_task),
    };
    let mut counts = TaskCounts::default();
    let mut waiting = Vec::new();
    let mut after = None;
    loop {
        let mut page = Page::begin(service.store(), after, PAGE_TASKS).await?;
        let found = tasks::list(&mut page, &TaskFilter::default()).await?;
        after = page.next();
        let mut due = Vec::new();
        for task in found {
            count(&mut counts, &task);
            match world.decide(&task) {
                None => {}
                Some(Action::Auction) => waiting.push(task),
                Some(action) => due.push((task.guid, action)),
            }
        }
        let workers = policy.convergence_workers.max(1);
        let acted = stream::iter(due).map(|(guid, action)| act(service, &world, guid, action));
        let acted: Vec<_> = acted.buffer_unordered(workers).collect().await;
        for action in acted.into_iter().flatten() {
            match action {
                Action::Forget => counts.pruned += 1,
                _ => counts.kicked += 1,
            }
        }
        if after.is_none() {
            break;
        }
    }
    if !waiting.is_empty()
        && let Err(fault) = service.clients().auctioneer.request_tasks(&waiting, &TraceId::NONE).await
    {
        tracing::warn!(tasks = waiting.len(), reason = %fault, "no cells were asked for; the next run asks again");
    }
    Ok(counts)
}

fn count(counts: &mut TaskCounts, task: &Task) {
    match task.state() {
        State::Pending => counts.pending += 1,
        State::Running => counts.running += 1,
        State::Completed => counts.completed += 1,
        State::Resolving => counts.resolving += 1,
        State::Invalid => {}
    }
}

/// Does to a task what was decided, if it still is to be done. What was done.
async fn act(service: &Service, world: &World<'_>, guid: Text, action: Action) -> Option<Action> {
    let done = match action {
        Action::Forget => delete_if(service, &guid, |task| Ok(world.decide(task) == Some(action))).await,
        Action::Auction => return None,
        Action::Expire | Action::Abandon | Action::Tell | Action::TellAnew => {
            moved_on(service, world, &guid, action).await
        }
    };
    match done {
        Ok(true) => Some(action),
        // It has gone or changed since it was looked at.
        Ok(false) | Err(DomainError::NotFound) => None,
        Err(fault) => {
            tracing::warn!(task = %String::from_utf8_lossy(&guid), reason = %fault, "a task could not be moved on");
            None
        }
    }
}

async fn moved_on(service: &Service, world: &World<'_>, guid: &[u8], action: Action) -> Result<bool, DomainError> {
    let still_due = |task: &Task| world.decide(task) == Some(action);
    let changed =
        change(service, guid, |task, _| Ok(still_due(task).then(|| world.after(action, task)).flatten())).await?;
    let task = changed.after.or_else(|| Some(changed.before).filter(still_due));
    let is_due = task.is_some();
    submit(service, task);
    Ok(is_due)
}
