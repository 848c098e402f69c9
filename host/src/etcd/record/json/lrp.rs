//! Desired and actual LRPs.

use bbs_proto::models::{
    ActualLrp, ActualLrpInstanceKey, ActualLrpKey, ActualLrpNetInfo, DesiredLrp, ProtoRoutes,
    RouteEntry,
};

use super::fields::JsonField;
use super::messages::JsonMessage;
use super::object::JsonObject;
use crate::etcd::record::RecordError;

/// # Errors
/// If the text is no JSON object, or a key has another type than it had in every release.
pub(in crate::etcd::record) fn desired_lrp(text: &[u8]) -> Result<DesiredLrp, RecordError> {
    DesiredLrp::of(&JsonObject::parse_record(text)?)
}

/// The JSON by router. A router without JSON is kept: what `null` means is up to the reader of
/// routes.
impl JsonField for ProtoRoutes {
    fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
        let members = JsonObject::of(key, value, depth)?.into_members();
        let entries = members.into_iter().map(|(key, value)| RouteEntry {
            key,
            value: value.to_vec(),
        });
        Ok(Self {
            routes: entries.collect(),
        })
    }
}

/// # Errors
/// As [`desired_lrp`].
pub(in crate::etcd::record) fn actual_lrp(text: &[u8]) -> Result<ActualLrp, RecordError> {
    let lrp = JsonObject::parse_record(text)?;
    Ok(ActualLrp {
        actual_lrp_key: Some(ActualLrpKey::of(&lrp)?),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::of(&lrp)?),
        actual_lrp_net_info: Some(ActualLrpNetInfo::of(&lrp)?),
        modification_tag: Some(lrp.field("modification_tag")?),
        ..ActualLrp::of(&lrp)?
    })
}
