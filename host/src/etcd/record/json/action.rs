//! Actions: objects with one key, which names the kind.

use bbs_proto::models::{
    Action, CodependentAction, DownloadAction, EmitProgressAction, ParallelAction, ResourceLimits,
    RunAction, SerialAction, TimeoutAction, TryAction, UploadAction,
};

use super::object::{JsonObject, object, text};
use super::parts;
use crate::etcd::record::RecordError;

/// Each level is two submessages of protobuf. With what is around and inside an action, this is
/// within the 100 levels that can be decoded again.
pub(super) const MAX_DEPTH: usize = 40;

const KINDS: [&str; 9] = [
    "download",
    "upload",
    "run",
    "timeout",
    "emit_progress",
    "try",
    "parallel",
    "serial",
    "codependent",
];

/// The action of a record's key.
pub(super) fn action(
    record: &JsonObject<'_>,
    key: &'static str,
) -> Result<Option<Action>, RecordError> {
    record.get(key).map(|value| nested(value, 0)).transpose()
}

fn nested(value: &[u8], depth: usize) -> Result<Action, RecordError> {
    if depth >= MAX_DEPTH {
        return Err(RecordError::ActionDepth { limit: MAX_DEPTH });
    }
    let fields = object("action", value)?;
    let mut found = KINDS
        .iter()
        .filter_map(|kind| Some((*kind, fields.get(kind)?)));
    let (Some((kind, body)), None) = (found.next(), found.next()) else {
        return Err(RecordError::ActionKind);
    };
    let body = &object(kind, body)?;
    let depth = depth + 1;
    let mut action = Action::default();
    match kind {
        "download" => action.download_action = Some(download(body)?),
        "upload" => action.upload_action = Some(upload(body)?),
        "run" => action.run_action = Some(run(body)?),
        "timeout" => action.timeout_action = Some(Box::new(timeout(body, depth)?)),
        "emit_progress" => {
            action.emit_progress_action = Some(Box::new(emit_progress(body, depth)?));
        }
        "try" => action.try_action = Some(Box::new(attempt(body, depth)?)),
        "parallel" => action.parallel_action = Some(parallel(body, depth)?),
        "serial" => action.serial_action = Some(serial(body, depth)?),
        "codependent" => action.codependent_action = Some(codependent(body, depth)?),
        other => unreachable!("{other} is no kind of action"),
    }
    Ok(action)
}

fn inner(body: &JsonObject<'_>, depth: usize) -> Result<Option<Box<Action>>, RecordError> {
    body.get("action")
        .map(|value| nested(value, depth).map(Box::new))
        .transpose()
}

fn inner_list(body: &JsonObject<'_>, depth: usize) -> Result<Vec<Action>, RecordError> {
    body.list("actions", |value| nested(value, depth))
}

fn download(body: &JsonObject<'_>) -> Result<DownloadAction, RecordError> {
    Ok(DownloadAction {
        artifact: body.text("artifact")?,
        from: body.text("from")?,
        to: body.text("to")?,
        cache_key: body.text("cache_key")?,
        user: body.text("user")?,
        log_source: body.text("log_source")?,
        ..DownloadAction::default()
    })
}

fn upload(body: &JsonObject<'_>) -> Result<UploadAction, RecordError> {
    Ok(UploadAction {
        artifact: body.text("artifact")?,
        from: body.text("from")?,
        to: body.text("to")?,
        user: body.text("user")?,
        log_source: body.text("log_source")?,
    })
}

fn run(body: &JsonObject<'_>) -> Result<RunAction, RecordError> {
    Ok(RunAction {
        path: body.text("path")?,
        args: body.list("args", |value| text("args", value))?,
        dir: body.text("dir")?,
        env: parts::env(body)?,
        resource_limits: body.object("resource_limits", resource_limits)?.flatten(),
        user: body.text("user")?,
        log_source: body.text("log_source")?,
        ..RunAction::default()
    })
}

/// The receptor wrote an empty object when there were none.
fn resource_limits(limits: &JsonObject<'_>) -> Result<Option<ResourceLimits>, RecordError> {
    let Some(_) = limits.get("nofile") else {
        return Ok(None);
    };
    Ok(Some(ResourceLimits {
        nofile: Some(limits.number("nofile")?),
        ..ResourceLimits::default()
    }))
}

fn timeout(body: &JsonObject<'_>, depth: usize) -> Result<TimeoutAction, RecordError> {
    Ok(TimeoutAction {
        action: inner(body, depth)?,
        deprecated_timeout_ns: body.number("timeout")?,
        log_source: body.text("log_source")?,
        ..TimeoutAction::default()
    })
}

fn emit_progress(body: &JsonObject<'_>, depth: usize) -> Result<EmitProgressAction, RecordError> {
    Ok(EmitProgressAction {
        action: inner(body, depth)?,
        start_message: body.text("start_message")?,
        success_message: body.text("success_message")?,
        failure_message_prefix: body.text("failure_message_prefix")?,
        log_source: body.text("log_source")?,
    })
}

fn attempt(body: &JsonObject<'_>, depth: usize) -> Result<TryAction, RecordError> {
    Ok(TryAction {
        action: inner(body, depth)?,
        log_source: body.text("log_source")?,
    })
}

fn parallel(body: &JsonObject<'_>, depth: usize) -> Result<ParallelAction, RecordError> {
    Ok(ParallelAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    })
}

fn serial(body: &JsonObject<'_>, depth: usize) -> Result<SerialAction, RecordError> {
    Ok(SerialAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    })
}

fn codependent(body: &JsonObject<'_>, depth: usize) -> Result<CodependentAction, RecordError> {
    Ok(CodependentAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    })
}
