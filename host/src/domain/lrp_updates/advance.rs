//! One step of the work on a desired LRP: the due actions of all its instances, in one transaction,
//! and the end of its update when there are none left.

use std::collections::BTreeMap;
use std::time::Duration;

use bbs_model::actual_lrp::{ActualLrp, LrpKey};
use bbs_model::change::{Cause, RecordChange};
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::lrp_update::{UpdateAction, UpdateStatus, UpdateTarget, UpdatedLrp};
use bbs_model::slot::{Replacement, Slot, SlotError};
use bbs_model::{ModificationTag, TraceId};
use bbs_work::causes::with_causes;
use bbs_work::lossy;
use futures_util::{StreamExt, stream};

use super::UpdateRecords;
use super::archive::prune_definitions;
use crate::domain::actual_lrps::{
    ChangedSlot, announce, log_failed_stop, request_auctions, stop_if,
};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Service};
use crate::store::{EntityKind, ReadableSlots, StoreError, Writer};

/// Requests to cells at the same time.
const REQUESTS: usize = 32;

/// The result of a step.
#[derive(Debug, Default)]
struct UpdateStep {
    is_done: bool,
    /// Each in the order of publication.
    changed: Vec<ChangedSlot>,
    /// The indices of new instances.
    starts: Vec<i32>,
    /// Containers that their cells have to stop.
    stops: Vec<ActualLrp>,
    /// When the first of the replaced containers may be stopped that receive traffic beside their
    /// successors, in nanoseconds since 1970.
    wakes_at_ns: Option<i64>,
    /// The desired LRP before and after the end of its update.
    ended: Option<(DesiredLrp, DesiredLrp)>,
    status: Option<UpdateStatus>,
}

/// Runs one step; whether all instances run the current definition.
pub(super) async fn advance(service: &Service, process_guid: &[u8]) -> Result<bool, DomainError> {
    let lock = service.lock_key(process_guid).await?;
    let UpdateStep {
        is_done,
        changed,
        starts,
        stops,
        wakes_at_ns,
        ended,
        status,
    } = retry(|| attempt(service, process_guid)).await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    if let Some((before, after)) = ended {
        service.publish_desired_lrp(Some(before), Some(after), &TraceId::NONE);
    }
    drop(lock);
    if let Some(at_ns) = wakes_at_ns {
        continue_at(service, process_guid, at_ns);
    }
    if let Some(status) = status {
        report(service, process_guid, status).await;
    }
    if !starts.is_empty() {
        // By itself: within an `if let`, the connection would be held until the auctioneer has
        // answered.
        let info = service
            .store()
            .look()
            .await?
            .auction_info(process_guid)
            .await?;
        if let Some(info) = info {
            request_auctions(service, &info, starts, &TraceId::NONE).await;
        }
    }
    stream::iter(stops)
        .for_each_concurrent(REQUESTS, |row| stop_container(service, row))
        .await;
    Ok(is_done)
}

/// Continues the work when an overlap ends. Another host begins the overlap anew.
fn continue_at(service: &Service, process_guid: &[u8], at_ns: i64) {
    if !service.update_hints().note_wake(process_guid, at_ns) {
        return;
    }
    let now_ns = service.store().now_ns();
    let left = Duration::from_nanos(u64::try_from(at_ns.saturating_sub(now_ns)).unwrap_or(0));
    let service = service.detached();
    let process_guid = process_guid.to_vec();
    tokio::spawn(async move {
        service.store().clock().sleep(left).await;
        service
            .update_hints()
            .end_of_overlap(&service, &process_guid);
    });
}

/// Has the cell of a container stop it, unless it got the request a short time ago. A failure is
/// only logged: the request is repeated.
async fn stop_container(service: &Service, row: ActualLrp) {
    let now_ns = service.store().now_ns();
    if service
        .update_hints()
        .is_stop_requested(&row.instance_key(), now_ns)
    {
        return;
    }
    let stopped = stop_if(service, &row, begin_stop(service, &row)).await;
    log_failed_stop(&row, stopped, "it gets the request again");
}

/// Whether a container still has to be stopped; records the request to its cell. The step decided
/// so before it requested auctions and looked up the cell, and the successor may have crashed
/// meanwhile: then the container has the traffic again. A container without a row is stopped in any
/// case. Reads its slot alone if that decides, since a step may stop many containers of one LRP.
/// The caller holds the key lock.
async fn begin_stop(service: &Service, row: &ActualLrp) -> Result<bool, DomainError> {
    let process_guid = &row.process_guid[..];
    let instance = row.instance_key();
    let mut reader = service.store().look().await?;
    let read = UpdateRecords::read(&mut reader, process_guid, Some(row.index)).await?;
    let Some(update) = read else {
        return Ok(true);
    };
    let now_ns = reader.now_ns();
    drop(reader);
    let pace = &service.policy().update_pace;
    let lrp = update.target.at(now_ns, pace, update.record.as_ref());
    let slot = update
        .slots
        .get(&row.index)
        .filter(|slot| slot.presence_of(&instance).is_some());
    let is_due = match slot {
        None => true,
        Some(slot) => {
            let mut due = lrp.stop_in(row.index, slot);
            // How many containers are stopped before their successors start depends on all slots.
            if due.is_none() && lrp.strategy == Replacement::Recreate {
                let mut writer = service.store().writer().await?;
                let ReadableSlots { slots, unreadable } =
                    slots_to_decide(service, &mut writer, process_guid).await?;
                let unreadable = &unreadable;
                let all = UpdatedLrp { unreadable, ..lrp }.due(&slots);
                let of_index = all.into_iter().find(|(index, _)| *index == row.index);
                due = of_index.map(|(_, action)| action);
            }
            let stopped = due.and_then(|action| action.stopped(slot));
            stopped.is_some_and(|stopped| stopped.is_instance(&instance))
        }
    };
    if is_due {
        service.update_hints().record_stop_request(instance, now_ns);
    }
    Ok(is_due)
}

/// Logs and publishes that an update is halted, or that it is not any more.
async fn report(service: &Service, process_guid: &[u8], status: UpdateStatus) {
    let halted = status.halt_of_update();
    if !service
        .update_hints()
        .set_halted(process_guid, halted.map(|halt| halt.index))
    {
        return;
    }
    let guid = String::from_utf8_lossy(process_guid);
    match halted {
        Some(halt) => {
            tracing::warn!(
                name: "lrp-update.halted", process_guid = %guid, index = halt.index, reason = %lossy(&halt.reason),
                "an update is halted, because a new instance fails; it goes on when the instance runs; cancel it, or, if it is cancelled, update or roll back to a definition that runs"
            );
        }
        None => {
            tracing::info!(name: "lrp-update.resumed", process_guid = %guid, "an update is not halted any more")
        }
    }
    if let Err(fault) = publish_halt(service, process_guid, status).await {
        tracing::warn!(process_guid = %guid, reason = %with_causes(&fault), "subscribers were not notified of the halt");
    }
}

async fn publish_halt(
    service: &Service,
    process_guid: &[u8],
    status: UpdateStatus,
) -> Result<(), DomainError> {
    let _lock = service.lock_key(process_guid).await?;
    // Its LRP may have been removed meanwhile.
    if service.update_hints().is_halted(process_guid) != status.halt_of_update().is_some() {
        return Ok(());
    }
    if let Some(lrp) = service
        .store()
        .look()
        .await?
        .desired_lrp(process_guid)
        .await?
    {
        let lrp = Box::new(lrp);
        let status = Box::new(status);
        service
            .events()
            .publish(RecordChange::UpdateHalt { lrp, status });
    }
    Ok(())
}

async fn attempt(service: &Service, process_guid: &[u8]) -> Result<UpdateStep, DomainError> {
    let mut writer = service.store().writer().await?;
    let Some(target) = writer.update_target(process_guid).await? else {
        return Ok(UpdateStep {
            is_done: true,
            ..UpdateStep::default()
        });
    };
    let ReadableSlots { slots, unreadable } =
        slots_to_decide(service, &mut writer, process_guid).await?;
    let update = writer.lrp_update(process_guid).await?;
    let pace = &service.policy().update_pace;
    let mut lrp = target.at(writer.now_ns(), pace, update.as_ref());
    lrp.unreadable = &unreadable;
    lrp.places = service.update_hints().take_places(
        process_guid,
        lrp.demand(&slots),
        pace.max_in_flight_total,
    );
    let due = lrp.due(&slots);
    let mut step = UpdateStep {
        is_done: lrp.is_done(&slots),
        ..UpdateStep::default()
    };
    for (index, action) in due {
        if let Some(left) = overlap_left(service, process_guid, &lrp, &slots, (index, action)) {
            let ends_ns = writer
                .now_ns()
                .saturating_add(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX));
            step.wakes_at_ns = Some(
                step.wakes_at_ns
                    .map_or(ends_ns, |earlier| earlier.min(ends_ns)),
            );
            continue;
        }
        apply(
            &mut writer,
            process_guid,
            &target,
            &slots,
            (index, action),
            &mut step,
        )
        .await?;
    }
    if step.is_done && unreadable.is_empty() && !target.previous_definition_id.is_empty() {
        step.ended = Some(end(service, &mut writer, process_guid, &target).await?);
    }
    let update = update.filter(|_| step.ended.is_none());
    step.status = Some(UpdateStatus::of(
        target,
        update,
        &slots,
        pace,
        writer.now_ns(),
    ));
    if step.ended.is_some() || !step.changed.is_empty() {
        writer.commit().await?;
    }
    Ok(step)
}

/// The slots that decide what is due. Reads whole rows once a reader has noted an unreadable one of
/// the LRP, so that the slots of such rows are left out.
async fn slots_to_decide(
    service: &Service,
    writer: &mut Writer,
    process_guid: &[u8],
) -> Result<ReadableSlots, DomainError> {
    let store = service.store();
    if store.is_noted_unreadable(EntityKind::ActualLrp, process_guid) {
        Ok(writer.slots(process_guid).await?)
    } else {
        Ok(writer.plain_slots(process_guid).await?)
    }
}

/// How long a container that is to be stopped still receives traffic beside its successor: route
/// emitters learn of both at different moments, so that without an overlap one may take the last
/// route away before another has registered the next.
fn overlap_left(
    service: &Service,
    process_guid: &[u8],
    lrp: &UpdatedLrp<'_>,
    slots: &BTreeMap<i32, Box<Slot>>,
    (index, action): (i32, UpdateAction),
) -> Option<Duration> {
    if action != UpdateAction::StopReplaced || lrp.pace.overlap.is_zero() {
        return None;
    }
    let (old, new) = lrp.overlapping(index, slots.get(&index)?)?;
    let hints = service.update_hints();
    hints.overlap_left(process_guid, old, new, lrp.now_ns, lrp.pace.overlap)
}

/// Applies an action to a slot, which is read whole if it changes, or notes a container to stop.
async fn apply(
    writer: &mut Writer,
    process_guid: &[u8],
    target: &UpdateTarget,
    slots: &BTreeMap<i32, Box<Slot>>,
    (index, action): (i32, UpdateAction),
    step: &mut UpdateStep,
) -> Result<(), DomainError> {
    let known = slots.get(&index);
    if let Some(stopped) = known.and_then(|slot| action.stopped(slot)) {
        step.stops.push(stopped.clone());
        return Ok(());
    }
    let before = match known {
        None => Slot::default(),
        Some(_) => match writer.slot(process_guid, index).await {
            // The read has noted it: the next step leaves the slot out, and convergence puts the row in
            // quarantine.
            Err(StoreError::Unreadable { .. }) => return Ok(()),
            slot => slot?,
        },
    };
    let mut after = before.clone();
    let current = &target.definition_id;
    let now_ns = writer.now_ns();
    let applied = match action {
        UpdateAction::StopReplaced | UpdateAction::StopFirst => return Ok(()),
        UpdateAction::Create => {
            let key = LrpKey {
                process_guid: process_guid.to_vec(),
                index,
                domain: target.domain.clone(),
            };
            step.starts.push(index);
            after
                .create_unclaimed(&key, now_ns)
                .map(|()| after.take_definition(current, now_ns))
        }
        UpdateAction::Replace => {
            step.starts.push(index);
            after.begin_replacement(current, now_ns)
        }
        UpdateAction::Revert => after
            .revert_replacement(current, now_ns)
            .map(|given_up| step.stops.extend(given_up)),
    };
    match applied {
        Ok(()) => {}
        Err(SlotError::NotFound | SlotError::Exists) => return Ok(()),
        Err(refusal) => return Err(refusal.into()),
    }
    writer.put_slot(&before, &after).await?;
    step.changed.extend(ChangedSlot::of(before, after));
    Ok(())
}

/// Ends an update: the previous definition is archived.
async fn end(
    service: &Service,
    writer: &mut Writer,
    process_guid: &[u8],
    target: &UpdateTarget,
) -> Result<(DesiredLrp, DesiredLrp), DomainError> {
    let before = writer
        .desired_lrp(process_guid)
        .await?
        .ok_or(DomainError::NotFound)?;
    let mut after = before.clone();
    let ModificationTag { index, .. } = &mut after.scheduling.tag;
    *index = index.wrapping_add(1);
    after.scheduling.previous_definition_id.clear();
    writer
        .forget_previous_definition(process_guid, after.scheduling.tag.index)
        .await?;
    writer
        .archive_definition(
            process_guid,
            &target.previous_definition_id,
            writer.now_ns(),
        )
        .await?;
    writer.end_update(process_guid).await?;
    prune_definitions(writer, process_guid, service.policy()).await?;
    Ok((before, after))
}
