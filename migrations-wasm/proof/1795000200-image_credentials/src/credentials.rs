//! Splits a run info and its image credentials, and merges them. Edits single fields at the wire
//! level: every other byte of the message keeps its value and place.

use bbs_proto::fields::desired_lrp_run_info;
use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Value, WireError};

/// Field numbers of the credentials, in the column's message and in `DesiredLRPRunInfo`.
const FIELDS: [(u32, u32); 2] = [
    (1, desired_lrp_run_info::IMAGE_USERNAME),
    (2, desired_lrp_run_info::IMAGE_PASSWORD),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) run_info: Vec<u8>,
    /// A message of its own; `None` if the run info has no credentials, which differs from empty
    /// ones.
    pub(crate) credentials: Option<Vec<u8>>,
}

/// Removes the credentials from a run info.
pub(crate) fn split(run_info: &[u8]) -> Result<Parts, Refused> {
    let apart = || -> Result<Parts, WireError> {
        let (mut rest, mut credentials) = (run_info.to_vec(), Vec::new());
        for (own, number) in FIELDS {
            if let Some(field) = wire::get(run_info, number)? {
                wire::append(&mut credentials, own, Value::Bytes(field.bytes()?));
                rest = wire::remove(&rest, number)?;
            }
        }
        wire::check(&rest)?;
        Ok(Parts {
            run_info: rest,
            credentials: (!credentials.is_empty()).then_some(credentials),
        })
    };
    apart().map_err(|error| Refused::new(format!("`run_info` cannot be read: {error}")))
}

/// Inserts the credentials where an encoder puts them: before the first field with a higher number.
pub(crate) fn merge(parts: &Parts) -> Result<Vec<u8>, Refused> {
    let unreadable = |column: &str, error: WireError| {
        Refused::new(format!("`{column}` cannot be read: {error}"))
    };
    let mut whole = parts.run_info.clone();
    let Some(credentials) = &parts.credentials else {
        return Ok(whole);
    };
    for (own, number) in FIELDS {
        let found = wire::get(credentials, own)
            .and_then(|field| field.map(|field| field.bytes()).transpose());
        let Some(value) = found.map_err(|error| unreadable("image_credentials", error))? else {
            continue;
        };
        whole = placed(&whole, number, value)
            .map_err(|error| unreadable("immutable_run_info", error))?;
    }
    Ok(whole)
}

/// Returns the message with this field at the position that its number determines.
fn placed(message: &[u8], number: u32, value: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut edited = Vec::with_capacity(message.len() + value.len() + 8);
    let mut is_placed = false;
    for field in wire::fields(message) {
        let field = field?;
        if field.number > number && !is_placed {
            wire::append(&mut edited, number, Value::Bytes(value));
            is_placed = true;
        }
        if field.number != number {
            edited.extend_from_slice(field.raw);
        }
    }
    if !is_placed {
        wire::append(&mut edited, number, Value::Bytes(value));
    }
    Ok(edited)
}
