//! What may happen to a task, and what it is afterwards. Pure: a task and a call in, a task or a refusal out.

use super::Task;
use crate::model::Text;

const CANCELLED: &[u8] = b"task was cancelled";

/// The numbers are those at rest and on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// What a record says that nobody of this service wrote.
    Invalid = 0,
    /// Waits for a cell.
    Pending = 1,
    Running = 2,
    /// Ended; whoever desired it is to hear of it.
    Completed = 3,
    /// Somebody is being told.
    Resolving = 4,
}

impl State {
    pub const ALL: [Self; 5] = [Self::Invalid, Self::Pending, Self::Running, Self::Completed, Self::Resolving];

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

/// Why a call is not for a task as it is. The texts are Diego's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("Cannot transition from {} to {}", .from.name(), .to.name())]
    NoTransition { from: State, to: State },
    #[error("Running on cell {} not {}", String::from_utf8_lossy(.holds), String::from_utf8_lossy(.asks))]
    OtherCell { holds: Text, asks: Text },
    /// A rejection of what waits for no cell.
    #[error("the request received is invalid")]
    Rejection,
}

impl Task {
    pub fn state(&self) -> State {
        State::ALL.into_iter().find(|state| *state as i32 == self.state).unwrap_or(State::Invalid)
    }

    fn refused(&self, to: State) -> Refusal {
        Refusal::NoTransition { from: self.state(), to }
    }

    /// On a cell. `None` if it runs there already.
    pub fn start(&self, cell_id: &[u8], now_ns: i64) -> Result<Option<Self>, Refusal> {
        match self.state() {
            State::Pending => Ok(Some(Self {
                state: State::Running as i32,
                cell_id: cell_id.to_vec(),
                updated_at_ns: now_ns,
                ..self.clone()
            })),
            State::Running if self.cell_id == cell_id => Ok(None),
            State::Invalid | State::Running | State::Completed | State::Resolving => Err(self.refused(State::Running)),
        }
    }

    /// As the cell that ran it says it ended.
    pub fn complete(&self, end: End, cell_id: &[u8], now_ns: i64) -> Result<Self, Refusal> {
        match self.state() {
            State::Running if self.cell_id == cell_id => Ok(self.ended(end, now_ns)),
            State::Running => Err(Refusal::OtherCell { holds: self.cell_id.clone(), asks: cell_id.to_vec() }),
            State::Invalid | State::Pending | State::Completed | State::Resolving => {
                Err(self.refused(State::Completed))
            }
        }
    }

    /// Whoever desired it wants it no more.
    pub fn cancel(&self, now_ns: i64) -> Result<Self, Refusal> {
        self.fail(CANCELLED, now_ns)
    }

    pub fn fail(&self, reason: &[u8], now_ns: i64) -> Result<Self, Refusal> {
        match self.state() {
            State::Pending | State::Running => Ok(self.ended(End::failure(reason), now_ns)),
            State::Invalid | State::Completed | State::Resolving => Err(self.refused(State::Completed)),
        }
    }

    /// No cell takes it: it waits again.
    pub fn reject(&self, reason: &[u8], now_ns: i64) -> Result<Self, Refusal> {
        match self.state() {
            State::Pending | State::Running => Ok(Self {
                state: State::Pending as i32,
                rejection_count: self.rejection_count.saturating_add(1),
                rejection_reason: reason.to_vec(),
                updated_at_ns: now_ns,
                ..self.clone()
            }),
            State::Invalid | State::Completed | State::Resolving => Err(Refusal::Rejection),
        }
    }

    /// Its end is about to be told.
    pub fn resolve(&self, now_ns: i64) -> Result<Self, Refusal> {
        match self.state() {
            State::Completed => Ok(Self { state: State::Resolving as i32, updated_at_ns: now_ns, ..self.clone() }),
            State::Invalid | State::Pending | State::Running | State::Resolving => Err(self.refused(State::Resolving)),
        }
    }

    /// Nobody could be told: it is to be tried again.
    pub fn unresolve(&self) -> Result<Self, Refusal> {
        match self.state() {
            State::Resolving => Ok(Self { state: State::Completed as i32, ..self.clone() }),
            State::Invalid | State::Pending | State::Running | State::Completed => Err(self.refused(State::Completed)),
        }
    }

    /// Whether it may be forgotten.
    pub fn check_deletion(&self) -> Result<(), Refusal> {
        match self.state() {
            State::Resolving => Ok(()),
            // Diego's text names this state, not the end that was asked for.
            State::Invalid | State::Pending | State::Running | State::Completed => Err(self.refused(State::Resolving)),
        }
    }

    /// Ended without anybody's call, wherever it was.
    pub fn abandoned(&self, reason: &[u8], now_ns: i64) -> Self {
        Self { cell_id: self.cell_id.clone(), ..self.ended(End::failure(reason), now_ns) }
    }

    fn ended(&self, end: End, now_ns: i64) -> Self {
        let End { failed, failure_reason, result } = end;
        Self {
            state: State::Completed as i32,
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

/// How a task ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    pub failed: bool,
    pub failure_reason: Text,
    pub result: Text,
}

impl End {
    fn failure(reason: &[u8]) -> Self {
        Self { failed: true, failure_reason: reason.to_vec(), result: Text::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 7;

    fn task(state: State) -> Task {
        Task { state: state as i32, cell_id: b"cell".to_vec(), updated_at_ns: 1, ..Task::default() }
    }

    /// What each call makes of a task in each state: the state after it, or nothing where it is refused.
    fn after(call: impl Fn(&Task) -> Result<Task, Refusal>) -> [Option<State>; 5] {
        State::ALL.map(|state| call(&task(state)).ok().map(|task| task.state()))
    }

    #[test]
    fn every_call_in_every_state() {
        use State::{Completed, Pending, Resolving, Running};
        let unchanged = |task: &Task| task.clone();
        let start =
            |cell: &'static [u8]| move |task: &Task| Ok(task.start(cell, NOW)?.unwrap_or_else(|| unchanged(task)));
        let complete = |cell: &'static [u8]| move |task: &Task| task.complete(End::default(), cell, NOW);
        // In the order of the states: invalid, pending, running, completed, resolving.
        assert_eq!(after(start(b"cell")), [None, Some(Running), Some(Running), None, None]);
        assert_eq!(after(start(b"other")), [None, Some(Running), None, None, None]);
        assert_eq!(after(complete(b"cell")), [None, None, Some(Completed), None, None]);
        assert_eq!(after(complete(b"other")), [None; 5]);
        assert_eq!(after(|task| task.cancel(NOW)), [None, Some(Completed), Some(Completed), None, None]);
        assert_eq!(after(|task| task.fail(b"x", NOW)), [None, Some(Completed), Some(Completed), None, None]);
        assert_eq!(after(|task| task.reject(b"x", NOW)), [None, Some(Pending), Some(Pending), None, None]);
        assert_eq!(after(|task| task.resolve(NOW)), [None, None, None, Some(Resolving), None]);
        assert_eq!(after(Task::unresolve), [None, None, None, None, Some(Completed)]);
        let deletion = |task: &Task| task.check_deletion().map(|()| unchanged(task));
        assert_eq!(after(deletion), [None, None, None, None, Some(Resolving)]);
    }

    #[test]
    fn refusals_have_diegos_words() {
        let said = |refusal: Refusal| refusal.to_string();
        assert_eq!(
            said(task(State::Completed).start(b"c", 0).unwrap_err()),
            "Cannot transition from Completed to Running"
        );
        assert_eq!(said(task(State::Running).start(b"c", 0).unwrap_err()), "Cannot transition from Running to Running");
        let other = task(State::Running).complete(End::default(), b"c", 0).unwrap_err();
        assert_eq!(said(other), "Running on cell cell not c");
        let early = task(State::Pending).check_deletion().unwrap_err();
        assert_eq!(said(early), "Cannot transition from Pending to Resolving");
        assert_eq!(said(task(State::Resolving).reject(b"", 0).unwrap_err()), "the request received is invalid");
    }

    #[test]
    fn an_end_is_stamped_and_leaves_the_cell() {
        let end = End { failed: true, failure_reason: b"why".to_vec(), result: b"r".to_vec() };
        let ended = task(State::Running).complete(end, b"cell", NOW).unwrap();
        assert_eq!((ended.updated_at_ns, ended.first_completed_at_ns, ended.cell_id.len()), (NOW, NOW, 0));
        assert_eq!((ended.failed, &ended.failure_reason[..], &ended.result[..]), (true, &b"why"[..], &b"r"[..]));
        let cancelled = task(State::Pending).cancel(NOW).unwrap();
        assert_eq!((cancelled.failed, &cancelled.failure_reason[..]), (true, CANCELLED));
        assert_eq!(task(State::Running).abandoned(b"gone", NOW).cell_id, b"cell");
    }

    #[test]
    fn each_step_changes_what_it_is_about_and_nothing_else() {
        let told = |state| Task {
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
        let started = told(State::Pending).start(b"other", NOW).unwrap().unwrap();
        let running = Task { cell_id: b"other".to_vec(), updated_at_ns: NOW, ..told(State::Running) };
        assert_eq!(started, running);
        let resolving = told(State::Completed).resolve(NOW).unwrap();
        assert_eq!(resolving, Task { updated_at_ns: NOW, ..told(State::Resolving) });
        assert_eq!(resolving.unresolve().unwrap(), Task { updated_at_ns: NOW, ..told(State::Completed) });
        let rejected = told(State::Running).reject(b"again", NOW).unwrap();
        let waiting = Task { rejection_count: 5, rejection_reason: b"again".to_vec(), ..told(State::Pending) };
        assert_eq!(rejected, Task { updated_at_ns: NOW, ..waiting });
        let failed = told(State::Running).fail(b"late", NOW).unwrap();
        let ended = Task { failure_reason: b"late".to_vec(), result: Text::new(), ..told(State::Completed) };
        let ended = Task { updated_at_ns: NOW, first_completed_at_ns: NOW, ..ended };
        assert_eq!(failed, Task { cell_id: Text::new(), ..ended.clone() });
        assert_eq!(told(State::Pending).abandoned(b"late", NOW), ended);
    }

    #[test]
    fn a_state_is_known_by_its_number_and_none_by_any_other() {
        for state in State::ALL {
            assert_eq!(task(state).state(), state);
        }
        assert_eq!(Task { state: 5, ..Task::default() }.state(), State::Invalid);
        let names = ["Invalid", "Pending", "Running", "Completed", "Resolving"];
        assert_eq!(State::ALL.map(State::name), names);
    }

    #[test]
    fn a_rejection_counts_and_keeps_the_cell() {
        let rejected = task(State::Running).reject(b"full", NOW).unwrap();
        assert_eq!((rejected.rejection_count, &rejected.rejection_reason[..]), (1, &b"full"[..]));
        assert_eq!((&rejected.cell_id[..], rejected.updated_at_ns), (&b"cell"[..], NOW));
    }
}
