//! API 0.11: the first revision of desired LRPs and tasks, which Diego's BBS dropped in 2018. Reads
//! have cached dependencies as downloads, without their checksums; what is desired has timeouts in
//! nanoseconds and start timeouts in seconds.
//!
//! What is desired goes to the current method, since revision 1 would convert volume mounts, which
//! this one rejects in their old form. `tasks/get_by_task_guid` is a GET with a body.

use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};
use diego_revisions::actions::{self, Downloaded};
use diego_revisions::{desired_lrps, each};

/// Field numbers of a task's definition, and its own in the task.
const DEFINITION: u32 = 1;
const TASK_ACTION: u32 = 3;

const CACHED_DEPENDENCIES: Downloaded = Downloaded {
    files: 15,
    action: TASK_ACTION,
    legacy_download_user: 16,
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
        .method(
            "DesiredLRPByProcessGuid",
            "/v1/desired_lrps/get_by_process_guid",
        )
        .method("DesireDesiredLRP", "/v1/desired_lrp/desire")
        .paged_method("Tasks", "/v1/tasks/list")
        .method("TaskByGuid", "/v1/tasks/get_by_task_guid")
        .by_get()
        .method("DesireTask", "/v1/tasks/desire")
        .hides("DesiredLRPs_r1")
        .hides("DesiredLRPByProcessGuid_r1")
        .hides("DesireDesiredLRP_r1")
        .hides("Tasks_r1")
        .hides("TaskByGuid_r1")
        .hides("DesireTask_r1")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match method {
            "DesiredLRPs" => Ok(diego_revisions::answer(
                next.call("DesiredLRPs_r1", request)?,
                desired_lrp,
            )?),
            "DesiredLRPByProcessGuid" => Ok(diego_revisions::answer(
                next.call("DesiredLRPByProcessGuid_r1", request)?,
                desired_lrp,
            )?),
            "Tasks" => Ok(diego_revisions::complete_answer(
                next.call("Tasks_r1", request)?,
                task,
            )?),
            "TaskByGuid" => Ok(diego_revisions::complete_answer(
                next.call("TaskByGuid_r1", request)?,
                task,
            )?),
            "DesireDesiredLRP" => next.call(
                "DesireDesiredLRP_r2",
                &diego_revisions::request(request, newer_lrp),
            ),
            "DesireTask" => next.call(
                "DesireTask_r2",
                &diego_revisions::request(request, newer_definition),
            ),
            other => Err(Fault::new(format!("API 0.11 has no method {other}"))),
        }
    }
}

fn desired_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    actions::with_dependencies_as_downloads(lrp, desired_lrps::CACHED_DEPENDENCIES)
}

fn task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(task, DEFINITION, |definition| {
        actions::with_dependencies_as_downloads(definition, CACHED_DEPENDENCIES)
    })
}

fn newer_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let edited = desired_lrps::each_action(lrp, actions::with_timeouts_in_ms)?;
    let timeout_s =
        wire::get(lrp, desired_lrps::START_TIMEOUT_S)?.map_or(Ok(0), |field| field.varint())?;
    // As Diego's BBS cut it to 32 bits.
    let timeout_ms = u64::from((timeout_s as u32).wrapping_mul(1_000));
    let lrp = wire::replace(
        edited.as_deref().unwrap_or(lrp),
        desired_lrps::START_TIMEOUT_MS,
        Value::Varint(timeout_ms),
    )?;
    diego_revisions::with_metric_tag(lrp).map(Some)
}

fn newer_definition(definition: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(definition, TASK_ACTION, actions::with_timeouts_in_ms)
}

export_translator!(FirstRevision);

#[cfg(test)]
mod tests;
