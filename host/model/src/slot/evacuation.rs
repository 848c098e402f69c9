//! Evacuation of a cell: the transitions of its containers, and which of them are kept until a
//! replacement runs.

mod decide;

use super::{Container, DefinitionCount, Slot, SlotError, Unclaim};
use crate::actual_lrp::{ActualLrp, InstanceKey, Presence, State};
use decide::{ContainerRow, EvacuationStep, Situation, decide};

/// The update strategy of a desired LRP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The old container stays until a new one runs.
    Rolling,
    /// The old container goes first, one at a time.
    Recreate,
}

/// The part of a desired LRP that evacuation depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired {
    /// Whether the old container outlives the start of the new one.
    pub replacement: Replacement,
    /// The desired number; a negative one counts as 0.
    pub instances: i32,
    /// The number of managed instances that run.
    pub running: usize,
}

/// Whether the cell keeps the container, and the requests that follow.
#[derive(Debug, Clone, PartialEq)]
pub struct Evacuated {
    /// If false, the cell may destroy the container.
    pub keeps_container: bool,
    /// Whether an auction has to be requested for the instance.
    pub needs_cell: bool,
    /// A replaced container that has no row any more, and has to be stopped by its cell.
    pub given_up: Option<ActualLrp>,
}

impl Evacuated {
    const GONE: Self = Self {
        keeps_container: false,
        needs_cell: false,
        given_up: None,
    };
    /// The cell keeps the container.
    pub const STAYS: Self = Self {
        keeps_container: true,
        needs_cell: false,
        given_up: None,
    };
    const MOVES: Self = Self {
        keeps_container: false,
        needs_cell: true,
        given_up: None,
    };
}

impl Desired {
    fn all_run(self) -> bool {
        self.running >= usize::try_from(self.instances).unwrap_or(0)
    }
}

/// The time of an instance that waits since its container became the evacuating row, at `now_ns`.
/// Later, as in Diego, which writes the evacuating row first: the Cloud Controller shows the state
/// of the later row of an index, and if both have the same time, that of one at one of its
/// endpoints and that of the other at another.
pub(super) const fn successor_since_ns(now_ns: i64) -> i64 {
    now_ns.saturating_add(1)
}

impl Slot {
    /// Evacuates a claimed container: the instance waits for another cell.
    ///
    /// # Errors
    /// `NotFound` for an unknown container; `CannotBeUnclaimed` if the instance waits already.
    pub fn evacuate_claimed(
        &mut self,
        instance: &InstanceKey,
        now_ns: i64,
    ) -> Result<Evacuated, SlotError> {
        if self.remove_if_stand_in(instance)? {
            return Ok(Evacuated::GONE);
        }
        self.unclaim(Unclaim::Any, now_ns)?;
        Ok(Evacuated::MOVES)
    }

    /// Evacuates a crashed container. Convergence restarts the instance.
    ///
    /// # Errors
    /// `NotFound` for an unknown container; as of [`Slot::crash`].
    pub fn evacuate_crashed(
        &mut self,
        instance: &InstanceKey,
        reason: &[u8],
        now_ns: i64,
    ) -> Result<Evacuated, SlotError> {
        if !self.remove_if_stand_in(instance)? {
            self.crash(instance, reason, now_ns)?;
        }
        Ok(Evacuated::GONE)
    }

    /// Evacuates a stopped container.
    ///
    /// # Errors
    /// `NotFound` for an unknown container.
    pub fn evacuate_stopped(&mut self, instance: &InstanceKey) -> Result<Evacuated, SlotError> {
        if !self.remove_if_stand_in(instance)? {
            self.remove(Some(instance))?;
        }
        Ok(Evacuated::GONE)
    }

    /// Evacuates a running container by the update strategy; `desired` is `None` without a desired
    /// LRP.
    ///
    /// # Errors
    /// The instance cannot be unclaimed.
    pub fn evacuate_running(
        &mut self,
        container: &Container,
        definitions: DefinitionCount,
        desired: Option<Desired>,
        now_ns: i64,
    ) -> Result<Evacuated, SlotError> {
        Ok(
            match decide(Situation::of(self, &container.instance, desired)) {
                EvacuationStep::Leave => Evacuated::GONE,
                EvacuationStep::Later => Evacuated::STAYS,
                EvacuationStep::Remove(presence) => {
                    *self.at_mut(presence) = None;
                    Evacuated::GONE
                }
                EvacuationStep::Unclaim => {
                    self.unclaim(Unclaim::Any, now_ns)?;
                    Evacuated::MOVES
                }
                EvacuationStep::Describe => {
                    self.put_evacuating(container, definitions, now_ns);
                    Evacuated::STAYS
                }
                // The evacuating row has the container that this one replaces, which receives the
                // traffic.
                EvacuationStep::MoveToEvacuating(presence)
                    if self.replaced().is_some()
                        && self.at(presence).is_some_and(|row| {
                            row.state() != Some(State::Running) || !row.routable
                        }) =>
                {
                    if presence == Presence::Suspect {
                        self.suspect = None;
                        return Ok(Evacuated::GONE);
                    }
                    self.unclaim(Unclaim::Any, now_ns)?;
                    Evacuated::MOVES
                }
                EvacuationStep::MoveToEvacuating(presence) => {
                    let row = self.at(presence).ok_or(SlotError::NotFound)?.clone();
                    // Not overwritten: routability and zone are those of the other container.
                    let is_replaced = self.replaced().is_some();
                    let given_up = self.evacuating.take_if(|_| is_replaced);
                    self.put_evacuating(&Container::of(&row), definitions, now_ns);
                    if let Some(evacuating) = &mut self.evacuating {
                        evacuating.copy_definition(&row);
                    }
                    let needs_cell = presence == Presence::Ordinary;
                    if needs_cell {
                        self.unclaim(Unclaim::Any, successor_since_ns(now_ns))?;
                    } else {
                        self.suspect = None;
                    }
                    Evacuated {
                        keeps_container: true,
                        needs_cell,
                        given_up,
                    }
                }
            },
        )
    }

    /// The slot without the row of this container.
    #[must_use]
    pub fn without(&self, instance: &InstanceKey) -> Self {
        let mut slot = self.clone();
        if let Some(presence) = self.presence_of(instance) {
            *slot.at_mut(presence) = None;
        }
        slot
    }

    /// Removes the row of an evacuating or suspect container; whether the container was one.
    fn remove_if_stand_in(&mut self, instance: &InstanceKey) -> Result<bool, SlotError> {
        match self.presence_of(instance).ok_or(SlotError::NotFound)? {
            Presence::Ordinary => Ok(false),
            presence @ (Presence::Evacuating | Presence::Suspect) => {
                *self.at_mut(presence) = None;
                Ok(true)
            }
        }
    }

    /// Puts the container into the evacuating row. An existing row keeps its routability and its
    /// availability zone.
    fn put_evacuating(&mut self, container: &Container, definitions: DefinitionCount, now_ns: i64) {
        let Some(row) = &mut self.evacuating else {
            self.evacuating = Some(container.recorded(Presence::Evacuating, definitions, now_ns));
            return;
        };
        if row.is_at(&container.key)
            && row.is_instance(&container.instance)
            && row.net_info == container.net_info
        {
            return;
        }
        row.domain.clone_from(&container.key.domain);
        row.set_instance(container.instance.clone());
        row.net_info.clone_from(&container.net_info);
        row.internal_routes.clone_from(&container.internal_routes);
        row.metric_tags.clone_from(&container.metric_tags);
        row.changed(now_ns);
    }
}

impl Situation {
    fn of(slot: &Slot, instance: &InstanceKey, desired: Option<Desired>) -> Self {
        let has_container =
            |row: &ActualLrp| matches!(row.state(), Some(State::Claimed | State::Running));
        let target = slot.presence_of(instance);
        Self {
            target: match target {
                None => ContainerRow::None,
                Some(Presence::Evacuating) => ContainerRow::Evacuating,
                Some(presence @ (Presence::Ordinary | Presence::Suspect))
                    if slot.at(presence).is_some_and(has_container) =>
                {
                    ContainerRow::Container(presence)
                }
                Some(presence @ (Presence::Ordinary | Presence::Suspect)) => {
                    ContainerRow::Other(presence)
                }
            },
            ordinary: match &slot.ordinary {
                None => decide::Ordinary::Absent,
                Some(_) if target == Some(Presence::Ordinary) => decide::Ordinary::SameContainer,
                // The update stops the replaced container once it may lose its traffic.
                Some(_) if slot.replaced().is_some() => decide::Ordinary::Pending,
                Some(row) if row.takes_over() || row.state() == Some(State::Crashed) => {
                    decide::Ordinary::Settled
                }
                Some(_) => decide::Ordinary::Pending,
            },
            has_evacuating: slot.evacuating.is_some(),
            desired: match desired {
                None => decide::ReplacementChoice::No,
                Some(Desired {
                    replacement: Replacement::Rolling,
                    ..
                }) => decide::ReplacementChoice::Rolling,
                Some(desired) if desired.all_run() => decide::ReplacementChoice::RecreateNow,
                Some(_) => decide::ReplacementChoice::RecreateLater,
            },
        }
    }
}
