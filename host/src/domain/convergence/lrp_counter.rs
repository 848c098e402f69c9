//! Counts of a run of convergence, page by page: the records that it finds, and the states in which
//! it leaves the instances.

use std::collections::BTreeSet;

use bbs_model::Text;
use bbs_model::actual_lrp::{ActualLrp, State};
use bbs_model::cell::CellSet;
use bbs_model::convergence::{ConvergenceInput, ProcessRecords, SlotAction};

use crate::metrics::LrpCounts;

#[derive(Default)]
pub(super) struct LrpCounter {
    counts: LrpCounts,
    lost_cells: BTreeSet<Text>,
}

impl LrpCounter {
    pub(super) fn begin(fresh_domains: &[Text]) -> Self {
        let fresh_domains = fresh_domains
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        Self {
            counts: LrpCounts {
                fresh_domains,
                ..LrpCounts::default()
            },
            ..Self::default()
        }
    }

    /// Counts the records of a process guid before the run acts on them.
    pub(super) fn count_found(&mut self, unit: &ProcessRecords, input: &ConvergenceInput<'_>) {
        let counts = &mut self.counts;
        for slot in unit.slots.values() {
            match slot.suspect.as_ref().and_then(ActualLrp::state) {
                Some(State::Running) => counts.suspect_running += 1,
                Some(State::Claimed) => counts.suspect_claimed += 1,
                Some(State::Unclaimed | State::Crashed) | None => {}
            }
        }
        let Some(wanted) = &unit.wanted else { return };
        counts.desired += u64::try_from(wanted.target.instances).unwrap_or(0);
        // Diego counts the cells of desired containers, after it has removed the evacuating rows
        // whose cell is gone.
        let rows = unit.slots.values();
        let rows = rows.flat_map(|slot| slot.ordinary.iter().chain(&slot.suspect));
        let lost = rows.filter(|row| {
            matches!(row.state(), Some(State::Claimed | State::Running))
                && !row.cell_id.is_empty()
                && input.is_on_gone_cell(row)
        });
        self.lost_cells.extend(lost.map(|row| row.cell_id.clone()));
    }

    /// Counts the states of the managed instances of a process guid as the run has left them, which
    /// Diego's gauges have.
    pub(super) fn count_left(&mut self, unit: &ProcessRecords) {
        let counts = &mut self.counts;
        let mut crashes = false;
        for row in unit
            .slots
            .values()
            .filter_map(|slot| slot.ordinary.as_ref())
        {
            match row.state() {
                Some(State::Unclaimed) => counts.unclaimed += 1,
                Some(State::Claimed) => counts.claimed += 1,
                Some(State::Running) => counts.running += 1,
                Some(State::Crashed) => {
                    counts.crashed += 1;
                    crashes = true;
                }
                None => {}
            }
        }
        counts.crashing_desired += u64::from(crashes);
    }

    /// Removes an instance from the counts of [`Self::count_left`], as its row was removed later.
    pub(super) fn count_removed(&mut self, state: Option<State>) {
        match state {
            Some(State::Claimed) => self.counts.claimed -= 1,
            Some(State::Running) => self.counts.running -= 1,
            Some(State::Unclaimed | State::Crashed) | None => {}
        }
    }

    pub(super) fn count_actions(&mut self, actions: &[SlotAction]) {
        self.counts.missing += u64::from(actions.contains(&SlotAction::Create));
        self.counts.extra += u64::from(actions.contains(&SlotAction::Retire));
    }

    pub(super) fn end(self, cells: &CellSet, started: u64, failed: u64) -> LrpCounts {
        let present_cells = cells.len() as u64;
        let suspect_cells = self.lost_cells.len() as u64;
        LrpCounts {
            present_cells,
            suspect_cells,
            started,
            failed,
            ..self.counts
        }
    }
}
