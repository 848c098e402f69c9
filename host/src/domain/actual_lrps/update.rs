//! Telling a container that runs of other routes and tags.

use crate::clients::reps::InstanceUpdate;
use crate::domain::Service;
use crate::model::TraceId;
use crate::model::convergence::Push;

/// A cell that is not told is told by a later convergence.
pub(in crate::domain) async fn update_container(service: &Service, push: Push, trace_id: &TraceId) {
    let Push { key, instance, internal_routes, metric_tags } = push;
    let cell = match service.clients().cells.find(&instance.cell_id).await {
        Ok(Some(cell)) => cell,
        Ok(None) => return,
        Err(fault) => return not_told(&key.process_guid, &fault),
    };
    let update = InstanceUpdate { internal_routes, metric_tags };
    if let Err(fault) = service.clients().reps.update(&cell, &key, &instance, &update, trace_id).await {
        not_told(&key.process_guid, &fault);
    }
}

fn not_told(process_guid: &[u8], fault: &dyn std::error::Error) {
    let process_guid = String::from_utf8_lossy(process_guid);
    tracing::warn!(%process_guid, reason = %fault, "a cell was not told of routes or tags; a convergence will tell it");
}
