//! Replacement of the container of a slot by one that runs the current definition of the desired
//! LRP.
//!
//! As in an evacuation, the old container becomes the evacuating row, and a new instance waits for
//! a cell. The old one's cell does not know about it: its calls about the container change the
//! evacuating row alone until it is asked to stop it, which happens once the new one runs and is
//! routable.
//!
//! Invariant: a waiting or crashed instance names the current definition, so that whatever claims
//! it runs that one. What a removed desired LRP leaves names none, and belongs to the next one with
//! the same process guid.

use super::evacuation::successor_since_ns;
use super::{Slot, SlotError};
use crate::actual_lrp::{ActualLrp, InstanceKey, Presence, State};
use crate::{Text, restart};

/// How far the replacement of a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacementPhase {
    /// There is no instance.
    Empty,
    /// The current definition runs, and nothing else does.
    Current,
    /// The current definition runs, and an old container still has to be stopped.
    Replaced,
    /// An instance of the current definition waits for a cell, or is started, or is not routable
    /// yet.
    Pending,
    /// An instance of the current definition crashed too often, also if it runs again, or finds no
    /// cell.
    Failing,
    /// An old container runs, and nothing replaces it.
    Old,
    /// The replacement was cancelled before the new instance was up: the container in the
    /// evacuating row runs the current definition.
    Reverting,
}

impl ActualLrp {
    /// Whether the instance does not run the current definition, or may not. One that names none is
    /// taken to run it.
    pub fn is_old(&self, current: &[u8]) -> bool {
        self.definition_uncertain || !self.definition_id.is_empty() && self.definition_id != current
    }

    /// Whether the instance runs, receives traffic, and does not crash again and again.
    fn is_up(&self, now_ns: i64) -> bool {
        self.state() == Some(State::Running)
            && self.routable
            && restart::is_stable(self.crash_count, self.since_ns, now_ns)
    }

    /// Whether the evacuating and the suspect container are not needed any more. A container that
    /// did not claim the instance may run another definition, as one does that is about to be
    /// stopped; it is not relied on until it receives traffic.
    pub fn takes_over(&self) -> bool {
        self.state() == Some(State::Running) && (self.routable || !self.definition_uncertain)
    }

    /// The row of a container that was being replaced, as the managed one.
    fn into_managed(mut self) -> Self {
        self.presence = Presence::Ordinary as i32;
        self.revise();
        self
    }

    /// Takes the definition of another row of the same container.
    pub(super) fn copy_definition(&mut self, from: &Self) {
        self.definition_id.clone_from(&from.definition_id);
        self.definition_uncertain = from.definition_uncertain;
    }

    /// Whether the instance has no container.
    pub fn waits(&self) -> bool {
        matches!(self.state(), Some(State::Unclaimed | State::Crashed))
    }
}

impl Slot {
    /// How far the slot is on its way to the current definition.
    pub fn phase(&self, current: &[u8], now_ns: i64) -> ReplacementPhase {
        let evacuating = self.evacuating.as_ref();
        let Some(row) = &self.ordinary else {
            return ReplacementPhase::Empty;
        };
        let is_kept = evacuating.is_some_and(|evacuating| !evacuating.is_old(current));
        // This row had replaced the container: its cell may have been asked to stop it already,
        // which cannot be undone.
        if is_kept && row.is_old(current) && !row.is_up(now_ns) {
            return ReplacementPhase::Reverting;
        }
        match row.state() {
            Some(State::Running) if row.is_old(current) => ReplacementPhase::Old,
            Some(State::Crashed) => ReplacementPhase::Failing,
            Some(State::Unclaimed) if !row.placement_error.is_empty() => ReplacementPhase::Failing,
            // The crashes before a claimed instance of another definition were those of that one.
            Some(State::Unclaimed | State::Claimed)
                if !restart::is_at_once(row.crash_count) && !row.is_old(current) =>
            {
                ReplacementPhase::Failing
            }
            Some(State::Unclaimed | State::Claimed) => ReplacementPhase::Pending,
            Some(State::Running) if !restart::is_stable(row.crash_count, row.since_ns, now_ns) => {
                ReplacementPhase::Failing
            }
            Some(State::Running) if !row.routable => ReplacementPhase::Pending,
            Some(State::Running) if evacuating.is_some_and(|row| row.is_old(current)) => {
                ReplacementPhase::Replaced
            }
            Some(State::Running) => ReplacementPhase::Current,
            // An instance in an unknown state may be running.
            None => ReplacementPhase::Old,
        }
    }

    /// Whether the container was replaced, or is being replaced, by one of another definition.
    pub fn is_replaced(&self, instance: &InstanceKey) -> bool {
        self.replaced().is_some_and(|old| old.is_instance(instance))
    }

    /// The container in the evacuating row, if the managed instance replaces it because of its
    /// definition.
    pub fn replaced(&self) -> Option<&ActualLrp> {
        let new = self.ordinary.as_ref()?;
        self.evacuating
            .as_ref()
            .filter(|old| old.is_old(&new.definition_id) && !new.is_instance(&old.instance_key()))
    }

    /// The containers of the desired LRP: all but one that its cell evacuates by itself.
    pub fn containers(&self) -> impl Iterator<Item = &ActualLrp> {
        let rows = self.ordinary.iter().chain(self.replaced());
        rows.chain(&self.suspect).filter(|row| !row.waits())
    }

    /// Whether the container that was being replaced is the managed one again.
    pub fn is_reverted(&self, before: &Self) -> bool {
        let kept = before.evacuating.as_ref().map(ActualLrp::instance_key);
        self.evacuating.is_none()
            && kept.is_some()
            && kept == self.ordinary.as_ref().map(ActualLrp::instance_key)
            && kept != before.ordinary.as_ref().map(ActualLrp::instance_key)
    }

    /// Adapts the rows to a new current definition. What names none has the previous one. What
    /// waits takes the new one at once, and a container in the evacuating row that runs it becomes
    /// the managed one again. What was claimed may run either definition, because its cell reads
    /// the desired LRP after the claim. A container of a third definition, that of a cancelled
    /// update, is recorded as an uncertain one of the previous definition: clients find no
    /// scheduling info of a third one. Returns the instance that was to replace the container, if
    /// its cell has to stop one.
    pub fn switch_definition(
        &mut self,
        previous: &Text,
        current: &Text,
        now_ns: i64,
    ) -> Option<ActualLrp> {
        let is_third = |row: &ActualLrp| {
            !row.definition_id.is_empty()
                && !row.waits()
                && ![previous, current].contains(&&row.definition_id)
        };
        // A container that one of a third definition replaces is recognised as replaced by its
        // uncertainty, since both name the same definition.
        let is_replaced = self.ordinary.as_ref().is_some_and(is_third) && self.replaced().is_some();
        for presence in Presence::ALL {
            let Some(row) = self.at_mut(presence) else {
                continue;
            };
            let is_replaced = is_replaced && presence == Presence::Evacuating;
            if row.definition_id.is_empty() {
                row.definition_id.clone_from(previous);
            } else if is_third(row) || is_replaced {
                row.definition_id.clone_from(previous);
                row.definition_uncertain = true;
                row.revise();
            }
        }
        let given_up = self.revert_replacement(current, now_ns).ok().flatten();
        self.take_definition(current, now_ns);
        for row in [&mut self.ordinary, &mut self.suspect]
            .into_iter()
            .flatten()
        {
            if row.state() == Some(State::Claimed) && !row.definition_uncertain {
                row.definition_uncertain = true;
                row.changed(now_ns);
            }
        }
        given_up
    }

    /// Whether a step from `before` left an instance that waits now, or whose definition is not
    /// named yet.
    pub fn needs_definition(&self, before: &Self) -> bool {
        let waits = |slot: &Self| slot.ordinary.as_ref().is_some_and(ActualLrp::waits);
        waits(self) && !waits(before) || self.rows().any(|row| row.definition_id.is_empty())
    }

    /// Names the definition of the instances that a step from `before` left.
    pub fn name_definition(&mut self, before: &Self, current: &Text, now_ns: i64) {
        self.take_definition(current, now_ns);
        for presence in Presence::ALL {
            let Some(row) = self.at_mut(presence) else {
                continue;
            };
            if row.definition_id.is_empty() {
                row.definition_id.clone_from(current);
            }
            // A row that the step itself left as it was, or moved to another presence. One that
            // named none changes for no client of Diego.
            let named = before.rows().filter(|then| !then.definition_id.is_empty());
            if named
                .into_iter()
                .any(|then| then.tag == row.tag && then.definition_id != row.definition_id)
            {
                row.revise();
            }
        }
    }

    /// Makes a waiting instance one of the current definition. Its crashes were those of another
    /// definition.
    pub fn take_definition(&mut self, current: &Text, now_ns: i64) {
        let Some(row) = self.ordinary.as_mut().filter(|row| row.waits()) else {
            return;
        };
        let is_new = row.definition_id.is_empty();
        row.definition_uncertain = false;
        if row.definition_id == *current {
            return;
        }
        row.definition_id.clone_from(current);
        if is_new {
            return;
        }
        row.placement_error.clear();
        row.crash_count = 0;
        row.crash_reason.clear();
        row.enter(State::Unclaimed, now_ns);
    }

    /// Drops the suspect container once another one has taken over: it would displace that one when
    /// its cell returns.
    pub(super) fn drop_unneeded_suspect(&mut self) {
        if self.ordinary.as_ref().is_some_and(ActualLrp::takes_over) {
            self.suspect = None;
        }
    }

    /// Begins to replace the old container: it becomes the evacuating row, and a new instance waits
    /// for a cell.
    ///
    /// # Errors
    /// `NotFound` unless an old container runs; `Exists` if there is an evacuating container, whose
    /// cell has to give it up first.
    pub fn begin_replacement(&mut self, current: &Text, now_ns: i64) -> Result<(), SlotError> {
        if self.phase(current, now_ns) != ReplacementPhase::Old {
            return Err(SlotError::NotFound);
        }
        if self.evacuating.is_some() {
            return Err(SlotError::Exists);
        }
        let mut old = self.ordinary.take().ok_or(SlotError::NotFound)?;
        let mut new = ActualLrp::unclaimed(&old.key(), successor_since_ns(now_ns));
        new.definition_id.clone_from(current);
        old.presence = Presence::Evacuating as i32;
        // Before the time of its successor also if the clock went back.
        old.since_ns = old.since_ns.min(now_ns);
        old.revise();
        (self.evacuating, self.ordinary) = (Some(old), Some(new));
        Ok(())
    }

    /// Makes the container in the evacuating row the managed one again, because its definition is
    /// the current one. Returns the instance that was to replace it, if its cell has to stop a
    /// container.
    ///
    /// # Errors
    /// `NotFound` unless the slot reverts.
    pub fn revert_replacement(
        &mut self,
        current: &Text,
        now_ns: i64,
    ) -> Result<Option<ActualLrp>, SlotError> {
        if self.phase(current, now_ns) != ReplacementPhase::Reverting {
            return Err(SlotError::NotFound);
        }
        let kept = self.evacuating.take().ok_or(SlotError::NotFound)?;
        let given_up = self.ordinary.replace(kept.into_managed());
        self.drop_unneeded_suspect();
        Ok(given_up.filter(|row| !row.waits()))
    }

    /// Deletes the instance that waits, if one does, because it is not desired any more. A
    /// container that it was to replace becomes the managed one again, which its cell removes as
    /// any other.
    pub fn delete_waiting(&mut self) {
        if self.ordinary.as_ref().is_none_or(|row| !row.waits()) {
            return;
        }
        let is_replaced = self.replaced().is_some();
        let kept = self.evacuating.take_if(|_| is_replaced);
        self.ordinary = kept.map(ActualLrp::into_managed);
    }

    /// Removes a container that was being replaced and whose successor is gone.
    ///
    /// # Errors
    /// `NotFound` if it is not alone in its slot, or runs the current definition: then its cell
    /// evacuates it, and removes it by another call.
    pub fn remove_without_successor(
        &mut self,
        instance: &InstanceKey,
        current: &[u8],
    ) -> Result<(), SlotError> {
        let is_left = self.ordinary.is_none()
            && self
                .evacuating
                .as_ref()
                .is_some_and(|row| row.is_instance(instance) && row.is_old(current));
        if !is_left {
            return Err(SlotError::NotFound);
        }
        self.evacuating = None;
        Ok(())
    }
}
