//! Crash and failure: a container ended by itself, or an instance could not be placed.

use super::{Slot, SlotError, rules};
use crate::model::actual_lrp::{InstanceKey, LrpKey, State};
use crate::model::restart;

/// The effect of a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crashed {
    /// The container was suspect, and its row is removed.
    Gone,
    /// The instance waits for a cell again.
    Unclaimed,
    /// The instance waits until its restart is due.
    Waits,
}

impl Slot {
    /// Records the crash of a container.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeCrashed` if the container is not the instance's.
    pub fn crash(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        reason: &[u8],
        now_ns: i64,
    ) -> Result<Crashed, SlotError> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(instance)) {
            self.suspect = None;
            return Ok(Crashed::Gone);
        }
        let row = self.ordinary.as_mut().ok_or(SlotError::NotFound)?;
        if !rules::may_enter(row, key, instance, State::Crashed) {
            return Err(SlotError::CannotBeCrashed);
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

    /// Records that a waiting instance could not be placed; it continues to wait.
    ///
    /// # Errors
    /// `CannotBeFailed` if the instance does not wait.
    pub fn fail(&mut self, reason: &[u8], now_ns: i64) -> Result<(), SlotError> {
        let Some(row) = &mut self.ordinary else { return Ok(()) };
        if row.state() != Some(State::Unclaimed) {
            return Err(SlotError::CannotBeFailed);
        }
        row.placement_error = reason.to_vec();
        row.changed(now_ns);
        Ok(())
    }
}
