//! A slot: one index of a desired LRP, with up to three rows. A transition applies to the whole
//! slot; the rows to write and the events to publish follow from the slot before and after.

mod evacuation;
mod replacement;
mod rules;
mod transitions;

use std::collections::BTreeMap;

use super::actual_lrp::{ActualLrp, InstanceKey, Presence};

pub use evacuation::{Desired, Evacuated, Replacement};
pub use replacement::ReplacementPhase;
pub use transitions::{Container, Crashed, DefinitionCount, Retired, Unclaim};

/// Why a transition of a slot is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    #[error("there is no such instance")]
    NotFound,
    #[error("there is such an instance already")]
    Exists,
    #[error("the instance cannot be claimed as it is")]
    CannotBeClaimed,
    #[error("the instance cannot be started as it is")]
    CannotBeStarted,
    #[error("the instance cannot crash as it is")]
    CannotBeCrashed,
    #[error("the instance does not wait for a cell")]
    CannotBeFailed,
    #[error("the instance cannot be unclaimed as it is")]
    CannotBeUnclaimed,
}

/// The rows of one index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slot {
    /// The row that the service manages.
    pub ordinary: Option<ActualLrp>,
    /// The old container, while its cell is being evacuated.
    pub evacuating: Option<ActualLrp>,
    /// The container on a cell that is no longer present.
    pub suspect: Option<ActualLrp>,
}

impl Slot {
    /// Collects the rows of one slot. A row with an unknown presence is left out and stays as it
    /// is.
    pub fn of(rows: impl IntoIterator<Item = ActualLrp>) -> Self {
        let mut slot = Self::default();
        for row in rows {
            if let Some(presence) = row.presence() {
                *slot.at_mut(presence) = Some(row);
            }
        }
        slot
    }

    /// The slots of one process guid, by index. Boxed: a `BTreeMap` node has room for eleven
    /// values, and most have one.
    pub fn by_index(rows: impl IntoIterator<Item = ActualLrp>) -> BTreeMap<i32, Box<Self>> {
        let mut slots = BTreeMap::<_, Box<Self>>::new();
        for row in rows {
            let slot = slots.entry(row.index).or_default();
            if let Some(presence) = row.presence() {
                *slot.at_mut(presence) = Some(row);
            }
        }
        slots
    }

    /// Whether the slot has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// The row with this presence.
    pub fn at(&self, presence: Presence) -> Option<&ActualLrp> {
        match presence {
            Presence::Ordinary => self.ordinary.as_ref(),
            Presence::Evacuating => self.evacuating.as_ref(),
            Presence::Suspect => self.suspect.as_ref(),
        }
    }

    /// The row with this presence, to change it.
    pub fn at_mut(&mut self, presence: Presence) -> &mut Option<ActualLrp> {
        match presence {
            Presence::Ordinary => &mut self.ordinary,
            Presence::Evacuating => &mut self.evacuating,
            Presence::Suspect => &mut self.suspect,
        }
    }

    /// The rows that exist.
    pub fn rows(&self) -> impl Iterator<Item = &ActualLrp> {
        [&self.ordinary, &self.evacuating, &self.suspect]
            .into_iter()
            .flatten()
    }

    /// Whether the container is the suspect one.
    fn is_suspect(&self, instance: &InstanceKey) -> bool {
        self.suspect
            .as_ref()
            .is_some_and(|row| row.is_instance(instance))
    }

    /// The presence of the row with this instance key.
    pub fn presence_of(&self, instance: &InstanceKey) -> Option<Presence> {
        Presence::ALL.into_iter().find(|presence| {
            self.at(*presence)
                .is_some_and(|row| row.is_instance(instance))
        })
    }
}

#[cfg(test)]
mod tests;
