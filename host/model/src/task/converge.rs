//! Convergence of a task: the action that is due. Pure.

use super::{Task, TaskState};
use crate::cell::CellSet;

const NOT_STARTED: &[u8] = b"not started within time limit";
const CELL_GONE: &[u8] = b"cell disappeared before completion";

/// The input of a decision besides the task: the present cells, and limits in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct TaskConvergence<'a> {
    /// The time of the decision, in nanoseconds since 1970. Not before the task was read.
    pub now_ns: i64,
    /// The cells with a presence in Locket, which may have been listed long before; unknown if
    /// Locket is not configured.
    pub cells: &'a CellSet,
    /// Time since the last change after which the callback of a completed or resolving task is
    /// called again.
    pub kick_ns: i64,
    /// Time since its creation after which a pending task fails.
    pub expire_pending_ns: i64,
    /// Time since its first completion after which a task is deleted.
    pub expire_completed_ns: i64,
}

/// An action that is due for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAction {
    /// Request its auction again.
    Auction,
    /// It was pending for too long and fails.
    Expire,
    /// Its cell is gone, so it fails.
    Abandon,
    /// Call its completion callback again.
    Callback,
    /// Repeat the callback of a resolving task, which becomes completed first.
    RetryCallback,
    /// Delete it: it completed too long ago.
    Forget,
}

impl TaskConvergence<'_> {
    /// The input of a decision at another time, in nanoseconds since 1970.
    #[must_use]
    pub fn at(&self, now_ns: i64) -> Self {
        Self { now_ns, ..*self }
    }

    /// The due action, if there is one.
    pub fn decide(&self, task: &Task) -> Option<TaskAction> {
        let since = |then_ns: i64, limit_ns: i64| then_ns < self.now_ns.saturating_sub(limit_ns);
        let forgotten = since(task.first_completed_at_ns, self.expire_completed_ns);
        let kicked = since(task.updated_at_ns, self.kick_ns);
        match task.state() {
            TaskState::Pending if since(task.created_at_ns, self.expire_pending_ns) => {
                Some(TaskAction::Expire)
            }
            TaskState::Pending => Some(TaskAction::Auction),
            TaskState::Running
                if self
                    .cells
                    .is_gone(&task.cell_id, task.updated_at_ns, self.now_ns) =>
            {
                Some(TaskAction::Abandon)
            }
            TaskState::Completed if forgotten => Some(TaskAction::Forget),
            TaskState::Completed if kicked => Some(TaskAction::Callback),
            TaskState::Resolving if kicked && forgotten => Some(TaskAction::Forget),
            TaskState::Resolving if kicked => Some(TaskAction::RetryCallback),
            TaskState::Invalid
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Resolving => None,
        }
    }

    /// The task after an action; `None` if the action does not change the record.
    pub fn after(&self, action: TaskAction, task: &Task) -> Option<Task> {
        match action {
            TaskAction::Expire => Some(task.abandoned(NOT_STARTED, self.now_ns)),
            TaskAction::Abandon => Some(task.abandoned(CELL_GONE, self.now_ns)),
            TaskAction::RetryCallback => task.unresolve().ok(),
            TaskAction::Auction | TaskAction::Callback | TaskAction::Forget => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decides a task of this age, with limits of 30 (kick), 100 (pending) and 60 (completed).
    fn decided(state: TaskState, age: i64, cell_id: &str) -> Option<TaskAction> {
        let cells = CellSet::Known {
            cells: [b"here".to_vec()].into(),
            listed_at_ns: 1000,
        };
        let input = TaskConvergence {
            now_ns: 1000,
            cells: &cells,
            kick_ns: 30,
            expire_pending_ns: 100,
            expire_completed_ns: 60,
        };
        let then = 1000 - age;
        let task = Task {
            state: state as i32,
            cell_id: cell_id.into(),
            created_at_ns: then,
            updated_at_ns: then,
            first_completed_at_ns: then,
            ..Task::default()
        };
        input.decide(&task)
    }

    #[test]
    fn action_is_decided_by_state_and_age() {
        let ages = [0, 30, 31, 60, 61, 100, 101];
        let of = |state| ages.map(|age| decided(state, age, "here"));
        let auction = Some(TaskAction::Auction);
        let expire = Some(TaskAction::Expire);
        assert_eq!(
            of(TaskState::Pending),
            [auction, auction, auction, auction, auction, auction, expire]
        );
        assert_eq!(of(TaskState::Running), [None; 7]);
        let callback = Some(TaskAction::Callback);
        let retry = Some(TaskAction::RetryCallback);
        let forget = Some(TaskAction::Forget);
        assert_eq!(
            of(TaskState::Completed),
            [None, None, callback, callback, forget, forget, forget]
        );
        assert_eq!(
            of(TaskState::Resolving),
            [None, None, retry, retry, forget, forget, forget]
        );
        assert_eq!(of(TaskState::Invalid), [None; 7]);
        assert_eq!(
            decided(TaskState::Running, 0, "gone"),
            Some(TaskAction::Abandon)
        );
        assert_eq!(
            decided(TaskState::Running, 0, ""),
            Some(TaskAction::Abandon),
            "a cell that no presence names is gone"
        );
    }

    #[test]
    fn task_of_a_cell_that_came_after_the_list_is_not_abandoned_in_a_run_of_twelve_minutes() {
        const MINUTE_NS: i64 = 60 * 1_000_000_000;
        let cells = CellSet::Known {
            cells: [b"here".to_vec()].into(),
            listed_at_ns: 0,
        };
        let input = TaskConvergence {
            now_ns: 0,
            cells: &cells,
            kick_ns: i64::MAX,
            expire_pending_ns: i64::MAX,
            expire_completed_ns: i64::MAX,
        };
        let task = Task {
            state: TaskState::Running as i32,
            cell_id: b"new".to_vec(),
            updated_at_ns: 11 * MINUTE_NS,
            ..Task::default()
        };
        assert_eq!(input.at(12 * MINUTE_NS).decide(&task), None);
        assert_eq!(
            input.at(10 * MINUTE_NS).decide(&task),
            Some(TaskAction::Abandon),
            "by another clock"
        );
    }

    #[test]
    fn retried_callback_keeps_the_time_of_the_last_update() {
        let cells = CellSet::Unknown;
        let input = TaskConvergence {
            now_ns: 9,
            cells: &cells,
            kick_ns: 1,
            expire_pending_ns: 1,
            expire_completed_ns: 1,
        };
        let task = Task {
            state: TaskState::Resolving as i32,
            updated_at_ns: 3,
            ..Task::default()
        };
        let after = input.after(TaskAction::RetryCallback, &task).unwrap();
        assert_eq!(
            (after.state(), after.updated_at_ns),
            (TaskState::Completed, 3)
        );
        let lost = Task {
            state: TaskState::Running as i32,
            cell_id: b"c".to_vec(),
            ..Task::default()
        };
        let after = input.after(TaskAction::Abandon, &lost).unwrap();
        assert_eq!(
            (after.failed, &after.cell_id[..], &after.failure_reason[..]),
            (true, &b"c"[..], CELL_GONE)
        );
    }
}
