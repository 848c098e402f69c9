//! Changes of a slot: takes the key lock, reads and locks the rows, applies a transition, writes the difference and
//! publishes the events. The only way to change a slot.

use crate::domain::retry::retry;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;
use crate::model::change::{Cause, RecordChange};
use crate::model::slot::{Slot, SlotError};
use crate::store::{Store, Writer};

/// A slot before and after a committed change.
#[derive(Debug)]
pub(in crate::domain) struct ChangedSlot {
    before: Slot,
    after: Slot,
}

/// Applies `step` to the slot at a process guid and index. A step that changes nothing writes nothing and publishes
/// nothing.
pub(in crate::domain) async fn change_slot<T: Send>(
    service: &Service,
    slot: (&[u8], i32),
    cause: Cause,
    trace_id: &TraceId,
    step: impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync,
) -> Result<T, DomainError> {
    let lock = service.lock_key(slot.0).await;
    let (changed, outcome) = retry(|| attempt(service.store(), slot, &step)).await?;
    announce(service, changed, cause, trace_id);
    drop(lock);
    Ok(outcome)
}

async fn attempt<T>(
    store: &Store,
    (process_guid, index): (&[u8], i32),
    step: &(impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync),
) -> Result<(Option<ChangedSlot>, T), DomainError> {
    let mut writer = store.writer(process_guid).await?;
    let before = writer.slot(process_guid, index).await?;
    let mut after = before.clone();
    let outcome = step(&mut after, store.now_ns())?;
    Ok((write(writer, before, after).await?, outcome))
}

/// Writes the difference and commits the transaction in which `before` was read; `None` if there is no difference.
pub(in crate::domain) async fn write(
    mut writer: Writer,
    before: Slot,
    after: Slot,
) -> Result<Option<ChangedSlot>, DomainError> {
    if before == after {
        return Ok(None);
    }
    writer.put_slot(&before, &after).await?;
    writer.commit().await?;
    Ok(Some(ChangedSlot { before, after }))
}

/// Publishes a committed change. The caller holds the key lock, so that events keep commit order.
pub(in crate::domain) fn announce(service: &Service, changed: Option<ChangedSlot>, cause: Cause, trace_id: &TraceId) {
    let Some(ChangedSlot { before, after }) = changed else { return };
    let (before, after) = (Box::new(before), Box::new(after));
    service.events().publish(RecordChange::Slot { before, after, cause, trace_id: trace_id.clone() });
}

impl ChangedSlot {
    /// A change that is published before it is made.
    pub(in crate::domain) fn ahead(before: Slot, after: Slot) -> Option<Self> {
        (before != after).then_some(Self { before, after })
    }
}
