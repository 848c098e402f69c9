//! An instance that is to be no more.

use super::{Refusal, Slot};
use crate::model::actual_lrp::{ActualLrp, InstanceKey, Presence, State};

/// What is left to do for an instance that is to go.
#[derive(Debug, Clone, PartialEq)]
pub enum Retired {
    Removed,
    /// Its cell has to stop it first.
    HasContainer(Box<ActualLrp>),
}

impl Slot {
    /// Without an instance key, whichever there is.
    pub fn remove(&mut self, instance: Option<&InstanceKey>) -> Result<(), Refusal> {
        let is_meant = |row: &mut ActualLrp| instance.is_none_or(|instance| row.is_instance(instance));
        self.ordinary.take_if(is_meant).map(drop).ok_or(Refusal::NotFound)
    }

    /// One that is evacuated, and no other.
    pub fn remove_evacuating(&mut self, instance: &InstanceKey) -> Result<(), Refusal> {
        match self.presence_of(instance) {
            Some(Presence::Evacuating) => {
                self.evacuating = None;
                Ok(())
            }
            Some(Presence::Ordinary | Presence::Suspect) | None => Err(Refusal::NotFound),
        }
    }

    pub fn retire(&mut self) -> Result<Retired, Refusal> {
        let row = self.ordinary.as_ref().ok_or(Refusal::NotFound)?;
        match row.state() {
            Some(State::Unclaimed | State::Crashed) => {
                self.ordinary = None;
                Ok(Retired::Removed)
            }
            // What nobody knows may be running.
            Some(State::Claimed | State::Running) | None => Ok(Retired::HasContainer(Box::new(row.clone()))),
        }
    }
}
