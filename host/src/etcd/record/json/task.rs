//! Tasks, whose definition is in the same object.

use bbs_model::json::{Scanner, Token};
use bbs_proto::models::task::State;
use bbs_proto::models::{Task, TaskDefinition};

use super::action::action;
use super::object::{self, JsonObject};
use super::{parts, url};
use crate::etcd::record::RecordError;

/// # Errors
/// If the text is no JSON object, or a key has another type than it had in every release.
pub(in crate::etcd::record) fn task(text: &[u8]) -> Result<Task, RecordError> {
    let task = JsonObject::parse_record(text)?;
    let definition = TaskDefinition {
        root_fs: task.text("rootfs")?,
        environment_variables: parts::env(&task)?,
        action: action(&task, "action")?,
        disk_mb: task.number("disk_mb")?,
        memory_mb: task.number("memory_mb")?,
        cpu_weight: task.number("cpu_weight")?,
        privileged: task.flag("privileged")?,
        log_source: task.text("log_source")?,
        log_guid: task.text("log_guid")?,
        metrics_guid: task.text("metrics_guid")?,
        result_file: task.text("result_file")?,
        completion_callback_url: callback_url(&task)?,
        annotation: task.text("annotation")?,
        egress_rules: parts::egress_rules(&task)?,
        ..TaskDefinition::default()
    };
    Ok(Task {
        task_definition: Some(definition),
        task_guid: task.text("task_guid")?,
        domain: task.text("domain")?,
        created_at: task.number("created_at")?,
        updated_at: task.number("updated_at")?,
        first_completed_at: task.number("first_completed_at")?,
        state: state(&task)?.into(),
        cell_id: task.text("cell_id")?,
        result: task.text("result")?,
        failed: task.flag("failed")?,
        failure_reason: task.text("failure_reason")?,
        ..Task::default()
    })
}

/// The receptor wrote the number, the BBS the name.
fn state(task: &JsonObject<'_>) -> Result<State, RecordError> {
    const KEY: &str = "state";
    let Some(value) = task.get(KEY) else {
        return Ok(State::Invalid);
    };
    let found = match Scanner::new(value).token() {
        Ok(Token::Number(_)) => State::try_from(object::number::<i32>(KEY, value)?).ok(),
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
        Some(value @ [b'{', ..]) => Ok(url::assemble(&object::object(KEY, value)?)?.into_bytes()),
        Some(value) => object::text(KEY, value).map_err(|_| RecordError::JsonMember {
            key: KEY,
            expected: "a string or the parts of a URL",
        }),
    }
}
