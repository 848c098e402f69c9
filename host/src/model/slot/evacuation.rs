//! A cell is being emptied: what becomes of each of its containers. Owns which of them stay until another one runs.

mod decide;

use super::{Container, Refusal, Slot, Unclaim};
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey, Presence, State};
use decide::{Situation, Step, Target, decide};

/// How instances of a desired LRP are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The old container stays until a new one runs.
    Rolling,
    /// The old container goes first, one at a time.
    Recreate,
}

/// Of a desired LRP, what evacuation has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired {
    pub replacement: Replacement,
    pub instances: i32,
    /// How many of the managed instances run.
    pub running: usize,
}

/// What the cell does with its container, and whether the instance needs a new cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evacuated {
    pub keeps_container: bool,
    pub needs_cell: bool,
}

impl Evacuated {
    const GONE: Self = Self { keeps_container: false, needs_cell: false };
    const STAYS: Self = Self { keeps_container: true, needs_cell: false };
}

impl Desired {
    fn all_run(self) -> bool {
        self.running >= usize::try_from(self.instances).unwrap_or(0)
    }
}

impl Slot {
    pub fn evacuate_claimed(&mut self, instance: &InstanceKey, now_ns: i64) -> Result<Evacuated, Refusal> {
        if self.gives_up_stand_in(instance)? {
            return Ok(Evacuated::GONE);
        }
        self.unclaim(Unclaim::Any, now_ns)?;
        Ok(Evacuated { keeps_container: false, needs_cell: true })
    }

    /// Whether it is started again is left to whoever looks after crashed instances.
    pub fn evacuate_crashed(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        reason: &[u8],
        now_ns: i64,
    ) -> Result<Evacuated, Refusal> {
        if !self.gives_up_stand_in(instance)? {
            self.crash(key, instance, reason, now_ns)?;
        }
        Ok(Evacuated::GONE)
    }

    pub fn evacuate_stopped(&mut self, instance: &InstanceKey) -> Result<Evacuated, Refusal> {
        if !self.gives_up_stand_in(instance)? {
            self.remove(Some(instance))?;
        }
        Ok(Evacuated::GONE)
    }

    /// Without a desired LRP nothing is to run.
    pub fn evacuate_running(
        &mut self,
        container: &Container,
        desired: Option<Desired>,
        now_ns: i64,
    ) -> Result<Evacuated, Refusal> {
        Ok(match decide(Situation::of(self, &container.instance, desired)) {
            Step::Leave => Evacuated::GONE,
            Step::Later => Evacuated::STAYS,
            Step::Remove(presence) => {
                *self.at_mut(presence) = None;
                Evacuated::GONE
            }
            Step::Unclaim => {
                self.unclaim(Unclaim::Any, now_ns)?;
                Evacuated { keeps_container: false, needs_cell: true }
            }
            Step::Describe => {
                self.put_evacuating(container, now_ns);
                Evacuated::STAYS
            }
            Step::SetAside(presence) => {
                let row = self.at(presence).ok_or(Refusal::NotFound)?;
                self.put_evacuating(&Container::of(row), now_ns);
                if presence == Presence::Suspect {
                    self.suspect = None;
                    return Ok(Evacuated::STAYS);
                }
                self.unclaim(Unclaim::Any, now_ns)?;
                Evacuated { keeps_container: true, needs_cell: true }
            }
        })
    }

    /// A container that only stood in for another one goes without more ado. Whether it was one.
    fn gives_up_stand_in(&mut self, instance: &InstanceKey) -> Result<bool, Refusal> {
        match self.presence_of(instance).ok_or(Refusal::NotFound)? {
            Presence::Ordinary => Ok(false),
            presence @ (Presence::Evacuating | Presence::Suspect) => {
                *self.at_mut(presence) = None;
                Ok(true)
            }
        }
    }

    /// Where a container was set aside already, whether it takes traffic and where it is stay as they are.
    fn put_evacuating(&mut self, container: &Container, now_ns: i64) {
        let Some(row) = &mut self.evacuating else {
            self.evacuating = Some(container.recorded(Presence::Evacuating, now_ns));
            return;
        };
        if row.is_at(&container.key) && row.is_instance(&container.instance) && row.net_info == container.net_info {
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
        let has_container = |row: &ActualLrp| matches!(row.state(), Some(State::Claimed | State::Running));
        let target = slot.presence_of(instance);
        Self {
            target: match target {
                None => Target::None,
                Some(Presence::Evacuating) => Target::Evacuating,
                Some(presence @ (Presence::Ordinary | Presence::Suspect))
                    if slot.at(presence).is_some_and(has_container) =>
                {
                    Target::Container(presence)
                }
                Some(presence @ (Presence::Ordinary | Presence::Suspect)) => Target::Other(presence),
            },
            ordinary: match &slot.ordinary {
                None => decide::Ordinary::Absent,
                Some(_) if target == Some(Presence::Ordinary) => decide::Ordinary::Target,
                Some(row) if matches!(row.state(), Some(State::Running | State::Crashed)) => decide::Ordinary::Settled,
                Some(_) => decide::Ordinary::OnItsWay,
            },
            is_set_aside: slot.evacuating.is_some(),
            desired: match desired {
                None => decide::Wanted::No,
                Some(Desired { replacement: Replacement::Rolling, .. }) => decide::Wanted::Rolling,
                Some(desired) if desired.all_run() => decide::Wanted::RecreateNow,
                Some(_) => decide::Wanted::RecreateLater,
            },
        }
    }
}
