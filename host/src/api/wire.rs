//! Conversions between the messages of calls and the model. Decides which parts of an answer are
//! always present.

mod actual_lrps;
mod definitions;
mod events;

use std::collections::BTreeSet;

use bbs_model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use bbs_model::desired_lrp::{DesiredLrp, DesiredLrpUpdate, RoutingInfo, SchedulingInfo};
use bbs_model::routes::Routes;
use bbs_model::tags::{MetricTag, MetricTags};
use bbs_model::task::Task;
use bbs_model::{ModificationTag, Text};
use bbs_proto::models as proto;

use super::methods::NativeVersion;

pub(super) use actual_lrps::{evacuated_from, instance_key_from, lrp_key_from, started_from};
pub(super) use definitions::{definitions_to, update_status_to};
pub(super) use events::{changed_records_to, encoded_event, event_name};

pub(super) fn desired_lrp_from(lrp: proto::DesiredLrp) -> DesiredLrp {
    let key = proto::DesiredLrpKey {
        process_guid: lrp.process_guid.clone(),
        domain: lrp.domain.clone(),
        log_guid: lrp.log_guid.clone(),
    };
    DesiredLrp {
        scheduling: SchedulingInfo {
            process_guid: lrp.process_guid,
            domain: lrp.domain,
            log_guid: lrp.log_guid,
            annotation: lrp.annotation,
            instances: lrp.instances,
            memory_mb: lrp.memory_mb,
            disk_mb: lrp.disk_mb,
            max_pids: lrp.max_pids,
            root_fs: lrp.root_fs,
            routes: lrp.routes.map(Routes::from),
            placement_tags: lrp.placement_tags,
            definition_id: lrp.definition_id,
            ..Default::default()
        },
        metric_tags: metric_tags_from(lrp.metric_tags),
        update_strategy: lrp.update_strategy,
        run_info: proto::DesiredLrpRunInfo {
            desired_lrp_key: Some(key),
            environment_variables: lrp.environment_variables,
            setup: lrp.setup,
            action: lrp.action,
            monitor: lrp.monitor,
            privileged: lrp.privileged,
            cpu_weight: lrp.cpu_weight,
            ports: lrp.ports,
            egress_rules: lrp.egress_rules,
            log_source: lrp.log_source,
            metrics_guid: lrp.metrics_guid,
            cached_dependencies: lrp.cached_dependencies,
            legacy_download_user: lrp.legacy_download_user,
            trusted_system_certificates_path: lrp.trusted_system_certificates_path,
            volume_mounts: lrp.volume_mounts,
            network: lrp.network,
            start_timeout_ms: lrp.start_timeout_ms,
            certificate_properties: lrp.certificate_properties,
            image_username: lrp.image_username,
            image_password: lrp.image_password,
            check_definition: lrp.check_definition,
            image_layers: lrp.image_layers,
            sidecars: lrp.sidecars,
            log_rate_limit: lrp.log_rate_limit,
            volume_mounted_files: lrp.volume_mounted_files,
            ..Default::default()
        },
    }
}

pub(super) fn desired_lrp_to(lrp: DesiredLrp, version: NativeVersion) -> proto::DesiredLrp {
    let info = lrp.scheduling;
    let run = lrp.run_info;
    proto::DesiredLrp {
        process_guid: info.process_guid,
        domain: info.domain,
        root_fs: info.root_fs,
        instances: info.instances,
        environment_variables: run.environment_variables,
        setup: run.setup,
        action: run.action,
        monitor: run.monitor,
        disk_mb: info.disk_mb,
        memory_mb: info.memory_mb,
        cpu_weight: run.cpu_weight,
        privileged: run.privileged,
        ports: without_duplicates(run.ports),
        routes: Some(routes_to(info.routes)),
        log_source: run.log_source,
        log_guid: info.log_guid,
        metrics_guid: run.metrics_guid,
        annotation: info.annotation,
        egress_rules: run.egress_rules,
        modification_tag: Some(tag_to(info.tag)),
        cached_dependencies: run.cached_dependencies,
        legacy_download_user: run.legacy_download_user,
        trusted_system_certificates_path: run.trusted_system_certificates_path,
        volume_mounts: run.volume_mounts,
        network: run.network,
        start_timeout_ms: run.start_timeout_ms,
        placement_tags: info.placement_tags,
        max_pids: info.max_pids,
        certificate_properties: run.certificate_properties,
        image_username: run.image_username,
        image_password: run.image_password,
        check_definition: run.check_definition,
        image_layers: run.image_layers,
        metric_tags: metric_tags_to(lrp.metric_tags),
        sidecars: run.sidecars,
        log_rate_limit: run.log_rate_limit,
        volume_mounted_files: run.volume_mounted_files,
        update_strategy: lrp.update_strategy,
        definition_id: definition_id(info.definition_id, version),
        previous_definition_id: definition_id(info.previous_definition_id, version),
        ..Default::default()
    }
}

pub(super) fn update_from(update: proto::DesiredLrpUpdate) -> DesiredLrpUpdate {
    let metric_tags = metric_tags_from(update.metric_tags);
    DesiredLrpUpdate {
        instances: update.instances,
        routes: update.routes.map(Routes::from),
        annotation: update.annotation,
        // An empty map and an absent one are the same on the wire, so tags cannot be cleared.
        metric_tags: (!metric_tags.is_empty()).then_some(metric_tags),
        image_credentials: update.image_username.zip(update.image_password),
        definition: update.lrp_definition.map(definitions::definition_from),
    }
}

pub(super) fn scheduling_info_to(
    info: SchedulingInfo,
    version: NativeVersion,
) -> proto::DesiredLrpSchedulingInfo {
    proto::DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(proto::DesiredLrpKey {
            process_guid: info.process_guid,
            domain: info.domain,
            log_guid: info.log_guid,
        }),
        annotation: info.annotation,
        instances: info.instances,
        desired_lrp_resource: Some(proto::DesiredLrpResource {
            memory_mb: info.memory_mb,
            disk_mb: info.disk_mb,
            root_fs: info.root_fs,
            max_pids: info.max_pids,
        }),
        routes: Some(routes_to(info.routes)),
        modification_tag: Some(tag_to(info.tag)),
        volume_placement: Some(proto::VolumePlacement {
            driver_names: info.volume_drivers,
        }),
        placement_tags: info.placement_tags,
        definition_id: definition_id(info.definition_id, version),
    }
}

/// A desired LRP with only the fields that routing needs.
pub(super) fn routing_info_to(info: RoutingInfo, version: NativeVersion) -> proto::DesiredLrp {
    proto::DesiredLrp {
        process_guid: info.process_guid,
        domain: info.domain,
        log_guid: info.log_guid,
        instances: info.instances,
        routes: Some(routes_to(info.routes)),
        modification_tag: Some(tag_to(info.tag)),
        metric_tags: metric_tags_to(info.metric_tags),
        definition_id: definition_id(info.definition_id, version),
        ..Default::default()
    }
}

pub(super) fn actual_lrp_to(lrp: ActualLrp, version: NativeVersion) -> proto::ActualLrp {
    proto::ActualLrp {
        actual_lrp_key: Some(lrp_key_to(lrp.key())),
        actual_lrp_instance_key: Some(instance_key_to(lrp.instance_key())),
        actual_lrp_net_info: Some(lrp.net_info),
        crash_count: lrp.crash_count,
        crash_reason: lrp.crash_reason,
        state: lrp.state,
        placement_error: lrp.placement_error,
        since: lrp.since_ns,
        modification_tag: Some(tag_to(lrp.tag)),
        presence: lrp.presence,
        actual_lrp_internal_routes: lrp
            .internal_routes
            .into_iter()
            .map(|hostname| proto::ActualLrpInternalRoute { hostname })
            .collect(),
        metric_tags: lrp
            .metric_tags
            .into_iter()
            .map(|(key, value)| proto::TextEntry { key, value })
            .collect(),
        routable: Some(lrp.routable),
        availability_zone: lrp.availability_zone,
        desired_lrp_definition_id: definition_id(lrp.definition_id, version),
    }
}

fn lrp_key_to(key: LrpKey) -> proto::ActualLrpKey {
    proto::ActualLrpKey {
        process_guid: key.process_guid,
        index: key.index,
        domain: key.domain,
    }
}

fn instance_key_to(key: InstanceKey) -> proto::ActualLrpInstanceKey {
    proto::ActualLrpInstanceKey {
        instance_guid: key.instance_guid,
        cell_id: key.cell_id,
    }
}

pub(super) fn task_to(task: Task) -> proto::Task {
    proto::Task {
        task_definition: Some(task.definition),
        task_guid: task.guid,
        domain: task.domain,
        created_at: task.created_at_ns,
        updated_at: task.updated_at_ns,
        first_completed_at: task.first_completed_at_ns,
        state: task.state,
        cell_id: task.cell_id,
        result: task.result,
        failed: task.failed,
        failure_reason: task.failure_reason,
        rejection_count: task.rejection_count,
        rejection_reason: task.rejection_reason,
    }
}

/// The id of a definition in an answer: Diego's API has none.
fn definition_id(id: Text, version: NativeVersion) -> Text {
    match version {
        NativeVersion::Diego => Text::new(),
        NativeVersion::Definitions => id,
    }
}

fn tag_to(tag: ModificationTag) -> proto::ModificationTag {
    proto::ModificationTag {
        epoch: tag.epoch,
        index: tag.index,
    }
}

/// Always present, also without routes.
fn routes_to(routes: Option<Routes>) -> proto::ProtoRoutes {
    let entries = routes.into_iter().flat_map(Routes::into_entries);
    proto::ProtoRoutes {
        routes: entries
            .map(|(key, value)| proto::RouteEntry { key, value })
            .collect(),
    }
}

fn metric_tags_from(entries: Vec<proto::MetricTagEntry>) -> MetricTags {
    entries
        .into_iter()
        .map(|entry| {
            let value = entry.value.unwrap_or_default();
            let tag = MetricTag {
                fixed: value.r#static,
                dynamic: value.dynamic,
            };
            (entry.key, tag)
        })
        .collect()
}

fn metric_tags_to(tags: MetricTags) -> Vec<proto::MetricTagEntry> {
    let value = |tag: MetricTag| proto::MetricTagValue {
        r#static: tag.fixed,
        dynamic: tag.dynamic,
    };
    tags.into_iter()
        .map(|(key, tag): (Text, _)| proto::MetricTagEntry {
            key,
            value: Some(value(tag)),
        })
        .collect()
}

/// Keeps the first of each port, in order.
fn without_duplicates(mut ports: Vec<u32>) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    ports.retain(|port| seen.insert(*port));
    ports
}
