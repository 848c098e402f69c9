//! The switch of a desired LRP to another definition: by an update, its cancellation, or a
//! rollback. One transaction writes the definitions and adapts the instances; then the work on the
//! instances begins.

use bbs_model::actual_lrp::{ActualLrp, State};
use bbs_model::change::Cause;
use bbs_model::desired_lrp::{
    ArchivedDefinition, Definition, DesiredLrp, SchedulingInfo, volume_drivers,
    with_image_credentials,
};
use bbs_model::lrp_update::UpdateRecord;
use bbs_model::{Text, TraceId};
use uuid::Uuid;

use super::archive::prune_definitions;
use crate::domain::actual_lrps::{ChangedSlot, announce, request_auctions, stop};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Policy, Service};
use crate::store::{ReadableSlots, StoreError, Writer};

/// Why a definition becomes the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::domain) enum SwitchCause {
    /// An update of a client, or a rollback.
    Update,
    Cancellation,
}

/// A desired LRP after a switch to another definition.
#[derive(Debug)]
pub(in crate::domain) struct SwitchedLrp {
    after: DesiredLrp,
    pub(in crate::domain) instances: Switched,
}

/// The instances that a switch changed.
#[derive(Debug, Default)]
pub(in crate::domain) struct Switched {
    changed: Vec<ChangedSlot>,
    /// The indices that wait for a cell, which needs the resources of the new definition.
    waiting: Vec<i32>,
    /// Containers without a row that have to be stopped.
    given_up: Vec<ActualLrp>,
}

/// A change of the definition alone.
#[derive(Debug, Clone, Copy)]
pub enum DefinitionChange<'a> {
    /// Reverts the update under way: all instances run the previous definition again. A repeated
    /// cancellation changes nothing.
    Cancel,
    /// Updates to the archived definition with this id, also while a cancelled update is under way,
    /// which is resumed if the definition is its own.
    RollBack(&'a [u8]),
}

/// Changes the definition of a desired LRP.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; `NoUpdateInProgress` for a cancellation without one;
/// for a rollback, `UpdateInProgress` during an update that is not cancelled, and
/// `DefinitionNotFound` if the definition is not stored any more; errors of the store.
pub async fn change_definition(
    service: &Service,
    process_guid: &[u8],
    change: DefinitionChange<'_>,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let lock = service.lock_key(process_guid).await?;
    let changed = retry(|| async {
        let mut writer = service.store().writer().await?;
        let before = writer
            .desired_lrp(process_guid)
            .await?
            .ok_or(DomainError::NotFound)?;
        let Some(next) = change.next(&mut writer, &before).await? else {
            return Ok(None);
        };
        let cause = match change {
            DefinitionChange::Cancel => SwitchCause::Cancellation,
            DefinitionChange::RollBack(_) => SwitchCause::Update,
        };
        let switched = switch(&mut writer, &before, next, cause, service.policy()).await?;
        writer.commit().await?;
        Ok(Some((before, switched)))
    })
    .await?;
    let Some((before, SwitchedLrp { after, instances })) = changed else {
        return Ok(());
    };
    service.publish_desired_lrp(Some(before), Some(after.clone()), trace_id);
    let announced = announce_all(service, instances, trace_id);
    drop(lock);
    finish(service, &after, announced, trace_id).await;
    Ok(())
}

impl DefinitionChange<'_> {
    /// The definition that it leads to; `None` if it changes nothing.
    async fn next(
        self,
        writer: &mut Writer,
        before: &DesiredLrp,
    ) -> Result<Option<Definition>, DomainError> {
        let SchedulingInfo {
            process_guid,
            definition_id,
            previous_definition_id: previous,
            ..
        } = &before.scheduling;
        let is_cancelled = is_cancelled(writer, process_guid).await?;
        let id = match self {
            Self::Cancel if previous.is_empty() => return Err(DomainError::NoUpdateInProgress),
            Self::Cancel if is_cancelled => return Ok(None),
            Self::Cancel => previous,
            Self::RollBack(_) if !previous.is_empty() && !is_cancelled => {
                return Err(DomainError::UpdateInProgress);
            }
            Self::RollBack(id) if id == definition_id => return Ok(None),
            Self::RollBack(id) => id,
        };
        let archived = writer
            .definition(process_guid, id)
            .await?
            .ok_or(DomainError::DefinitionNotFound)?;
        Ok(Some(archived.definition))
    }
}

/// Whether the update under way is cancelled. It may be followed by an update to any definition: if
/// the previous one fails, the way back does not end.
async fn is_cancelled(writer: &mut Writer, process_guid: &[u8]) -> Result<bool, DomainError> {
    let update = writer.lrp_update(process_guid).await?;
    Ok(update.is_some_and(|update| update.is_cancelled))
}

/// The definition that an update leads to; `None` if it is the current one. Completes what the
/// client left out. One that is stored keeps its image credentials: those of the client may be the
/// ones from before they were changed.
///
/// # Errors
/// `UpdateInProgress` during an update that is not cancelled; `DefinitionExists`; errors of the
/// store.
pub(in crate::domain) async fn to_switch_to(
    writer: &mut Writer,
    before: &DesiredLrp,
    wanted: &Definition,
) -> Result<Option<Definition>, DomainError> {
    let SchedulingInfo {
        process_guid,
        previous_definition_id: previous,
        ..
    } = &before.scheduling;
    if !previous.is_empty() && !is_cancelled(writer, process_guid).await? {
        return Err(DomainError::UpdateInProgress);
    }
    let mut wanted = wanted.clone();
    if wanted.id.is_empty() {
        wanted.id = Uuid::new_v4().to_string().into();
    }
    wanted.volume_drivers = volume_drivers(&wanted.run_info.volume_mounts);
    wanted.run_info.created_at = writer.now_ns();
    wanted
        .run_info
        .desired_lrp_key
        .clone_from(&before.run_info.desired_lrp_key);
    if let Some(key) = &mut wanted.run_info.desired_lrp_key {
        key.log_guid.clone_from(&wanted.log_guid);
    }
    let current = before.definition();
    if wanted.id == current.id {
        return if wanted.has_same_content(&current) {
            Ok(None)
        } else {
            Err(DomainError::DefinitionExists)
        };
    }
    match writer.definition(process_guid, &wanted.id).await? {
        Some(archived) if wanted.has_same_content(&archived.definition) => {
            Ok(Some(archived.definition))
        }
        Some(_) => Err(DomainError::DefinitionExists),
        None => {
            writer.check_new_definition(&wanted)?;
            Ok(Some(wanted))
        }
    }
}

/// Makes a definition the current one, and the current one the previous one. The definition of a
/// cancelled update is archived, unless it is the next one. The archive is pruned here, too: the
/// update may be followed by others before any ends.
pub(in crate::domain) async fn switch(
    writer: &mut Writer,
    before: &DesiredLrp,
    next: Definition,
    cause: SwitchCause,
    policy: &Policy,
) -> Result<SwitchedLrp, DomainError> {
    let SchedulingInfo {
        process_guid,
        previous_definition_id: cancelled,
        ..
    } = &before.scheduling;
    let now_ns = writer.now_ns();
    if !cancelled.is_empty() && *cancelled != next.id {
        writer
            .archive_definition(process_guid, cancelled, now_ns)
            .await?;
    }
    // In this order: a database may take the two ids for equal.
    writer.delete_definition(process_guid, &next.id).await?;
    writer
        .put_definition(process_guid, &before.definition(), None)
        .await?;
    prune_definitions(writer, process_guid, policy).await?;
    let mut after = before.with_definition(next);
    after
        .scheduling
        .previous_definition_id
        .clone_from(&before.scheduling.definition_id);
    after.scheduling.tag.index = before.scheduling.tag.index.wrapping_add(1);
    writer.switch_definition(&after).await?;
    let update = UpdateRecord {
        process_guid: process_guid.clone(),
        started_at_ns: now_ns,
        is_cancelled: cause == SwitchCause::Cancellation,
    };
    writer.put_update(&update).await?;
    let instances = adapt(writer, &after.scheduling, now_ns).await?;
    Ok(SwitchedLrp { after, instances })
}

/// Gives new credentials of the image also to the definition that the update replaces, and to
/// archived ones that have those from before: neither a cancellation nor a rollback may bring
/// revoked ones back. Then prunes the archive, which longer credentials enlarge.
pub(in crate::domain) async fn put_credentials(
    writer: &mut Writer,
    before: &DesiredLrp,
    credentials: &(Text, Text),
    policy: &Policy,
) -> Result<(), DomainError> {
    let process_guid = &before.scheduling.process_guid;
    let run_info_before = &before.run_info;
    // Without, they were not revoked: an archived image may be public.
    let had_credentials =
        !run_info_before.image_username.is_empty() || !run_info_before.image_password.is_empty();
    for age in writer.definition_ages(process_guid).await? {
        let stored = match writer.definition(process_guid, &age.id).await {
            Err(StoreError::Unreadable { .. }) => None,
            read => read?,
        };
        let Some(ArchivedDefinition {
            mut definition,
            last_active_ns,
        }) = stored
        else {
            continue;
        };
        let run_info = &definition.run_info;
        let is_as_before = had_credentials
            && run_info.image_username == run_info_before.image_username
            && run_info.image_password == run_info_before.image_password;
        if last_active_ns.is_none() || is_as_before {
            definition.run_info = with_image_credentials(run_info, credentials);
            writer
                .put_definition(process_guid, &definition, last_active_ns)
                .await?;
        }
    }
    prune_definitions(writer, process_guid, policy).await
}

/// Adapts the instances to a new current definition.
async fn adapt(
    writer: &mut Writer,
    info: &SchedulingInfo,
    now_ns: i64,
) -> Result<Switched, DomainError> {
    let previous = &info.previous_definition_id;
    let current = &info.definition_id;
    let mut switched = Switched::default();
    let ReadableSlots { slots, .. } = writer.slots(&info.process_guid).await?;
    for (index, before) in slots {
        let mut after = (*before).clone();
        switched
            .given_up
            .extend(after.switch_definition(previous, current, now_ns));
        if after
            .ordinary
            .as_ref()
            .is_some_and(|row| row.state() == Some(State::Unclaimed))
        {
            switched.waiting.push(index);
        }
        writer.put_slot(&before, &after).await?;
        switched.changed.extend(ChangedSlot::of(*before, after));
    }
    Ok(switched)
}

/// Publishes the changes of the instances, and returns the switch without them. The caller holds
/// the key lock.
pub(in crate::domain) fn announce_all(
    service: &Service,
    mut switched: Switched,
    trace_id: &TraceId,
) -> Switched {
    let changed = std::mem::take(&mut switched.changed);
    announce(service, changed, Cause::Other, trace_id);
    switched
}

/// Requests cells for the instances that wait, and begins to replace the others. The caller does
/// not hold the key lock.
pub(in crate::domain) async fn finish(
    service: &Service,
    after: &DesiredLrp,
    announced: Switched,
    trace_id: &TraceId,
) {
    let Switched {
        mut waiting,
        given_up,
        ..
    } = announced;
    service
        .update_hints()
        .begin(service, &after.scheduling.process_guid);
    // A call with fewer instances has deleted the others.
    waiting.retain(|index| *index < after.scheduling.instances);
    if !waiting.is_empty() {
        request_auctions(service, &after.scheduling, waiting, trace_id).await;
    }
    for row in given_up {
        let service = service.detached();
        let trace_id = trace_id.clone();
        // Its heartbeat is refused, so its cell stops it by itself if the request fails.
        tokio::spawn(async move { stop(&service, &row, &trace_id).await });
    }
}
