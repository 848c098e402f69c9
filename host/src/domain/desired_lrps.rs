//! Desired LRPs: what should run. Their waiting instances are created and deleted here with them;
//! instances that have a container are stopped by their cell.

mod app_log;
mod instances;
mod push;
mod quarantined;
mod request_limit;
mod stops;

pub use app_log::log_rejection;
use instances::ReducedSlot;
pub(super) use push::Pushes;
pub(super) use quarantined::{is_quarantined, quarantined};
pub(super) use stops::Stops;

use bbs_model::actual_lrp::ActualLrp;
use bbs_model::convergence::InstanceTarget;
use bbs_model::desired_lrp::{
    DesiredLrp, DesiredLrpFilter, DesiredLrpUpdate, RoutingInfo, SchedulingInfo, derived_id,
    volume_drivers, with_image_credentials,
};
use bbs_model::routes::Routes;
use bbs_model::tags::{self, MetricTag};
use bbs_model::{ModificationTag, Text, TraceId};

use super::actual_lrps::request_auctions;
use super::lrp_updates::{self, SwitchCause, Switched};
use super::retry::retry;
use super::{DomainError, Page, Service};
use crate::store::{Reader, Store, StoreError, Writer};

const SOURCE_ID: &[u8] = b"source_id";

/// Creates a desired LRP with its waiting instances, and requests their auction.
///
/// # Errors
/// `Exists` if there is one with this process guid; errors of the store.
pub async fn desire(
    service: &Service,
    mut lrp: DesiredLrp,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let store = service.store();
    lrp.scheduling.tag = ModificationTag::begin();
    lrp.run_info.created_at = store.now_ns();
    let is_derived = lrp.scheduling.definition_id.is_empty();
    if is_derived {
        lrp.scheduling.definition_id =
            derived_id(&lrp.scheduling.process_guid, &lrp.scheduling.tag);
    }
    lrp.scheduling.volume_drivers = volume_drivers(&lrp.run_info.volume_mounts);
    // So that the event has what a read would return. The insertion rejects what is not JSON.
    if let Ok(routes) = Routes::as_stored(lrp.scheduling.routes.as_ref()) {
        lrp.scheduling.routes = routes;
    }
    let info = lrp.scheduling.clone();
    let lock = service.lock_key(&info.process_guid).await?;
    let first = match retry(|| insert(store, &lrp, Leftovers::None)).await {
        Err(DomainError::Exists) => {
            retry(|| insert(store, &lrp, Leftovers::Possible { is_derived })).await?
        }
        first => first?,
    };
    // The event has the form that a read returns. Only now: the insertion renders the client's bytes
    // as Diego's BBS does.
    lrp.scheduling.placement_tags = tags::texts_as_stored(&info.placement_tags);
    lrp.metric_tags = tags::metric_tags_as_stored(&lrp.metric_tags);
    service.publish_desired_lrp(None, Some(lrp), trace_id);
    let created = instances::publish_created(service, first, trace_id);
    drop(lock);
    start_instances(service, &info, 0, created, trace_id).await;
    Ok(())
}

/// Creates the instances after the first batch of those from index `from` on, and requests auctions
/// of all. `created` are those of the first batch.
async fn start_instances(
    service: &Service,
    info: &SchedulingInfo,
    from: i32,
    mut created: Vec<i32>,
    trace_id: &TraceId,
) {
    // Without the limit of the call: the record is stored, and its instances are to follow.
    let service = &service.detached();
    let next = from.saturating_add(instances::BATCH_SIZE);
    if info.instances > next {
        created.extend(instances::create(service, &info.process_guid, next, trace_id).await);
    }
    if info.instances > from {
        request_auctions(service, info, created, trace_id).await;
    }
}

/// Whether managed instances of a new desired LRP may exist already. Usually none do; but a
/// container remains when its desired LRP is removed, until its cell has stopped it, and is one of
/// the new desired LRP then.
#[derive(Debug, Clone, Copy)]
enum Leftovers {
    /// An existing instance fails the insertion with `Exists`.
    None,
    /// `is_derived` if the new one has no definition id of its client.
    Possible { is_derived: bool },
}

/// Inserts the desired LRP with the first batch of its instances, which it returns.
async fn insert(
    store: &Store,
    lrp: &DesiredLrp,
    leftovers: Leftovers,
) -> Result<Vec<ActualLrp>, DomainError> {
    let info = &lrp.scheduling;
    let mut writer = store.writer().await?;
    writer.insert_desired_lrp(lrp).await?;
    let first = 0..info.instances.min(instances::BATCH_SIZE);
    let target = instance_target(info);
    let created = match leftovers {
        Leftovers::None => {
            // Without an instance, nothing else shows that an earlier one was not removed.
            if writer.may_be_in_quarantine(&info.process_guid).await? {
                forget_updates(&mut writer, &info.process_guid).await?;
            }
            instances::insert_new(&mut writer, &target, first).await?
        }
        Leftovers::Possible { is_derived } => {
            // They may be those of an LRP in quarantine. Its id was another one, if it was derived,
            // and would have all containers replaced.
            if is_derived {
                writer.forget_definitions(&info.process_guid).await?;
            }
            forget_updates(&mut writer, &info.process_guid).await?;
            instances::insert(&mut writer, &target, first).await?
        }
    };
    writer.commit().await?;
    Ok(created)
}

/// Deletes the definitions and the update of an earlier desired LRP with the same process guid.
async fn forget_updates(writer: &mut Writer, process_guid: &[u8]) -> Result<(), DomainError> {
    writer.delete_definitions(process_guid).await?;
    writer.end_update(process_guid).await?;
    Ok(())
}

fn instance_target(info: &SchedulingInfo) -> InstanceTarget {
    InstanceTarget {
        process_guid: info.process_guid.clone(),
        domain: info.domain.clone(),
        instances: info.instances,
        definition_id: info.definition_id.clone(),
    }
}

/// Applies an update, and creates or deletes instances to match. Another definition is rolled out
/// in the background.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; `DefinitionExists` for an update with a definition,
/// and `UpdateInProgress` during one that is not cancelled; errors of the store.
pub async fn update(
    service: &Service,
    process_guid: &[u8],
    update: &DesiredLrpUpdate,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let lock = service.lock_key(process_guid).await?;
    let Updated {
        before,
        after,
        first,
        surplus,
        switched,
    } = retry(|| change_desired_lrp(service, process_guid, update)).await?;
    let Some(after) = after else { return Ok(()) };
    service.publish_desired_lrp(Some(before.clone()), Some(after.clone()), trace_id);
    let announced = switched.map(|switched| lrp_updates::announce_all(service, switched, trace_id));
    let running = instances::publish_removed(service, surplus, trace_id);
    let created = instances::publish_created(service, first, trace_id);
    let old = before.scheduling.instances;
    drop(lock);
    if let Some(announced) = announced {
        lrp_updates::finish(service, &after, announced, trace_id).await;
    }
    start_instances(service, &after.scheduling, old, created, trace_id).await;
    stops::submit(service, running, trace_id);
    push::spawn(service, &before, &after, update, trace_id);
    Ok(())
}

/// The result of an update.
struct Updated {
    before: DesiredLrp,
    /// `None` if the updated record cannot be read, or nothing was changed.
    after: Option<DesiredLrp>,
    /// The first batch of the instances that it adds.
    first: Vec<ActualLrp>,
    surplus: Vec<ReducedSlot>,
    /// `None` if the definition stays.
    switched: Option<Switched>,
}

/// The transaction of an update.
async fn change_desired_lrp(
    service: &Service,
    process_guid: &[u8],
    update: &DesiredLrpUpdate,
) -> Result<Updated, DomainError> {
    let policy = service.policy();
    let mut writer = service.store().writer().await?;
    let before = writer
        .desired_lrp(process_guid)
        .await?
        .ok_or(DomainError::NotFound)?;
    let mut switched = None;
    if let Some(definition) = &update.definition
        && let Some(next) = lrp_updates::to_switch_to(&mut writer, &before, definition).await?
    {
        let cause = SwitchCause::Update;
        let lrp = lrp_updates::switch(&mut writer, &before, next, cause, policy).await?;
        switched = Some(lrp.instances);
    }
    if switched.is_none() && update.is_of_definition_alone() {
        return Ok(Updated {
            before,
            after: None,
            first: Vec::new(),
            surplus: Vec::new(),
            switched,
        });
    }
    let run_info = update
        .image_credentials
        .as_ref()
        .map(|credentials| with_image_credentials(&before.run_info, credentials));
    let tag_index = before.scheduling.tag.index.wrapping_add(1);
    writer
        .update_desired_lrp(process_guid, tag_index, update, run_info.as_ref())
        .await?;
    if let Some(credentials) = &update.image_credentials {
        lrp_updates::put_credentials(&mut writer, &before, credentials, policy).await?;
    }
    // Read back, because the stored form can differ from the request.
    let after = match writer.desired_lrp(process_guid).await {
        Err(StoreError::Unreadable { .. }) => None,
        read => read?,
    };
    let old = before.scheduling.instances;
    let mut surplus = Vec::new();
    let mut first = None;
    // Without a record that can be read, as in Diego, the instances stay as they are.
    if let Some(after) = &after {
        let new = after.scheduling.instances;
        if new < old {
            surplus = instances::delete_from(&mut writer, process_guid, new).await?;
        } else if new > old {
            let target = instance_target(&after.scheduling);
            first = instances::insert_batch(&mut writer, &target, old).await?;
        }
    }
    writer.commit().await?;
    Ok(Updated {
        before,
        after,
        first: first.map(|(rows, _)| rows).unwrap_or_default(),
        surplus,
        switched,
    })
}

/// Removes a desired LRP and its waiting instances; containers are stopped in the background.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn remove(
    service: &Service,
    process_guid: &[u8],
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let store = service.store();
    let lock = service.lock_key(process_guid).await?;
    let (before, slots) = retry(|| async move {
        let mut writer = store.writer().await?;
        let taken = writer.take_desired_lrp(process_guid).await?;
        let is_quarantined = is_quarantined(&mut writer, process_guid).await?;
        let before = match taken {
            // Its unreadable record is in quarantine; its instances go on until now.
            None if is_quarantined => None,
            None => return Err(DomainError::NotFound),
            // Removed all the same, without an event.
            Some(Err(StoreError::Unreadable { .. })) => None,
            Some(read) => Some(read?),
        };
        if is_quarantined {
            quarantined::end(&mut writer, process_guid).await?;
        }
        let slots = instances::delete_from(&mut writer, process_guid, 0).await?;
        let rows = slots.iter().flat_map(|slot| slot.after.rows());
        if rows.into_iter().any(|row| !row.waits()) {
            writer.forget_definitions(process_guid).await?;
        }
        writer.delete_definitions(process_guid).await?;
        if before
            .as_ref()
            .is_none_or(|before| !before.scheduling.previous_definition_id.is_empty())
        {
            writer.end_update(process_guid).await?;
        }
        writer.commit().await?;
        Ok((before, slots))
    })
    .await?;
    if before.is_some() {
        service.publish_desired_lrp(before, None, trace_id);
    }
    // Their rows name no definition any more, by which the call of a cell that removes one would be
    // recognised.
    for row in slots.iter().filter_map(|slot| slot.after.replaced()) {
        let now_ns = store.now_ns();
        service
            .update_hints()
            .record_stop_request(row.instance_key(), now_ns);
    }
    let running = instances::publish_removed(service, slots, trace_id);
    // Without a container, no later change of an instance would end the work on its update, which
    // would keep its places.
    service.update_hints().removed(service, process_guid);
    drop(lock);
    stops::submit(service, running, trace_id);
    Ok(())
}

/// Lists the desired LRPs of a page that match a filter.
pub async fn list(
    page: &mut Page,
    filter: &DesiredLrpFilter,
) -> Result<Vec<DesiredLrp>, DomainError> {
    let range = page.range();
    let listed = page.reader().desired_lrps(filter, &range).await?;
    let mut lrps = page.records(listed, |lrp| &lrp.scheduling.process_guid);
    lrps.iter_mut().for_each(fill_source_id);
    Ok(lrps)
}

/// Reads one desired LRP.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn get(reader: &mut Reader, process_guid: &[u8]) -> Result<DesiredLrp, DomainError> {
    let mut lrp = reader
        .desired_lrp(process_guid)
        .await?
        .ok_or(DomainError::NotFound)?;
    fill_source_id(&mut lrp);
    Ok(lrp)
}

/// Lists the scheduling parts of a page that match a filter.
pub async fn scheduling_infos(
    page: &mut Page,
    filter: &DesiredLrpFilter,
) -> Result<Vec<SchedulingInfo>, DomainError> {
    let range = page.range();
    let listed = page.reader().scheduling_infos(filter, &range).await?;
    Ok(page.records(listed, |info| &info.process_guid))
}

/// Lists the scheduling parts of a page that match a filter; two for a desired LRP while an update
/// is under way, with the current definition and then with the previous one.
pub async fn scheduling_infos_of_definitions(
    page: &mut Page,
    filter: &DesiredLrpFilter,
) -> Result<Vec<SchedulingInfo>, DomainError> {
    let infos = scheduling_infos(page, filter).await?;
    with_previous(page.reader(), infos).await
}

/// Reads the scheduling part of one desired LRP.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn scheduling_info(
    reader: &mut Reader,
    process_guid: &[u8],
) -> Result<SchedulingInfo, DomainError> {
    reader
        .scheduling_info(process_guid)
        .await?
        .ok_or(DomainError::NotFound)
}

/// Reads the scheduling parts of one desired LRP, as [`scheduling_infos_of_definitions`] lists
/// them.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn scheduling_infos_of(
    reader: &mut Reader,
    process_guid: &[u8],
) -> Result<Vec<SchedulingInfo>, DomainError> {
    let info = scheduling_info(reader, process_guid).await?;
    with_previous(reader, vec![info]).await
}

/// Adds the parts of the previous definitions. Without an update under way, this reads nothing.
async fn with_previous(
    reader: &mut Reader,
    infos: Vec<SchedulingInfo>,
) -> Result<Vec<SchedulingInfo>, DomainError> {
    let updated = infos
        .iter()
        .filter(|info| !info.previous_definition_id.is_empty());
    let process_guids: Vec<_> = updated.map(|info| info.process_guid.clone()).collect();
    if process_guids.is_empty() {
        return Ok(infos);
    }
    let previous = reader.previous_definitions(&process_guids).await?;
    let both = infos.into_iter().flat_map(|info| {
        let before = previous
            .get(&info.process_guid)
            .filter(|before| before.id == info.previous_definition_id);
        let before = before.map(|before| info.with_definition(before.clone()));
        [Some(info), before].into_iter().flatten()
    });
    Ok(both.collect())
}

/// Lists the routing parts of a page that match a filter.
pub async fn routing_infos(
    page: &mut Page,
    filter: &DesiredLrpFilter,
) -> Result<Vec<RoutingInfo>, DomainError> {
    let range = page.range();
    let listed = page.reader().routing_infos(filter, &range).await?;
    Ok(page.records(listed, |info| &info.process_guid))
}

/// Fills in the metrics guid from the `source_id` tag or the tag from the guid: readers get both,
/// whichever was stored.
fn fill_source_id(lrp: &mut DesiredLrp) {
    let metrics_guid = &mut lrp.run_info.metrics_guid;
    match lrp.metric_tags.get(SOURCE_ID) {
        Some(tag) if metrics_guid.is_empty() => metrics_guid.clone_from(&tag.fixed),
        None if !metrics_guid.is_empty() => {
            let tag = MetricTag {
                fixed: metrics_guid.clone(),
                dynamic: 0,
            };
            lrp.metric_tags.insert(Text::from(SOURCE_ID), tag);
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(metrics_guid: &str, source_id: Option<&str>) -> (String, Option<String>) {
        let mut lrp = DesiredLrp::default();
        lrp.run_info.metrics_guid = metrics_guid.into();
        if let Some(fixed) = source_id {
            lrp.metric_tags.insert(
                SOURCE_ID.into(),
                MetricTag {
                    fixed: fixed.into(),
                    dynamic: 0,
                },
            );
        }
        fill_source_id(&mut lrp);
        let tag = lrp
            .metric_tags
            .get(SOURCE_ID)
            .map(|tag| String::from_utf8(tag.fixed.clone()).unwrap());
        (String::from_utf8(lrp.run_info.metrics_guid).unwrap(), tag)
    }

    #[test]
    fn metrics_guid_and_source_id_fill_each_other_and_overwrite_nothing() {
        assert_eq!(filled("", None), (String::new(), None));
        assert_eq!(filled("m", None), ("m".into(), Some("m".into())));
        assert_eq!(filled("", Some("s")), ("s".into(), Some("s".into())));
        assert_eq!(filled("m", Some("s")), ("m".into(), Some("s".into())));
    }
}
