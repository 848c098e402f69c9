//! A cell says that it is starting an instance.

use super::{Refusal, Slot, rules};
use crate::model::actual_lrp::{InstanceKey, State};

impl Slot {
    pub fn claim(&mut self, instance: &InstanceKey, now_ns: i64) -> Result<(), Refusal> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(instance)) {
            return Ok(());
        }
        let row = self.ordinary.as_mut().ok_or(Refusal::NotFound)?;
        if !rules::may_enter(row, &row.key(), instance, State::Claimed) {
            return Err(Refusal::CannotBeClaimed);
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
