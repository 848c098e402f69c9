//! The split of a desired LRP into the part for scheduling and the part for running.

use bbs_proto::models::{
    DesiredLrp, DesiredLrpKey, DesiredLrpResource, DesiredLrpRunInfo, DesiredLrpSchedulingInfo,
};

/// Splits a whole desired LRP as Diego's etcd migration 1442529338 did. Its creation time is
/// unknown and becomes 0. Fields younger than that migration are dropped; no whole desired LRP in
/// etcd has them.
pub fn split(lrp: DesiredLrp) -> (DesiredLrpSchedulingInfo, DesiredLrpRunInfo) {
    let key = DesiredLrpKey {
        process_guid: lrp.process_guid,
        domain: lrp.domain,
        log_guid: lrp.log_guid,
    };
    let scheduling_info = DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(key.clone()),
        annotation: lrp.annotation,
        instances: lrp.instances,
        desired_lrp_resource: Some(DesiredLrpResource {
            memory_mb: lrp.memory_mb,
            disk_mb: lrp.disk_mb,
            root_fs: lrp.root_fs,
            ..DesiredLrpResource::default()
        }),
        routes: Some(lrp.routes.unwrap_or_default()),
        modification_tag: Some(lrp.modification_tag.unwrap_or_default()),
        ..DesiredLrpSchedulingInfo::default()
    };
    let run_info = DesiredLrpRunInfo {
        desired_lrp_key: Some(key),
        environment_variables: lrp.environment_variables,
        setup: lrp.setup,
        action: lrp.action,
        monitor: lrp.monitor,
        start_timeout_ms: lrp.start_timeout_ms,
        privileged: lrp.privileged,
        cpu_weight: lrp.cpu_weight,
        ports: lrp.ports,
        egress_rules: lrp.egress_rules,
        log_source: lrp.log_source,
        metrics_guid: lrp.metrics_guid,
        ..DesiredLrpRunInfo::default()
    };
    (scheduling_info, run_info)
}
