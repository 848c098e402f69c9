//! Retirement of an instance: its row is removed at once if it has no container, otherwise its cell
//! is asked to stop it.

use bbs_model::TraceId;
use bbs_model::actual_lrp::{ActualLrp, LrpKey};
use bbs_model::change::Cause;
use bbs_model::slot::Retired;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use super::change::{ChangedSlot, announce, change_locked, change_slot};
use crate::clients::ClientError;
use crate::domain::{DomainError, Service};

/// Requests to the cell, without a delay in between, as in Diego.
const ATTEMPTS: u32 = 5;

/// The effect of a retirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retirement {
    /// The row is removed.
    Removed,
    /// The cell stops the container, and removes the row then.
    Stopping,
}

/// Retires an instance. The event of its removal is published when its cell is asked to stop it, so
/// that routers stop sending traffic at once; the row stays until the cell has removed it. All
/// requests are about the same container, as in Diego: between two of them, a successor may have
/// taken the place of one whose cell has answered too late.
///
/// # Errors
/// `NotFound` without an instance; `Client` if its cell took no attempt; errors of the store and of
/// Locket.
pub async fn retire(
    service: &Service,
    key: &LrpKey,
    trace_id: &TraceId,
) -> Result<Retirement, DomainError> {
    let slot = (&key.process_guid[..], key.index);
    let row = match change_slot(service, slot, trace_id, |slot, _| slot.retire()).await? {
        Retired::Removed => return Ok(Retirement::Removed),
        Retired::HasContainer(row) => *row,
    };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let event = if last.is_none() {
            RemovalEvent::Due
        } else if has_row(service, &row).await? {
            RemovalEvent::Published
        } else {
            return Ok(Retirement::Removed);
        };
        match stop_once(service, &row, trace_id, event).await {
            Err(DomainError::Client(fault))
                if !matches!(fault, ClientError::NoSecureAddress { .. }) =>
            {
                last = Some(fault);
            }
            // The cell has removed the instance between two attempts.
            Err(DomainError::NotFound) if last.is_some() => return Ok(Retirement::Removed),
            ended => return ended,
        }
    }
    Err(last.map_or(DomainError::NotFound, DomainError::Client))
}

/// Whether the slot of a container still has its row.
async fn has_row(service: &Service, row: &ActualLrp) -> Result<bool, DomainError> {
    let mut reader = service.store().look().await?;
    let read = reader.slot(&row.process_guid, row.index).await?;
    Ok(read.slot.presence_of(&row.instance_key()).is_some())
}

/// Has the cell of a container stop it, once. Publishes its removal first; removes its row if the
/// cell is gone.
///
/// # Errors
/// `NotFound` if the cell is gone, and the row as well; `Client` if the cell did not take the
/// request; errors of the store and of Locket.
pub async fn stop(
    service: &Service,
    row: &ActualLrp,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    stop_once(service, row, trace_id, RemovalEvent::Due)
        .await
        .map(drop)
}

/// [`stop`] without a request of a client, if `is_due` holds, which is evaluated under the key
/// lock. The removal is published before the lock is released, so that it precedes each later
/// change of the slot.
///
/// # Errors
/// As of [`stop`], and those of `is_due`.
pub(in crate::domain) async fn stop_if<F>(
    service: &Service,
    row: &ActualLrp,
    is_due: F,
) -> Result<(), DomainError>
where
    F: Future<Output = Result<bool, DomainError>> + Send,
{
    let trace_id = &TraceId::NONE;
    let slot = (&row.process_guid[..], row.index);
    let instance = row.instance_key();
    let cell = service.clients().cells.find(&row.cell_id).await?;
    let lock = service.lock_key(slot.0).await?;
    if !is_due.await? {
        return Ok(());
    }
    let Some(cell) = cell else {
        let (changed, ()) =
            change_locked(service, slot, |slot, _| slot.remove(Some(&instance))).await?;
        announce(service, changed, Cause::Other, trace_id);
        return Ok(());
    };
    announce_removal(service, slot, row, trace_id).await?;
    drop(lock);
    service
        .clients()
        .reps
        .stop(&cell, &row.key(), &instance, trace_id)
        .await
        .map_err(DomainError::Client)
}

/// Logs if the cell of a replaced container did not stop it; `next` states what happens then.
pub(in crate::domain) fn log_failed_stop(
    row: &ActualLrp,
    stopped: Result<(), DomainError>,
    next: &str,
) {
    let Err(fault) = stopped else { return };
    if matches!(fault, DomainError::NotFound) {
        return;
    }
    tracing::warn!(
        name: "lrp-update.not-stopped",
        process_guid = %lossy(&row.process_guid), row.index, cell_id = %lossy(&row.cell_id),
        reason = %with_causes(&fault),
        "a cell did not stop a replaced container; {next}"
    );
}

/// The event of a removal, which precedes the first request to the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalEvent {
    Due,
    Published,
}

async fn stop_once(
    service: &Service,
    row: &ActualLrp,
    trace_id: &TraceId,
    event: RemovalEvent,
) -> Result<Retirement, DomainError> {
    let slot = (&row.process_guid[..], row.index);
    let instance = row.instance_key();
    let Some(cell) = service.clients().cells.find(&row.cell_id).await? else {
        change_slot(service, slot, trace_id, |slot, _| {
            slot.remove(Some(&instance))
        })
        .await?;
        return Ok(Retirement::Removed);
    };
    if event == RemovalEvent::Due {
        let _lock = service.lock_key(slot.0).await?;
        announce_removal(service, slot, row, trace_id).await?;
    }
    service
        .clients()
        .reps
        .stop(&cell, &row.key(), &instance, trace_id)
        .await?;
    Ok(Retirement::Stopping)
}

/// Publishes the removal of the instance ahead of time, unless the slot has another one by now. The
/// caller holds the key lock.
async fn announce_removal(
    service: &Service,
    (process_guid, index): (&[u8], i32),
    row: &ActualLrp,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let before = service
        .store()
        .look()
        .await?
        .slot(process_guid, index)
        .await?
        .slot;
    let mut after = before.clone();
    if after.remove(Some(&row.instance_key())).is_ok() {
        announce(
            service,
            ChangedSlot::of(before, after),
            Cause::Other,
            trace_id,
        );
    }
    Ok(())
}
