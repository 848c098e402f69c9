//! The residue of `down`, from which `up` restores both columns byte for byte: the JSON of the
//! metric tags, and the position of their former fields in `run_info`. A protobuf message, so that
//! fields can be added.

use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Value, WireError};

use super::METRIC_TAGS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Residue {
    pub(crate) metric_tags: Option<Vec<u8>>,
    /// The fields that `run_info` had, if `down` replaced them.
    pub(crate) entries: Option<Vec<Entry>>,
}

/// A field as it was in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    at: u64,
    raw: Vec<u8>,
}

const METRIC_TAGS_JSON: u32 = 1;
const EDITED: u32 = 2;
const ENTRY: u32 = 3;
const AT: u32 = 1;
const RAW: u32 = 2;

impl Residue {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        if let Some(json) = &self.metric_tags {
            wire::append(&mut message, METRIC_TAGS_JSON, Value::Bytes(json));
        }
        if let Some(entries) = &self.entries {
            wire::append(&mut message, EDITED, Value::Varint(1));
            for entry in entries {
                let mut field = Vec::new();
                wire::append(&mut field, AT, Value::Varint(entry.at));
                wire::append(&mut field, RAW, Value::Bytes(&entry.raw));
                wire::append(&mut message, ENTRY, Value::Bytes(&field));
            }
        }
        message
    }

    pub(crate) fn decode(message: &[u8]) -> Result<Self, Refused> {
        Self::read(message)
            .map_err(|error| Refused::new(format!("the residue cannot be read: {error}")))
    }

    fn read(message: &[u8]) -> Result<Self, WireError> {
        let json = wire::get(message, METRIC_TAGS_JSON)?
            .map(|field| field.bytes())
            .transpose()?;
        let mut residue = Self {
            metric_tags: json.map(<[u8]>::to_vec),
            entries: None,
        };
        if wire::get(message, EDITED)?.is_some() {
            let entries = wire::get_all(message, ENTRY)?.into_iter().map(|field| {
                let field = field.bytes()?;
                let at = wire::get(field, AT)?.map_or(Ok(0), |at| at.varint())?;
                let raw = wire::get(field, RAW)?.map_or(Ok(&[][..]), |raw| raw.bytes())?;
                Ok(Entry {
                    at,
                    raw: raw.to_vec(),
                })
            });
            residue.entries = Some(entries.collect::<Result<_, WireError>>()?);
        }
        Ok(residue)
    }
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
