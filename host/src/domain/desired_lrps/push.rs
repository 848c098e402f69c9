//! Sends an update of internal routes and metric tags to running containers. Bounds the requests of
//! all updates together, apart from those of stops: a cell that does not answer holds many of them.
//! Bounds the memory of the updates that wait for these requests, too.

use std::sync::Arc;

use bbs_model::actual_lrp::ActualLrp;
use bbs_model::convergence::{Push, resolved_tags, tags_differ};
use bbs_model::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use bbs_model::routes::{INTERNAL_ROUTER, Routes};
use bbs_model::tags::{MetricTag, MetricTags, hostnames_from_json};
use bbs_model::{Text, TraceId};
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::LineLimit;
use bbs_work::lossy;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::request_limit::RequestLimit;
use crate::domain::{DomainError, Service, lrp_updates};

/// Memory of all updates that wait for cells, in bytes: those of 30,000 containers.
const WAITING_BYTES: usize = 64 << 20;
/// Memory of an update besides its values and containers, in bytes.
const TASK_BYTES: usize = 4 << 10;
/// Memory of a container that waits, in bytes: its row, without network, routes and tags, and its
/// request.
const CONTAINER_BYTES: usize = 2 << 10;

/// The updates of all desired LRPs that wait for cells.
#[derive(Debug)]
pub(in crate::domain) struct Pushes {
    /// Limit of the requests to all cells.
    limit: RequestLimit,
    /// Bytes that further updates may take.
    waiting: Arc<Semaphore>,
    /// Limit of the lines about updates that were rejected.
    rejected: LineLimit,
}

impl Default for Pushes {
    fn default() -> Self {
        Self {
            limit: RequestLimit::default(),
            waiting: Arc::new(Semaphore::new(WAITING_BYTES)),
            rejected: LineLimit::default(),
        }
    }
}

impl Pushes {
    /// Counts memory of an update until the permit is dropped. `None`, and a line in a sampled log,
    /// if those that wait take too much: waiting for them would take memory as well.
    fn admit(&self, bytes: usize, process_guid: &[u8]) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let admitted = Arc::clone(&self.waiting).try_acquire_many_owned(bytes).ok();
        if admitted.is_none()
            && let Some(left_out) = self.rejected.admit()
        {
            tracing::warn!(
                process_guid = %lossy(process_guid), left_out,
                "containers were not updated: too many updates wait for cells; convergence updates them; the log is sampled"
            );
        }
        admitted
    }
}

/// The changed values to send to the containers.
struct ContainerUpdate {
    hostnames: Option<Vec<Text>>,
    metric_tags: Option<MetricTags>,
    /// Names the definition that has these tags.
    definition_id: Text,
}

impl ContainerUpdate {
    /// The memory of the values, in bytes.
    fn bytes(&self) -> usize {
        let hostnames = self.hostnames.iter().flatten();
        let hostnames = hostnames.map(|name| size_of::<Text>() + name.len());
        let tags = self.metric_tags.iter().flatten();
        let tags = tags.map(|(name, tag)| {
            size_of::<Text>() + name.len() + size_of::<MetricTag>() + tag.fixed.len()
        });
        hostnames.sum::<usize>() + tags.sum::<usize>()
    }
}

/// Spawns a task that updates the containers after the call is answered. Convergence repeats what
/// fails or is rejected.
pub(super) fn spawn(
    service: &Service,
    before: &DesiredLrp,
    after: &DesiredLrp,
    update: &DesiredLrpUpdate,
    trace_id: &TraceId,
) {
    let values = changed_values(before, after, update);
    if values.hostnames.is_none() && values.metric_tags.is_none() {
        return;
    }
    let process_guid = after.scheduling.process_guid.clone();
    let bytes = TASK_BYTES + values.bytes();
    let Some(waiting) = service.pushes().admit(bytes, &process_guid) else {
        return;
    };
    let service = service.detached();
    let trace_id = trace_id.clone();
    tokio::spawn(async move {
        let _waiting = waiting;
        if let Err(fault) = update_containers(&service, &process_guid, &values, &trace_id).await {
            tracing::warn!(process_guid = %lossy(&process_guid), reason = %with_causes(&fault), "containers were not updated; convergence updates them");
        }
    });
}

fn changed_values(
    before: &DesiredLrp,
    after: &DesiredLrp,
    update: &DesiredLrpUpdate,
) -> ContainerUpdate {
    let routes_are_new =
        internal_routes_differ(before.scheduling.routes.as_ref(), update.routes.as_ref());
    let internal = after
        .scheduling
        .routes
        .as_ref()
        .and_then(|routes| routes.of(INTERNAL_ROUTER));
    // JSON that is not a list of host names is not for containers.
    let hostnames = internal
        .filter(|_| routes_are_new)
        .and_then(|json| hostnames_from_json(json).ok());
    let tags_are_new = tags_differ(update.metric_tags.as_ref(), &before.metric_tags);
    ContainerUpdate {
        hostnames,
        metric_tags: tags_are_new.then(|| after.metric_tags.clone()),
        definition_id: after.scheduling.definition_id.clone(),
    }
}

/// Whether an update changes the internal routes. If neither side has any, Diego counts that as a
/// change.
fn internal_routes_differ(before: Option<&Routes>, update: Option<&Routes>) -> bool {
    let Some(update) = update else { return false };
    let Some(before) = before else { return true };
    match (before.of(INTERNAL_ROUTER), update.of(INTERNAL_ROUTER)) {
        (Some(then), Some(now)) => then != now,
        (Some(_), None) | (None, Some(_)) | (None, None) => true,
    }
}

async fn update_containers(
    service: &Service,
    process_guid: &[u8],
    values: &ContainerUpdate,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    let slots =
        lrp_updates::plain_slots(&mut service.store().look().await?, process_guid, None).await?;
    let containers: Vec<_> = slots.values().flat_map(|slot| slot.containers()).collect();
    let bytes = containers.len() * CONTAINER_BYTES;
    let Some(_waiting) = service.pushes().admit(bytes, process_guid) else {
        return Ok(());
    };
    let workers = service.policy().update_workers;
    stream::iter(containers)
        .for_each_concurrent(workers, |row| {
            update_container(service, row, values, trace_id)
        })
        .await;
    Ok(())
}

/// A failure is only logged, so that the other containers are still updated.
async fn update_container(
    service: &Service,
    row: &ActualLrp,
    values: &ContainerUpdate,
    trace_id: &TraceId,
) {
    if let Err(fault) = send_to_cell(service, row, values, trace_id).await {
        tracing::warn!(
            process_guid = %lossy(&row.process_guid), row.index, reason = %with_causes(&fault), "a container was not updated"
        );
    }
}

async fn send_to_cell(
    service: &Service,
    row: &ActualLrp,
    values: &ContainerUpdate,
    trace_id: &TraceId,
) -> Result<(), DomainError> {
    // A container of another definition keeps the tags of that.
    let tags = values.metric_tags.as_ref();
    let tags = tags.filter(|_| !row.is_old(&values.definition_id));
    if tags.is_none() && values.hostnames.is_none() {
        return Ok(());
    }
    let _permit = service.pushes().limit.permit().await;
    let clients = service.clients();
    // Convergence handles the instances of a cell that is gone.
    let Some(cell) = clients.cells.find(&row.cell_id).await? else {
        return Ok(());
    };
    let push = Push {
        key: row.key(),
        instance: row.instance_key(),
        internal_routes: values.hostnames.clone(),
        metric_tags: tags.map(|tags| resolved_tags(tags, row)),
    };
    Ok(clients.reps.update(&cell, &push, trace_id).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_beyond_the_memory_of_all_are_rejected_until_others_end() {
        let pushes = Pushes::default();
        let containers = WAITING_BYTES / 2 / CONTAINER_BYTES;
        let half = || pushes.admit(containers * CONTAINER_BYTES, b"lrp");
        let first = half().expect("there is memory");
        let _second = half().expect("there is memory");
        assert!(pushes.admit(TASK_BYTES, b"lrp").is_none());
        drop(first);
        assert!(pushes.admit(TASK_BYTES, b"lrp").is_some());
        assert_eq!(pushes.rejected.left_out(), 0, "the first line is logged");
    }

    #[test]
    fn all_values_of_an_update_are_counted() {
        let values = |hostname: &str, fixed: &str| {
            let tag = MetricTag {
                fixed: fixed.into(),
                dynamic: 0,
            };
            ContainerUpdate {
                hostnames: Some(vec![hostname.into()]),
                metric_tags: Some(MetricTags::from([(Text::from("name"), tag)])),
                definition_id: Text::new(),
            }
        };
        let small = values("", "").bytes();
        assert_eq!(values("0123456789", "01234").bytes(), small + 15);
    }

    #[test]
    fn internal_routes_change_is_judged_as_in_diego() {
        let with = |json: &str| Routes::new([(INTERNAL_ROUTER.to_vec(), json.into())]);
        let without = Routes::new([(b"cf-router".to_vec(), b"[]".to_vec())]);
        let a = with("[1]");
        let b = with("[2]");
        let differ = internal_routes_differ;
        assert!(
            !differ(Some(&a), None),
            "an update without routes leaves them"
        );
        assert!(differ(None, Some(&without)) && differ(None, Some(&a)));
        assert!(differ(Some(&a), Some(&without)) && differ(Some(&without), Some(&a)));
        assert!(differ(Some(&a), Some(&b)) && !differ(Some(&a), Some(&a)));
        assert!(differ(Some(&without), Some(&without)));
    }
}
