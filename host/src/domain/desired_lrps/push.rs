//! Sends an update of internal routes and metric tags to running containers. Bounds the requests of
//! all updates together, apart from those of stops: a cell that does not answer holds many of them.

use bbs_model::actual_lrp::ActualLrp;
use bbs_model::convergence::{Push, resolved_tags, tags_differ};
use bbs_model::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use bbs_model::routes::{INTERNAL_ROUTER, Routes};
use bbs_model::tags::{MetricTags, hostnames_from_json};
use bbs_model::{Text, TraceId};
use bbs_work::causes::with_causes;
use futures_util::{StreamExt, stream};

use crate::domain::{DomainError, Service, lrp_updates};

/// The changed values to send to the containers.
struct ContainerUpdate {
    hostnames: Option<Vec<Text>>,
    metric_tags: Option<MetricTags>,
    /// Names the definition that has these tags.
    definition_id: Text,
}

/// Spawns a task that updates the containers after the call is answered. Convergence repeats what
/// fails.
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
    let service = service.clone();
    let trace_id = trace_id.clone();
    let process_guid = after.scheduling.process_guid.clone();
    tokio::spawn(async move {
        if let Err(fault) = update_containers(&service, &process_guid, &values, &trace_id).await {
            let process_guid = String::from_utf8_lossy(&process_guid);
            tracing::warn!(%process_guid, reason = %with_causes(&fault), "containers were not updated; convergence updates them");
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
        let process_guid = String::from_utf8_lossy(&row.process_guid);
        tracing::warn!(
            %process_guid, row.index, reason = %with_causes(&fault), "a container was not updated"
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
    let _permit = service.pushes().permit().await;
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
