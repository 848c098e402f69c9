//! The JSON form of each message: its fields, with the name where Go's differs, and their form.
//! Fields that are not Diego's are omitted if they are empty, so that the form of Diego's messages
//! is Diego's.

use bbs_proto::models::{
    self, actual_lrp, actual_lrp_net_info, desired_lrp, image_layer, metric_tag_value, task,
};
use serde_json::{Map, Value};

use super::forms::{FieldForm, Inlined, Named, NamedOmitted, Numbered, Omitted, Routable, Shown};
use super::values::{FieldValue, message_value};
use super::{JsonError, JsonMessage, Members};

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

macro_rules! json {
    ($($message:ident { $($field:ident $(as $key:literal)? : $form:ty),* $(,)? })*) => {
        $(impl JsonMessage for models::$message {
            fn write(&self, object: &mut Map<String, Value>) {
                let Self { $($field),* } = self;
                $(<$form as FieldForm<_>>::write($field, key!($field $($key)?), object);)*
            }

            fn read(members: &mut Members) -> Result<Self, JsonError> {
                Ok(Self { $($field: <$form as FieldForm<_>>::read(members, key!($field $($key)?))?),* })
            }
        }

        message_value!($message);)*
    };
}

// Actions.
json! {
    Action {
        download_action as "download": Omitted, upload_action as "upload": Omitted, run_action as "run": Omitted,
        timeout_action as "timeout": Omitted, emit_progress_action as "emit_progress": Omitted,
        try_action as "try": Omitted, parallel_action as "parallel": Omitted, serial_action as "serial": Omitted,
        codependent_action as "codependent": Omitted,
    }
    DownloadAction {
        artifact: Omitted, from: Shown, to: Shown, cache_key: Shown, log_source: Omitted, user: Shown,
        checksum_algorithm: Omitted, checksum_value: Omitted,
    }
    UploadAction { artifact: Omitted, from: Shown, to: Shown, log_source: Omitted, user: Shown }
    RunAction {
        path: Shown, args: Omitted, dir: Omitted, env: Omitted, resource_limits: Omitted, user: Shown,
        log_source: Omitted, suppress_log_output: Shown, volume_mounted_files: Shown,
    }
    ResourceLimits { nofile: Omitted, nproc: Omitted }
    TimeoutAction {
        action: Omitted, deprecated_timeout_ns as "timeout": Omitted, log_source: Omitted, timeout_ms: Shown,
    }
    EmitProgressAction {
        action: Omitted, start_message: Shown, success_message: Shown, failure_message_prefix: Shown,
        log_source: Omitted,
    }
    TryAction { action: Omitted, log_source: Omitted }
    ParallelAction { actions: Omitted, log_source: Omitted }
    SerialAction { actions: Omitted, log_source: Omitted }
    CodependentAction { actions: Omitted, log_source: Omitted }
}

// Parts of LRPs and tasks.
json! {
    ModificationTag { epoch: Shown, index: Shown }
    EnvironmentVariable { name: Shown, value: Shown }
    File { path: Shown, content: Shown }
    LogRateLimit { bytes_per_second: Omitted }
    MetricTagValue { r#static as "static": Omitted, dynamic: NamedOmitted<metric_tag_value::DynamicValue> }
    Network { properties: Omitted }
    CertificateProperties { organizational_unit: Omitted }
    CachedDependency {
        name: Shown, from: Shown, to: Shown, cache_key: Shown, log_source: Shown, checksum_algorithm: Omitted,
        checksum_value: Omitted,
    }
    ImageLayer {
        name: Omitted, url: Shown, destination_path: Shown, layer_type: Named<image_layer::Type>,
        media_type: Named<image_layer::MediaType>, digest_algorithm: NamedOmitted<image_layer::DigestAlgorithm>,
        digest_value: Omitted,
    }
    Sidecar { action: Omitted, disk_mb: Shown, memory_mb: Shown }
    SecurityGroupRule {
        protocol: Omitted, destinations: Omitted, ports: Omitted, port_range: Omitted, icmp_info: Omitted, log: Shown,
        annotations: Omitted,
    }
    PortRange { start: Shown, end: Shown }
    IcmpInfo { r#type as "type": Shown, code: Shown }
    VolumeMount { driver: Shown, container_dir: Shown, mode: Shown, shared: Shown, dedicated: Shown }
    SharedDevice { volume_id: Shown, mount_config: Shown }
    DedicatedDevice { mounter_id: Shown, mount_config: Shown, device_config: Shown }
    VolumePlacement { driver_names: Shown }
    CheckDefinition { checks: Omitted, log_source: Shown, readiness_checks: Omitted }
    Check { tcp_check: Omitted, http_check: Omitted }
    TcpCheck { port: Shown, connect_timeout_ms: Omitted, interval_ms: Omitted }
    HttpCheck { port: Shown, request_timeout_ms: Omitted, path: Shown, interval_ms: Omitted }
}

// Desired LRPs.
json! {
    DesiredLrp {
        process_guid: Shown, domain: Shown, root_fs as "rootfs": Shown, instances: Shown,
        environment_variables as "env": Shown, setup: Omitted, action: Omitted,
        deprecated_start_timeout_s as "deprecated_timeout_ns": Omitted, monitor: Omitted, disk_mb: Shown,
        memory_mb: Shown, cpu_weight: Shown, privileged: Shown, ports: Omitted, routes: Omitted, log_source: Shown,
        log_guid: Shown, metrics_guid: Shown, annotation: Shown, egress_rules: Omitted, modification_tag: Omitted,
        cached_dependencies: Omitted, legacy_download_user: Omitted, trusted_system_certificates_path: Omitted,
        volume_mounts: Omitted, network: Omitted, start_timeout_ms: Shown, placement_tags: Omitted, max_pids: Shown,
        certificate_properties: Omitted, image_username: Omitted, image_password: Omitted, check_definition: Omitted,
        image_layers: Omitted, metric_tags: Omitted, sidecars: Omitted, log_rate_limit: Omitted,
        volume_mounted_files: Shown, update_strategy: Numbered<desired_lrp::UpdateStrategy>, definition_id: Omitted,
        previous_definition_id: Omitted,
    }
    LrpDefinition {
        root_fs as "rootfs": Shown, environment_variables as "env": Shown, setup: Omitted, action: Omitted,
        deprecated_start_timeout_s as "deprecated_timeout_ns": Omitted, monitor: Omitted, disk_mb: Shown,
        memory_mb: Shown, cpu_weight: Shown, privileged: Shown, ports: Omitted, log_source: Shown, log_guid: Shown,
        metrics_guid: Shown, egress_rules: Omitted, cached_dependencies: Omitted, legacy_download_user: Omitted,
        trusted_system_certificates_path: Omitted, volume_mounts: Omitted, network: Omitted, start_timeout_ms: Shown,
        placement_tags: Omitted, max_pids: Shown, certificate_properties: Omitted, image_username: Omitted,
        image_password: Omitted, check_definition: Omitted, image_layers: Omitted, metric_tags: Omitted,
        sidecars: Omitted, log_rate_limit: Omitted, volume_mounted_files: Shown, definition_id: Omitted,
    }
    DesiredLrpUpdate {
        instances: Omitted, routes: Omitted, annotation: Omitted, metric_tags: Omitted, image_username: Omitted,
        image_password: Omitted, lrp_definition: Omitted,
    }
    DesiredLrpKey { process_guid: Shown, domain: Shown, log_guid: Shown }
    DesiredLrpResource { memory_mb: Shown, disk_mb: Shown, root_fs as "rootfs": Shown, max_pids: Shown }
    DesiredLrpSchedulingInfo {
        desired_lrp_key: Inlined, annotation: Shown, instances: Shown, desired_lrp_resource: Inlined, routes: Shown,
        modification_tag: Inlined, volume_placement: Omitted, placement_tags: Omitted, definition_id: Omitted,
    }
    ArchivedLrpDefinition { definition: Shown, created_at: Shown, last_active_at: Shown }
    DesiredLrpUpdateStatus {
        definition_id: Shown, previous_definition_id: Shown, cancelled: Shown, started_at: Shown, instances: Shown,
        running: Shown, running_previous: Shown, waiting: Shown, failing: Shown, halt_reason: Shown, halted_at: Shown,
    }
}

// Instances.
json! {
    ActualLrp {
        actual_lrp_key: Inlined, actual_lrp_instance_key: Inlined, actual_lrp_net_info: Inlined, crash_count: Shown,
        crash_reason: Omitted, state: Shown, placement_error: Omitted, since: Shown, modification_tag: Shown,
        presence: Named<actual_lrp::Presence>, actual_lrp_internal_routes: Omitted, metric_tags: Omitted,
        routable as "OptionalRoutable": Routable, availability_zone: Shown, desired_lrp_definition_id: Omitted,
    }
    ActualLrpKey { process_guid: Shown, index: Shown, domain: Shown }
    ActualLrpInstanceKey { instance_guid: Shown, cell_id: Shown }
    ActualLrpNetInfo {
        address: Shown, ports: Shown, instance_address: Omitted,
        preferred_address: Named<actual_lrp_net_info::PreferredAddress>, instance_ipv6_address: Omitted,
    }
    PortMapping { container_port: Shown, host_port: Shown, container_tls_proxy_port: Shown, host_tls_proxy_port: Shown }
    ActualLrpInternalRoute { hostname: Shown }
    ActualLrpInfo {
        actual_lrp_net_info: Inlined, crash_count: Shown, crash_reason: Omitted, state: Shown, placement_error: Omitted,
        since: Shown, modification_tag: Shown, presence: Named<actual_lrp::Presence>,
        routable as "OptionalRoutable": Routable, availability_zone: Shown, desired_lrp_definition_id: Omitted,
    }
    ActualLrpInstanceCreatedEvent { actual_lrp: Omitted, trace_id: Shown }
    ActualLrpInstanceChangedEvent {
        actual_lrp_key: Inlined, actual_lrp_instance_key: Inlined, before: Omitted, after: Omitted, trace_id: Shown,
    }
    ActualLrpInstanceRemovedEvent { actual_lrp: Omitted, trace_id: Shown }
    ActualLrpCrashedEvent {
        actual_lrp_key: Inlined, actual_lrp_instance_key: Inlined, crash_count: Shown, crash_reason: Omitted,
        since: Shown, desired_lrp_definition_id: Omitted,
    }
}

// Tasks.
json! {
    Task {
        task_definition: Inlined, task_guid: Shown, domain: Shown, created_at: Shown, updated_at: Shown,
        first_completed_at: Shown, state: Named<task::State>, cell_id: Shown, result: Shown, failed: Shown,
        failure_reason: Shown, rejection_count: Shown, rejection_reason: Shown,
    }
    TaskDefinition {
        root_fs as "rootfs": Shown, environment_variables as "env": Omitted, action: Omitted, disk_mb: Shown,
        memory_mb: Shown, cpu_weight: Shown, privileged: Shown, log_source: Shown, log_guid: Shown, metrics_guid: Shown,
        result_file: Shown, completion_callback_url: Omitted, annotation: Omitted, egress_rules: Omitted,
        cached_dependencies: Omitted, legacy_download_user: Omitted, trusted_system_certificates_path: Omitted,
        volume_mounts: Omitted, network: Omitted, placement_tags: Omitted, max_pids: Shown,
        certificate_properties: Omitted, image_username: Shown, image_password: Shown, image_layers: Omitted,
        log_rate_limit: Omitted, metric_tags: Omitted, volume_mounted_files: Shown,
    }
}

// Cells.
json! {
    CellPresence {
        cell_id: Shown, rep_address: Shown, zone: Shown, capacity: Omitted,
        rootfs_providers as "rootfs_provider_list": Omitted, placement_tags: Omitted, optional_placement_tags: Omitted,
        rep_url: Shown, annotations: Shown,
    }
    CellCapacity { memory_mb: Shown, disk_mb: Shown, containers: Shown }
    Provider { name: Shown, properties: Omitted }
}
