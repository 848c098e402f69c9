//! Actual LRPs: what is known of the instances, and what cells and the auctioneer say of them. What a call makes of a
//! slot is the model's to say.

mod auction;
mod change;
mod retire;

pub use retire::retire;

pub(super) use auction::request_auction;
pub(super) use change::{Changed, announce, change_slot, write};

use super::{DomainError, Page, Service};
use crate::model::TraceId;
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter, InstanceKey, LrpKey};
use crate::model::change::Cause;
use crate::model::slot::{Container, Crashed};

pub async fn list(page: &mut Page, filter: &ActualLrpFilter) -> Result<Vec<ActualLrp>, DomainError> {
    if let Some((after, units)) = page.open() {
        let last = page.reader.actual_lrps_page_end(filter, after.as_ref(), units).await?;
        page.fix(last);
    }
    let range = page.range();
    Ok(page.reader.actual_lrps(filter, &range).await?)
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

/// Cells say again and again what they run: that is only read.
pub async fn start(service: &Service, container: &Container) -> Result<(), DomainError> {
    let slot = (&container.key.process_guid[..], container.key.index);
    let known = service.store().reader().await?.slot(slot.0, slot.1).await?;
    let mut started = known.clone();
    if started.start(container, service.store().now_ns()).is_ok() && started == known {
        return Ok(());
    }
    change_slot(service, slot, Cause::Other, &TraceId::NONE, |slot, now_ns| slot.start(container, now_ns)).await
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
