//! Convergence of tasks, page by page. Decides by states and times; reads the definitions of the
//! tasks that need an auction or a callback, and the whole record of a task to change it.

use std::time::Duration;

use bbs_model::Text;
use bbs_model::cell::CellSet;
use bbs_model::task::{Task, TaskAction, TaskConvergence, TaskFilter, TaskState};
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::is_sampled;
use bbs_work::lossy;
use futures_util::{StreamExt, stream};

use crate::clients::auctioneer::TaskStart;
use crate::domain::tasks::{change_task, delete_if, submit};
use crate::domain::{DomainError, Page, Service, tasks};
use crate::metrics::TaskCounts;
use crate::store::Range;

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
        ..
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
    /// The number of actions that failed.
    failed: u64,
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
            let range = page.range();
            let listed = page.reader().task_parts(&range).await?;
            let found = page.records(listed, |task| &task.guid);
            after = page.next();
            let input = &input.at(service.store().now_ns());
            let due = self.due(found, input);
            self.read_definitions(service, page, &due).await?;
            let acted = stream::iter(due).map(|task| async move {
                let acted = act(service, input, &task).await;
                (task, acted)
            });
            let acted: Vec<_> = acted.buffer_unordered(workers).collect().await;
            for (task, acted) in acted {
                self.count_acted(&task, acted);
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Counts the tasks of a page for which nothing is due, and returns the others.
    fn due(&mut self, found: Vec<Task>, input: &TaskConvergence<'_>) -> Vec<DueTask> {
        let mut due = Vec::new();
        for task in found {
            let state = task.state();
            match input.decide(&task) {
                None => count(&mut self.counts, state),
                Some(action) => due.push(DueTask {
                    guid: task.guid,
                    state,
                    action,
                }),
            }
        }
        due
    }

    /// Reads the definitions that due auctions and callbacks need; collects the auctions, and queues
    /// the callbacks. Ends the page's transaction: a writer that begins while this task reads would
    /// wait for a switch of the store, which waits for the reader.
    async fn read_definitions(
        &mut self,
        service: &Service,
        page: Page,
        due: &[DueTask],
    ) -> Result<(), DomainError> {
        let defined = due
            .iter()
            .filter(|task| matches!(task.action, TaskAction::Auction | TaskAction::Callback));
        let filter = TaskFilter {
            guids: defined.map(|task| task.guid.clone()).collect(),
            ..TaskFilter::default()
        };
        if filter.guids.is_empty() {
            return Ok(());
        }
        let mut reader = page.into_reader();
        let mut after = None;
        loop {
            let range = Range {
                after,
                most: Some(PAGE_TASKS),
                ..Range::default()
            };
            let mut page = Page::of(reader, range);
            for task in tasks::list(&mut page, &filter).await? {
                if task.state() == TaskState::Pending {
                    self.waiting.push(TaskStart::of(&task));
                } else {
                    self.counts.kicked += 1;
                    // The callback reads the task again, in a transaction of its own.
                    submit(service, Some(task));
                }
            }
            after = page.next();
            if after.is_none() {
                return Ok(());
            }
            reader = page.into_reader();
        }
    }

    /// Counts a task after its action. A failure is only logged.
    fn count_acted(&mut self, task: &DueTask, acted: Result<ActedTask, DomainError>) {
        let state = match acted {
            Ok(ActedTask::Unchanged) => task.state,
            Ok(ActedTask::Completed) => {
                self.counts.kicked += 1;
                TaskState::Completed
            }
            Ok(ActedTask::Deleted) => {
                self.counts.pruned += 1;
                return;
            }
            Err(fault) => {
                self.failed += 1;
                if is_sampled(self.failed) {
                    tracing::warn!(task = %lossy(&task.guid), failed = self.failed, reason = %with_causes(&fault), "a task was not converged; the next run retries it; only a sample of these is logged");
                }
                task.state
            }
        };
        count(&mut self.counts, state);
    }
}

/// A task with an action that was due when its page was read.
struct DueTask {
    guid: Text,
    state: TaskState,
    action: TaskAction,
}

/// The effect of an action. A callback that the end of a task submits goes on in the background.
enum ActedTask {
    /// The action changes no record, or is no longer due.
    Unchanged,
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
async fn act(
    service: &Service,
    input: &TaskConvergence<'_>,
    task: &DueTask,
) -> Result<ActedTask, DomainError> {
    let action = task.action;
    let done = match action {
        TaskAction::Auction | TaskAction::Callback => return Ok(ActedTask::Unchanged),
        TaskAction::Forget => {
            let is_due = |task: &Task| Ok(input.decide(task) == Some(action));
            delete_if(service, &task.guid, is_due).await
        }
        TaskAction::Expire | TaskAction::Abandon | TaskAction::RetryCallback => {
            advance(service, input, &task.guid, action).await
        }
    };
    match done {
        Ok(true) if action == TaskAction::Forget => Ok(ActedTask::Deleted),
        Ok(true) => Ok(ActedTask::Completed),
        // The task has changed or gone since the page was read.
        Ok(false) | Err(DomainError::NotFound) => Ok(ActedTask::Unchanged),
        Err(fault) => Err(fault),
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
