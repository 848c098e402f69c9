//! The metric tags of a desired LRP in their two formats: fields with number 25 in a message, and
//! the JSON object that Go writes. Both are parsed into the same type, so that they can be
//! compared.

use std::collections::BTreeMap;

use bbs_go_json::{self as json, Malformed};
use bbs_proto::fields::{metric_tag_entry, metric_tag_value};
use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Field, Value, WireError};

use super::METRIC_TAGS;

/// Names and texts are bytes, as in Go, which sorts names before it replaces invalid UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tags(BTreeMap<Vec<u8>, Tag>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tag {
    /// In Go, an empty string is the same as none.
    fixed: Vec<u8>,
    dynamic: Dynamic,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Dynamic {
    #[default]
    None,
    Index,
    InstanceGuid,
    /// A number without a name in Go, which encodes it as an empty string.
    Unnamed,
}

impl Tags {
    /// Parses the fields with number 25. A later entry replaces an earlier one with the same key.
    pub(crate) fn of_message(run_info: &[u8]) -> Result<Self, Refused> {
        let refused =
            |error: WireError| Refused::new(format!("`run_info` cannot be read: {error}"));
        let mut tags = BTreeMap::new();
        for field in wire::fields(run_info) {
            let field = field.map_err(refused)?;
            if field.number == METRIC_TAGS {
                let (key, tag) = read_entry(field).map_err(refused)?;
                tags.insert(key, tag);
            }
        }
        Ok(Self(tags))
    }

    /// Parses the column's JSON; Go writes a nil map as `null`.
    pub(crate) fn of_json(text: &[u8]) -> Result<Self, Refused> {
        let refused =
            |reason: &str| Refused::new(format!("`metric_tags` cannot be read: {reason}"));
        let members = json::members(text).map_err(|error| refused(&error.to_string()))?;
        let tags = members.unwrap_or_default().into_iter();
        let tags = tags.map(|(name, value)| match Tag::of_json(value) {
            Ok(tag) => Ok((name, tag)),
            Err(Malformed { .. }) => {
                let name = json::replace_invalid(&name);
                Err(refused(&format!("tag `{name}` is not a metric tag")))
            }
        });
        Ok(Self(tags.collect::<Result<_, _>>()?))
    }

    /// Returns the tags as Go reads them from their JSON, without invalid UTF-8. Of two names that
    /// become equal, the last in byte order counts, as Go writes it last.
    pub(crate) fn replace_invalid(&self) -> Self {
        let valid = |text: &[u8]| json::replace_invalid(text).into_owned().into_bytes();
        let tags = self.0.iter().map(|(name, tag)| {
            let tag = Tag {
                fixed: valid(&tag.fixed),
                dynamic: tag.dynamic,
            };
            (valid(name), tag)
        });
        Self(tags.collect())
    }

    /// Encodes as Go does: names sorted, and the fields of a tag that are not zero, in declared
    /// order.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut text = b"{".to_vec();
        for (name, tag) in &self.0 {
            if text.len() > 1 {
                text.push(b',');
            }
            json::quote(name, &mut text);
            text.extend_from_slice(b":{");
            if !tag.fixed.is_empty() {
                text.extend_from_slice(b"\"static\":");
                json::quote(&tag.fixed, &mut text);
            }
            if let Some(dynamic) = tag.dynamic.name() {
                if !tag.fixed.is_empty() {
                    text.push(b',');
                }
                text.extend_from_slice(b"\"dynamic\":");
                json::quote(dynamic.as_bytes(), &mut text);
            }
            text.push(b'}');
        }
        text.push(b'}');
        text
    }

    /// Appends the fields to a message that has none.
    pub(crate) fn append_to(&self, run_info: &mut Vec<u8>) {
        for (name, tag) in &self.0 {
            let mut value = Vec::new();
            if !tag.fixed.is_empty() {
                let fixed = Value::Bytes(&tag.fixed);
                wire::append(&mut value, metric_tag_value::STATIC, fixed);
            }
            if let Some(number) = tag.dynamic.number() {
                wire::append(&mut value, metric_tag_value::DYNAMIC, Value::Varint(number));
            }
            let mut entry = Vec::new();
            wire::append(&mut entry, metric_tag_entry::KEY, Value::Bytes(name));
            wire::append(&mut entry, metric_tag_entry::VALUE, Value::Bytes(&value));
            wire::append(run_info, METRIC_TAGS, Value::Bytes(&entry));
        }
    }
}

impl Tag {
    fn of_json(text: &[u8]) -> Result<Self, Malformed> {
        let mut tag = Self::default();
        for (name, value) in json::members(text)?.unwrap_or_default() {
            if json::names_field(&name, "static") {
                // `null` leaves a string as an earlier member has set it.
                if let Some(fixed) = json::string(value)? {
                    tag.fixed = fixed;
                }
            } else if json::names_field(&name, "dynamic") {
                tag.dynamic = match json::string(value)?.as_deref() {
                    Some(b"INDEX") => Dynamic::Index,
                    Some(b"INSTANCE_GUID") => Dynamic::InstanceGuid,
                    Some(b"") => Dynamic::Unnamed,
                    // Diego's decoder of this type makes no value of an unknown name and of `null`.
                    Some(_) | None => Dynamic::None,
                };
            }
        }
        Ok(tag)
    }
}

impl Dynamic {
    /// The number in a message, if it has one there.
    fn number(self) -> Option<u64> {
        match self {
            Self::Index => Some(1),
            Self::InstanceGuid => Some(2),
            Self::None | Self::Unnamed => None,
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Index => Some("INDEX"),
            Self::InstanceGuid => Some("INSTANCE_GUID"),
            Self::Unnamed => Some(""),
        }
    }
}

fn read_entry(field: Field<'_>) -> Result<(Vec<u8>, Tag), WireError> {
    let mut name = Vec::new();
    let mut tag = Tag::default();
    for part in wire::fields(field.bytes()?) {
        let part = part?;
        match part.number {
            metric_tag_entry::KEY => name = part.bytes()?.to_vec(),
            metric_tag_entry::VALUE => tag = read_tag(part)?,
            _ => {}
        }
    }
    Ok((name, tag))
}

fn read_tag(field: Field<'_>) -> Result<Tag, WireError> {
    let mut tag = Tag::default();
    for part in wire::fields(field.bytes()?) {
        let part = part?;
        match part.number {
            metric_tag_value::STATIC => tag.fixed = part.bytes()?.to_vec(),
            // An enum has 32 bits; the upper ones are the sign extension of a negative number.
            metric_tag_value::DYNAMIC => {
                tag.dynamic = match part.varint()? as i32 {
                    0 => Dynamic::None,
                    1 => Dynamic::Index,
                    2 => Dynamic::InstanceGuid,
                    _ => Dynamic::Unnamed,
                }
            }
            _ => {}
        }
    }
    Ok(tag)
}
