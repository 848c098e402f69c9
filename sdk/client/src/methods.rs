//! The methods of the API: name, path, messages and versions, one line each. Owns nothing of what
//! they do.

use bbs_proto::models;

use crate::connection::Client;
use crate::error::CallError;
use crate::method::{Method, Route, Version};

/// The version of methods that only one has.
const DIEGO: Option<Version> = Some(Version::Diego);
const DEFINITIONS: Option<Version> = Some(Version::Definitions);
const ALL: Option<Version> = None;

/// A constant and a function of the client for each method, and the list of all.
macro_rules! methods {
    ($($constant:ident $function:ident $name:literal $path:literal $only:ident $request:ty => $answer:ident;)*) => {
        $(
            #[doc = concat!("`", $name, "`, at `", $path, "`.")]
            pub const $constant: Method<$request, models::$answer> = Method::new($name, $path, $only);
        )*

        const ROUTES: &[Route] = &[$($constant.route),*];

        /// Each fails as [`Client::call`] does.
        #[allow(clippy::missing_errors_doc, reason = "the block has the errors of all")]
        impl Client {
            $(
                #[doc = concat!("Calls `", $name, "`, at `", $path, "`.")]
                pub async fn $function(&self, request: &$request) -> Result<models::$answer, CallError> {
                    self.call($constant, request).await
                }
            )*
        }
    };
}

methods! {
    PING ping "Ping" "ping" ALL () => PingResponse;
    CELLS cells "Cells_r1" "cells/list.r1" ALL () => CellsResponse;
    DOMAINS domains "Domains" "domains/list" ALL () => DomainsResponse;
    UPSERT_DOMAIN upsert_domain "UpsertDomain" "domains/upsert" ALL models::UpsertDomainRequest => UpsertDomainResponse;

    ACTUAL_LRPS actual_lrps "ActualLRPs" "actual_lrps/list" ALL models::ActualLrPsRequest => ActualLrPsResponse;
    ACTUAL_LRPS_BY_PROCESS_GUIDS actual_lrps_by_process_guids "ActualLRPsByProcessGuids"
        "actual_lrps/list_by_process_guids" ALL models::ActualLrPsByProcessGuidsRequest => ActualLrPsByProcessGuidsResponse;
    CLAIM_ACTUAL_LRP claim_actual_lrp "ClaimActualLRP" "actual_lrps/claim" ALL
        models::ClaimActualLrpRequest => ActualLrpLifecycleResponse;
    START_ACTUAL_LRP start_actual_lrp "StartActualLRP_r1" "actual_lrps/start.r1" ALL
        models::StartActualLrpRequest => ActualLrpLifecycleResponse;
    CRASH_ACTUAL_LRP crash_actual_lrp "CrashActualLRP" "actual_lrps/crash" ALL
        models::CrashActualLrpRequest => ActualLrpLifecycleResponse;
    FAIL_ACTUAL_LRP fail_actual_lrp "FailActualLRP" "actual_lrps/fail" ALL
        models::FailActualLrpRequest => ActualLrpLifecycleResponse;
    REMOVE_ACTUAL_LRP remove_actual_lrp "RemoveActualLRP" "actual_lrps/remove" ALL
        models::RemoveActualLrpRequest => ActualLrpLifecycleResponse;
    RETIRE_ACTUAL_LRP retire_actual_lrp "RetireActualLRP" "actual_lrps/retire" ALL
        models::RetireActualLrpRequest => ActualLrpLifecycleResponse;
    REMOVE_EVACUATING_ACTUAL_LRP remove_evacuating_actual_lrp "RemoveEvacuatingActualLRP"
        "actual_lrps/remove_evacuating" ALL
        models::RemoveEvacuatingActualLrpRequest => RemoveEvacuatingActualLrpResponse;
    EVACUATE_CLAIMED_ACTUAL_LRP evacuate_claimed_actual_lrp "EvacuateClaimedActualLRP" "actual_lrps/evacuate_claimed" ALL
        models::EvacuateClaimedActualLrpRequest => EvacuationResponse;
    EVACUATE_RUNNING_ACTUAL_LRP evacuate_running_actual_lrp "EvacuateRunningActualLRP_r1"
        "actual_lrps/evacuate_running.r1" ALL models::EvacuateRunningActualLrpRequest => EvacuationResponse;
    EVACUATE_CRASHED_ACTUAL_LRP evacuate_crashed_actual_lrp "EvacuateCrashedActualLRP" "actual_lrps/evacuate_crashed" ALL
        models::EvacuateCrashedActualLrpRequest => EvacuationResponse;
    EVACUATE_STOPPED_ACTUAL_LRP evacuate_stopped_actual_lrp "EvacuateStoppedActualLRP" "actual_lrps/evacuate_stopped" ALL
        models::EvacuateStoppedActualLrpRequest => EvacuationResponse;

    SCHEDULING_INFOS desired_lrp_scheduling_infos "DesiredLRPSchedulingInfos" "desired_lrp_scheduling_infos/list" DIEGO
        models::DesiredLrPsRequest => DesiredLrpSchedulingInfosResponse;
    SCHEDULING_INFOS_OF_DEFINITIONS desired_lrp_scheduling_infos_of_definitions "DesiredLRPSchedulingInfos_r1"
        "desired_lrp_scheduling_infos/list.r1" DEFINITIONS
        models::DesiredLrPsRequest => DesiredLrpSchedulingInfosResponse;
    SCHEDULING_INFO desired_lrp_scheduling_info "DesiredLRPSchedulingInfoByProcessGuid"
        "desired_lrp_scheduling_infos/get_by_process_guid" DIEGO
        models::DesiredLrpByProcessGuidRequest => DesiredLrpSchedulingInfoByProcessGuidResponse;
    SCHEDULING_INFO_OF_DEFINITIONS desired_lrp_scheduling_info_of_definitions
        "DesiredLRPSchedulingInfoByProcessGuid_r1" "desired_lrp_scheduling_infos/get_by_process_guid.r1" DEFINITIONS
        models::DesiredLrpByProcessGuidRequest => DesiredLrpSchedulingInfosResponse;
    ROUTING_INFOS desired_lrp_routing_infos "DesiredLRPRoutingInfos" "desired_lrp_routing_infos/list" ALL
        models::DesiredLrPsRequest => DesiredLrPsResponse;
    DESIRED_LRPS desired_lrps "DesiredLRPs_r3" "desired_lrps/list.r3" ALL models::DesiredLrPsRequest => DesiredLrPsResponse;
    DESIRED_LRP desired_lrp "DesiredLRPByProcessGuid_r3" "desired_lrps/get_by_process_guid.r3" ALL
        models::DesiredLrpByProcessGuidRequest => DesiredLrpResponse;
    DESIRE_LRP desire_lrp "DesireDesiredLRP_r2" "desired_lrp/desire.r2" ALL
        models::DesireLrpRequest => DesiredLrpLifecycleResponse;
    UPDATE_DESIRED_LRP update_desired_lrp "UpdateDesireLRP" "desired_lrp/update" ALL
        models::UpdateDesiredLrpRequest => DesiredLrpLifecycleResponse;
    CANCEL_UPDATE cancel_update_desired_lrp "CancelUpdateDesiredLRP" "desired_lrp/cancel_update" DEFINITIONS
        models::CancelUpdateDesiredLrpRequest => DesiredLrpLifecycleResponse;
    ROLL_BACK roll_back_desired_lrp "RollbackDesiredLRP" "desired_lrp/rollback" DEFINITIONS
        models::RollbackDesiredLrpRequest => DesiredLrpLifecycleResponse;
    UPDATE_STATUS desired_lrp_update_status "DesiredLRPUpdateStatus" "desired_lrp/update_status" DEFINITIONS
        models::DesiredLrpUpdateStatusRequest => DesiredLrpUpdateStatusResponse;
    LRP_DEFINITIONS lrp_definitions "LRPDefinitions" "desired_lrp/definitions/list" DEFINITIONS
        models::LrpDefinitionsRequest => LrpDefinitionsResponse;
    REMOVE_DESIRED_LRP remove_desired_lrp "RemoveDesiredLRP" "desired_lrp/remove" ALL
        models::RemoveDesiredLrpRequest => DesiredLrpLifecycleResponse;

    TASKS tasks "Tasks_r3" "tasks/list.r3" ALL models::TasksRequest => TasksResponse;
    TASK task "TaskByGuid_r3" "tasks/get_by_task_guid.r3" ALL models::TaskByGuidRequest => TaskResponse;
    DESIRE_TASK desire_task "DesireTask_r2" "tasks/desire.r2" ALL models::DesireTaskRequest => TaskLifecycleResponse;
    START_TASK start_task "StartTask" "tasks/start" ALL models::StartTaskRequest => StartTaskResponse;
    CANCEL_TASK cancel_task "CancelTask" "tasks/cancel" ALL models::TaskGuidRequest => TaskLifecycleResponse;
    REJECT_TASK reject_task "RejectTask" "tasks/reject" ALL models::RejectTaskRequest => TaskLifecycleResponse;
    COMPLETE_TASK complete_task "CompleteTask" "tasks/complete" ALL models::CompleteTaskRequest => TaskLifecycleResponse;
    RESOLVING_TASK resolving_task "ResolvingTask" "tasks/resolving" ALL models::TaskGuidRequest => TaskLifecycleResponse;
    DELETE_TASK delete_task "DeleteTask" "tasks/delete" ALL models::TaskGuidRequest => TaskLifecycleResponse;
}

/// All methods, and the event streams.
pub fn routes() -> impl Iterator<Item = Route> {
    ROUTES.iter().copied().chain(crate::events::STREAMS)
}
