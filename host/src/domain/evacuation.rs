//! Evacuation: a cell is being emptied and asks of each of its containers whether to keep it. What becomes of a slot is
//! the model's to say.

use super::actual_lrps::{Changed, announce, change_slot, request_auction, write};
use super::attempts::repeated;
use super::{DomainError, Service};
use crate::model::TraceId;
use crate::model::actual_lrp::{InstanceKey, LrpKey};
use crate::model::change::Cause;
use crate::model::slot::{Container, Desired, Evacuated, Refusal, Replacement, Slot};
use crate::store::{Store, Writer};
use bbs_proto::models::desired_lrp::UpdateStrategy;

/// An answer to a cell. One that is refused may have to keep its container even so.
#[derive(Debug)]
pub struct Answer {
    pub keeps_container: bool,
    pub refusal: Option<DomainError>,
}

impl Answer {
    fn refused(keeps_container: bool, refusal: DomainError) -> Self {
        Self { keeps_container, refusal: Some(refusal) }
    }
}

pub async fn evacuate_claimed(service: &Service, key: &LrpKey, instance: &InstanceKey) -> Answer {
    let evacuated = change(service, key, |slot, now_ns| slot.evacuate_claimed(instance, now_ns)).await;
    or_kept(finish(service, key, evacuated).await)
}

pub async fn evacuate_running(service: &Service, container: &Container) -> Answer {
    let key = &container.key;
    let turn = service.turn(&key.process_guid).await;
    let evacuated = match repeated(|| attempt(service.store(), container)).await {
        Ok((changed, evacuated)) => {
            announce(service, changed, Cause::Other, &TraceId::NONE);
            Ok(evacuated)
        }
        Err(fault) => Err(fault),
    };
    drop(turn);
    or_kept(finish(service, key, evacuated).await)
}

pub async fn evacuate_crashed(service: &Service, key: &LrpKey, instance: &InstanceKey, reason: &[u8]) -> Answer {
    or_gone(change(service, key, |slot, now_ns| slot.evacuate_crashed(key, instance, reason, now_ns)).await)
}

pub async fn evacuate_stopped(service: &Service, key: &LrpKey, instance: &InstanceKey) -> Answer {
    or_gone(change(service, key, |slot, _| slot.evacuate_stopped(instance)).await)
}

pub async fn remove_evacuating(service: &Service, key: &LrpKey, instance: &InstanceKey) -> Result<(), DomainError> {
    change(service, key, |slot, _| slot.remove_evacuating(instance)).await
}

async fn change<T: Send>(
    service: &Service,
    key: &LrpKey,
    step: impl Fn(&mut Slot, i64) -> Result<T, Refusal> + Sync,
) -> Result<T, DomainError> {
    change_slot(service, (&key.process_guid, key.index), Cause::Other, &TraceId::NONE, step).await
}

/// The desired LRP is locked before its instances, as in every other call.
async fn attempt(store: &Store, container: &Container) -> Result<(Option<Changed>, Evacuated), DomainError> {
    let key = &container.key;
    let mut writer = store.writer(&key.process_guid).await?;
    let desired = desired(&mut writer, &key.process_guid).await?;
    let before = writer.slot(&key.process_guid, key.index).await?;
    let mut after = before.clone();
    let evacuated = after.evacuate_running(container, desired, store.now_ns())?;
    Ok((write(writer, before, after).await?, evacuated))
}

async fn desired(writer: &mut Writer, process_guid: &[u8]) -> Result<Option<Desired>, DomainError> {
    let Some((instances, strategy)) = writer.desired_replacement(process_guid).await? else { return Ok(None) };
    if strategy != UpdateStrategy::Recreate as i32 {
        return Ok(Some(Desired { replacement: Replacement::Rolling, instances, running: 0 }));
    }
    let running = writer.running(process_guid).await?;
    Ok(Some(Desired { replacement: Replacement::Recreate, instances, running }))
}

/// That no cell could be asked for is no failure of the evacuation: what waits for too long is offered again.
async fn finish(
    service: &Service,
    key: &LrpKey,
    evacuated: Result<Evacuated, DomainError>,
) -> Result<Evacuated, DomainError> {
    let evacuated = evacuated?;
    if evacuated.needs_cell
        && let Err(fault) = request_auction(service, &key.process_guid, key.index).await
    {
        let process_guid = String::from_utf8_lossy(&key.process_guid);
        tracing::error!(%process_guid, index = key.index, reason = %fault, "an evacuated instance was not auctioned; a convergence will");
    }
    Ok(evacuated)
}

/// Whoever does not know what became of its container keeps it and asks again. A container that nobody knows is not
/// worth keeping.
fn or_kept(evacuated: Result<Evacuated, DomainError>) -> Answer {
    match evacuated {
        Ok(evacuated) => Answer { keeps_container: evacuated.keeps_container, refusal: None },
        Err(refusal @ DomainError::NotFound) => Answer::refused(false, refusal),
        Err(refusal) => Answer::refused(true, refusal),
    }
}

/// There is no container to keep, whatever became of its record.
fn or_gone(evacuated: Result<Evacuated, DomainError>) -> Answer {
    Answer { keeps_container: false, refusal: evacuated.err() }
}
