//! Counts what a run of convergence finds among the instances, page by page.

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

    pub(super) fn count(&mut self, unit: &ProcessRecords, input: &ConvergenceInput<'_>) {
        let counts = &mut self.counts;
        counts.desired += unit
            .wanted
            .as_ref()
            .map_or(0, |wanted| u64::try_from(wanted.instances).unwrap_or(0));
        let mut crashes = false;
        for slot in unit.slots.values() {
            if let Some(row) = &slot.ordinary {
                crashes |= row.state() == Some(State::Crashed);
                match row.state() {
                    Some(State::Unclaimed) => counts.unclaimed += 1,
                    Some(State::Claimed) => counts.claimed += 1,
                    Some(State::Running) => counts.running += 1,
                    Some(State::Crashed) => counts.crashed += 1,
                    None => {}
                }
            }
            match slot.suspect.as_ref().and_then(ActualLrp::state) {
                Some(State::Running) => counts.suspect_running += 1,
                Some(State::Claimed) => counts.suspect_claimed += 1,
                Some(State::Unclaimed | State::Crashed) | None => {}
            }
            let gone = slot
                .rows()
                .filter(|row| !row.cell_id.is_empty() && input.cells.is_gone(&row.cell_id));
            self.lost_cells.extend(gone.map(|row| row.cell_id.clone()));
        }
        counts.crashing_desired += u64::from(crashes);
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
