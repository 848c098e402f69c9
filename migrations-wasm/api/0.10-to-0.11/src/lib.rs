//! API 0.10 in terms of Diego's current methods: a desired LRP in two messages, one with the fields
//! that may change and one with the rest. Works at the wire level, so that fields unknown to both
//! versions pass through.

mod lrp;

use bbs_proto::fields::desire_lrp_request::DESIRED_LRP;
use bbs_proto::fields::v0_10::create_desired_lrp_request::{
    IMMUTABLE_DESIRED_LRP, MUTABLE_DESIRED_LRP,
};
use bbs_proto::models::DesiredLrPsRequest;
use bbs_proto::models::error::Type;
use bbs_proto::v0_10::ListMutableDesiredLrPsRequest;
use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};
use diego_revisions::{ERROR, OBJECTS};
use prost::Message;

#[derive(Debug)]
pub struct TwoMessages;

impl Translator for TwoMessages {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(
            ApiVersion::new(0, 10),
            ApiVersion::new(0, 11),
            "split-desired-lrp",
        )
        .summary("Describes a desired LRP in two messages, a mutable and an immutable one")
        .method("CreateDesiredLRP", "desired_lrps/create")
        .handler(create)
        .paged_method("ListMutableDesiredLRPs", "mutable_desired_lrps/list")
        .handler(|request, next| list(request, next, lrp::mutable))
        .paged_method("ListImmutableDesiredLRPs", "immutable_desired_lrps/list")
        .handler(|request, next| list(request, next, lrp::immutable))
        .hides("DesiredLRPs")
        .hides("DesiredLRPByProcessGuid")
        .hides("DesireDesiredLRP")
        .hides("DesireDesiredLRP_r2")
        .hides("DesiredLRPs_r3")
        .hides("DesiredLRPByProcessGuid_r3")
    }
}

fn create(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    match native_request(request) {
        Ok(Native::Request(request)) => next.call("DesireDesiredLRP_r2", &request),
        Ok(Native::TwoGuids) => Ok(invalid("Invalid field: process_guid")),
        Err(_) => Ok(invalid("the request received is invalid")),
    }
}

/// The result of converting a create request.
enum Native {
    Request(Vec<u8>),
    /// The two messages name different processes.
    TwoGuids,
}

fn native_request(request: &[u8]) -> Result<Native, WireError> {
    let mutable = wire::get_message(request, MUTABLE_DESIRED_LRP)?;
    let immutable = wire::get_message(request, IMMUTABLE_DESIRED_LRP)?;
    let mut native = Vec::new();
    if mutable.is_none() && immutable.is_none() {
        return Ok(Native::Request(native));
    }
    let (mutable, immutable) = (mutable.unwrap_or_default(), immutable.unwrap_or_default());
    if !lrp::same_process(&mutable, &immutable)? {
        return Ok(Native::TwoGuids);
    }
    wire::append(
        &mut native,
        DESIRED_LRP,
        Value::Bytes(&lrp::native(&mutable, &immutable)?),
    );
    Ok(Native::Request(native))
}

type View = fn(&[u8]) -> Result<Vec<u8>, WireError>;

fn list(request: &[u8], next: &dyn Next, view: View) -> Result<Vec<u8>, Fault> {
    let Ok(ListMutableDesiredLrPsRequest { domain }) = Message::decode(request) else {
        return Ok(invalid("the request received is invalid"));
    };
    let request = DesiredLrPsRequest {
        domain,
        ..Default::default()
    };
    let native = next.call("DesiredLRPs_r3", &request.encode_to_vec())?;
    let mut answer = Vec::with_capacity(native.len());
    for field in wire::fields(&native) {
        let field = field?;
        match field.number {
            ERROR => answer.extend_from_slice(field.raw),
            OBJECTS => wire::append(&mut answer, OBJECTS, Value::Bytes(&view(field.bytes()?)?)),
            _ => {}
        }
    }
    Ok(answer)
}

fn invalid(message: &str) -> Vec<u8> {
    diego_revisions::failed(Type::InvalidRequest, message)
}

export_translator!(TwoMessages);

#[cfg(test)]
mod tests;
