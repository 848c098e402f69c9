//! The one way in which a slot changes: its turn is taken, its rows are read and locked, what they become is decided,
//! the difference is written, and then everyone is told.

use crate::domain::attempts::repeated;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;
use crate::model::change::{Cause, Change};
use crate::model::slot::{Refusal, Slot};
use crate::store::{Store, Writer};

/// A slot before and after a change that was committed.
#[derive(Debug)]
pub(in crate::domain) struct Changed {
    before: Slot,
    after: Slot,
}

/// Makes of a slot, named by process guid and index, what `step` makes of it at this time. A step that changes nothing
/// writes nothing, and nobody hears of it.
pub(in crate::domain) async fn change_slot<T: Send>(
    service: &Service,
    slot: (&[u8], i32),
    cause: Cause,
    trace_id: &TraceId,
    step: impl Fn(&mut Slot, i64) -> Result<T, Refusal> + Sync,
) -> Result<T, DomainError> {
    let turn = service.turn(slot.0).await;
    let (changed, said) = repeated(|| attempt(service.store(), slot, &step)).await?;
    announce(service, changed, cause, trace_id);
    drop(turn);
    Ok(said)
}

async fn attempt<T>(
    store: &Store,
    (process_guid, index): (&[u8], i32),
    step: &(impl Fn(&mut Slot, i64) -> Result<T, Refusal> + Sync),
) -> Result<(Option<Changed>, T), DomainError> {
    let mut writer = store.writer(process_guid).await?;
    let before = writer.slot(process_guid, index).await?;
    let mut after = before.clone();
    let said = step(&mut after, store.now_ns())?;
    Ok((write(writer, before, after).await?, said))
}

/// Ends the transaction in which the slot was read.
pub(in crate::domain) async fn write(
    mut writer: Writer,
    before: Slot,
    after: Slot,
) -> Result<Option<Changed>, DomainError> {
    if before == after {
        return Ok(None);
    }
    writer.put_slot(&before, &after).await?;
    writer.commit().await?;
    Ok(Some(Changed { before, after }))
}

/// Whoever calls this still has the turn.
pub(in crate::domain) fn announce(service: &Service, changed: Option<Changed>, cause: Cause, trace_id: &TraceId) {
    let Some(Changed { before, after }) = changed else { return };
    let (before, after) = (Box::new(before), Box::new(after));
    service.events().publish(Change::Slot { before, after, cause, trace_id: trace_id.clone() });
}

impl Changed {
    /// For what is told before it happens.
    pub(in crate::domain) fn foretold(before: Slot, after: Slot) -> Option<Self> {
        (before != after).then_some(Self { before, after })
    }
}
