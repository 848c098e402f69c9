//! The transitions of an instance: it waits for a cell, is claimed, runs, crashes, and is removed;
//! and its container becomes suspect while the cell is gone. Those of a cell's evacuation are in
//! `evacuation`.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;

use super::{Slot, SlotError, rules};
use crate::actual_lrp::{ActualLrp, InstanceKey, LrpKey, Presence, State};
use crate::{Text, restart};

/// A running container, as its cell describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Container {
    pub key: LrpKey,
    pub instance: InstanceKey,
    pub net_info: ActualLrpNetInfo,
    /// Host names of the internal routes.
    pub internal_routes: Vec<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    /// Whether the instance may receive traffic.
    pub routable: bool,
    pub availability_zone: Text,
}

/// The definitions that a desired LRP has had. With one alone, a container that has not claimed its
/// instance is trusted to run that one, as by Diego's BBS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionCount {
    One,
    Several,
}

impl Container {
    /// The container that a row describes.
    pub(super) fn of(row: &ActualLrp) -> Self {
        Self {
            key: row.key(),
            instance: row.instance_key(),
            net_info: row.net_info.clone(),
            internal_routes: row.internal_routes.clone(),
            metric_tags: row.metric_tags.clone(),
            routable: row.routable,
            availability_zone: row.availability_zone.clone(),
        }
    }

    /// A new row for the container, which has not claimed the instance.
    pub(super) fn recorded(
        &self,
        presence: Presence,
        definitions: DefinitionCount,
        now_ns: i64,
    ) -> ActualLrp {
        let mut row = ActualLrp {
            state: State::Running.at_rest(),
            presence: presence as i32,
            // Nothing records which definition it was started with.
            definition_uncertain: definitions == DefinitionCount::Several,
            ..ActualLrp::unclaimed(&self.key, now_ns)
        };
        self.describe(&mut row);
        row
    }

    /// Copies the description of the container into a row.
    fn describe(&self, row: &mut ActualLrp) {
        row.set_instance(self.instance.clone());
        row.net_info.clone_from(&self.net_info);
        row.internal_routes.clone_from(&self.internal_routes);
        row.metric_tags.clone_from(&self.metric_tags);
        row.routable = self.routable;
        row.availability_zone.clone_from(&self.availability_zone);
    }

    /// Whether a row describes exactly this running container.
    fn is_described_by(&self, row: &ActualLrp) -> bool {
        let mut described = row.clone();
        self.describe(&mut described);
        row.is_at(&self.key) && row.state() == Some(State::Running) && described == *row
    }
}

/// The effect of a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crashed {
    /// The container was suspect or replaced, and its row is removed.
    Gone,
    /// The instance waits for a cell again.
    Unclaimed,
    /// The instance waits until its restart is due.
    Waits,
}

/// Which instances may be unclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaim {
    /// Any that is not waiting.
    Any,
    /// One that was found stale. If it has been claimed since, it is left alone.
    Stale,
}

/// The effect of a retirement.
#[derive(Debug, Clone, PartialEq)]
pub enum Retired {
    /// The row is removed.
    Removed,
    /// The cell has to stop the container first.
    HasContainer(Box<ActualLrp>),
}

impl Slot {
    /// Creates a waiting instance.
    ///
    /// # Errors
    /// `Exists` if there is an instance.
    pub fn create_unclaimed(&mut self, key: &LrpKey, now_ns: i64) -> Result<(), SlotError> {
        if self.ordinary.is_some() {
            return Err(SlotError::Exists);
        }
        self.ordinary = Some(ActualLrp::unclaimed(key, now_ns));
        Ok(())
    }

    /// Claims the instance for a container. A repeated claim, and one of the suspect container or
    /// of one that is replaced, change nothing.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeClaimed` if another container has it.
    pub fn claim(&mut self, instance: &InstanceKey, now_ns: i64) -> Result<(), SlotError> {
        if self.is_suspect(instance) || self.is_replaced(instance) {
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

    /// Starts the instance in a container, as its cell reports, also as a heartbeat. Removes its
    /// evacuating and suspect containers if it takes over from them, except one that an update
    /// replaces, which its cell is asked to stop. The heartbeat of that one changes its row alone. The
    /// definition of a container that did not claim the instance is uncertain if there are several.
    ///
    /// # Errors
    /// `CannotBeStarted` if another container runs.
    pub fn start(
        &mut self,
        container: &Container,
        definitions: DefinitionCount,
        now_ns: i64,
    ) -> Result<(), SlotError> {
        if self.is_suspect(&container.instance) {
            return Ok(());
        }
        if self.is_replaced(&container.instance) {
            // It has the traffic until its successor is ready.
            if let Some(row) = &mut self.evacuating
                && row.is_at(&container.key)
                && row.state() == Some(State::Running)
                && !container.is_described_by(row)
            {
                container.describe(row);
                row.changed(now_ns);
            }
            return Ok(());
        }
        match &mut self.ordinary {
            None => {
                let mut row = container.recorded(Presence::Ordinary, definitions, now_ns);
                if let Some(known) = self
                    .evacuating
                    .as_ref()
                    .filter(|known| known.is_instance(&container.instance))
                {
                    row.copy_definition(known);
                }
                self.ordinary = Some(row);
            }
            Some(row) if container.is_described_by(row) => {}
            Some(row)
                if rules::may_enter(row, &container.key, &container.instance, State::Running) =>
            {
                row.definition_uncertain |= definitions == DefinitionCount::Several
                    && !row.is_instance(&container.instance);
                container.describe(row);
                row.placement_error.clear();
                row.enter(State::Running, now_ns);
            }
            Some(_) => return Err(SlotError::CannotBeStarted),
        }
        let takes_over = self.ordinary.as_ref().is_some_and(ActualLrp::takes_over);
        let is_unneeded = takes_over && self.replaced().is_none();
        self.evacuating
            .take_if(|row| is_unneeded || row.is_instance(&container.instance));
        self.drop_unneeded_suspect();
        Ok(())
    }

    /// Records the crash of a container.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeCrashed` if the container is not the instance's.
    pub fn crash(
        &mut self,
        instance: &InstanceKey,
        reason: &[u8],
        now_ns: i64,
    ) -> Result<Crashed, SlotError> {
        if self.is_suspect(instance) {
            self.suspect = None;
            return Ok(Crashed::Gone);
        }
        if self.is_replaced(instance) {
            self.evacuating = None;
            return Ok(Crashed::Gone);
        }
        let row = self.ordinary.as_mut().ok_or(SlotError::NotFound)?;
        if !rules::may_enter(row, &row.key(), instance, State::Crashed) {
            return Err(SlotError::CannotBeCrashed);
        }
        let ran_ns =
            (row.state() == Some(State::Running)).then(|| now_ns.saturating_sub(row.since_ns));
        row.crash_count = restart::crash_count(row.crash_count, ran_ns);
        row.crash_reason = reason.to_vec();
        row.leave_cell();
        let (state, crashed) = if restart::is_at_once(row.crash_count) {
            (State::Unclaimed, Crashed::Unclaimed)
        } else {
            (State::Crashed, Crashed::Waits)
        };
        row.enter(state, now_ns);
        Ok(crashed)
    }

    /// Records that a waiting instance could not be placed; it continues to wait.
    ///
    /// # Errors
    /// `CannotBeFailed` if the instance does not wait.
    pub fn fail(&mut self, reason: &[u8], now_ns: i64) -> Result<(), SlotError> {
        let Some(row) = &mut self.ordinary else {
            return Ok(());
        };
        if row.state() != Some(State::Unclaimed) {
            return Err(SlotError::CannotBeFailed);
        }
        row.placement_error = reason.to_vec();
        row.changed(now_ns);
        Ok(())
    }

    /// Sends the instance back to wait for a cell.
    ///
    /// # Errors
    /// `NotFound` without an instance; `CannotBeUnclaimed` if it waits already or `which` excludes
    /// it.
    pub fn unclaim(&mut self, which: Unclaim, now_ns: i64) -> Result<(), SlotError> {
        let row = self.ordinary.as_mut().ok_or(SlotError::NotFound)?;
        match (row.state(), which) {
            (Some(State::Unclaimed) | None, _) | (Some(State::Claimed), Unclaim::Stale) => {
                return Err(SlotError::CannotBeUnclaimed);
            }
            (Some(State::Claimed), Unclaim::Any) | (Some(State::Running | State::Crashed), _) => {}
        }
        row.leave_cell();
        row.enter(State::Unclaimed, now_ns);
        Ok(())
    }

    /// Marks the managed container as suspect, because its cell is gone. Makes no new revision of
    /// its record.
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

    /// Makes the suspect container the managed one, because its cell is back. Replaces the managed
    /// row, if there is one, and makes no new revision of the record.
    ///
    /// # Errors
    /// `NotFound` without a suspect container.
    pub fn promote(&mut self) -> Result<(), SlotError> {
        let mut row = self.suspect.take().ok_or(SlotError::NotFound)?;
        row.presence = Presence::Ordinary as i32;
        self.ordinary = Some(row);
        Ok(())
    }

    /// Removes the managed instance, whichever it is without an instance key; or a container that
    /// an update replaces.
    ///
    /// # Errors
    /// `NotFound` if there is no such instance.
    pub fn remove(&mut self, instance: Option<&InstanceKey>) -> Result<(), SlotError> {
        if instance.is_some_and(|instance| self.is_replaced(instance)) {
            self.evacuating = None;
            return Ok(());
        }
        let is_meant =
            |row: &mut ActualLrp| instance.is_none_or(|instance| row.is_instance(instance));
        self.ordinary
            .take_if(is_meant)
            .map(drop)
            .ok_or(SlotError::NotFound)
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
            Some(State::Claimed | State::Running) | None => {
                Ok(Retired::HasContainer(Box::new(row.clone())))
            }
        }
    }
}
