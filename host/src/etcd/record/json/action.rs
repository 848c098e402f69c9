//! Actions: objects with one key, which names the kind.

use bbs_model::bounds::ACTION_DEPTH;
use bbs_proto::models::Action;

use super::fields::JsonField;
use super::object::JsonObject;
use crate::etcd::record::RecordError;

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

impl JsonField for Action {
    fn read(_: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
        if depth >= ACTION_DEPTH {
            return Err(RecordError::ActionDepth {
                limit: ACTION_DEPTH,
            });
        }
        let object = JsonObject::of("action", value, depth + 1)?;
        if KINDS.iter().filter_map(|kind| object.get(kind)).count() != 1 {
            return Err(RecordError::ActionKind);
        }
        let mut action = Self {
            download_action: object.field("download")?,
            upload_action: object.field("upload")?,
            run_action: object.field("run")?,
            timeout_action: object.field("timeout")?,
            emit_progress_action: object.field("emit_progress")?,
            try_action: object.field("try")?,
            parallel_action: object.field("parallel")?,
            serial_action: object.field("serial")?,
            codependent_action: object.field("codependent")?,
        };
        if let Some(run) = &mut action.run_action {
            // The receptor wrote an empty object when there were none.
            let limits = run.resource_limits.take();
            run.resource_limits = limits.filter(|limits| limits.nofile.is_some());
        }
        Ok(action)
    }
}
