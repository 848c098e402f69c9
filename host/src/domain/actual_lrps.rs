//! Actual LRPs: listing them, and the calls of cells and the auctioneer about them. The transitions
//! of a slot are the model's.

mod auction;
mod change;
mod retire;

pub use retire::{Retirement, retire, stop};
pub(super) use retire::{log_failed_stop, stop_if};

pub(super) use auction::{request_auction, request_auctions};
use bbs_model::TraceId;
use bbs_model::actual_lrp::{ActualLrp, ActualLrpFilter, InstanceKey, LrpKey, Presence};
use bbs_model::change::Cause;
use bbs_model::slot::{Container, DefinitionCount, SlotError};
use change::change_locked;
pub(super) use change::{ChangedSlot, CurrentDefinition, announce, change_slot, write};

use super::retry::retry;
use super::{DomainError, Page, Service};
use crate::store::ReadableSlot;

/// Lists the actual LRPs of a page that match a filter.
pub async fn list(
    page: &mut Page,
    filter: &ActualLrpFilter,
) -> Result<Vec<ActualLrp>, DomainError> {
    let range = page.range();
    let listed = page.reader().actual_lrps(filter, &range).await?;
    Ok(page.records(listed, |lrp| &lrp.process_guid))
}

/// A cell starts an instance.
///
/// # Errors
/// The instance is missing, or its state does not allow it; errors of the store.
pub async fn claim(
    service: &Service,
    process_guid: &[u8],
    index: i32,
    instance: &InstanceKey,
) -> Result<(), DomainError> {
    let slot = (process_guid, index);
    change_slot(service, slot, &TraceId::NONE, |slot, now_ns| {
        slot.claim(instance, now_ns)
    })
    .await
}

/// A cell runs an instance. Cells repeat this call as a heartbeat, so the slot is read first, and a
/// transaction is opened only for a difference. The key lock keeps the slot unchanged in between.
///
/// # Errors
/// The instance is missing, or its state does not allow it; errors of the store.
pub async fn start(service: &Service, container: &Container) -> Result<(), DomainError> {
    let key = &container.key;
    let lock = service.lock_key(&key.process_guid).await?;
    let changed = retry(|| async {
        let store = service.store();
        let ReadableSlot { slot, damage } = store
            .look()
            .await?
            .slot(&key.process_guid, key.index)
            .await?;
        let hints = service.update_hints();
        let now_ns = store.now_ns();
        // A replaced container without a row, whose report was sent before its cell was asked to
        // stop it: it will be gone, and must not take over from the container that receives the
        // traffic.
        if slot.presence_of(&container.instance).is_none()
            && hints.is_refused(&container.instance, now_ns)
        {
            return Err(SlotError::CannotBeStarted.into());
        }
        // Its removal was published a short time ago.
        if slot.is_replaced(&container.instance)
            && hints.is_stop_requested(&container.instance, now_ns)
        {
            return Ok(None);
        }
        let definitions = match slot
            .ordinary
            .as_ref()
            .filter(|row| row.is_instance(&container.instance))
        {
            Some(_) => DefinitionCount::One,
            None => {
                store
                    .look()
                    .await?
                    .definitions_of(&key.process_guid)
                    .await?
            }
        };
        let mut started = slot.clone();
        match (
            started.start(container, definitions, store.now_ns()),
            damage,
        ) {
            (Ok(()), _) if started == slot => return Ok(None),
            (_, Some(fault)) => return Err(fault.into()),
            (result, None) => result?,
        }
        let current = CurrentDefinition::Unread;
        write(store.writer().await?, slot, started, current).await
    })
    .await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(lock);
    Ok(())
}

/// A container ended by itself. Requests an auction if the instance is restarted at once.
///
/// # Errors
/// The instance is missing, or its state does not allow it; errors of the store.
pub async fn crash(
    service: &Service,
    key: &LrpKey,
    instance: &InstanceKey,
    reason: &[u8],
) -> Result<(), DomainError> {
    let slot = (&key.process_guid[..], key.index);
    let lock = service.lock_key(slot.0).await?;
    let (changed, _) = change_locked(service, slot, |slot, now_ns| {
        slot.crash(instance, reason, now_ns)
    })
    .await?;
    let is_restarted = changed.as_ref().is_some_and(ChangedSlot::begins_to_wait);
    announce(service, changed, Cause::Crash, &TraceId::NONE);
    drop(lock);
    // Also one that took another definition than the one that crashed.
    if is_restarted {
        request_auction(service, &key.process_guid, key.index).await
    } else {
        Ok(())
    }
}

/// The auctioneer could not place a waiting instance.
///
/// # Errors
/// The instance is missing, or its state does not allow it; errors of the store.
pub async fn fail(service: &Service, key: &LrpKey, reason: &[u8]) -> Result<(), DomainError> {
    let slot = (&key.process_guid[..], key.index);
    change_slot(service, slot, &TraceId::NONE, |slot, now_ns| {
        slot.fail(reason, now_ns)
    })
    .await
}

/// Removes an instance; any instance of the slot without an instance key.
///
/// # Errors
/// The instance is missing, or its state does not allow it; errors of the store.
pub async fn remove(
    service: &Service,
    process_guid: &[u8],
    index: i32,
    instance: Option<&InstanceKey>,
) -> Result<(), DomainError> {
    let lock = service.lock_key(process_guid).await?;
    let slot = (process_guid, index);
    let changed = retry(|| attempt_removal(service, slot, instance)).await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(lock);
    Ok(())
}

async fn attempt_removal(
    service: &Service,
    (process_guid, index): (&[u8], i32),
    instance: Option<&InstanceKey>,
) -> Result<Option<ChangedSlot>, DomainError> {
    let mut writer = service.store().writer().await?;
    let before = writer.slot(process_guid, index).await?;
    let mut after = before.clone();
    match (after.remove(instance), instance) {
        (Err(SlotError::NotFound), Some(instance))
            if before.presence_of(instance) == Some(Presence::Evacuating) =>
        {
            // The rows that a removed desired LRP leaves name no definition, also where the LRP is
            // desired again.
            if service
                .update_hints()
                .is_stop_requested(instance, writer.now_ns())
            {
                after.remove_evacuating(instance)?;
            } else {
                // Without the managed row, the current definition shows whether an update replaces
                // it.
                let target = writer.instance_target(process_guid).await?;
                let target = target.ok_or(DomainError::NotFound)?;
                after.remove_without_successor(instance, &target.definition_id)?;
            }
        }
        (removed, _) => removed?,
    }
    write(writer, before, after, CurrentDefinition::Unread).await
}
