//! API 0.12: revision 1 of desired LRPs and tasks, which Diego's BBS dropped in 2018. Reads have
//! timeouts in nanoseconds and start timeouts in seconds too; what is desired has volume mounts of
//! the old form.
//!
//! Cells were listed by GET as well as by POST.
//!
//! Diego requires a metric tag today, which did not exist then: a desired LRP without one gets
//! `source_id`.

mod mounts;

use bbs_proto::fields::{desired_lrp, desired_lrps_request, task, task_definition};
use bbs_sdk::wire::{self, WireError};
use bbs_sdk::{ApiVersion, Fault, Translator, TranslatorManifest, export_translator};
use diego_revisions::{ERROR, actions, answer, complete_answer, desired_lrps, each, request};

#[derive(Debug)]
pub struct RevisionOne;

impl Translator for RevisionOne {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(0, 12), ApiVersion::new(1, 0), "revision-1")
            .summary("Timeouts in the old units beside the new ones, volume mounts in the old form")
            .paged_method("DesiredLRPs_r1", "/v1/desired_lrps/list.r1")
            .as_newer("DesiredLRPs_r2")
            .request(|older| Ok(only_domain(older)))
            .answer(older_lrps)
            .method(
                "DesiredLRPByProcessGuid_r1",
                "/v1/desired_lrps/get_by_process_guid.r1",
            )
            .as_newer("DesiredLRPByProcessGuid_r2")
            .answer(|newer| answer(newer, older_lrp))
            .method("DesireDesiredLRP_r1", "/v1/desired_lrp/desire.r1")
            .as_newer("DesireDesiredLRP_r2")
            .request(|older| Ok(request(older, newer_lrp)))
            .paged_method("Tasks_r1", "/v1/tasks/list.r1")
            .as_newer("Tasks_r2")
            .answer(|newer| complete_answer(newer, older_task))
            .method("TaskByGuid_r1", "/v1/tasks/get_by_task_guid.r1")
            .as_newer("TaskByGuid_r2")
            .answer(|newer| complete_answer(newer, older_task))
            .method("DesireTask_r1", "/v1/tasks/desire.r1")
            .as_newer("DesireTask_r2")
            .request(|older| Ok(request(older, newer_definition)))
            .method("Cells_r1", "/v1/cells/list.r1")
            .by_get()
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
                .filter(|field| field.number == desired_lrps_request::DOMAIN)
                .flat_map(|field| field.raw)
                .copied()
                .collect()
        },
    )
}

/// The answer with older LRPs, or its error alone.
fn older_lrps(newer: Vec<u8>) -> Result<Vec<u8>, Fault> {
    match wire::get(&newer, ERROR)? {
        Some(error) => Ok(error.raw.to_vec()),
        None => answer(newer, older_lrp),
    }
}

fn older_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    desired_lrps::in_old_units(lrp, actions::with_timeouts_in_ns)
}

fn older_task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(task, task::TASK_DEFINITION, |definition| {
        each(
            definition,
            task_definition::ACTION,
            actions::with_timeouts_in_ns,
        )
    })
}

fn newer_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let converted = each(lrp, desired_lrp::VOLUME_MOUNTS, |mount| {
        mounts::newer(mount).map(Some)
    })?;
    diego_revisions::with_metric_tag(converted.unwrap_or_else(|| lrp.to_vec())).map(Some)
}

fn newer_definition(definition: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    each(definition, task_definition::VOLUME_MOUNTS, |mount| {
        mounts::newer(mount).map(Some)
    })
}

export_translator!(RevisionOne);

#[cfg(test)]
mod tests;
