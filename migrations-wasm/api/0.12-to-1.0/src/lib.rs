//! API 0.12: revision 1 of desired LRPs and tasks, which Diego's BBS dropped in 2018. Reads have
//! timeouts in nanoseconds and start timeouts in seconds too; what is desired has volume mounts of
//! the old form.
//!
//! Cells were listed by GET as well as by POST.
//!
//! Diego requires a metric tag today, which did not exist then: a desired LRP without one gets
//! `source_id`.

mod mounts;

use bbs_sdk::wire::{self, WireError};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};
use diego_revisions::{ERROR, actions, desired_lrps, each};

/// The only filter of a list of desired LRPs then.
const DOMAIN: u32 = 1;

/// The field of a desired LRP's volume mounts.
const LRP_VOLUME_MOUNTS: u32 = 25;

/// Field numbers of a task and of its definition.
const DEFINITION: u32 = 1;
const TASK_ACTION: u32 = 3;
const TASK_VOLUME_MOUNTS: u32 = 18;

#[derive(Debug)]
pub struct RevisionOne;

impl Translator for RevisionOne {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(0, 12), ApiVersion::new(1, 0), "revision-1")
            .summary("Timeouts in the old units beside the new ones, volume mounts in the old form")
            .paged_method("DesiredLRPs_r1", "/v1/desired_lrps/list.r1")
            .method(
                "DesiredLRPByProcessGuid_r1",
                "/v1/desired_lrps/get_by_process_guid.r1",
            )
            .method("DesireDesiredLRP_r1", "/v1/desired_lrp/desire.r1")
            .paged_method("Tasks_r1", "/v1/tasks/list.r1")
            .method("TaskByGuid_r1", "/v1/tasks/get_by_task_guid.r1")
            .method("DesireTask_r1", "/v1/tasks/desire.r1")
            .method("Cells_r1", "/v1/cells/list.r1")
            .by_get()
            .hides("DesiredLRPs_r2")
            .hides("DesiredLRPByProcessGuid_r2")
            .hides("DesireDesiredLRP_r2")
            .hides("Tasks_r2")
            .hides("TaskByGuid_r2")
            .hides("DesireTask_r2")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match method {
            "DesiredLRPs_r1" => {
                let answer = next.call("DesiredLRPs_r2", &only_domain(request))?;
                match wire::get(&answer, ERROR)? {
                    Some(error) => Ok(error.raw.to_vec()),
                    None => Ok(diego_revisions::answer(answer, desired_lrp)?),
                }
            }
            "DesiredLRPByProcessGuid_r1" => Ok(diego_revisions::answer(
                next.call("DesiredLRPByProcessGuid_r2", request)?,
                desired_lrp,
            )?),
            "Tasks_r1" => Ok(diego_revisions::complete_answer(
                next.call("Tasks_r2", request)?,
                task,
            )?),
            "TaskByGuid_r1" => Ok(diego_revisions::complete_answer(
                next.call("TaskByGuid_r2", request)?,
                task,
            )?),
            "DesireDesiredLRP_r1" => next.call(
                "DesireDesiredLRP_r2",
                &diego_revisions::request(request, newer_lrp),
            ),
            "DesireTask_r1" => next.call(
                "DesireTask_r2",
                &diego_revisions::request(request, newer_definition),
            ),
            "Cells_r1" => next.call(method, request),
            other => Err(Fault::new(format!("API 0.12 has no method {other}"))),
        }
    }
}

/// The request without newer filters; a malformed one as it is.
fn only_domain(request: &[u8]) -> Vec<u8> {
    let fields: Result<Vec<_>, _> = wire::fields(request).collect();
    fields.map_or_else(
        |_| request.to_vec(),
        |fields| {
            fields
                .iter()
                .filter(|field| field.number == DOMAIN)
                .flat_map(|field| field.raw)
                .copied()
                .collect()
        },
    )
}

fn desired_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    desired_lrps::in_old_units(lrp, actions::with_timeouts_in_ns)
}

fn task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(task, DEFINITION, |definition| {
        each(definition, TASK_ACTION, actions::with_timeouts_in_ns)
    })
}

fn newer_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let converted = each(lrp, LRP_VOLUME_MOUNTS, |mount| {
        mounts::newer(mount).map(Some)
    })?;
    diego_revisions::with_metric_tag(converted.unwrap_or_else(|| lrp.to_vec())).map(Some)
}

fn newer_definition(definition: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(definition, TASK_VOLUME_MOUNTS, |mount| {
        mounts::newer(mount).map(Some)
    })
}

export_translator!(RevisionOne);

#[cfg(test)]
mod tests;
