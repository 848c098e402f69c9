//! Tasks, whose definition is in the same object.

use bbs_model::json::{Scanner, Token};
use bbs_proto::models::task::State;
use bbs_proto::models::{Task, TaskDefinition};

use super::fields::{JsonField, number};
use super::messages::JsonMessage;
use super::object::JsonObject;
use super::url;
use crate::etcd::record::RecordError;

/// # Errors
/// If the text is no JSON object, or a key has another type than it had in every release.
pub(in crate::etcd::record) fn task(text: &[u8]) -> Result<Task, RecordError> {
    let task = JsonObject::parse_record(text)?;
    let definition = TaskDefinition {
        completion_callback_url: callback_url(&task)?,
        ..TaskDefinition::of(&task)?
    };
    Ok(Task {
        task_definition: Some(definition),
        state: state(&task)?.into(),
        ..Task::of(&task)?
    })
}

/// The receptor wrote the number, the BBS the name.
fn state(task: &JsonObject<'_>) -> Result<State, RecordError> {
    const KEY: &str = "state";
    let Some(value) = task.get(KEY) else {
        return Ok(State::Invalid);
    };
    let found = match Scanner::new(value).token() {
        Ok(Token::Number(_)) => State::try_from(number::<i32>(KEY, value)?).ok(),
        Ok(Token::String(name)) => State::from_str_name(&name.decode()),
        _ => None,
    };
    found.ok_or(RecordError::JsonMember {
        key: KEY,
        expected: "the number or the name of a state",
    })
}

/// The receptor wrote an object, which no BBS could read, and the BBS a string.
fn callback_url(task: &JsonObject<'_>) -> Result<Vec<u8>, RecordError> {
    const KEY: &str = "completion_callback_url";
    match task.get(KEY) {
        None => Ok(Vec::new()),
        Some(value @ [b'{', ..]) => {
            Ok(url::assemble(&JsonObject::of(KEY, value, 0)?)?.into_bytes())
        }
        Some(value) => Vec::<u8>::read(KEY, value, 0).map_err(|_| RecordError::JsonMember {
            key: KEY,
            expected: "a string or the parts of a URL",
        }),
    }
}
