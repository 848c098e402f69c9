//! Actual LRPs: what is known of the instances, and what cells and the auctioneer say of them. What a call makes of a
//! slot is the model's to say.

mod auction;
mod change;
mod retire;

pub use retire::retire;

pub(super) use auction::request_auction;
pub(super) use change::{Changed, announce, change_slot, write};

use super::attempts::repeated;
use super::{DomainError, Page, Service};
use crate::model::TraceId;
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter, InstanceKey, LrpKey};
use crate::model::change::Cause;
use crate::model::slot::{Container, Crashed};
use crate::store::Seen;

pub async fn list(page: &mut Page, filter: &ActualLrpFilter) -> Result<Vec<ActualLrp>, DomainError> {
    let listed = page.reader.actual_lrps(filter, &page.range()).await?;
    Ok(page.records(listed))
}

pub async fn claim(
    service: &Service,
    process_guid: &[u8],
    index: i32,
    instance: &InstanceKey,
) -> Result<(), DomainError> {
    change_slot(service, (process_guid, index), Cause::Other, &TraceId::NONE, |slot, now_ns| {
        slot.claim(instance, now_ns)
    })
    .await
}

/// Cells say again and again what they run: that is only looked at, and written where it is new. Under the turn nobody
/// else changes it between the two.
pub async fn start(service: &Service, container: &Container) -> Result<(), DomainError> {
    let key = &container.key;
    let turn = service.turn(&key.process_guid).await;
    let changed = repeated(|| async {
        let store = service.store();
        let Seen { slot, damage } = store.look().await?.slot(&key.process_guid, key.index).await?;
        let mut started = slot.clone();
        match (started.start(container, store.now_ns()), damage) {
            (Ok(()), _) if started == slot => return Ok(None),
            (_, Some(fault)) => return Err(fault.into()),
            (said, None) => said?,
        }
        write(store.writer(&key.process_guid).await?, slot, started).await
    })
    .await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(turn);
    Ok(())
}

pub async fn crash(service: &Service, key: &LrpKey, instance: &InstanceKey, reason: &[u8]) -> Result<(), DomainError> {
    let slot = (&key.process_guid[..], key.index);
    let crashed = change_slot(service, slot, Cause::Crash, &TraceId::NONE, |slot, now_ns| {
        slot.crash(key, instance, reason, now_ns)
    })
    .await?;
    match crashed {
        Crashed::Unclaimed => request_auction(service, &key.process_guid, key.index).await,
        Crashed::Gone | Crashed::Waits => Ok(()),
    }
}

pub async fn fail(service: &Service, key: &LrpKey, reason: &[u8]) -> Result<(), DomainError> {
    let slot = (&key.process_guid[..], key.index);
    change_slot(service, slot, Cause::Other, &TraceId::NONE, |slot, now_ns| slot.fail(reason, now_ns)).await
}

pub async fn remove(
    service: &Service,
    process_guid: &[u8],
    index: i32,
    instance: Option<&InstanceKey>,
) -> Result<(), DomainError> {
    change_slot(service, (process_guid, index), Cause::Other, &TraceId::NONE, |slot, _| slot.remove(instance)).await
}
