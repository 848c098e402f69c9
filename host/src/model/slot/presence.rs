//! A container whose cell disappears or comes back. Neither makes a new revision of its record.

use super::{Slot, SlotError};
use crate::model::actual_lrp::Presence;

impl Slot {
    /// Marks the managed container as suspect, because its cell is gone.
    ///
    /// # Errors
    /// `NotFound` without an instance; `Exists` if there is a suspect container.
    pub fn suspect(&mut self) -> Result<(), SlotError> {
        if self.suspect.is_some() {
            return Err(SlotError::Exists);
        }
        let mut row = self.ordinary.take().ok_or(SlotError::NotFound)?;
        row.presence = Presence::Suspect as i32;
        self.suspect = Some(row);
        Ok(())
    }

    /// Makes the suspect container the managed one, because its cell is back. Replaces the managed row, if there is one.
    ///
    /// # Errors
    /// `NotFound` without a suspect container.
    pub fn promote(&mut self) -> Result<(), SlotError> {
        let mut row = self.suspect.take().ok_or(SlotError::NotFound)?;
        row.presence = Presence::Ordinary as i32;
        self.ordinary = Some(row);
        Ok(())
    }
}
