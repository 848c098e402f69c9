//! The leaves of the store, by path, and their contents: Diego's records from their first JSON to
//! the last protobuf, as messages of the present API. Pure. Checks that a record belongs to its
//! path; validates nothing else.

mod conversion;
mod error;
mod json;
mod key;
mod protobuf;
mod split;
mod value;
mod version;

use bbs_encryption::Keyring;
use bbs_proto::models::{
    ActualLrp, DesiredLrp, DesiredLrpKey, DesiredLrpRunInfo, DesiredLrpSchedulingInfo, Task,
};

pub use error::RecordError;
pub use key::{RecordKey, RecordKind};
pub use split::split;
pub use value::label;
pub use version::{StoreVersion, StoredAs, judge};

use super::Leaf;
use value::Payload;

/// A decoded leaf.
///
/// Timeouts are in milliseconds and volume mounts in their present form, whichever release wrote
/// the record; the fields that had them before are zero. Texts of columns are valid UTF-8. Fields
/// younger than the record are zero or absent.
#[derive(Debug, Clone, PartialEq)]
pub enum EtcdRecord {
    /// `/version`: the number of the last etcd migration that has ended, 0 before the first.
    Version(i64),
    /// `/encryption-key`: the label of the key that the store was last encrypted with.
    KeyLabel(String),
    /// The value means nothing and is not read.
    Domain { name: String },
    /// A desired LRP before its split in two.
    DesiredLrp(Box<DesiredLrp>),
    /// The part for scheduling of a desired LRP, which exists when this part does.
    SchedulingInfo(Box<DesiredLrpSchedulingInfo>),
    /// The part for running of a desired LRP.
    RunInfo(Box<DesiredLrpRunInfo>),
    /// `evacuating` is that of the path, by which Diego found evacuating instances; `presence` is
    /// that of the payload, in which no release for etcd set it.
    ActualLrp {
        lrp: Box<ActualLrp>,
        evacuating: bool,
    },
    /// A task, which has a definition.
    Task(Box<Task>),
    /// Everything else.
    Foreign,
}

/// Decodes a leaf according to its path.
///
/// # Errors
/// If the path is that of a record, and the value is damaged, has an unknown encoding, does not
/// open with the keyring, or is the record of another path.
pub fn decode(leaf: &Leaf, keyring: &Keyring) -> Result<EtcdRecord, RecordError> {
    let key = RecordKey::of(&leaf.key);
    if let Some(guid) = key.guid() {
        key::check_guid(guid)?;
    }
    let payload = || value::payload(&leaf.value, keyring);
    Ok(match key.kind {
        RecordKind::Version => EtcdRecord::Version(version::parse(&leaf.value)?),
        RecordKind::KeyLabel => EtcdRecord::KeyLabel(leaf.value.clone()),
        RecordKind::Domain => EtcdRecord::Domain {
            name: key.name.to_owned(),
        },
        RecordKind::DesiredLrp => {
            EtcdRecord::DesiredLrp(Box::new(desired_lrp(payload()?, key.name)?))
        }
        RecordKind::SchedulingInfo => {
            EtcdRecord::SchedulingInfo(Box::new(scheduling_info(payload()?, key.name)?))
        }
        RecordKind::RunInfo => EtcdRecord::RunInfo(Box::new(run_info(payload()?, key.name)?)),
        RecordKind::ActualLrp | RecordKind::EvacuatingActualLrp => EtcdRecord::ActualLrp {
            lrp: Box::new(actual_lrp(payload()?, key.name, key.index)?),
            evacuating: key.kind == RecordKind::EvacuatingActualLrp,
        },
        RecordKind::Task => EtcdRecord::Task(Box::new(task(payload()?, key.name)?)),
        RecordKind::Foreign => EtcdRecord::Foreign,
    })
}

fn desired_lrp(payload: Payload, process_guid: &str) -> Result<DesiredLrp, RecordError> {
    let mut lrp = match payload {
        Payload::Json(text) => json::desired_lrp(&text)?,
        Payload::Protobuf(bytes) => protobuf::message(&bytes)?,
    };
    key::check_same(process_guid, &lrp.process_guid)?;
    conversion::desired_lrp(&mut lrp);
    Ok(lrp)
}

fn scheduling_info(
    payload: Payload,
    process_guid: &str,
) -> Result<DesiredLrpSchedulingInfo, RecordError> {
    let Payload::Protobuf(bytes) = payload else {
        return Err(RecordError::UnexpectedJson);
    };
    let mut info: DesiredLrpSchedulingInfo = protobuf::message(&bytes)?;
    check_lrp_key(process_guid, info.desired_lrp_key.as_ref())?;
    conversion::scheduling_info(&mut info);
    Ok(info)
}

fn run_info(payload: Payload, process_guid: &str) -> Result<DesiredLrpRunInfo, RecordError> {
    let Payload::Protobuf(bytes) = payload else {
        return Err(RecordError::UnexpectedJson);
    };
    let mut info = protobuf::run_info(&bytes)?;
    check_lrp_key(process_guid, info.desired_lrp_key.as_ref())?;
    conversion::run_info(&mut info);
    Ok(info)
}

fn actual_lrp(payload: Payload, process_guid: &str, index: i32) -> Result<ActualLrp, RecordError> {
    let mut lrp: ActualLrp = match payload {
        Payload::Json(text) => json::actual_lrp(&text)?,
        Payload::Protobuf(bytes) => protobuf::message(&bytes)?,
    };
    let found = lrp.actual_lrp_key.clone().unwrap_or_default();
    key::check_same(process_guid, &found.process_guid)?;
    key::check_same(&index.to_string(), found.index.to_string().as_bytes())?;
    conversion::actual_lrp(&mut lrp);
    Ok(lrp)
}

fn task(payload: Payload, guid: &str) -> Result<Task, RecordError> {
    let mut task = match payload {
        Payload::Json(text) => json::task(&text)?,
        Payload::Protobuf(bytes) => protobuf::task(&bytes)?,
    };
    key::check_same(guid, &task.task_guid)?;
    if task.task_definition.is_none() {
        return Err(RecordError::MissingDefinition);
    }
    conversion::task(&mut task);
    Ok(task)
}

fn check_lrp_key(process_guid: &str, found: Option<&DesiredLrpKey>) -> Result<(), RecordError> {
    key::check_same(process_guid, found.map_or(&[], |key| &key.process_guid))
}

#[cfg(test)]
mod tests;
