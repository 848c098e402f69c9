//! A container whose cell disappears, and comes back. Neither is another image of its record.

use super::{Refusal, Slot};
use crate::model::actual_lrp::Presence;

impl Slot {
    /// The cell of the managed container has disappeared: it is kept beside whatever takes its place.
    pub fn suspect(&mut self) -> Result<(), Refusal> {
        if self.suspect.is_some() {
            return Err(Refusal::Exists);
        }
        let mut row = self.ordinary.take().ok_or(Refusal::NotFound)?;
        row.presence = Presence::Suspect as i32;
        self.suspect = Some(row);
        Ok(())
    }

    /// The cell of a suspect container is there again: that container is the managed one, whatever has been.
    pub fn promote(&mut self) -> Result<(), Refusal> {
        let mut row = self.suspect.take().ok_or(Refusal::NotFound)?;
        row.presence = Presence::Ordinary as i32;
        self.ordinary = Some(row);
        Ok(())
    }
}
