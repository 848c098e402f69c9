//! The residue of `down`, from which `up` restores both columns byte for byte: the JSON of the
//! metric tags, and the position of their former fields in `run_info`.

use bbs_sdk::Refused;
use bbs_sdk::wire::{self, WireError};

use super::METRIC_TAGS;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Residue {
    /// `None` for NULL.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) metric_tags: Option<Vec<u8>>,
    /// Whether `down` replaced the fields of `run_info`.
    #[prost(bool, tag = "2")]
    pub(crate) edited: bool,
    /// The fields that `run_info` had, if they were replaced.
    #[prost(message, repeated, tag = "3")]
    pub(crate) entries: Vec<Entry>,
}

/// A field as it was in the message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Entry {
    #[prost(uint64, required, tag = "1")]
    at: u64,
    #[prost(bytes = "vec", required, tag = "2")]
    raw: Vec<u8>,
}

/// Returns the fields of the metric tags with their positions.
pub(crate) fn tag_fields(run_info: &[u8]) -> Result<Vec<Entry>, WireError> {
    let entries = wire::get_all(run_info, METRIC_TAGS)?.into_iter();
    Ok(entries
        .map(|field| Entry {
            at: field.at as u64,
            raw: field.raw.to_vec(),
        })
        .collect())
}

/// Returns the message with these fields, each at its position, in place of its own.
pub(crate) fn restore_tag_fields(run_info: &[u8], entries: &[Entry]) -> Result<Vec<u8>, Refused> {
    let rest = wire::remove(run_info, METRIC_TAGS)?;
    let mut message = Vec::with_capacity(run_info.len());
    let mut taken = 0;
    for entry in entries {
        let gap = usize::try_from(entry.at)
            .ok()
            .and_then(|at| at.checked_sub(message.len()));
        let part = gap.and_then(|gap| rest.get(taken..)?.get(..gap));
        let part = part.ok_or_else(|| Refused::new("the residue is of another `run_info`"))?;
        message.extend_from_slice(part);
        message.extend_from_slice(&entry.raw);
        taken += part.len();
    }
    message.extend_from_slice(&rest[taken..]);
    Ok(message)
}
