//! API 1.0: Diego's deprecated routes, in terms of its current ones. Reads of desired LRPs and tasks without image layers
//! (`.r2`), actual LRPs in groups, and starts and evacuations of instances without routes and tags.
//!
//! Answers are edited at the wire level: an object without image layers passes as it is.

mod groups;
mod layers;

use bbs_sdk::wire;
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};

/// Field numbers of what Diego's first revisions of these requests ignore: internal routes and metric tags.
const NEWER_FIELDS_OF_A_START: [u32; 2] = [4, 5];
const NEWER_FIELDS_OF_AN_EVACUATION: [u32; 2] = [5, 6];

#[derive(Debug)]
pub struct DeprecatedRoutes;

impl Translator for DeprecatedRoutes {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(1, 0), ApiVersion::new(1, 1), "deprecated-routes")
            .summary("Reads without image layers, groups of actual LRPs, starts without routes and tags")
            .paged_method("DesiredLRPs_r2", "/v1/desired_lrps/list.r2")
            .method("DesiredLRPByProcessGuid_r2", "/v1/desired_lrps/get_by_process_guid.r2")
            .paged_method("Tasks_r2", "/v1/tasks/list.r2")
            .method("TaskByGuid_r2", "/v1/tasks/get_by_task_guid.r2")
            .method("StartActualLRP", "/v1/actual_lrps/start")
            .method("EvacuateRunningActualLRP", "/v1/actual_lrps/evacuate_running")
            .paged_method("ActualLRPGroups", "/v1/actual_lrp_groups/list")
            .method("ActualLRPGroupsByProcessGuid", "/v1/actual_lrp_groups/list_by_process_guid")
            .method("ActualLRPGroupsByProcessGuidAndIndex", "/v1/actual_lrp_groups/get_by_process_guid_and_index")
            .hides("DesiredLRPs_r3")
            .hides("DesiredLRPByProcessGuid_r3")
            .hides("Tasks_r3")
            .hides("TaskByGuid_r3")
            .hides("StartActualLRP_r1")
            .hides("EvacuateRunningActualLRP_r1")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match method {
            "DesiredLRPs_r2" => {
                Ok(diego_revisions::answer(next.call("DesiredLRPs_r3", request)?, layers::desired_lrp)?)
            }
            "DesiredLRPByProcessGuid_r2" => {
                Ok(diego_revisions::answer(next.call("DesiredLRPByProcessGuid_r3", request)?, layers::desired_lrp)?)
            }
            "Tasks_r2" => Ok(diego_revisions::answer(next.call("Tasks_r3", request)?, layers::task)?),
            "TaskByGuid_r2" => Ok(diego_revisions::answer(next.call("TaskByGuid_r3", request)?, layers::task)?),
            "StartActualLRP" => next.call("StartActualLRP_r1", &without(request, NEWER_FIELDS_OF_A_START)),
            "EvacuateRunningActualLRP" => {
                next.call("EvacuateRunningActualLRP_r1", &without(request, NEWER_FIELDS_OF_AN_EVACUATION))
            }
            "ActualLRPGroups" => groups::list(request, next),
            "ActualLRPGroupsByProcessGuid" => groups::list_by_process_guid(request, next),
            "ActualLRPGroupsByProcessGuidAndIndex" => groups::get(request, next),
            other => Err(Fault::new(format!("API 1.0 has no method {other}"))),
        }
    }
}

/// The request without these fields. A malformed one stays as it is: the newer method rejects it.
fn without(request: &[u8], numbers: [u32; 2]) -> Vec<u8> {
    let rest = numbers.iter().try_fold(request.to_vec(), |rest, number| wire::remove(&rest, *number));
    rest.unwrap_or_else(|_| request.to_vec())
}

export_translator!(DeprecatedRoutes);

#[cfg(test)]
mod tests;
