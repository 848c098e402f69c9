//! Evacuation: the answer to a cell that is being drained, for each container, whether to keep it.
//! The transitions are the model's.

use bbs_model::TraceId;
use bbs_model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use bbs_model::change::Cause;
use bbs_model::lrp_update::UpdateTarget;
use bbs_model::slot::{
    Container, DefinitionCount, Desired, Evacuated, Replacement, Slot, SlotError,
};
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use super::actual_lrps::{
    ChangedSlot, CurrentDefinition, announce, change_slot, log_failed_stop, request_auction, stop,
    write,
};
use super::desired_lrps::is_quarantined;
use super::retry::retry;
use super::{DomainError, Service};
use crate::store::{Store, Writer};

/// An answer to the cell. The container may have to be kept also when the call is rejected.
#[derive(Debug)]
pub struct EvacuationAnswer {
    pub keeps_container: bool,
    pub refusal: Option<DomainError>,
}

/// Evacuates a claimed container; requests a new cell for its instance.
pub async fn evacuate_claimed(
    service: &Service,
    key: &LrpKey,
    instance: &InstanceKey,
) -> EvacuationAnswer {
    let evacuated = evacuate_slot(service, key, |slot, now_ns| {
        slot.evacuate_claimed(instance, now_ns)
    })
    .await;
    or_kept(finish(service, key, evacuated).await)
}

/// Evacuates a running container by the update strategy of its desired LRP.
pub async fn evacuate_running(service: &Service, container: &Container) -> EvacuationAnswer {
    let key = &container.key;
    let evacuate = async {
        let _lock = service.lock_key(&key.process_guid).await?;
        let (changed, mut evacuated) = retry(|| attempt(service.store(), container)).await?;
        if let Some(replaced) = evacuated.given_up.take() {
            stop_replaced(service, replaced);
        }
        announce(service, changed, Cause::Other, &TraceId::NONE);
        Ok(evacuated)
    };
    let evacuated = evacuate.await;
    or_kept(finish(service, key, evacuated).await)
}

/// Evacuates a crashed container.
pub async fn evacuate_crashed(
    service: &Service,
    key: &LrpKey,
    instance: &InstanceKey,
    reason: &[u8],
) -> EvacuationAnswer {
    or_gone(
        evacuate_slot(service, key, |slot, now_ns| {
            slot.evacuate_crashed(instance, reason, now_ns)
        })
        .await,
    )
}

/// Evacuates a stopped container.
pub async fn evacuate_stopped(
    service: &Service,
    key: &LrpKey,
    instance: &InstanceKey,
) -> EvacuationAnswer {
    or_gone(evacuate_slot(service, key, |slot, _| slot.evacuate_stopped(instance)).await)
}

/// Removes the row of an evacuating container.
///
/// # Errors
/// `NotFound` if there is no such row; errors of the store.
pub async fn remove_evacuating(
    service: &Service,
    key: &LrpKey,
    instance: &InstanceKey,
) -> Result<(), DomainError> {
    evacuate_slot(service, key, |slot, _| slot.remove_evacuating(instance)).await
}

async fn evacuate_slot<T: Send>(
    service: &Service,
    key: &LrpKey,
    step: impl Fn(&mut Slot, i64) -> Result<T, SlotError> + Sync,
) -> Result<T, DomainError> {
    let slot = (&key.process_guid[..], key.index);
    change_slot(service, slot, &TraceId::NONE, step).await
}

/// Locks the desired LRP before its instances.
async fn attempt(
    store: &Store,
    container: &Container,
) -> Result<(Option<ChangedSlot>, Evacuated), DomainError> {
    let key = &container.key;
    let mut writer = store.writer().await?;
    let target = writer.update_target(&key.process_guid).await?;
    let desired = match &target {
        Some(target) => Some(desired(&mut writer, &key.process_guid, target).await?),
        None => None,
    };
    let before = writer.slot(&key.process_guid, key.index).await?;
    if desired.is_none()
        && before.presence_of(&container.instance).is_some()
        && is_quarantined(&mut writer, &key.process_guid).await?
    {
        // The cell repeats the call. By then the LRP is desired again, or its instances end.
        return Ok((None, Evacuated::STAYS));
    }
    let mut after = before.clone();
    let definitions = match before.presence_of(&container.instance) {
        Some(_) => DefinitionCount::One,
        None => writer.definitions_of(&key.process_guid).await?,
    };
    let evacuated = after.evacuate_running(container, definitions, desired, store.now_ns())?;
    if !evacuated.keeps_container && after == before {
        // Its row stays, as in Diego, but routers must send nothing more to the container.
        let without = before.without(&container.instance);
        return Ok((ChangedSlot::of(before, without), evacuated));
    }
    let current = CurrentDefinition::Read(target.map(|target| target.definition_id));
    Ok((write(writer, before, after, current).await?, evacuated))
}

async fn desired(
    writer: &mut Writer,
    process_guid: &[u8],
    target: &UpdateTarget,
) -> Result<Desired, DomainError> {
    let replacement = target.replacement();
    let running = match replacement {
        Replacement::Rolling => 0,
        Replacement::Recreate => writer.running(process_guid).await?,
    };
    Ok(Desired {
        replacement,
        instances: target.instances,
        running,
    })
}

/// Requests that the cell of a replaced container stop it, after the successor has taken its row.
/// The caller holds the key lock: from here on, reports of the container are refused. The next one
/// would make it the instance that waits, and the cell of its successor would destroy that one.
fn stop_replaced(service: &Service, replaced: ActualLrp) {
    service
        .update_hints()
        .record_stop_request(replaced.instance_key(), service.store().now_ns());
    let service = service.detached();
    tokio::spawn(async move {
        let stopped = stop(&service, &replaced, &TraceId::NONE).await;
        let next = "it will once the container's next report is refused";
        log_failed_stop(&replaced, stopped, next);
    });
}

/// Requests a cell. A failed request is only logged: convergence offers a waiting instance again.
async fn finish(
    service: &Service,
    key: &LrpKey,
    evacuated: Result<Evacuated, DomainError>,
) -> Result<Evacuated, DomainError> {
    let evacuated = evacuated?;
    if evacuated.needs_cell
        && let Err(fault) = request_auction(service, &key.process_guid, key.index).await
    {
        tracing::error!(process_guid = %lossy(&key.process_guid), index = key.index, reason = %with_causes(&fault), "an evacuated instance was not auctioned; convergence retries");
    }
    Ok(evacuated)
}

/// On an error the container is kept and the cell retries, except for a container that has no
/// record.
fn or_kept(evacuated: Result<Evacuated, DomainError>) -> EvacuationAnswer {
    let keeps_container = match &evacuated {
        Ok(evacuated) => evacuated.keeps_container,
        Err(refusal) => !matches!(refusal, DomainError::NotFound),
    };
    EvacuationAnswer {
        keeps_container,
        refusal: evacuated.err(),
    }
}

/// The container has ended, so it is never kept.
fn or_gone(evacuated: Result<Evacuated, DomainError>) -> EvacuationAnswer {
    EvacuationAnswer {
        keeps_container: false,
        refusal: evacuated.err(),
    }
}
