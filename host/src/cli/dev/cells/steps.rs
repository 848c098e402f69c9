//! The next step of a simulated cell for an instance or a task: pure functions of its record.

use bbs_proto::models as proto;

/// From the claim of an instance until it runs, and from the start of a task until it completes.
const START_TIME_NS: i64 = 500_000_000;
/// A run action of this program fails. Every other one runs until it is stopped.
const FAILING: &[u8] = b"/bin/false";
/// Why it failed.
pub(super) const FAILURE: &str = "/bin/false ended with exit status 1";
/// The ids of cells are this and a number from 1 on.
const CELL: &str = "dev-cell-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceStep {
    /// Waits for a cell.
    Claim,
    /// Was claimed by one of the cells, and its start time is over.
    Start,
    /// Is not desired any more.
    Stop,
    /// Is on a cell of an earlier run, which had more cells.
    Lose,
}

impl InstanceStep {
    /// `is_desired`: whether the row's desired LRP has an instance at its index.
    pub(super) fn of(
        row: &proto::ActualLrp,
        is_desired: bool,
        cells: u16,
        now_ns: i64,
    ) -> Option<Self> {
        let is_over = now_ns.saturating_sub(row.since) >= START_TIME_NS;
        let is_ordinary = row.presence() == proto::actual_lrp::Presence::Ordinary;
        match (&row.state[..], number_of_cell(cell_of(row))) {
            (b"UNCLAIMED", _) if is_ordinary && is_desired => Some(Self::Claim),
            (b"CLAIMED" | b"RUNNING", Some(_)) if !is_desired => Some(Self::Stop),
            (b"CLAIMED" | b"RUNNING", Some(number)) if number > cells => Some(Self::Lose),
            (b"CLAIMED", Some(_)) if is_over => Some(Self::Start),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskStep {
    Start,
    Complete,
}

impl TaskStep {
    /// A task on a cell of an earlier run completes, too.
    pub(super) fn of(task: &proto::Task, now_ns: i64) -> Option<Self> {
        let is_over = now_ns.saturating_sub(task.updated_at) >= START_TIME_NS;
        match (task.state(), number_of_cell(&task.cell_id)) {
            (proto::task::State::Pending, _) => Some(Self::Start),
            (proto::task::State::Running, Some(_)) if is_over => Some(Self::Complete),
            _ => None,
        }
    }
}

/// Whether a row is that of a container on one of the cells.
pub(super) fn runs_on(row: &proto::ActualLrp, cells: u16) -> bool {
    row.state == b"RUNNING" && number_of_cell(cell_of(row)).is_some_and(|number| number <= cells)
}

/// Whether an action fails.
pub(super) fn fails(action: Option<&proto::Action>) -> bool {
    let run = action.and_then(|action| action.run_action.as_ref());
    run.is_some_and(|run| run.path == FAILING)
}

/// The number of containers and tasks on each cell.
#[derive(Debug)]
pub(super) struct Load(Vec<usize>);

impl Load {
    pub(super) fn of(cells: u16, rows: &[proto::ActualLrp], tasks: &[proto::Task]) -> Self {
        let mut load = vec![0; usize::from(cells)];
        let running = tasks
            .iter()
            .filter(|task| task.state() == proto::task::State::Running);
        let of_tasks = running.map(|task| &task.cell_id[..]);
        for number in rows
            .iter()
            .map(cell_of)
            .chain(of_tasks)
            .filter_map(number_of_cell)
        {
            if let Some(count) = load.get_mut(usize::from(number) - 1) {
                *count += 1;
            }
        }
        Self(load)
    }

    /// Adds one container or task to the cell that has the fewest, and returns its id.
    pub(super) fn place(&mut self) -> String {
        let least = (0..self.0.len())
            .min_by_key(|cell| self.0[*cell])
            .unwrap_or_default();
        if let Some(count) = self.0.get_mut(least) {
            *count += 1;
        }
        format!("{CELL}{}", least + 1)
    }
}

fn cell_of(row: &proto::ActualLrp) -> &[u8] {
    row.actual_lrp_instance_key
        .as_ref()
        .map_or(&[], |instance| &instance.cell_id)
}

/// The number of a simulated cell; `None` for every other cell id.
fn number_of_cell(id: &[u8]) -> Option<u16> {
    let number = std::str::from_utf8(id).ok()?.strip_prefix(CELL)?;
    number.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: i64 = 10 * START_TIME_NS;

    fn row(state: &str, cell: &str, since: i64) -> proto::ActualLrp {
        let instance = proto::ActualLrpInstanceKey {
            cell_id: cell.into(),
            ..Default::default()
        };
        proto::ActualLrp {
            state: state.into(),
            since,
            actual_lrp_instance_key: Some(instance),
            ..Default::default()
        }
    }

    #[test]
    fn instance_is_claimed_and_started_half_a_second_later() {
        let step = |state, cell, since| InstanceStep::of(&row(state, cell, since), true, 2, NOW_NS);
        assert_eq!(step("UNCLAIMED", "", NOW_NS), Some(InstanceStep::Claim));
        assert_eq!(
            step("CLAIMED", "dev-cell-2", NOW_NS - START_TIME_NS + 1),
            None
        );
        assert_eq!(
            step("CLAIMED", "dev-cell-2", NOW_NS - START_TIME_NS),
            Some(InstanceStep::Start)
        );
        assert_eq!(step("RUNNING", "dev-cell-2", 0), None);
        assert_eq!(step("CRASHED", "", 0), None);
    }

    #[test]
    fn instances_of_other_cells_are_left_to_them() {
        for cell in ["cell-1", "dev-cell-0", "dev-cell-", "dev-cell-x", ""] {
            for is_desired in [false, true] {
                assert_eq!(
                    InstanceStep::of(&row("CLAIMED", cell, 0), is_desired, 2, NOW_NS),
                    None,
                    "{cell:?}"
                );
            }
        }
    }

    #[test]
    fn instances_of_cells_that_an_earlier_run_had_are_lost() {
        for state in ["CLAIMED", "RUNNING"] {
            let step = InstanceStep::of(&row(state, "dev-cell-3", NOW_NS), true, 2, NOW_NS);
            assert_eq!(step, Some(InstanceStep::Lose), "{state}");
        }
    }

    #[test]
    fn instances_that_are_not_desired_are_not_claimed_and_are_stopped() {
        assert_eq!(
            InstanceStep::of(&row("UNCLAIMED", "", 0), false, 2, NOW_NS),
            None
        );
        for state in ["CLAIMED", "RUNNING"] {
            let step = InstanceStep::of(&row(state, "dev-cell-2", NOW_NS), false, 2, NOW_NS);
            assert_eq!(step, Some(InstanceStep::Stop), "{state}");
        }
    }

    #[test]
    fn task_is_started_and_completes_half_a_second_later() {
        let step = |state: proto::task::State, cell: &str, updated_at| {
            let task = proto::Task {
                state: state.into(),
                cell_id: cell.into(),
                updated_at,
                ..Default::default()
            };
            TaskStep::of(&task, NOW_NS)
        };
        assert_eq!(
            step(proto::task::State::Pending, "", NOW_NS),
            Some(TaskStep::Start)
        );
        assert_eq!(
            step(proto::task::State::Running, "dev-cell-1", NOW_NS),
            None
        );
        assert_eq!(
            step(proto::task::State::Running, "dev-cell-1", 0),
            Some(TaskStep::Complete)
        );
        assert_eq!(step(proto::task::State::Running, "cell-1", 0), None);
        assert_eq!(step(proto::task::State::Completed, "dev-cell-1", 0), None);
    }

    #[test]
    fn least_loaded_cell_is_chosen() {
        let rows = [
            row("RUNNING", "dev-cell-1", 0),
            row("CLAIMED", "dev-cell-1", 0),
            row("RUNNING", "dev-cell-3", 0),
        ];
        let task = |state: proto::task::State| proto::Task {
            state: state.into(),
            cell_id: b"dev-cell-2".to_vec(),
            ..Default::default()
        };
        let tasks = [
            task(proto::task::State::Running),
            task(proto::task::State::Completed),
        ];
        let mut load = Load::of(3, &rows, &tasks);
        let placed: Vec<_> = std::iter::repeat_with(|| load.place()).take(5).collect();
        assert_eq!(
            placed,
            [
                "dev-cell-2",
                "dev-cell-3",
                "dev-cell-1",
                "dev-cell-2",
                "dev-cell-3"
            ]
        );
    }
}
