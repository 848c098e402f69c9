//! The transitions of a task. Pure: a task and a call in, a task or an error out.

use super::Task;
use crate::Text;

const CANCELLED: &[u8] = b"task was cancelled";

/// The state of a task. The numbers are the stored and wire form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// An unknown number in the record.
    Invalid = 0,
    /// Waits for a cell.
    Pending = 1,
    /// A cell runs it.
    Running = 2,
    /// Ended; its result is to be delivered.
    Completed = 3,
    /// Its result is being delivered, by a callback or to a client.
    Resolving = 4,
}

impl TaskState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Invalid,
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Resolving,
    ];

    /// Diego's name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Resolving => "Resolving",
        }
    }
}

/// Why a transition of a task is rejected. The texts are Diego's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("Cannot transition from {} to {}", .from.name(), .to.name())]
    NoTransition { from: TaskState, to: TaskState },
    #[error("Running on cell {} not {}", String::from_utf8_lossy(.holds), String::from_utf8_lossy(.caller))]
    OtherCell { holds: Text, caller: Text },
    /// A rejection of a task that is neither pending nor running.
    #[error("the request received is invalid")]
    Rejection,
}

impl Task {
    /// The state; an unknown number is `Invalid`.
    pub fn state(&self) -> TaskState {
        TaskState::ALL
            .into_iter()
            .find(|state| *state as i32 == self.state)
            .unwrap_or(TaskState::Invalid)
    }

    fn refused(&self, to: TaskState) -> TaskError {
        TaskError::NoTransition {
            from: self.state(),
            to,
        }
    }

    /// Starts the task on a cell; `None` if it runs there already.
    ///
    /// # Errors
    /// `NoTransition` unless it is pending.
    pub fn start(&self, cell_id: &[u8], now_ns: i64) -> Result<Option<Self>, TaskError> {
        match self.state() {
            TaskState::Pending => Ok(Some(Self {
                state: TaskState::Running as i32,
                cell_id: cell_id.to_vec(),
                updated_at_ns: now_ns,
                ..self.clone()
            })),
            TaskState::Running if self.cell_id == cell_id => Ok(None),
            TaskState::Invalid
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Resolving => Err(self.refused(TaskState::Running)),
        }
    }

    /// Completes the task, as reported by its cell.
    ///
    /// # Errors
    /// `OtherCell` if another cell runs it; `NoTransition` unless it is running.
    pub fn complete(&self, end: End, cell_id: &[u8], now_ns: i64) -> Result<Self, TaskError> {
        match self.state() {
            TaskState::Running if self.cell_id == cell_id => Ok(self.ended(end, now_ns)),
            TaskState::Running => Err(TaskError::OtherCell {
                holds: self.cell_id.clone(),
                caller: cell_id.to_vec(),
            }),
            TaskState::Invalid
            | TaskState::Pending
            | TaskState::Completed
            | TaskState::Resolving => Err(self.refused(TaskState::Completed)),
        }
    }

    /// Cancels the task: it fails with Diego's reason.
    ///
    /// # Errors
    /// `NoTransition` unless it is pending or running.
    pub fn cancel(&self, now_ns: i64) -> Result<Self, TaskError> {
        self.fail(CANCELLED, now_ns)
    }

    /// Fails the task.
    ///
    /// # Errors
    /// `NoTransition` unless it is pending or running.
    pub fn fail(&self, reason: &[u8], now_ns: i64) -> Result<Self, TaskError> {
        match self.state() {
            TaskState::Pending | TaskState::Running => Ok(self.ended(End::failure(reason), now_ns)),
            TaskState::Invalid | TaskState::Completed | TaskState::Resolving => {
                Err(self.refused(TaskState::Completed))
            }
        }
    }

    /// The auctioneer could not place the task: it is pending again.
    ///
    /// # Errors
    /// `Rejection` unless it is pending or running.
    pub fn reject(&self, reason: &[u8], now_ns: i64) -> Result<Self, TaskError> {
        match self.state() {
            TaskState::Pending | TaskState::Running => Ok(Self {
                state: TaskState::Pending as i32,
                rejection_count: self.rejection_count.saturating_add(1),
                rejection_reason: reason.to_vec(),
                updated_at_ns: now_ns,
                ..self.clone()
            }),
            TaskState::Invalid | TaskState::Completed | TaskState::Resolving => {
                Err(TaskError::Rejection)
            }
        }
    }

    /// Starts the delivery of its result.
    ///
    /// # Errors
    /// `NoTransition` unless it is completed.
    pub fn resolve(&self, now_ns: i64) -> Result<Self, TaskError> {
        match self.state() {
            TaskState::Completed => Ok(Self {
                state: TaskState::Resolving as i32,
                updated_at_ns: now_ns,
                ..self.clone()
            }),
            TaskState::Invalid | TaskState::Pending | TaskState::Running | TaskState::Resolving => {
                Err(self.refused(TaskState::Resolving))
            }
        }
    }

    /// Ends an unsuccessful delivery: the task is completed again, so that delivery is retried.
    ///
    /// # Errors
    /// `NoTransition` unless it is resolving.
    pub fn unresolve(&self) -> Result<Self, TaskError> {
        match self.state() {
            TaskState::Resolving => Ok(Self {
                state: TaskState::Completed as i32,
                ..self.clone()
            }),
            TaskState::Invalid | TaskState::Pending | TaskState::Running | TaskState::Completed => {
                Err(self.refused(TaskState::Completed))
            }
        }
    }

    /// Checks that the task may be deleted.
    ///
    /// # Errors
    /// `NoTransition` unless it is resolving.
    pub fn check_deletion(&self) -> Result<(), TaskError> {
        match self.state() {
            TaskState::Resolving => Ok(()),
            // Diego's text names this state instead of the deletion.
            TaskState::Invalid | TaskState::Pending | TaskState::Running | TaskState::Completed => {
                Err(self.refused(TaskState::Resolving))
            }
        }
    }

    /// Fails the task from any state, keeping its cell: convergence found it expired or its cell
    /// gone.
    pub fn abandoned(&self, reason: &[u8], now_ns: i64) -> Self {
        Self {
            cell_id: self.cell_id.clone(),
            ..self.ended(End::failure(reason), now_ns)
        }
    }

    fn ended(&self, end: End, now_ns: i64) -> Self {
        let End {
            failed,
            failure_reason,
            result,
        } = end;
        Self {
            state: TaskState::Completed as i32,
            failed,
            failure_reason,
            result,
            cell_id: Text::new(),
            updated_at_ns: now_ns,
            first_completed_at_ns: now_ns,
            ..self.clone()
        }
    }
}

/// The result of a task.
/// The fields are those of Diego's `CompleteTaskRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    pub failed: bool,
    pub failure_reason: Text,
    /// As its cell reported it; empty if the host failed the task.
    pub result: Text,
}

impl End {
    fn failure(reason: &[u8]) -> Self {
        Self {
            failed: true,
            failure_reason: reason.to_vec(),
            result: Text::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 7;

    fn task(state: TaskState) -> Task {
        Task {
            state: state as i32,
            cell_id: b"cell".to_vec(),
            updated_at_ns: 1,
            ..Task::default()
        }
    }

    /// By state, the state after a call, or `None` if it is rejected.
    fn after(call: impl Fn(&Task) -> Result<Task, TaskError>) -> [Option<TaskState>; 5] {
        TaskState::ALL.map(|state| call(&task(state)).ok().map(|task| task.state()))
    }

    #[test]
    fn transitions_are_allowed_by_state() {
        use TaskState::{Completed, Pending, Resolving, Running};
        let unchanged = |task: &Task| task.clone();
        let start = |cell: &'static [u8]| {
            move |task: &Task| Ok(task.start(cell, NOW)?.unwrap_or_else(|| unchanged(task)))
        };
        let complete =
            |cell: &'static [u8]| move |task: &Task| task.complete(End::default(), cell, NOW);
        // In the order of the states: invalid, pending, running, completed, resolving.
        assert_eq!(
            after(start(b"cell")),
            [None, Some(Running), Some(Running), None, None]
        );
        assert_eq!(
            after(start(b"other")),
            [None, Some(Running), None, None, None]
        );
        assert_eq!(
            after(complete(b"cell")),
            [None, None, Some(Completed), None, None]
        );
        assert_eq!(after(complete(b"other")), [None; 5]);
        assert_eq!(
            after(|task| task.cancel(NOW)),
            [None, Some(Completed), Some(Completed), None, None]
        );
        assert_eq!(
            after(|task| task.fail(b"x", NOW)),
            [None, Some(Completed), Some(Completed), None, None]
        );
        assert_eq!(
            after(|task| task.reject(b"x", NOW)),
            [None, Some(Pending), Some(Pending), None, None]
        );
        assert_eq!(
            after(|task| task.resolve(NOW)),
            [None, None, None, Some(Resolving), None]
        );
        assert_eq!(
            after(Task::unresolve),
            [None, None, None, None, Some(Completed)]
        );
        assert_eq!(
            after(|task| task.check_deletion().map(|()| unchanged(task))),
            [None, None, None, None, Some(Resolving)]
        );
    }

    #[test]
    fn rejections_have_diegos_texts() {
        let text = |error: TaskError| error.to_string();
        assert_eq!(
            text(task(TaskState::Completed).start(b"c", 0).unwrap_err()),
            "Cannot transition from Completed to Running"
        );
        assert_eq!(
            text(task(TaskState::Running).start(b"c", 0).unwrap_err()),
            "Cannot transition from Running to Running"
        );
        let other = task(TaskState::Running)
            .complete(End::default(), b"c", 0)
            .unwrap_err();
        assert_eq!(text(other), "Running on cell cell not c");
        let early = task(TaskState::Pending).check_deletion().unwrap_err();
        assert_eq!(text(early), "Cannot transition from Pending to Resolving");
        assert_eq!(
            text(task(TaskState::Resolving).reject(b"", 0).unwrap_err()),
            "the request received is invalid"
        );
    }

    #[test]
    fn completion_is_stamped_and_clears_the_cell() {
        let end = End {
            failed: true,
            failure_reason: b"why".to_vec(),
            result: b"r".to_vec(),
        };
        let ended = task(TaskState::Running)
            .complete(end, b"cell", NOW)
            .unwrap();
        assert_eq!(
            (
                ended.updated_at_ns,
                ended.first_completed_at_ns,
                ended.cell_id.len()
            ),
            (NOW, NOW, 0)
        );
        assert_eq!(
            (ended.failed, &ended.failure_reason[..], &ended.result[..]),
            (true, &b"why"[..], &b"r"[..])
        );
        let cancelled = task(TaskState::Pending).cancel(NOW).unwrap();
        assert_eq!(
            (cancelled.failed, &cancelled.failure_reason[..]),
            (true, CANCELLED)
        );
        assert_eq!(
            task(TaskState::Running).abandoned(b"gone", NOW).cell_id,
            b"cell"
        );
    }

    #[test]
    fn transition_changes_its_own_fields_only() {
        let full = |state| Task {
            guid: b"guid".to_vec(),
            created_at_ns: 2,
            first_completed_at_ns: 3,
            failed: true,
            failure_reason: b"why".to_vec(),
            result: b"result".to_vec(),
            rejection_count: 4,
            rejection_reason: b"full".to_vec(),
            ..task(state)
        };
        let started = full(TaskState::Pending)
            .start(b"other", NOW)
            .unwrap()
            .unwrap();
        let running = Task {
            cell_id: b"other".to_vec(),
            updated_at_ns: NOW,
            ..full(TaskState::Running)
        };
        assert_eq!(started, running);
        let resolving = full(TaskState::Completed).resolve(NOW).unwrap();
        assert_eq!(
            resolving,
            Task {
                updated_at_ns: NOW,
                ..full(TaskState::Resolving)
            }
        );
        assert_eq!(
            resolving.unresolve().unwrap(),
            Task {
                updated_at_ns: NOW,
                ..full(TaskState::Completed)
            }
        );
        let rejected = full(TaskState::Running).reject(b"again", NOW).unwrap();
        let waiting = Task {
            rejection_count: 5,
            rejection_reason: b"again".to_vec(),
            ..full(TaskState::Pending)
        };
        assert_eq!(
            rejected,
            Task {
                updated_at_ns: NOW,
                ..waiting
            }
        );
        let failed = full(TaskState::Running).fail(b"late", NOW).unwrap();
        let ended = Task {
            failure_reason: b"late".to_vec(),
            result: Text::new(),
            ..full(TaskState::Completed)
        };
        let ended = Task {
            updated_at_ns: NOW,
            first_completed_at_ns: NOW,
            ..ended
        };
        assert_eq!(
            failed,
            Task {
                cell_id: Text::new(),
                ..ended.clone()
            }
        );
        assert_eq!(full(TaskState::Pending).abandoned(b"late", NOW), ended);
    }

    #[test]
    fn state_is_parsed_by_number_and_unknown_numbers_are_invalid() {
        for state in TaskState::ALL {
            assert_eq!(task(state).state(), state);
        }
        assert_eq!(
            Task {
                state: 5,
                ..Task::default()
            }
            .state(),
            TaskState::Invalid
        );
        let names = ["Invalid", "Pending", "Running", "Completed", "Resolving"];
        assert_eq!(TaskState::ALL.map(TaskState::name), names);
    }

    #[test]
    fn rejection_is_counted_and_keeps_the_cell() {
        let rejected = task(TaskState::Running).reject(b"full", NOW).unwrap();
        assert_eq!(
            (rejected.rejection_count, &rejected.rejection_reason[..]),
            (1, &b"full"[..])
        );
        assert_eq!(
            (&rejected.cell_id[..], rejected.updated_at_ns),
            (&b"cell"[..], NOW)
        );
    }
}
