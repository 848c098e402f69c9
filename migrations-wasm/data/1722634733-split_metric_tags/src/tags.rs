//! The metric tags of a desired LRP in their two formats: fields with number 25 in a message, and
//! the JSON object that Go writes. Both are parsed into the same type, so that they can be
//! compared.

use std::collections::BTreeMap;

use bbs_proto::fields::{metric_tag_entry, metric_tag_value};
use bbs_sdk::Refused;
use bbs_sdk::json::{self, JsonValue};
use bbs_sdk::wire::{self, Field, Value, WireError};

use super::METRIC_TAGS;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tags(BTreeMap<String, Tag>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tag {
    /// In Go, an empty string is the same as none.
    fixed: String,
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
        let members = match json::parse(text).map_err(|error| refused(&error.to_string()))? {
            JsonValue::Null => return Ok(Self::default()),
            JsonValue::Object(members) => members,
            _ => return Err(refused("not a JSON object")),
        };
        let tags = members.into_iter().map(|(name, value)| {
            let tag = Tag::of_json(&value);
            tag.map(|tag| (name.clone(), tag))
                .ok_or_else(|| refused(&format!("tag `{name}` is not a metric tag")))
        });
        Ok(Self(tags.collect::<Result<_, _>>()?))
    }

    /// Encodes as Go does: names sorted, and the fields of a tag that are not zero, in declared
    /// order.
    pub(crate) fn to_json(&self) -> String {
        let mut text = String::from("{");
        for (name, tag) in &self.0 {
            if text.len() > 1 {
                text.push(',');
            }
            json::write_go_string(&mut text, name);
            text.push_str(":{");
            if !tag.fixed.is_empty() {
                text.push_str("\"static\":");
                json::write_go_string(&mut text, &tag.fixed);
            }
            if let Some(dynamic) = tag.dynamic.name() {
                text.push_str(if tag.fixed.is_empty() {
                    "\"dynamic\":"
                } else {
                    ",\"dynamic\":"
                });
                json::write_go_string(&mut text, dynamic);
            }
            text.push('}');
        }
        text.push('}');
        text
    }

    /// Appends the fields to a message that has none.
    pub(crate) fn append_to(&self, run_info: &mut Vec<u8>) {
        for (name, tag) in &self.0 {
            let mut value = Vec::new();
            if !tag.fixed.is_empty() {
                let fixed = Value::Bytes(tag.fixed.as_bytes());
                wire::append(&mut value, metric_tag_value::STATIC, fixed);
            }
            if let Some(number) = tag.dynamic.number() {
                wire::append(&mut value, metric_tag_value::DYNAMIC, Value::Varint(number));
            }
            let mut entry = Vec::new();
            wire::append(
                &mut entry,
                metric_tag_entry::KEY,
                Value::Bytes(name.as_bytes()),
            );
            wire::append(&mut entry, metric_tag_entry::VALUE, Value::Bytes(&value));
            wire::append(run_info, METRIC_TAGS, Value::Bytes(&entry));
        }
    }
}

impl Tag {
    fn of_json(value: &JsonValue) -> Option<Self> {
        if value.is_null() {
            return Some(Self::default());
        }
        let members = value.as_object()?;
        // Go matches the names of members in any case.
        let text = |name: &str| {
            let mut found = None;
            for (member, value) in members {
                match value {
                    _ if !member.eq_ignore_ascii_case(name) => {}
                    JsonValue::Null => {}
                    JsonValue::String(text) => found = Some(text.as_str()),
                    _ => return None,
                }
            }
            Some(found)
        };
        let dynamic = match text("dynamic")? {
            Some("INDEX") => Dynamic::Index,
            Some("INSTANCE_GUID") => Dynamic::InstanceGuid,
            Some("") => Dynamic::Unnamed,
            // Go decodes an unknown name as no value.
            Some(_) | None => Dynamic::None,
        };
        Some(Self {
            fixed: text("static")?.unwrap_or_default().to_owned(),
            dynamic,
        })
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

/// Go accepts any bytes in strings and encodes invalid UTF-8 as U+FFFD.
fn text(field: Field<'_>) -> Result<String, WireError> {
    Ok(String::from_utf8_lossy(field.bytes()?).into_owned())
}

fn read_entry(field: Field<'_>) -> Result<(String, Tag), WireError> {
    let mut name = String::new();
    let mut tag = Tag::default();
    for part in wire::fields(field.bytes()?) {
        let part = part?;
        match part.number {
            metric_tag_entry::KEY => name = text(part)?,
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
            metric_tag_value::STATIC => tag.fixed = text(part)?,
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
