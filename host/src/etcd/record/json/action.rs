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

/// Reads the body of an action of some kind. The number is the depth of actions in it.
type ReadAction = fn(&JsonObject<'_>, usize) -> Result<Action, RecordError>;

const KINDS: [(&str, ReadAction); 9] = [
    ("download", download),
    ("upload", upload),
    ("run", run),
    ("timeout", timeout),
    ("emit_progress", emit_progress),
    ("try", attempt),
    ("parallel", parallel),
    ("serial", serial),
    ("codependent", codependent),
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
    let action = object("action", value)?;
    let mut found = KINDS
        .iter()
        .filter_map(|(kind, read)| Some((kind, read, action.get(kind)?)));
    let (Some((kind, read, body)), None) = (found.next(), found.next()) else {
        return Err(RecordError::ActionKind);
    };
    read(&object(kind, body)?, depth + 1)
}

fn inner(body: &JsonObject<'_>, depth: usize) -> Result<Option<Box<Action>>, RecordError> {
    body.get("action")
        .map(|value| nested(value, depth).map(Box::new))
        .transpose()
}

fn inner_list(body: &JsonObject<'_>, depth: usize) -> Result<Vec<Action>, RecordError> {
    body.list("actions", |value| nested(value, depth))
}

fn download(body: &JsonObject<'_>, _: usize) -> Result<Action, RecordError> {
    let download = DownloadAction {
        artifact: body.text("artifact")?,
        from: body.text("from")?,
        to: body.text("to")?,
        cache_key: body.text("cache_key")?,
        user: body.text("user")?,
        log_source: body.text("log_source")?,
        ..DownloadAction::default()
    };
    Ok(Action {
        download_action: Some(download),
        ..Action::default()
    })
}

fn upload(body: &JsonObject<'_>, _: usize) -> Result<Action, RecordError> {
    let upload = UploadAction {
        artifact: body.text("artifact")?,
        from: body.text("from")?,
        to: body.text("to")?,
        user: body.text("user")?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        upload_action: Some(upload),
        ..Action::default()
    })
}

fn run(body: &JsonObject<'_>, _: usize) -> Result<Action, RecordError> {
    let run = RunAction {
        path: body.text("path")?,
        args: body.list("args", |value| text("args", value))?,
        dir: body.text("dir")?,
        env: parts::env(body)?,
        resource_limits: body.object("resource_limits", resource_limits)?.flatten(),
        user: body.text("user")?,
        log_source: body.text("log_source")?,
        ..RunAction::default()
    };
    Ok(Action {
        run_action: Some(run),
        ..Action::default()
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

fn timeout(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let timeout = TimeoutAction {
        action: inner(body, depth)?,
        deprecated_timeout_ns: body.number("timeout")?,
        log_source: body.text("log_source")?,
        ..TimeoutAction::default()
    };
    Ok(Action {
        timeout_action: Some(Box::new(timeout)),
        ..Action::default()
    })
}

fn emit_progress(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let emit_progress = EmitProgressAction {
        action: inner(body, depth)?,
        start_message: body.text("start_message")?,
        success_message: body.text("success_message")?,
        failure_message_prefix: body.text("failure_message_prefix")?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        emit_progress_action: Some(Box::new(emit_progress)),
        ..Action::default()
    })
}

fn attempt(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let attempt = TryAction {
        action: inner(body, depth)?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        try_action: Some(Box::new(attempt)),
        ..Action::default()
    })
}

fn parallel(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let parallel = ParallelAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        parallel_action: Some(parallel),
        ..Action::default()
    })
}

fn serial(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let serial = SerialAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        serial_action: Some(serial),
        ..Action::default()
    })
}

fn codependent(body: &JsonObject<'_>, depth: usize) -> Result<Action, RecordError> {
    let codependent = CodependentAction {
        actions: inner_list(body, depth)?,
        log_source: body.text("log_source")?,
    };
    Ok(Action {
        codependent_action: Some(codependent),
        ..Action::default()
    })
}
