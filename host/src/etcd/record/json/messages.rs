//! The members of messages: their fields, with the key where it has another name.

use bbs_proto::models;

use super::fields::JsonField;
use super::object::JsonObject;
use crate::etcd::record::RecordError;

/// A message whose fields are members of an object, beside others.
pub(super) trait JsonMessage: Sized {
    /// # Errors
    /// If a member is not of the type of its field.
    fn of(object: &JsonObject<'_>) -> Result<Self, RecordError>;
}

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

macro_rules! messages {
    ($($message:ident { $($field:ident $(as $key:literal)?),* $(,)? })*) => {
        $(#[allow(clippy::needless_update, reason = "some members are all fields of a message")]
        impl JsonMessage for models::$message {
            fn of(object: &JsonObject<'_>) -> Result<Self, RecordError> {
                Ok(Self {
                    $($field: object.field(key!($field $($key)?))?,)*
                    ..Self::default()
                })
            }
        }

        impl JsonField for models::$message {
            fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
                Self::of(&JsonObject::of(key, value, depth)?)
            }
        })*
    };
}

// Kinds of action.
messages! {
    DownloadAction { artifact, from, to, cache_key, user, log_source }
    UploadAction { artifact, from, to, user, log_source }
    RunAction { path, args, dir, env, resource_limits, user, log_source }
    ResourceLimits { nofile }
    TimeoutAction { action, deprecated_timeout_ns as "timeout", log_source }
    EmitProgressAction {
        action, start_message, success_message, failure_message_prefix, log_source,
    }
    TryAction { action, log_source }
    ParallelAction { actions, log_source }
    SerialAction { actions, log_source }
    CodependentAction { actions, log_source }
}

// Parts of LRPs and tasks.
messages! {
    ModificationTag { epoch, index }
    EnvironmentVariable { name, value }
    SecurityGroupRule { protocol, destinations, ports, port_range, icmp_info, log }
    PortRange { start, end }
    IcmpInfo { r#type as "type", code }
}

// LRPs.
messages! {
    DesiredLrp {
        process_guid, domain, root_fs as "rootfs", instances, environment_variables as "env",
        setup, action, deprecated_start_timeout_s as "start_timeout", monitor, disk_mb, memory_mb,
        cpu_weight, privileged, ports, routes, log_source, log_guid, metrics_guid, annotation,
        egress_rules, modification_tag,
    }
    ActualLrp { crash_count, crash_reason, state, placement_error, since }
    ActualLrpKey { process_guid, index, domain }
    ActualLrpInstanceKey { instance_guid, cell_id }
    ActualLrpNetInfo { address, ports }
    PortMapping { container_port, host_port }
}

// Tasks.
messages! {
    Task {
        task_guid, domain, created_at, updated_at, first_completed_at, cell_id, result, failed,
        failure_reason,
    }
    TaskDefinition {
        root_fs as "rootfs", environment_variables as "env", action, disk_mb, memory_mb,
        cpu_weight, privileged, log_source, log_guid, metrics_guid, result_file, annotation,
        egress_rules,
    }
}
