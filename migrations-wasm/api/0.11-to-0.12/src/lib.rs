//! API 0.11: the first revision of desired LRPs and tasks, which Diego's BBS dropped in 2018. Reads
//! have cached dependencies as downloads, without their checksums; what is desired has timeouts in
//! nanoseconds and start timeouts in seconds.
//!
//! What is desired goes to the current method, since revision 1 would convert volume mounts, which
//! this one rejects in their old form. `tasks/get_by_task_guid` is a GET with a body.

use bbs_proto::fields::desired_lrp::{DEPRECATED_START_TIMEOUT_S, START_TIMEOUT_MS};
use bbs_proto::fields::{task, task_definition};
use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{ApiVersion, Translator, TranslatorManifest, export_translator};
use diego_revisions::actions::{self, Downloaded};
use diego_revisions::{answer, complete_answer, desired_lrps, each, request};

const CACHED_DEPENDENCIES: Downloaded = Downloaded {
    files: task_definition::CACHED_DEPENDENCIES,
    action: task_definition::ACTION,
    legacy_download_user: task_definition::LEGACY_DOWNLOAD_USER,
};

#[derive(Debug)]
pub struct FirstRevision;

impl Translator for FirstRevision {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(
            ApiVersion::new(0, 11),
            ApiVersion::new(0, 12),
            "first-revision",
        )
        .summary(
            "Cached dependencies as downloads, timeouts in nanoseconds, start timeouts in seconds",
        )
        .paged_method("DesiredLRPs", "/v1/desired_lrps/list")
        .as_newer("DesiredLRPs_r1")
        .answer(|newer| answer(newer, older_lrp))
        .method(
            "DesiredLRPByProcessGuid",
            "/v1/desired_lrps/get_by_process_guid",
        )
        .as_newer("DesiredLRPByProcessGuid_r1")
        .answer(|newer| answer(newer, older_lrp))
        .method("DesireDesiredLRP", "/v1/desired_lrp/desire")
        .calls("DesireDesiredLRP_r2")
        .request(|older| Ok(request(older, newer_lrp)))
        .hides("DesireDesiredLRP_r1")
        .paged_method("Tasks", "/v1/tasks/list")
        .as_newer("Tasks_r1")
        .answer(|newer| complete_answer(newer, older_task))
        .method("TaskByGuid", "/v1/tasks/get_by_task_guid")
        .by_get()
        .as_newer("TaskByGuid_r1")
        .answer(|newer| complete_answer(newer, older_task))
        .method("DesireTask", "/v1/tasks/desire")
        .calls("DesireTask_r2")
        .request(|older| Ok(request(older, newer_definition)))
        .hides("DesireTask_r1")
    }
}

fn older_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    actions::with_dependencies_as_downloads(lrp, desired_lrps::CACHED_DEPENDENCIES)
}

fn older_task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(task, task::TASK_DEFINITION, |definition| {
        actions::with_dependencies_as_downloads(definition, CACHED_DEPENDENCIES)
    })
}

fn newer_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let edited = desired_lrps::each_action(lrp, actions::with_timeouts_in_ms)?;
    let timeout_s = wire::get_varint(lrp, DEPRECATED_START_TIMEOUT_S)?;
    // As Diego's BBS cut it to 32 bits.
    let timeout_ms = u64::from((timeout_s as u32).wrapping_mul(1_000));
    let lrp = wire::replace(
        edited.as_deref().unwrap_or(lrp),
        START_TIMEOUT_MS,
        Value::Varint(timeout_ms),
    )?;
    diego_revisions::with_metric_tag(lrp).map(Some)
}

fn newer_definition(definition: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(
        definition,
        task_definition::ACTION,
        actions::with_timeouts_in_ms,
    )
}

export_translator!(FirstRevision);

#[cfg(test)]
mod tests;
