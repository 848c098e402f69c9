//! Parts that several kinds of record have.

use bbs_proto::models::{
    EnvironmentVariable, IcmpInfo, ModificationTag, PortRange, SecurityGroupRule,
};

use super::object::{JsonObject, number, object, text};
use crate::etcd::record::RecordError;

pub(super) fn env(record: &JsonObject<'_>) -> Result<Vec<EnvironmentVariable>, RecordError> {
    record.list("env", |value| {
        let variable = object("env", value)?;
        Ok(EnvironmentVariable {
            name: variable.text("name")?,
            value: variable.text("value")?,
        })
    })
}

pub(super) fn ports(record: &JsonObject<'_>) -> Result<Vec<u32>, RecordError> {
    record.list("ports", |value| number("ports", value))
}

pub(super) fn modification_tag(
    record: &JsonObject<'_>,
) -> Result<Option<ModificationTag>, RecordError> {
    record.object("modification_tag", |tag| {
        Ok(ModificationTag {
            epoch: tag.text("epoch")?,
            index: tag.number("index")?,
        })
    })
}

pub(super) fn egress_rules(record: &JsonObject<'_>) -> Result<Vec<SecurityGroupRule>, RecordError> {
    record.list("egress_rules", |value| {
        let rule = object("egress_rules", value)?;
        Ok(SecurityGroupRule {
            protocol: rule.text("protocol")?,
            destinations: rule.list("destinations", |value| text("destinations", value))?,
            ports: ports(&rule)?,
            port_range: rule.object("port_range", |range| {
                Ok(PortRange {
                    start: range.number("start")?,
                    end: range.number("end")?,
                })
            })?,
            icmp_info: rule.object("icmp_info", |info| {
                Ok(IcmpInfo {
                    r#type: info.number("type")?,
                    code: info.number("code")?,
                })
            })?,
            log: rule.flag("log")?,
            ..SecurityGroupRule::default()
        })
    })
}
