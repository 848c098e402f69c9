//! Convergence of tasks.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::domain::tasks::{change, delete_if, submit};
use crate::domain::{DomainError, Page, Service, tasks};
use crate::metrics::Tasks;
use crate::model::cell::CellSet;
use crate::model::task::{Action, State, Task, TaskFilter, World};
use crate::model::{Text, TraceId};

const PAGE_TASKS: u32 = 250;

/// What a run found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub pending: u64,
    pub running: u64,
    pub completed: u64,
    pub resolving: u64,
    /// Forgotten, since nobody came for them.
    pub pruned: u64,
    /// Moved on in any other way than by an auction.
    pub kicked: u64,
}

impl TaskCounts {
    /// As it is told outside.
    pub(super) fn measured(&self) -> Tasks {
        let Self { pending, running, completed, resolving, pruned, kicked } = *self;
        Tasks { pending, running, completed, resolving, pruned, kicked }
    }

    fn count(&mut self, task: &Task) {
        match task.state() {
            State::Pending => self.pending += 1,
            State::Running => self.running += 1,
            State::Completed => self.completed += 1,
            State::Resolving => self.resolving += 1,
            State::Invalid => {}
        }
    }
}

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
            counts.count(&task);
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
