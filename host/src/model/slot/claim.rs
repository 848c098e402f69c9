//! Claim: a cell is starting an instance.

use super::{Slot, SlotError, rules};
use crate::model::actual_lrp::{InstanceKey, State};

impl Slot {
    /// Claims the instance for a container. A repeated claim, and one of the suspect container, change nothing.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeClaimed` if another container has it.
    pub fn claim(&mut self, instance: &InstanceKey, now_ns: i64) -> Result<(), SlotError> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(instance)) {
            return Ok(());
        }
        let row = self.ordinary.as_mut().ok_or(SlotError::NotFound)?;
        if !rules::may_enter(row, &row.key(), instance, State::Claimed) {
            return Err(SlotError::CannotBeClaimed);
        }
        if row.state() == Some(State::Claimed) {
            return Ok(());
        }
        row.leave_cell();
        row.set_instance(instance.clone());
        row.placement_error.clear();
        row.enter(State::Claimed, now_ns);
        Ok(())
    }
}
