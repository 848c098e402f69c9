//! Messages of requests about actual LRPs to the model. Required parts have been validated before.

use bbs_proto::models as proto;

use bbs_model::actual_lrp::{InstanceKey, LrpKey};
use bbs_model::slot::Container;

pub(in crate::api) fn lrp_key_from(key: Option<proto::ActualLrpKey>) -> LrpKey {
    let proto::ActualLrpKey {
        process_guid,
        index,
        domain,
    } = key.unwrap_or_default();
    LrpKey {
        process_guid,
        index,
        domain,
    }
}

pub(in crate::api) fn instance_key_from(key: Option<proto::ActualLrpInstanceKey>) -> InstanceKey {
    let proto::ActualLrpInstanceKey {
        instance_guid,
        cell_id,
    } = key.unwrap_or_default();
    InstanceKey {
        instance_guid,
        cell_id,
    }
}

pub(in crate::api) fn started_from(request: proto::StartActualLrpRequest) -> Container {
    Container {
        key: lrp_key_from(request.actual_lrp_key),
        instance: instance_key_from(request.actual_lrp_instance_key),
        net_info: request.actual_lrp_net_info.unwrap_or_default(),
        internal_routes: request
            .actual_lrp_internal_routes
            .into_iter()
            .map(|route| route.hostname)
            .collect(),
        metric_tags: request
            .metric_tags
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect(),
        // A cell that does not send it routes to all its instances.
        routable: request.routable.unwrap_or(true),
        availability_zone: request.availability_zone,
    }
}

/// As [`started_from`]: a request of the same parts.
pub(in crate::api) fn evacuated_from(request: proto::EvacuateRunningActualLrpRequest) -> Container {
    started_from(proto::StartActualLrpRequest {
        actual_lrp_key: request.actual_lrp_key,
        actual_lrp_instance_key: request.actual_lrp_instance_key,
        actual_lrp_net_info: request.actual_lrp_net_info,
        actual_lrp_internal_routes: request.actual_lrp_internal_routes,
        metric_tags: request.metric_tags,
        routable: request.routable,
        availability_zone: request.availability_zone,
    })
}
