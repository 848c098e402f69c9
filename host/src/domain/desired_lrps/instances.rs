//! Instances of a desired LRP: created waiting when it is desired, and deleted with it while they
//! wait. An instance with a container is stopped by its cell.

use std::ops::Range;

use bbs_model::TraceId;
use bbs_model::actual_lrp::{ActualLrp, LrpKey};
use bbs_model::bounds::INSTANCES;
use bbs_model::change::{Cause, RecordChange};
use bbs_model::convergence::InstanceTarget;
use bbs_model::slot::Slot;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use crate::domain::actual_lrps::{ChangedSlot, announce};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Service};
use crate::store::{ReadableSlots, Writer};

/// Instances created in one transaction; more would keep other writers out for too long.
pub(super) const BATCH_SIZE: i32 = 500;

/// Inserts an instance at each of the indices that has none; returns the inserted ones.
pub(super) async fn insert(
    writer: &mut Writer,
    target: &InstanceTarget,
    indices: Range<i32>,
) -> Result<Vec<ActualLrp>, DomainError> {
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    let taken = writer.indices(&target.process_guid, indices.start).await?;
    insert_new(
        writer,
        target,
        indices.filter(|index| !taken.contains(index)),
    )
    .await
}

/// Inserts an instance at each of the indices; fails with `Exists` if one has an instance.
pub(super) async fn insert_new(
    writer: &mut Writer,
    target: &InstanceTarget,
    indices: impl Iterator<Item = i32>,
) -> Result<Vec<ActualLrp>, DomainError> {
    let now_ns = writer.now_ns();
    let InstanceTarget {
        process_guid,
        domain,
        definition_id,
        ..
    } = target;
    let key = |index| LrpKey {
        process_guid: process_guid.clone(),
        index,
        domain: domain.clone(),
    };
    let rows: Vec<_> = indices
        .map(|index| ActualLrp {
            definition_id: definition_id.clone(),
            ..ActualLrp::unclaimed(&key(index), now_ns)
        })
        .collect();
    writer.insert_slots(&rows).await?;
    Ok(rows)
}

/// Creates the instances from index `from` up to the desired number, and returns the created
/// indices. Each batch takes the key lock and reads the desired number again, so that an update or
/// removal in between is not undone. A failure is only logged: the desired LRP is stored, and
/// convergence creates what is missing.
pub(super) async fn create(
    service: &Service,
    process_guid: &[u8],
    from: i32,
    trace_id: &TraceId,
) -> Vec<i32> {
    let mut created = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next.take() {
        match create_locked(service, process_guid, from, trace_id).await {
            Ok(None) => {}
            Ok(Some((indices, until))) => {
                created.extend(indices);
                next = Some(until);
            }
            Err(fault) => {
                tracing::error!(
                    process_guid = %lossy(process_guid),
                    from,
                    reason = %with_causes(&fault),
                    "the instances from this index on were not created; the next run of convergence creates them"
                );
            }
        }
    }
    created
}

/// Creates and publishes one batch; returns its indices and the index after it, or `None` if there
/// are enough instances.
async fn create_locked(
    service: &Service,
    process_guid: &[u8],
    from: i32,
    trace_id: &TraceId,
) -> Result<Option<(Vec<i32>, i32)>, DomainError> {
    let _lock = service.lock_key(process_guid).await?;
    let batch = retry(|| create_batch(service, process_guid, from)).await?;
    Ok(batch.map(|(rows, until)| (publish_created(service, rows, trace_id), until)))
}

async fn create_batch(
    service: &Service,
    process_guid: &[u8],
    first: i32,
) -> Result<Option<(Vec<ActualLrp>, i32)>, DomainError> {
    let mut writer = service.store().writer().await?;
    let Some(target) = writer.instance_target(process_guid).await? else {
        return Ok(None);
    };
    let batch = insert_batch(&mut writer, &target, first).await?;
    if batch.is_some() {
        writer.commit().await?;
    }
    Ok(batch)
}

/// Inserts one batch; returns its rows and the index after it, or `None` if there are enough
/// instances. The caller's transaction has locked the desired LRP.
pub(super) async fn insert_batch(
    writer: &mut Writer,
    target: &InstanceTarget,
    first: i32,
) -> Result<Option<(Vec<ActualLrp>, i32)>, DomainError> {
    let end = target
        .instances
        .min(INSTANCES)
        .min(first.saturating_add(BATCH_SIZE));
    if first >= end {
        return Ok(None);
    }
    let rows = insert(writer, target, first..end).await?;
    Ok(Some((rows, end)))
}

/// Publishes the creation of instances; returns their indices. The caller holds the key lock.
pub(super) fn publish_created(
    service: &Service,
    rows: Vec<ActualLrp>,
    trace_id: &TraceId,
) -> Vec<i32> {
    let indices = rows.iter().map(|row| row.index).collect();
    let created = rows.into_iter().map(|row| RecordChange::Slot {
        before: Box::default(),
        after: Box::new(Slot {
            ordinary: Some(row),
            ..Slot::default()
        }),
        cause: Cause::Other,
        trace_id: trace_id.clone(),
    });
    service.events().publish_all(created);
    indices
}

/// A slot before and after the deletion of its waiting instance.
#[derive(Debug)]
pub(super) struct ReducedSlot {
    before: Box<Slot>,
    pub(super) after: Box<Slot>,
}

/// Deletes the waiting instances from index `from` on; returns the slots, also those without one.
pub(super) async fn delete_from(
    writer: &mut Writer,
    process_guid: &[u8],
    from: i32,
) -> Result<Vec<ReducedSlot>, DomainError> {
    let ReadableSlots { slots, unreadable } = writer.slots_from(process_guid, from).await?;
    let mut reduced = Vec::new();
    let mut has_waiting = false;
    for before in slots.into_values() {
        let mut after = before.clone();
        after.delete_waiting();
        if after.ordinary.is_none() {
            has_waiting |= before.ordinary.is_some();
        } else if after != before {
            writer.put_slot(&before, &after).await?;
        }
        reduced.push(ReducedSlot { before, after });
    }
    // The caller holds the key lock, so no further instance starts to wait in between.
    if !unreadable.is_empty() || has_waiting {
        writer.delete_waiting(process_guid, from).await?;
    }
    Ok(reduced)
}

/// Publishes the removal of the deleted instances; returns the rows with a container. The caller
/// holds the key lock.
pub(super) fn publish_removed(
    service: &Service,
    slots: Vec<ReducedSlot>,
    trace_id: &TraceId,
) -> Vec<ActualLrp> {
    // An evacuating cell stops its containers itself, but not one that an update replaces.
    let running = slots.iter().flat_map(|slot| slot.after.containers());
    let running = running.cloned().collect();
    let changed = slots
        .into_iter()
        .filter_map(|ReducedSlot { before, after }| ChangedSlot::of(*before, *after));
    announce(service, changed, Cause::Other, trace_id);
    running
}
