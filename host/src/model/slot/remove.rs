//! Removal and retirement of an instance.

use super::{Slot, SlotError};
use crate::model::actual_lrp::{ActualLrp, InstanceKey, Presence, State};

/// The effect of a retirement.
#[derive(Debug, Clone, PartialEq)]
pub enum Retired {
    /// The row is removed.
    Removed,
    /// The cell has to stop the container first.
    HasContainer(Box<ActualLrp>),
}

impl Slot {
    /// Removes the managed instance, whichever it is without an instance key.
    ///
    /// # Errors
    /// `NotFound` if there is no such instance.
    pub fn remove(&mut self, instance: Option<&InstanceKey>) -> Result<(), SlotError> {
        let is_meant = |row: &mut ActualLrp| instance.is_none_or(|instance| row.is_instance(instance));
        self.ordinary.take_if(is_meant).map(drop).ok_or(SlotError::NotFound)
    }

    /// Removes an evacuating container.
    ///
    /// # Errors
    /// `NotFound` if there is no evacuating container with this key.
    pub fn remove_evacuating(&mut self, instance: &InstanceKey) -> Result<(), SlotError> {
        match self.presence_of(instance) {
            Some(Presence::Evacuating) => {
                self.evacuating = None;
                Ok(())
            }
            Some(Presence::Ordinary | Presence::Suspect) | None => Err(SlotError::NotFound),
        }
    }

    /// Removes an instance without a container; one with a container is left to its cell.
    ///
    /// # Errors
    /// `NotFound` without an instance.
    pub fn retire(&mut self) -> Result<Retired, SlotError> {
        let row = self.ordinary.as_ref().ok_or(SlotError::NotFound)?;
        match row.state() {
            Some(State::Unclaimed | State::Crashed) => {
                self.ordinary = None;
                Ok(Retired::Removed)
            }
            // An instance in an unknown state may be running.
            Some(State::Claimed | State::Running) | None => Ok(Retired::HasContainer(Box::new(row.clone()))),
        }
    }
}
