//! The instances of what is desired: they wait for cells once it is, and go when it is no more. What a cell runs is
//! that cell's to stop.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ops::Range;

use crate::clients::auctioneer::LrpStart;
use crate::domain::attempts::repeated;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;
use crate::model::actual_lrp::{ActualLrp, LrpKey, Presence, State};
use crate::model::change::{Cause, Change};
use crate::model::desired_lrp::SchedulingInfo;
use crate::model::slot::Slot;
use crate::store::Writer;

/// Instances created in one transaction, so that a great number does not keep other writers out.
pub(super) const AT_ONCE: i32 = 500;

/// Those of the indices at which there is nothing yet.
pub(super) async fn insert(
    writer: &mut Writer,
    process_guid: &[u8],
    domain: &[u8],
    indices: Range<i32>,
) -> Result<Vec<ActualLrp>, DomainError> {
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    let taken = writer.indices(process_guid).await?;
    insert_new(writer, process_guid, domain, indices.filter(|index| !taken.contains(index))).await
}

/// Fails where there is something at one of the indices.
pub(super) async fn insert_new(
    writer: &mut Writer,
    process_guid: &[u8],
    domain: &[u8],
    indices: impl Iterator<Item = i32>,
) -> Result<Vec<ActualLrp>, DomainError> {
    let now_ns = writer.now_ns();
    let key = |index| LrpKey { process_guid: process_guid.to_vec(), index, domain: domain.to_vec() };
    let rows: Vec<_> = indices.map(|index| ActualLrp::unclaimed(&key(index), now_ns)).collect();
    writer.insert_slots(&rows).await?;
    Ok(rows)
}

/// The instances from this index on, as many as are desired by then: which were created. Each of the transactions has a
/// turn of its own, so that an update or a removal in between is heard, and is not undone. What cannot be created is
/// left to convergence: what is desired is stored by then, and whoever desires it has succeeded.
pub(super) async fn create(
    service: &Service,
    process_guid: &[u8],
    domain: &[u8],
    from: i32,
    trace_id: &TraceId,
) -> Vec<i32> {
    let mut created = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next.take() {
        let _turn = service.turn(process_guid).await;
        match repeated(|| create_some(service, process_guid, domain, from)).await {
            Ok(None) => {}
            Ok(Some((rows, until))) => {
                created.extend(tell_created(service, rows, trace_id));
                next = Some(until);
            }
            Err(fault) => {
                let process_guid = String::from_utf8_lossy(process_guid);
                let cause = fault.source().map(tracing::field::display);
                tracing::error!(%process_guid, from, reason = %fault, cause, "no instances; convergence makes them");
            }
        }
    }
    created
}

/// Nothing where there are enough.
async fn create_some(
    service: &Service,
    process_guid: &[u8],
    domain: &[u8],
    first: i32,
) -> Result<Option<(Vec<ActualLrp>, i32)>, DomainError> {
    let mut writer = service.store().writer(process_guid).await?;
    let desired = writer.desired_instances(process_guid).await?.unwrap_or(0);
    let end = desired.min(first.saturating_add(AT_ONCE));
    if first >= end {
        return Ok(None);
    }
    let rows = insert(&mut writer, process_guid, domain, first..end).await?;
    writer.commit().await?;
    Ok(Some((rows, end)))
}

/// Gives the indices.
pub(super) fn tell_created(service: &Service, rows: Vec<ActualLrp>, trace_id: &TraceId) -> Vec<i32> {
    let tell = |row: ActualLrp| {
        let index = row.index;
        let after = Box::new(Slot { ordinary: Some(row), ..Slot::default() });
        let change = Change::Slot { before: Box::default(), after, cause: Cause::Other, trace_id: trace_id.clone() };
        service.events().publish(change);
        index
    };
    rows.into_iter().map(tell).collect()
}

/// One request for all of them. That the auctioneer did not listen is no failure of whoever desires: convergence asks
/// again.
pub(super) async fn request_auction(service: &Service, info: &SchedulingInfo, indices: Vec<i32>, trace_id: &TraceId) {
    let starts = [LrpStart::of(info, indices)];
    if let Err(fault) = service.clients().auctioneer.request_lrps(&starts, trace_id).await {
        let process_guid = String::from_utf8_lossy(&info.process_guid);
        tracing::error!(%process_guid, reason = %fault, "no cells were asked for; a convergence will");
    }
}

/// Deletes those from an index on that run nowhere. Gives what there was of all of them.
pub(super) async fn delete_from(
    writer: &mut Writer,
    process_guid: &[u8],
    from: i32,
) -> Result<BTreeMap<i32, Box<Slot>>, DomainError> {
    let (mut slots, all) = writer.slots(process_guid).await?;
    let slots = slots.split_off(&from);
    // Nothing begins to wait meanwhile: the caller holds the turn of the process guid.
    if !all || slots.values().any(|slot| slot.ordinary.as_ref().is_some_and(waits)) {
        writer.delete_waiting(process_guid, from).await?;
    }
    Ok(slots)
}

/// Tells of the end of those that were deleted. Gives the containers that run on.
pub(super) fn tell_removed(service: &Service, slots: BTreeMap<i32, Box<Slot>>, trace_id: &TraceId) -> Vec<ActualLrp> {
    let mut running = Vec::new();
    for slot in slots.into_values() {
        let kept = slot.rows().filter(|row| !waits(row) && row.presence() != Some(Presence::Evacuating));
        running.extend(kept.cloned());
        if slot.ordinary.as_ref().is_some_and(waits) {
            let mut after = slot.clone();
            after.ordinary = None;
            let trace_id = trace_id.clone();
            service.events().publish(Change::Slot { before: slot, after, cause: Cause::Other, trace_id });
        }
    }
    running
}

fn waits(row: &ActualLrp) -> bool {
    matches!(row.state(), Some(State::Unclaimed | State::Crashed))
}
