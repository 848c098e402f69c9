//! What translators of Diego's revisions share: conversions of the objects in answers and requests,
//! and of what several revisions changed alike. At the wire level: fields that are unknown here
//! pass through.

pub mod actions;
pub mod desired_lrps;

use bbs_proto::fields::{desire_lrp_request, desired_lrps_response};
use bbs_proto::models::error::Type;
use bbs_proto::models::{Error, MetricTagEntry, MetricTagValue};
use bbs_sdk::Fault;
use bbs_sdk::wire::{self, Value, WireError};
use prost::Message;

/// The field of the error, in all answers.
pub use desired_lrps_response::ERROR;
/// The field of the objects, in all answers that have some.
pub const OBJECTS: u32 = desired_lrps_response::DESIRED_LRPS;
/// The field of the object, in both requests to desire one.
const DESIRED: u32 = desire_lrp_request::DESIRED_LRP;

/// A conversion of a message; `None` if it stays as it is.
pub type Convert = fn(&[u8]) -> Result<Option<Vec<u8>>, WireError>;

/// Converts each field with this number. `None` if all stay as they are.
///
/// # Errors
/// If the message cannot be parsed.
pub fn each(message: &[u8], number: u32, convert: Convert) -> Result<Option<Vec<u8>>, WireError> {
    wire::edit(message, |field| {
        if field.number == number {
            convert(field.bytes()?)
        } else {
            Ok(None)
        }
    })
}

/// The answer of an older method: that of the newer one with its objects converted.
///
/// # Errors
/// If the answer cannot be parsed.
pub fn answer(answer: Vec<u8>, convert: Convert) -> Result<Vec<u8>, Fault> {
    Ok(each(&answer, OBJECTS, convert)?.unwrap_or(answer))
}

/// The same for an answer without an error. With one, what was read until then is returned as it
/// is.
///
/// # Errors
/// If the answer cannot be parsed.
pub fn complete_answer(newer: Vec<u8>, convert: Convert) -> Result<Vec<u8>, Fault> {
    if wire::get(&newer, ERROR)?.is_some() {
        Ok(newer)
    } else {
        answer(newer, convert)
    }
}

/// An answer with an error alone; all answers have it in the same field.
pub fn failed(kind: Type, message: &str) -> Vec<u8> {
    let error = Error {
        r#type: kind.into(),
        message: message.into(),
    };
    let mut answer = Vec::new();
    wire::append(&mut answer, ERROR, Value::Bytes(&error.encode_to_vec()));
    answer
}

/// The request for the newer method: that for the older one with the object that it desires
/// converted. A malformed request stays as it is: the newer method rejects it.
pub fn request(request: &[u8], convert: Convert) -> Vec<u8> {
    each(request, DESIRED, convert)
        .ok()
        .flatten()
        .unwrap_or_else(|| request.to_vec())
}

/// A desired LRP with a metric tag: Diego requires at least one, and `source_id` to equal the
/// metrics guid if there is one. Revisions from before there were tags have none.
///
/// # Errors
/// If the message cannot be parsed.
pub fn with_metric_tag(mut lrp: Vec<u8>) -> Result<Vec<u8>, WireError> {
    use bbs_proto::fields::desired_lrp::{METRIC_TAGS, METRICS_GUID, PROCESS_GUID};

    if wire::get(&lrp, METRIC_TAGS)?.is_some() {
        return Ok(lrp);
    }
    let metrics_guid = wire::get_bytes(&lrp, METRICS_GUID)?;
    let source_id = if metrics_guid.is_empty() {
        wire::get_bytes(&lrp, PROCESS_GUID)?
    } else {
        metrics_guid
    };
    let value = MetricTagValue {
        r#static: source_id.to_vec(),
        ..Default::default()
    };
    let tag = MetricTagEntry {
        key: b"source_id".to_vec(),
        value: Some(value),
    };
    wire::append(&mut lrp, METRIC_TAGS, Value::Bytes(&tag.encode_to_vec()));
    Ok(lrp)
}

#[cfg(test)]
mod tests;
