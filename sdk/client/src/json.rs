//! Diego's JSON form of messages, which its operators know from `cfdot`: the names, nesting and
//! omissions of its Go structures. Owns the rules; `messages` has the table of fields. The order of
//! keys and the spelling of numbers are not kept.
//!
//! Reading is stricter than Go's: an unknown field is an error, so that a misspelt one is not left
//! out.
//!
//! ```
//! use bbs_client::{json, models};
//!
//! let run = serde_json::json!({ "path": "/bin/true", "user": "me" });
//! let value = serde_json::json!({ "process_guid": "hello", "action": { "run": run } });
//! let lrp: models::DesiredLrp = json::from_value(value)?;
//! let action = lrp.action.unwrap();
//! assert_eq!(action.run_action.unwrap().path, b"/bin/true");
//! # Ok::<(), json::JsonError>(())
//! ```

mod forms;
mod messages;
mod values;

use serde_json::{Map, Value};

/// A value is not the JSON form of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", at(.path))]
pub struct JsonError {
    /// The names and indices that lead to the value, outermost first.
    pub path: Vec<String>,
    /// Its fault.
    pub fault: JsonFault,
}

/// The fault of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum JsonFault {
    /// The value has another type.
    #[error("{found} is not {expected}")]
    Type {
        expected: &'static str,
        found: String,
    },
    /// A field that the message does not have.
    #[error("there is no field {field:?}{}", did_you_mean(.similar))]
    UnknownField {
        field: String,
        /// The field of the message with the most similar name.
        similar: Option<&'static str>,
    },
    /// A name that the enumeration does not have.
    #[error("{found:?} is none of {}", .names.join(", "))]
    UnknownName {
        found: String,
        names: Vec<&'static str>,
    },
}

impl JsonError {
    fn new(fault: JsonFault) -> Self {
        Self {
            path: Vec::new(),
            fault,
        }
    }

    fn within(mut self, step: impl Into<String>) -> Self {
        self.path.insert(0, step.into());
        self
    }
}

fn at(path: &[String]) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{}: ", path.join("."))
    }
}

fn did_you_mean(similar: &Option<&'static str>) -> String {
    similar
        .map(|similar| format!("; there is {similar:?}"))
        .unwrap_or_default()
}

/// A message with a JSON form. Implemented by those of desired LRPs, instances, tasks, cells,
/// definitions and events.
pub trait JsonMessage: Sized {
    /// Adds the fields of the message to an object.
    fn write(&self, object: &mut Map<String, Value>);

    /// Takes the fields of the message out of an object.
    ///
    /// # Errors
    /// A field is not of its type.
    fn read(members: &mut Members) -> Result<Self, JsonError>;
}

/// The members of an object that are not read yet.
#[derive(Debug)]
pub struct Members {
    members: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Members {
    fn new(members: Map<String, Value>) -> Self {
        Self {
            members,
            known: Vec::new(),
        }
    }

    /// `None` for an absent member, and for `null`, as in Go.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.members.remove(key).filter(|value| !value.is_null())
    }

    /// An error if a member was not read.
    fn end(self) -> Result<(), JsonError> {
        let Some(field) = self.members.keys().next() else {
            return Ok(());
        };
        let similarity = |known: &&str| strsim::jaro_winkler(known, field);
        let similar = self
            .known
            .into_iter()
            .filter(|known| similarity(known) > 0.8);
        let similar = similar.max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
        Err(JsonError::new(JsonFault::UnknownField {
            field: field.clone(),
            similar,
        }))
    }
}

/// The JSON form of a message.
pub fn to_value<M: JsonMessage>(message: &M) -> Value {
    let mut object = Map::new();
    message.write(&mut object);
    Value::Object(object)
}

/// The JSON form of a list of messages.
pub fn to_values<'a, M: JsonMessage + 'a>(messages: impl IntoIterator<Item = &'a M>) -> Value {
    messages.into_iter().map(to_value).collect()
}

/// The message of a JSON form.
///
/// # Errors
/// The value is no object, has a field that the message does not have, or one of another type.
pub fn from_value<M: JsonMessage>(value: Value) -> Result<M, JsonError> {
    match value {
        Value::Object(object) => {
            let mut members = Members::new(object);
            let message = M::read(&mut members)?;
            members.end()?;
            Ok(message)
        }
        other => Err(JsonError::new(JsonFault::Type {
            expected: "an object",
            found: other.to_string(),
        })),
    }
}
