//! An instance that waits for a cell, from its beginning or again.

use super::{Refusal, Slot};
use crate::model::actual_lrp::{ActualLrp, LrpKey, State};

/// Which instances are sent back to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaim {
    /// Any that does not wait already.
    Any,
    /// One that was found waiting for too long. Having been claimed meanwhile, it is left alone.
    Stale,
}

impl Slot {
    pub fn unclaim(&mut self, which: Unclaim, now_ns: i64) -> Result<(), Refusal> {
        let row = self.ordinary.as_mut().ok_or(Refusal::NotFound)?;
        match (row.state(), which) {
            (Some(State::Unclaimed) | None, _) | (Some(State::Claimed), Unclaim::Stale) => {
                return Err(Refusal::CannotBeUnclaimed);
            }
            (Some(State::Claimed), Unclaim::Any) | (Some(State::Running | State::Crashed), _) => {}
        }
        row.leave_cell();
        row.enter(State::Unclaimed, now_ns);
        Ok(())
    }

    pub fn create_unclaimed(&mut self, key: &LrpKey, now_ns: i64) -> Result<(), Refusal> {
        if self.ordinary.is_some() {
            return Err(Refusal::Exists);
        }
        self.ordinary = Some(ActualLrp::unclaimed(key, now_ns));
        Ok(())
    }
}
