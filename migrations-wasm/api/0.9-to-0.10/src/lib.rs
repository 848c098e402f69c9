//! API 0.9 in terms of 0.10: one message describes a desired LRP, where 0.10 has one for the fields
//! that may change and one for the rest. Works at the wire level, so that fields unknown to both
//! versions pass through.

use std::collections::BTreeMap;

use bbs_proto::fields::v0_9::create_desired_lrp_request::DESIRED_LRP;
use bbs_proto::fields::v0_9::desired_lrp::{self, PROCESS_GUID};
use bbs_proto::fields::v0_9::list_desired_lrps_response::{DESIRED_LRPS as ITEMS, ERROR};
use bbs_proto::fields::v0_10::create_desired_lrp_request::{
    IMMUTABLE_DESIRED_LRP, MUTABLE_DESIRED_LRP,
};
use bbs_proto::fields::v0_10::mutable_desired_lrp;
use bbs_proto::models::Error;
use bbs_proto::models::error::Type;
use bbs_proto::v0_9::CreateDesiredLrpResponse;
use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};
use prost::Message;

/// The fields that may change: their numbers in 0.9's message, and in the mutable one.
const MUTABLE: [(u32, u32); 3] = [
    (desired_lrp::INSTANCES, mutable_desired_lrp::INSTANCES),
    (desired_lrp::ROUTES, mutable_desired_lrp::ROUTES),
    (desired_lrp::ANNOTATION, mutable_desired_lrp::ANNOTATION),
];

#[derive(Debug)]
pub struct OneMessage;

impl Translator for OneMessage {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(
            ApiVersion::new(0, 9),
            ApiVersion::new(0, 10),
            "whole-desired-lrp",
        )
        .summary("Describes a desired LRP in one message, as before its split")
        .method("CreateDesiredLRP_0_9", "desired_lrps/create")
        .handler(create)
        .paged_method("ListDesiredLRPs_0_9", "desired_lrps/list")
        .handler(list)
        .hides("CreateDesiredLRP")
        .hides("ListMutableDesiredLRPs")
        .hides("ListImmutableDesiredLRPs")
    }
}

fn create(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    match split_request(request) {
        Ok(request) => next.call("CreateDesiredLRP", &request),
        Err(_) => Ok(invalid_request()),
    }
}

fn list(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    let mutable = next.call("ListMutableDesiredLRPs", request)?;
    let immutable = next.call("ListImmutableDesiredLRPs", request)?;
    Ok(join(&mutable, &immutable)?)
}

fn split_request(request: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut split = Vec::new();
    let Some(lrp) = wire::get_message(request, DESIRED_LRP)? else {
        return Ok(split);
    };
    let (mutable, immutable) = split_lrp(&lrp)?;
    wire::append(&mut split, MUTABLE_DESIRED_LRP, Value::Bytes(&mutable));
    wire::append(&mut split, IMMUTABLE_DESIRED_LRP, Value::Bytes(&immutable));
    Ok(split)
}

fn split_lrp(lrp: &[u8]) -> Result<(Vec<u8>, Vec<u8>), WireError> {
    let (mut mutable, mut immutable) = (Vec::new(), Vec::new());
    for field in wire::fields(lrp) {
        let field = field?;
        if field.number == PROCESS_GUID {
            mutable.extend_from_slice(field.raw);
            immutable.extend_from_slice(field.raw);
        } else if let Some((_, number)) = MUTABLE.iter().find(|(number, _)| *number == field.number)
        {
            wire::append(&mut mutable, *number, field.value);
        } else {
            immutable.extend_from_slice(field.raw);
        }
    }
    Ok((mutable, immutable))
}

/// Joins the two lists by process guid. An item that is only in one of them is incomplete and
/// omitted.
fn join(mutable: &[u8], immutable: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut joined = Vec::new();
    if let Some(error) = wire::get(mutable, ERROR)?.or(wire::get(immutable, ERROR)?) {
        joined.extend_from_slice(error.raw);
    }
    let mut by_guid = BTreeMap::new();
    for item in wire::get_all(mutable, ITEMS)? {
        let item = item.bytes()?;
        by_guid.insert(wire::get_bytes(item, PROCESS_GUID)?, item);
    }
    for item in wire::get_all(immutable, ITEMS)? {
        let item = item.bytes()?;
        if let Some(mutable) = by_guid.get(wire::get_bytes(item, PROCESS_GUID)?) {
            let lrp = merge_lrp(mutable, item)?;
            wire::append(&mut joined, ITEMS, Value::Bytes(&lrp));
        }
    }
    Ok(joined)
}

fn merge_lrp(mutable: &[u8], immutable: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut lrp = immutable.to_vec();
    for field in wire::fields(mutable) {
        let field = field?;
        if let Some((number, _)) = MUTABLE.iter().find(|(_, number)| *number == field.number) {
            wire::append(&mut lrp, *number, field.value);
        }
    }
    Ok(lrp)
}

fn invalid_request() -> Vec<u8> {
    let error = Error {
        r#type: Type::InvalidRequest.into(),
        message: b"the request received is invalid".to_vec(),
    };
    CreateDesiredLrpResponse { error: Some(error) }.encode_to_vec()
}

export_translator!(OneMessage);

#[cfg(test)]
mod tests;
