//! Protobuf payloads. Their field numbers are the present ones, except for volume mounts, whose
//! earliest fields are decoded in a pass of their own.

use bbs_proto::models::{DesiredLrpRunInfo, SharedDevice, Task, VolumeMount};
use bbs_proto::prost::{self, Message, Name};

use super::RecordError;
use crate::protobuf::{MOST_ELEMENTS, elements_of};

/// Decodes a message that has no volume mounts. One with too many elements is refused before it is
/// decoded: an empty submessage takes hundreds of times its encoded bytes.
pub(super) fn message<M: Message + Name + Default>(bytes: &[u8]) -> Result<M, RecordError> {
    if elements_of::<M>(bytes).is_none() {
        return Err(RecordError::Elements {
            limit: MOST_ELEMENTS,
        });
    }
    M::decode(bytes).map_err(RecordError::Protobuf)
}

pub(super) fn run_info(bytes: &[u8]) -> Result<DesiredLrpRunInfo, RecordError> {
    let mut info: DesiredLrpRunInfo = message(bytes)?;
    if !info.volume_mounts.is_empty() {
        let early = EarlyRunInfo::decode(bytes).map_err(RecordError::Protobuf)?;
        convert_mounts(&mut info.volume_mounts, early.volume_mounts)?;
    }
    Ok(info)
}

pub(super) fn task(bytes: &[u8]) -> Result<Task, RecordError> {
    let mut task: Task = message(bytes)?;
    if let Some(definition) = task
        .task_definition
        .as_mut()
        .filter(|definition| !definition.volume_mounts.is_empty())
    {
        let early = EarlyTask::decode(bytes).map_err(RecordError::Protobuf)?;
        convert_mounts(
            &mut definition.volume_mounts,
            early.definition.unwrap_or_default().volume_mounts,
        )?;
    }
    Ok(task)
}

/// The fields that a volume mount had in releases v0.1462 to v0.1481 only.
#[derive(Clone, PartialEq, prost::Message)]
struct EarlyVolumeMount {
    #[prost(bytes = "vec", optional, tag = "2")]
    volume_id: Option<Vec<u8>>,
    /// 0 is read-only, 1 read-write.
    #[prost(int32, optional, tag = "4")]
    mode: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "5")]
    config: Option<Vec<u8>>,
}

/// The volume mounts of a run info.
#[derive(Clone, PartialEq, prost::Message)]
struct EarlyRunInfo {
    #[prost(message, repeated, tag = "17")]
    volume_mounts: Vec<EarlyVolumeMount>,
}

/// The volume mounts of a task.
#[derive(Clone, PartialEq, prost::Message)]
struct EarlyTask {
    #[prost(message, optional, tag = "1")]
    definition: Option<EarlyTaskDefinition>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EarlyTaskDefinition {
    #[prost(message, repeated, tag = "18")]
    volume_mounts: Vec<EarlyVolumeMount>,
}

/// Both lists are decoded from the same bytes, so they have the same length.
fn convert_mounts(
    mounts: &mut [VolumeMount],
    early: Vec<EarlyVolumeMount>,
) -> Result<(), RecordError> {
    for (
        mount,
        EarlyVolumeMount {
            volume_id,
            mode,
            config,
        },
    ) in mounts.iter_mut().zip(early)
    {
        let is_present_form =
            !mount.mode.is_empty() || mount.shared.is_some() || mount.dedicated.is_some();
        if is_present_form || (&volume_id, mode, &config) == (&None, None, &None) {
            continue;
        }
        mount.mode = match mode.unwrap_or_default() {
            0 => b"r".to_vec(),
            1 => b"rw".to_vec(),
            mode => return Err(RecordError::VolumeMode { mode }),
        };
        let volume_id = volume_id.unwrap_or_default();
        let mount_config = config.unwrap_or_default();
        mount.shared = Some(SharedDevice {
            volume_id,
            mount_config,
        });
    }
    Ok(())
}
