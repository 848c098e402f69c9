//! Convergence of tasks, page by page.

use std::time::Duration;

use bbs_model::Text;
use bbs_model::cell::CellSet;
use bbs_model::task::{Task, TaskAction, TaskConvergence, TaskFilter, TaskState};
use bbs_work::causes::with_causes;
use futures_util::{StreamExt, stream};

use crate::clients::auctioneer::TaskStart;
use crate::domain::tasks::{change_task, delete_if, submit};
use crate::domain::{DomainError, Page, Service, tasks};
use crate::metrics::TaskCounts;

const PAGE_TASKS: u32 = 250;

pub(super) async fn run(service: &Service, cells: &CellSet) -> Result<TaskCounts, DomainError> {
    let policy = service.policy();
    let ns = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let input = TaskConvergence {
        now_ns: service.store().now_ns(),
        cells,
        kick_ns: ns(policy.kick_task),
        expire_pending_ns: ns(policy.expire_pending_task),
        expire_completed_ns: ns(policy.expire_completed_task),
    };
    let mut tasks = ConvergedTasks::default();
    let read = tasks.act_on_pages(service, &input).await;
    let ConvergedTasks {
        mut counts,
        waiting,
    } = tasks;
    counts.kicked += waiting.len() as u64;
    // Also after an error, as of LRPs: every page is due for an auction.
    if !waiting.is_empty()
        && let Err(fault) = service.clients().auctioneer.request_tasks(&waiting).await
    {
        tracing::warn!(tasks = waiting.len(), reason = %with_causes(&fault), "tasks were not auctioned; the next run retries");
    }
    read?;
    Ok(counts)
}

/// The tasks that a run has met so far.
#[derive(Default)]
struct ConvergedTasks {
    counts: TaskCounts,
    /// The tasks to auction.
    waiting: Vec<TaskStart>,
}

impl ConvergedTasks {
    /// Acts on one page after the other. What was collected before an error stays.
    async fn act_on_pages(
        &mut self,
        service: &Service,
        input: &TaskConvergence<'_>,
    ) -> Result<(), DomainError> {
        let workers = service.policy().convergence_workers.max(1);
        let mut after = None;
        loop {
            let mut page = Page::begin(service.store(), after, PAGE_TASKS).await?;
            let found = tasks::list(&mut page, &TaskFilter::default()).await?;
            after = page.next();
            // A writer that begins while this task reads would wait for a switch of the store, which
            // waits for the reader.
            drop(page);
            let input = &input.at(service.store().now_ns());
            let due = self.sorted(service, found, input);
            let acted = stream::iter(due).map(|task| act(service, input, task));
            let acted: Vec<_> = acted.buffer_unordered(workers).collect().await;
            for task in acted {
                match task {
                    ActedTask::Unchanged(state) => count(&mut self.counts, state),
                    ActedTask::Deleted => self.counts.pruned += 1,
                    ActedTask::Completed => {
                        self.counts.kicked += 1;
                        count(&mut self.counts, TaskState::Completed);
                    }
                }
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Counts the tasks of a page whose records stay as they are, and returns the others.
    fn sorted(
        &mut self,
        service: &Service,
        found: Vec<Task>,
        input: &TaskConvergence<'_>,
    ) -> Vec<DueTask> {
        let mut due = Vec::new();
        for task in found {
            let state = task.state();
            match input.decide(&task) {
                None => count(&mut self.counts, state),
                Some(TaskAction::Auction) => {
                    count(&mut self.counts, state);
                    self.waiting.push(TaskStart::of(&task));
                }
                // The callback reads the task again, in a transaction of its own.
                Some(TaskAction::Callback) => {
                    count(&mut self.counts, state);
                    self.counts.kicked += 1;
                    submit(service, Some(task));
                }
                Some(action) => due.push(DueTask {
                    guid: task.guid,
                    state,
                    action,
                }),
            }
        }
        due
    }
}

/// A task with an action that was due when its page was read.
struct DueTask {
    guid: Text,
    state: TaskState,
    action: TaskAction,
}

/// A due task after the run. A callback that its end submits goes on in the background.
enum ActedTask {
    /// The action failed or is no longer due.
    Unchanged(TaskState),
    Completed,
    Deleted,
}

/// Counts a task in the state in which the run leaves it, which Diego's gauges have.
fn count(counts: &mut TaskCounts, state: TaskState) {
    match state {
        TaskState::Pending => counts.pending += 1,
        TaskState::Running => counts.running += 1,
        TaskState::Completed => counts.completed += 1,
        TaskState::Resolving => counts.resolving += 1,
        TaskState::Invalid => {}
    }
}

/// Applies a decision to a task if it is still due.
async fn act(service: &Service, input: &TaskConvergence<'_>, task: DueTask) -> ActedTask {
    let DueTask {
        guid,
        state,
        action,
    } = task;
    let done = match action {
        TaskAction::Auction | TaskAction::Callback => return ActedTask::Unchanged(state),
        TaskAction::Forget => {
            let is_due = |task: &Task| Ok(input.decide(task) == Some(action));
            delete_if(service, &guid, is_due).await
        }
        TaskAction::Expire | TaskAction::Abandon | TaskAction::RetryCallback => {
            advance(service, input, &guid, action).await
        }
    };
    match done {
        Ok(true) if action == TaskAction::Forget => ActedTask::Deleted,
        Ok(true) => ActedTask::Completed,
        // The task has changed or gone since the page was read.
        Ok(false) | Err(DomainError::NotFound) => ActedTask::Unchanged(state),
        Err(fault) => {
            tracing::warn!(task = %String::from_utf8_lossy(&guid), reason = %with_causes(&fault), "a task was not converged; the next run retries it");
            ActedTask::Unchanged(state)
        }
    }
}

/// Changes a task that is still due, and queues its callback; whether it was due.
async fn advance(
    service: &Service,
    input: &TaskConvergence<'_>,
    guid: &[u8],
    action: TaskAction,
) -> Result<bool, DomainError> {
    let changed = change_task(service, guid, |task, now_ns| {
        // As of now: another cell may have taken the task since its page was read.
        let input = input.at(now_ns);
        let is_due = input.decide(task) == Some(action);
        Ok(is_due.then(|| input.after(action, task)).flatten())
    })
    .await?;
    let is_due = changed.after.is_some();
    submit(service, changed.after);
    Ok(is_due)
}
