//! What convergence does about a task that nothing else moves on. Pure.

use super::{State, Task};
use crate::model::cell::CellSet;

const NOT_STARTED: &[u8] = b"not started within time limit";
const CELL_GONE: &[u8] = b"cell disappeared before completion";

/// What is known besides the task.
#[derive(Debug, Clone)]
pub struct World<'a> {
    pub now_ns: i64,
    pub cells: &'a CellSet,
    pub kick_ns: i64,
    pub expire_pending_ns: i64,
    pub expire_completed_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ask for a cell again.
    Auction,
    /// It waited for too long.
    Expire,
    /// Its cell is gone.
    Abandon,
    /// Whoever is to hear of its end did not: tell again.
    Tell,
    /// The same for one that was being told: it has ended again first.
    TellAnew,
    /// Nobody came for it.
    Forget,
}

impl World<'_> {
    pub fn decide(&self, task: &Task) -> Option<Action> {
        let since = |then_ns: i64, limit_ns: i64| then_ns < self.now_ns.saturating_sub(limit_ns);
        let forgotten = since(task.first_completed_at_ns, self.expire_completed_ns);
        let kicked = since(task.updated_at_ns, self.kick_ns);
        match task.state() {
            State::Pending if since(task.created_at_ns, self.expire_pending_ns) => Some(Action::Expire),
            State::Pending => Some(Action::Auction),
            State::Running if self.cells.is_gone(&task.cell_id) => Some(Action::Abandon),
            State::Completed if forgotten => Some(Action::Forget),
            State::Completed if kicked => Some(Action::Tell),
            State::Resolving if kicked && forgotten => Some(Action::Forget),
            State::Resolving if kicked => Some(Action::TellAnew),
            State::Invalid | State::Running | State::Completed | State::Resolving => None,
        }
    }

    /// The task after an action, where that changes it.
    pub fn after(&self, action: Action, task: &Task) -> Option<Task> {
        match action {
            Action::Expire => Some(task.abandoned(NOT_STARTED, self.now_ns)),
            Action::Abandon => Some(task.abandoned(CELL_GONE, self.now_ns)),
            Action::TellAnew => task.unresolve().ok(),
            Action::Auction | Action::Tell | Action::Forget => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task whose times are so long ago, in a world where these are the limits: 30 to kick, 100 pending, 60 completed.
    fn decided(state: State, age: i64, cell_id: &str) -> Option<Action> {
        let cells = CellSet::Known([b"here".to_vec()].into());
        let world = World { now_ns: 1000, cells: &cells, kick_ns: 30, expire_pending_ns: 100, expire_completed_ns: 60 };
        let then = 1000 - age;
        let task = Task {
            state: state as i32,
            cell_id: cell_id.into(),
            created_at_ns: then,
            updated_at_ns: then,
            first_completed_at_ns: then,
            ..Task::default()
        };
        world.decide(&task)
    }

    #[test]
    fn every_state_at_every_age() {
        let ages = [0, 30, 31, 60, 61, 100, 101];
        let of = |state| ages.map(|age| decided(state, age, "here"));
        let (auction, expire) = (Some(Action::Auction), Some(Action::Expire));
        assert_eq!(of(State::Pending), [auction, auction, auction, auction, auction, auction, expire]);
        assert_eq!(of(State::Running), [None; 7]);
        let (tell, anew, forget) = (Some(Action::Tell), Some(Action::TellAnew), Some(Action::Forget));
        assert_eq!(of(State::Completed), [None, None, tell, tell, forget, forget, forget]);
        assert_eq!(of(State::Resolving), [None, None, anew, anew, forget, forget, forget]);
        assert_eq!(of(State::Invalid), [None; 7]);
        assert_eq!(decided(State::Running, 0, "gone"), Some(Action::Abandon));
        assert_eq!(decided(State::Running, 0, ""), Some(Action::Abandon), "a cell that no presence names is gone");
    }

    #[test]
    fn what_is_told_anew_keeps_the_time_since_when_it_waits() {
        let cells = CellSet::Unknown;
        let world = World { now_ns: 9, cells: &cells, kick_ns: 1, expire_pending_ns: 1, expire_completed_ns: 1 };
        let task = Task { state: State::Resolving as i32, updated_at_ns: 3, ..Task::default() };
        let after = world.after(Action::TellAnew, &task).unwrap();
        assert_eq!((after.state(), after.updated_at_ns), (State::Completed, 3));
        let lost = Task { state: State::Running as i32, cell_id: b"c".to_vec(), ..Task::default() };
        let after = world.after(Action::Abandon, &lost).unwrap();
        assert_eq!((after.failed, &after.cell_id[..], &after.failure_reason[..]), (true, &b"c"[..], CELL_GONE));
    }
}
