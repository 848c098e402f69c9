//! Desired LRPs: what should run. Instances that no cell runs come and go here with what desires
//! them; those that a cell runs are that cell's to stop.

use super::attempts::repeated;
use super::{DomainError, Page, Service};
use crate::model::change::Change;
use crate::model::desired_lrp::{DesiredLrp, DesiredLrpFilter, DesiredLrpUpdate, RoutingInfo, SchedulingInfo};
use crate::model::tags::MetricTag;
use crate::model::{ModificationTag, Text, TraceId};
use crate::store::{Reader, Store};

const SOURCE_ID: &[u8] = b"source_id";

/// Instances created in one transaction, so that a great number does not keep other writers out.
const INSTANCES_AT_ONCE: i32 = 500;

/// Makes a new one, with its instances waiting for cells.
pub async fn desire(service: &Service, mut lrp: DesiredLrp, trace_id: &TraceId) -> Result<(), DomainError> {
    let store = service.store();
    let turn = service.turn(&lrp.scheduling.process_guid).await;
    lrp.scheduling.tag = ModificationTag::begin();
    lrp.run_info.created_at = store.now_ns();
    lrp.scheduling.volume_drivers = lrp.run_info.volume_mounts.iter().map(|mount| mount.driver.clone()).collect();
    let info = &lrp.scheduling;
    let first = info.instances.min(INSTANCES_AT_ONCE);
    repeated(|| insert(store, &lrp, first)).await?;
    if first < info.instances {
        create_instances(store, &info.process_guid, &info.domain, first).await?;
    }
    let trace_id = trace_id.clone();
    service.events().publish(Change::DesiredLrp { before: None, after: Some(Box::new(lrp)), trace_id });
    drop(turn);
    Ok(())
}

async fn insert(store: &Store, lrp: &DesiredLrp, instances: i32) -> Result<(), DomainError> {
    let info = &lrp.scheduling;
    let mut writer = store.writer(&info.process_guid).await?;
    writer.insert_desired_lrp(lrp).await?;
    if instances > 0 {
        writer.insert_unclaimed(&info.process_guid, &info.domain, 0..instances).await?;
    }
    Ok(writer.commit().await?)
}

/// Changes what the update names, and how many instances wait.
pub async fn update(service: &Service, process_guid: &[u8], update: &DesiredLrpUpdate) -> Result<(), DomainError> {
    let store = service.store();
    let before = repeated(|| change(store, process_guid, update)).await?;
    let (old, new) = (before.instances, update.instances.unwrap_or(before.instances));
    if new > old {
        create_instances(store, process_guid, &before.domain, old).await?;
    }
    Ok(())
}

/// The change itself, without the instances that it asks for. Gives what was there before.
async fn change(store: &Store, process_guid: &[u8], update: &DesiredLrpUpdate) -> Result<SchedulingInfo, DomainError> {
    let mut writer = store.writer(process_guid).await?;
    let before = writer.desired_lrp(process_guid).await?.ok_or(DomainError::NotFound)?;
    let run_info = update.image_credentials.as_ref().map(|(username, password)| {
        let mut run_info = before.run_info.clone();
        run_info.image_username.clone_from(username);
        run_info.image_password.clone_from(password);
        run_info
    });
    let tag_index = before.scheduling.tag.index.wrapping_add(1);
    writer.update_desired_lrp(process_guid, tag_index, update, run_info.as_ref()).await?;

    if let Some(fewer) = update.instances.filter(|instances| *instances < before.scheduling.instances) {
        writer.delete_waiting(process_guid, fewer).await?;
    }
    writer.commit().await?;
    Ok(before.scheduling)
}

/// Removes it and the instances that no cell runs.
pub async fn remove(service: &Service, process_guid: &[u8]) -> Result<(), DomainError> {
    let store = service.store();
    repeated(|| async move {
        let mut writer = store.writer(process_guid).await?;
        if !writer.delete_desired_lrp(process_guid).await? {
            return Err(DomainError::NotFound);
        }
        writer.delete_waiting(process_guid, 0).await?;
        Ok(writer.commit().await?)
    })
    .await
}

pub async fn list(page: &mut Page, filter: &DesiredLrpFilter) -> Result<Vec<DesiredLrp>, DomainError> {
    fix_end(page, filter).await?;
    let range = page.range();
    let mut lrps = page.reader.desired_lrps(filter, &range).await?;
    lrps.iter_mut().for_each(fill_source_id);
    Ok(lrps)
}

pub async fn get(reader: &mut Reader, process_guid: &[u8]) -> Result<DesiredLrp, DomainError> {
    let mut lrp = reader.desired_lrp(process_guid).await?.ok_or(DomainError::NotFound)?;
    fill_source_id(&mut lrp);
    Ok(lrp)
}

pub async fn scheduling_infos(page: &mut Page, filter: &DesiredLrpFilter) -> Result<Vec<SchedulingInfo>, DomainError> {
    fix_end(page, filter).await?;
    let range = page.range();
    Ok(page.reader.scheduling_infos(filter, &range).await?)
}

pub async fn scheduling_info(reader: &mut Reader, process_guid: &[u8]) -> Result<SchedulingInfo, DomainError> {
    reader.scheduling_info(process_guid).await?.ok_or(DomainError::NotFound)
}

pub async fn routing_infos(page: &mut Page, filter: &DesiredLrpFilter) -> Result<Vec<RoutingInfo>, DomainError> {
    fix_end(page, filter).await?;
    let range = page.range();
    Ok(page.reader.routing_infos(filter, &range).await?)
}

async fn fix_end(page: &mut Page, filter: &DesiredLrpFilter) -> Result<(), DomainError> {
    if let Some((after, units)) = page.open() {
        let last = page.reader.desired_lrps_page_end(filter, after.as_ref(), units).await?;
        page.fix(last);
    }
    Ok(())
}

/// The instances from this one on, as many as are desired by then: an update or a removal in between
/// is not undone.
async fn create_instances(store: &Store, process_guid: &[u8], domain: &[u8], from: i32) -> Result<(), DomainError> {
    let mut first = Some(from);
    while let Some(from) = first {
        first = repeated(|| create_some_instances(store, process_guid, domain, from)).await?;
    }
    Ok(())
}

/// Gives the first that is still to be created, or none.
async fn create_some_instances(
    store: &Store,
    process_guid: &[u8],
    domain: &[u8],
    first: i32,
) -> Result<Option<i32>, DomainError> {
    let mut writer = store.writer(process_guid).await?;
    let desired = writer.desired_instances(process_guid).await?.unwrap_or(0);
    let end = desired.min(first.saturating_add(INSTANCES_AT_ONCE));
    if first >= end {
        return Ok(None);
    }
    writer.insert_unclaimed(process_guid, domain, first..end).await?;
    writer.commit().await?;
    Ok(Some(end))
}

/// The metrics guid and the tag that took its place say the same to a reader, whichever was given.
fn fill_source_id(lrp: &mut DesiredLrp) {
    let metrics_guid = &mut lrp.run_info.metrics_guid;
    match lrp.metric_tags.get(SOURCE_ID) {
        Some(tag) if metrics_guid.is_empty() => metrics_guid.clone_from(&tag.fixed),
        None if !metrics_guid.is_empty() => {
            let tag = MetricTag { fixed: metrics_guid.clone(), dynamic: 0 };
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
            lrp.metric_tags.insert(SOURCE_ID.into(), MetricTag { fixed: fixed.into(), dynamic: 0 });
        }
        fill_source_id(&mut lrp);
        let tag = lrp.metric_tags.get(SOURCE_ID).map(|tag| String::from_utf8(tag.fixed.clone()).unwrap());
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
