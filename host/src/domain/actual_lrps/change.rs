//! Changes of a slot: takes the key lock, reads and locks the rows, applies a transition, writes
//! the difference and publishes the events. The only way to change a slot.

use bbs_model::actual_lrp::State;
use bbs_model::change::{Cause, RecordChange};
use bbs_model::slot::{Slot, SlotError};
use bbs_model::{Text, TraceId};

use crate::domain::retry::retry;
use crate::domain::{DomainError, Service};
use crate::store::{Store, Writer};

/// A slot before and after a committed change.
#[derive(Debug)]
pub(in crate::domain) struct ChangedSlot {
    before: Slot,
    /// The slot between two changes, if subscribers see the change as two.
    between: Option<Slot>,
    after: Slot,
}

/// The current definition of the desired LRP of a slot.
#[derive(Debug)]
pub(in crate::domain) enum CurrentDefinition {
    /// The transaction has not read it.
    Unread,
    /// Its id, which the transaction has read and locked; `None` without a desired LRP.
    Read(Option<Text>),
}

/// Applies `step` to the slot at a process guid and index. A step that changes nothing writes
/// nothing and publishes nothing.
pub(in crate::domain) async fn change_slot<T: Send>(
    service: &Service,
    slot: (&[u8], i32),
    trace_id: &TraceId,
    step: impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync,
) -> Result<T, DomainError> {
    let lock = service.lock_key(slot.0).await?;
    let (changed, outcome) = change_locked(service, slot, step).await?;
    announce(service, changed, Cause::Other, trace_id);
    drop(lock);
    Ok(outcome)
}

/// Changes a slot as [`change_slot`] does, without publishing events. The caller holds the key
/// lock, and publishes them before it releases it.
pub(in crate::domain) async fn change_locked<T: Send>(
    service: &Service,
    slot: (&[u8], i32),
    step: impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync,
) -> Result<(Option<ChangedSlot>, T), DomainError> {
    retry(|| attempt(service.store(), slot, &step)).await
}

async fn attempt<T>(
    store: &Store,
    (process_guid, index): (&[u8], i32),
    step: &(impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync),
) -> Result<(Option<ChangedSlot>, T), DomainError> {
    let mut writer = store.writer().await?;
    let before = writer.slot(process_guid, index).await?;
    let mut after = before.clone();
    let outcome = step(&mut after, store.now_ns())?;
    let changed = write(writer, before, after, CurrentDefinition::Unread).await?;
    Ok((changed, outcome))
}

/// Names the definition of the instances that a step left waiting, or created. Reads the desired
/// LRP if it is unread: only such steps have to lock it. Returns the slot before the naming if that
/// reset the count of a crash, which is one of the previous definition.
async fn name_definition(
    writer: &mut Writer,
    before: &Slot,
    after: &mut Slot,
    current: CurrentDefinition,
) -> Result<Option<Slot>, DomainError> {
    if !after.needs_definition(before) {
        return Ok(None);
    }
    let current = match current {
        CurrentDefinition::Read(id) => id,
        CurrentDefinition::Unread => {
            let Some(process_guid) = after.rows().next().map(|row| row.process_guid.clone()) else {
                return Ok(None);
            };
            let target = writer.instance_target(&process_guid).await?;
            target.map(|target| target.definition_id)
        }
    };
    let Some(current) = current else {
        return Ok(None);
    };
    let crashes = |slot: &Slot| slot.ordinary.as_ref().map_or(0, |row| row.crash_count);
    let crashed = (crashes(after) > crashes(before)).then(|| after.clone());
    after.name_definition(before, &current, writer.now_ns());
    Ok(crashed.filter(|crashed| crashes(crashed) != crashes(after)))
}

/// Names the definitions of the instances, writes the difference, and commits the transaction in
/// which `before` was read; `None` if there is no difference.
pub(in crate::domain) async fn write(
    mut writer: Writer,
    before: Slot,
    mut after: Slot,
    current: CurrentDefinition,
) -> Result<Option<ChangedSlot>, DomainError> {
    if before == after {
        return Ok(None);
    }
    let between = name_definition(&mut writer, &before, &mut after, current).await?;
    writer.put_slot(&before, &after).await?;
    writer.commit().await?;
    Ok(Some(ChangedSlot {
        before,
        between,
        after,
    }))
}

/// Publishes the committed changes of one call to instances of one LRP. The caller holds the key
/// lock, so that events keep commit order.
pub(in crate::domain) fn announce(
    service: &Service,
    changed: impl IntoIterator<Item = ChangedSlot>,
    cause: Cause,
    trace_id: &TraceId,
) {
    let changed: Vec<_> = changed.into_iter().collect();
    let process_guid = changed
        .iter()
        .flat_map(|changed| changed.before.rows().chain(changed.after.rows()))
        .next()
        .map(|row| row.process_guid.clone());
    let changes = changed
        .into_iter()
        .flat_map(|changed| changed.published(cause, trace_id));
    service.events().publish_all(changes);
    if let Some(process_guid) = process_guid {
        service
            .update_hints()
            .instance_changed(service, &process_guid);
    }
}

impl ChangedSlot {
    /// A change that the caller makes; `None` if there is no difference.
    pub(in crate::domain) fn of(before: Slot, after: Slot) -> Option<Self> {
        // The new instance ends before the old one is the managed one again.
        let between = after.is_reverted(&before).then(|| Slot {
            ordinary: None,
            ..before.clone()
        });
        (before != after).then_some(Self {
            before,
            between,
            after,
        })
    }

    fn published(self, cause: Cause, trace_id: &TraceId) -> Vec<RecordChange> {
        let change = |before, after, cause| RecordChange::Slot {
            before: Box::new(before),
            after: Box::new(after),
            cause,
            trace_id: trace_id.clone(),
        };
        match self.between {
            Some(between) => {
                let second = if self.after.is_reverted(&self.before) {
                    Cause::Reversion
                } else {
                    Cause::Other
                };
                vec![
                    change(self.before, between.clone(), cause),
                    change(between, self.after, second),
                ]
            }
            None => vec![change(self.before, self.after, cause)],
        }
    }

    /// Whether the instance waits for a cell now, and did not before.
    pub(in crate::domain) fn begins_to_wait(&self) -> bool {
        let is_unclaimed = |slot: &Slot| {
            slot.ordinary
                .as_ref()
                .is_some_and(|row| row.state() == Some(State::Unclaimed))
        };
        is_unclaimed(&self.after) && !is_unclaimed(&self.before)
    }
}
