//! What containers that run already are told of an update: where traffic comes from, and their metric tags.

use std::error::Error as _;

use futures_util::{StreamExt, stream};

use crate::clients::reps::InstanceUpdate;
use crate::domain::{DomainError, Service};
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter, Presence, State};
use crate::model::convergence::{resolved_tags, tags_differ};
use crate::model::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use crate::model::routes::{INTERNAL_ROUTER, Routes};
use crate::model::tags::{MetricTags, hostnames_from_json};
use crate::model::{Text, TraceId};
use crate::store::Range;

/// What is new to the containers.
struct News {
    hostnames: Option<Vec<Text>>,
    metric_tags: Option<MetricTags>,
}

/// Tells the containers after the call is answered. One that was not told is told by convergence.
pub(super) fn beside(
    service: &Service,
    before: &DesiredLrp,
    after: &DesiredLrp,
    update: &DesiredLrpUpdate,
    trace_id: &TraceId,
) {
    let News { hostnames, metric_tags } = news(before, after, update);
    if hostnames.is_none() && metric_tags.is_none() {
        return;
    }
    let (service, trace_id) = (service.clone(), trace_id.clone());
    let (process_guid, news) = (after.scheduling.process_guid.clone(), News { hostnames, metric_tags });
    tokio::spawn(async move {
        if let Err(fault) = tell(&service, &process_guid, &news, &trace_id).await {
            let process_guid = String::from_utf8_lossy(&process_guid);
            tracing::warn!(%process_guid, reason = %fault, "containers were not told of an update; convergence tells them");
        }
    });
}

fn news(before: &DesiredLrp, after: &DesiredLrp, update: &DesiredLrpUpdate) -> News {
    let routes_are_new = internal_routes_differ(before.scheduling.routes.as_ref(), update.routes.as_ref());
    let internal = after.scheduling.routes.as_ref().and_then(|routes| routes.of(INTERNAL_ROUTER));
    // What is not a list of host names is the internal router's own affair.
    let hostnames = internal.filter(|_| routes_are_new).and_then(|json| hostnames_from_json(json).ok());
    let tags_are_new = tags_differ(update.metric_tags.as_ref(), &before.metric_tags);
    News { hostnames, metric_tags: tags_are_new.then(|| after.metric_tags.clone()) }
}

/// Whether an update says something new of internal routes. Where neither says anything, Diego takes it for new.
fn internal_routes_differ(before: Option<&Routes>, update: Option<&Routes>) -> bool {
    let Some(update) = update else { return false };
    let Some(before) = before else { return true };
    match (before.of(INTERNAL_ROUTER), update.of(INTERNAL_ROUTER)) {
        (Some(then), Some(now)) => then != now,
        (Some(_), None) | (None, Some(_)) | (None, None) => true,
    }
}

async fn tell(service: &Service, process_guid: &[u8], news: &News, trace_id: &TraceId) -> Result<(), DomainError> {
    let filter = ActualLrpFilter { process_guids: vec![process_guid.to_vec()], ..Default::default() };
    let rows = service.store().look().await?.actual_lrps(&filter, &Range::default()).await?.records;
    let told = stream::iter(rows.iter().filter(|row| has_container(row)));
    told.for_each_concurrent(service.policy().update_workers, |row| tell_one(service, row, news, trace_id)).await;
    Ok(())
}

/// A container that is not told keeps nobody else from being told.
async fn tell_one(service: &Service, row: &ActualLrp, news: &News, trace_id: &TraceId) {
    let update = InstanceUpdate {
        internal_routes: news.hostnames.clone(),
        metric_tags: news.metric_tags.as_ref().map(|tags| resolved_tags(tags, row)),
    };
    let told = match service.clients().cells.find(&row.cell_id).await {
        Ok(Some(cell)) => {
            let (key, instance) = (row.key(), row.instance_key());
            let told = service.clients().reps.update(&cell, &key, &instance, &update, trace_id).await;
            told.map_err(DomainError::Client)
        }
        // Convergence sees to what it had.
        Ok(None) => return,
        Err(fault) => Err(DomainError::Cells(fault)),
    };
    if let Err(fault) = told {
        let process_guid = String::from_utf8_lossy(&row.process_guid);
        let source = fault.source().map(tracing::field::display);
        tracing::warn!(
            %process_guid, row.index, reason = %fault, cause = source, "a container was not told of an update"
        );
    }
}

fn has_container(row: &ActualLrp) -> bool {
    row.presence() != Some(Presence::Evacuating) && matches!(row.state(), Some(State::Claimed | State::Running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_routes_are_new_as_diego_judges_it() {
        let with = |json: &str| Routes::new([(INTERNAL_ROUTER.to_vec(), json.into())]);
        let without = Routes::new([(b"cf-router".to_vec(), b"[]".to_vec())]);
        let (a, b) = (with("[1]"), with("[2]"));
        let differ = internal_routes_differ;
        assert!(!differ(Some(&a), None), "an update without routes leaves them");
        assert!(differ(None, Some(&without)) && differ(None, Some(&a)));
        assert!(differ(Some(&a), Some(&without)) && differ(Some(&without), Some(&a)));
        assert!(differ(Some(&a), Some(&b)) && !differ(Some(&a), Some(&a)));
        assert!(differ(Some(&without), Some(&without)));
    }
}
