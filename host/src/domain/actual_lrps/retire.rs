//! Retiring: an instance that is not wanted any more goes, at once if no cell has it, and otherwise by its cell.

use super::change::{Changed, announce, change_slot};
use crate::clients::ClientError;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;
use crate::model::actual_lrp::{ActualLrp, LrpKey};
use crate::model::change::Cause;
use crate::model::slot::Retired;

/// How often a cell is asked, without a pause, as Diego does.
const ATTEMPTS: u32 = 5;

/// What an attempt came to.
enum Attempt {
    Done,
    /// Worth another one.
    Failed(ClientError),
}

/// Whoever listens hears of the end of an instance when its cell is asked to stop it, so that no traffic is sent to it
/// any more. Its row stays until the cell has done so.
pub async fn retire(service: &Service, key: &LrpKey, trace_id: &TraceId) -> Result<(), DomainError> {
    let mut foretold = None;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match attempt(service, key, trace_id, &mut foretold).await {
            Ok(Attempt::Done) => return Ok(()),
            Ok(Attempt::Failed(fault)) => last = Some(fault),
            // Its cell has removed it after all.
            Err(DomainError::NotFound) if last.is_some() => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    Err(last.map_or(DomainError::NotFound, DomainError::Client))
}

async fn attempt(
    service: &Service,
    key: &LrpKey,
    trace_id: &TraceId,
    foretold: &mut Option<ActualLrp>,
) -> Result<Attempt, DomainError> {
    let slot = (&key.process_guid[..], key.index);
    let row = match change_slot(service, slot, Cause::Other, trace_id, |slot, _| slot.retire()).await? {
        Retired::Removed => return Ok(Attempt::Done),
        Retired::HasContainer(row) => *row,
    };
    let instance = row.instance_key();
    let Some(cell) = service.clients().cells.find(&row.cell_id).await.map_err(DomainError::Cells)? else {
        change_slot(service, slot, Cause::Other, trace_id, |slot, _| slot.remove(Some(&instance))).await?;
        return Ok(Attempt::Done);
    };
    if foretold.as_ref().is_none_or(|told| told.instance_key() != instance) {
        foretell(service, slot, &row, trace_id).await?;
        *foretold = Some(row.clone());
    }
    match service.clients().reps.stop(&cell, &row.key(), &instance, trace_id).await {
        Ok(()) => Ok(Attempt::Done),
        Err(fault @ ClientError::NoSecureAddress { .. }) => Err(DomainError::Client(fault)),
        Err(fault) => Ok(Attempt::Failed(fault)),
    }
}

/// Tells that the instance is no more, unless something else has become of it by now.
async fn foretell(
    service: &Service,
    (process_guid, index): (&[u8], i32),
    row: &ActualLrp,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let turn = service.turn(process_guid).await;
    let before = service.store().look().await?.slot(process_guid, index).await?.slot;
    let mut after = before.clone();
    if after.remove(Some(&row.instance_key())).is_ok() {
        announce(service, Changed::foretold(before, after), Cause::Other, trace_id);
    }
    drop(turn);
    Ok(())
}
