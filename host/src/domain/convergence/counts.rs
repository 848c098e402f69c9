//! What a run of convergence found among the instances, for whoever watches.

use std::collections::BTreeSet;

use crate::metrics::Lrps;
use crate::model::Text;
use crate::model::actual_lrp::{ActualLrp, State};
use crate::model::cell::CellSet;
use crate::model::convergence::{Action, Unit, World};

/// Instances are those that the service manages, unless it says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LrpCounts {
    pub unclaimed: u64,
    pub claimed: u64,
    pub running: u64,
    pub crashed: u64,
    /// Desired LRPs with an instance that crashed.
    pub crashing_desired: u64,
    /// Instances that are desired.
    pub desired: u64,
    /// Desired and not there.
    pub missing: u64,
    /// There and not desired.
    pub extra: u64,
    pub suspect_running: u64,
    pub suspect_claimed: u64,
    pub present_cells: u64,
    /// Cells that have instances, and are not there.
    pub suspect_cells: u64,
    /// Instances for which cells were asked.
    pub started: u64,
    /// What was due and could not be done.
    pub failed: u64,
    pub fresh_domains: Vec<Text>,
    pub(super) lost_cells: BTreeSet<Text>,
}

impl LrpCounts {
    /// As it is told outside.
    pub(super) fn measured(&self) -> Lrps {
        Lrps {
            unclaimed: self.unclaimed,
            claimed: self.claimed,
            running: self.running,
            crashed: self.crashed,
            crashing_desired: self.crashing_desired,
            desired: self.desired,
            missing: self.missing,
            extra: self.extra,
            suspect_running: self.suspect_running,
            suspect_claimed: self.suspect_claimed,
            present_cells: self.present_cells,
            suspect_cells: self.suspect_cells,
            fresh_domains: self.fresh_domains.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        }
    }

    pub(super) fn count(&mut self, unit: &Unit, world: &World<'_>) {
        self.desired += unit.wanted.as_ref().map_or(0, |wanted| u64::try_from(wanted.instances).unwrap_or(0));
        let mut crashes = false;
        for slot in unit.slots.values() {
            if let Some(row) = &slot.ordinary {
                crashes |= row.state() == Some(State::Crashed);
                match row.state() {
                    Some(State::Unclaimed) => self.unclaimed += 1,
                    Some(State::Claimed) => self.claimed += 1,
                    Some(State::Running) => self.running += 1,
                    Some(State::Crashed) => self.crashed += 1,
                    None => {}
                }
            }
            match slot.suspect.as_ref().and_then(ActualLrp::state) {
                Some(State::Running) => self.suspect_running += 1,
                Some(State::Claimed) => self.suspect_claimed += 1,
                Some(State::Unclaimed | State::Crashed) | None => {}
            }
            let gone = slot.rows().filter(|row| !row.cell_id.is_empty() && world.cells.is_gone(&row.cell_id));
            self.lost_cells.extend(gone.map(|row| row.cell_id.clone()));
        }
        self.crashing_desired += u64::from(crashes);
    }

    pub(super) fn count_actions(&mut self, actions: &[Action]) {
        self.missing += u64::from(actions.contains(&Action::Create));
        self.extra += u64::from(actions.contains(&Action::Retire));
    }

    pub(super) fn set_cells(&mut self, cells: &CellSet) {
        self.present_cells = cells.len() as u64;
        self.suspect_cells = std::mem::take(&mut self.lost_cells).len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_under_the_same_names() {
        let counts = LrpCounts {
            unclaimed: 1,
            claimed: 2,
            running: 3,
            crashed: 4,
            crashing_desired: 5,
            desired: 6,
            missing: 7,
            extra: 8,
            suspect_running: 9,
            suspect_claimed: 10,
            present_cells: 11,
            suspect_cells: 12,
            started: 13,
            failed: 14,
            fresh_domains: vec![b"cf-apps".to_vec(), vec![0xff]],
            lost_cells: BTreeSet::new(),
        };
        let told = counts.measured();
        let states = [told.unclaimed, told.claimed, told.running, told.crashed, told.crashing_desired, told.desired];
        assert_eq!(states, [1, 2, 3, 4, 5, 6]);
        assert_eq!([told.missing, told.extra, told.suspect_running, told.suspect_claimed], [7, 8, 9, 10]);
        assert_eq!([told.present_cells, told.suspect_cells], [11, 12]);
        assert_eq!(told.fresh_domains, ["cf-apps", "\u{fffd}"]);
    }
}
