//! Waiting instances: new ones, and ones that return to waiting.

use super::{Slot, SlotError};
use crate::model::actual_lrp::{ActualLrp, LrpKey, State};

/// Which instances may be unclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaim {
    /// Any that is not waiting.
    Any,
    /// One that was found stale. If it has been claimed since, it is left alone.
    Stale,
}

impl Slot {
    /// Sends the instance back to wait for a cell.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeUnclaimed` if it waits already or `which` excludes it.
    pub fn unclaim(&mut self, which: Unclaim, now_ns: i64) -> Result<(), SlotError> {
        let row = self.ordinary.as_mut().ok_or(SlotError::NotFound)?;
        match (row.state(), which) {
            (Some(State::Unclaimed) | None, _) | (Some(State::Claimed), Unclaim::Stale) => {
                return Err(SlotError::CannotBeUnclaimed);
            }
            (Some(State::Claimed), Unclaim::Any) | (Some(State::Running | State::Crashed), _) => {}
        }
        row.leave_cell();
        row.enter(State::Unclaimed, now_ns);
        Ok(())
    }

    /// Creates a waiting instance.
    ///
    /// # Errors
    /// `Exists` if there is an instance.
    pub fn create_unclaimed(&mut self, key: &LrpKey, now_ns: i64) -> Result<(), SlotError> {
        if self.ordinary.is_some() {
            return Err(SlotError::Exists);
        }
        self.ordinary = Some(ActualLrp::unclaimed(key, now_ns));
        Ok(())
    }
}
