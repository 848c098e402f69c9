//! Desired and actual LRPs.

use bbs_proto::models::{
    ActualLrp, ActualLrpInstanceKey, ActualLrpKey, ActualLrpNetInfo, DesiredLrp, PortMapping,
    ProtoRoutes, RouteEntry,
};

use super::action::action;
use super::object::{JsonObject, object};
use super::parts;
use crate::etcd::record::RecordError;

/// # Errors
/// If the text is no JSON object, or a key has another type than it had in every release.
pub(in crate::etcd::record) fn desired_lrp(text: &[u8]) -> Result<DesiredLrp, RecordError> {
    let lrp = JsonObject::parse_record(text)?;
    Ok(DesiredLrp {
        process_guid: lrp.text("process_guid")?,
        domain: lrp.text("domain")?,
        root_fs: lrp.text("rootfs")?,
        instances: lrp.number("instances")?,
        environment_variables: parts::env(&lrp)?,
        setup: action(&lrp, "setup")?,
        action: action(&lrp, "action")?,
        deprecated_start_timeout_s: lrp.number("start_timeout")?,
        monitor: action(&lrp, "monitor")?,
        disk_mb: lrp.number("disk_mb")?,
        memory_mb: lrp.number("memory_mb")?,
        cpu_weight: lrp.number("cpu_weight")?,
        privileged: lrp.flag("privileged")?,
        ports: parts::ports(&lrp)?,
        routes: routes(&lrp)?,
        log_source: lrp.text("log_source")?,
        log_guid: lrp.text("log_guid")?,
        metrics_guid: lrp.text("metrics_guid")?,
        annotation: lrp.text("annotation")?,
        egress_rules: parts::egress_rules(&lrp)?,
        modification_tag: parts::modification_tag(&lrp)?,
        ..DesiredLrp::default()
    })
}

/// The JSON by router. A router without JSON is kept: what `null` means is up to the reader of
/// routes.
fn routes(lrp: &JsonObject<'_>) -> Result<Option<ProtoRoutes>, RecordError> {
    let Some(value) = lrp.get("routes") else {
        return Ok(None);
    };
    let members = object("routes", value)?.into_members();
    let entries = members.into_iter().map(|(key, value)| RouteEntry {
        key,
        value: value.to_vec(),
    });
    Ok(Some(ProtoRoutes {
        routes: entries.collect(),
    }))
}

/// # Errors
/// As [`desired_lrp`].
pub(in crate::etcd::record) fn actual_lrp(text: &[u8]) -> Result<ActualLrp, RecordError> {
    let lrp = JsonObject::parse_record(text)?;
    let ports = lrp.list("ports", |value| {
        let mapping = object("ports", value)?;
        Ok(PortMapping {
            container_port: mapping.number("container_port")?,
            host_port: mapping.number("host_port")?,
            ..PortMapping::default()
        })
    })?;
    Ok(ActualLrp {
        actual_lrp_key: Some(ActualLrpKey {
            process_guid: lrp.text("process_guid")?,
            index: lrp.number("index")?,
            domain: lrp.text("domain")?,
        }),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey {
            instance_guid: lrp.text("instance_guid")?,
            cell_id: lrp.text("cell_id")?,
        }),
        actual_lrp_net_info: Some(ActualLrpNetInfo {
            address: lrp.text("address")?,
            ports,
            ..ActualLrpNetInfo::default()
        }),
        crash_count: lrp.number("crash_count")?,
        crash_reason: lrp.text("crash_reason")?,
        state: lrp.text("state")?,
        placement_error: lrp.text("placement_error")?,
        since: lrp.number("since")?,
        modification_tag: Some(parts::modification_tag(&lrp)?.unwrap_or_default()),
        ..ActualLrp::default()
    })
}
