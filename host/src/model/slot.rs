//! A slot: the instance of a desired LRP that has an index, in up to three rows. What happens to an instance happens
//! to its slot as a whole; which rows are written and which events are sent follows from the slot before and after.

use super::actual_lrp::{ActualLrp, Presence};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slot {
    /// The row that the service manages.
    pub ordinary: Option<ActualLrp>,
    /// The old container, while its cell is being emptied.
    pub evacuating: Option<ActualLrp>,
    /// The container on a cell that has disappeared.
    pub suspect: Option<ActualLrp>,
}

impl Slot {
    /// Of the rows of one slot. One whose presence nobody knows belongs to none and stays as it is.
    pub fn of(rows: impl IntoIterator<Item = ActualLrp>) -> Self {
        let mut slot = Self::default();
        for row in rows {
            if let Some(presence) = row.presence() {
                *slot.at_mut(presence) = Some(row);
            }
        }
        slot
    }

    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    pub fn at(&self, presence: Presence) -> Option<&ActualLrp> {
        match presence {
            Presence::Ordinary => self.ordinary.as_ref(),
            Presence::Evacuating => self.evacuating.as_ref(),
            Presence::Suspect => self.suspect.as_ref(),
        }
    }

    pub fn at_mut(&mut self, presence: Presence) -> &mut Option<ActualLrp> {
        match presence {
            Presence::Ordinary => &mut self.ordinary,
            Presence::Evacuating => &mut self.evacuating,
            Presence::Suspect => &mut self.suspect,
        }
    }

    pub fn rows(&self) -> impl Iterator<Item = &ActualLrp> {
        [&self.ordinary, &self.evacuating, &self.suspect].into_iter().flatten()
    }
}
