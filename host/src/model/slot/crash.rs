//! A container ended by itself, or could not be placed.

use super::{Refusal, Slot, rules};
use crate::model::actual_lrp::{InstanceKey, LrpKey, State};
use crate::model::restart;

/// What became of an instance that crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crashed {
    /// Another container has taken its place already.
    Gone,
    /// It waits for a cell again.
    Unclaimed,
    /// It waits for its next start to be due.
    Waits,
}

impl Slot {
    pub fn crash(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        reason: &[u8],
        now_ns: i64,
    ) -> Result<Crashed, Refusal> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(instance)) {
            self.suspect = None;
            return Ok(Crashed::Gone);
        }
        let row = self.ordinary.as_mut().ok_or(Refusal::NotFound)?;
        if !rules::may_enter(row, key, instance, State::Crashed) {
            return Err(Refusal::CannotBeCrashed);
        }
        let ran_ns = (row.state() == Some(State::Running)).then(|| now_ns.saturating_sub(row.since_ns));
        row.crash_count = restart::crash_count(row.crash_count, ran_ns);
        row.crash_reason = reason.to_vec();
        row.leave_cell();
        let (state, crashed) = match restart::is_at_once(row.crash_count) {
            true => (State::Unclaimed, Crashed::Unclaimed),
            false => (State::Crashed, Crashed::Waits),
        };
        row.enter(state, now_ns);
        Ok(crashed)
    }

    /// No cell could take it. It goes on waiting.
    pub fn fail(&mut self, reason: &[u8], now_ns: i64) -> Result<(), Refusal> {
        let Some(row) = &mut self.ordinary else { return Ok(()) };
        if row.state() != Some(State::Unclaimed) {
            return Err(Refusal::CannotBeFailed);
        }
        row.placement_error = reason.to_vec();
        row.changed(now_ns);
        Ok(())
    }
}
