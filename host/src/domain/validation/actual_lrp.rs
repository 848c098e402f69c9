//! Validation of requests about actual LRPs and evacuation: the required parts of each. The state
//! of an LRP is checked elsewhere.

use bbs_proto::models::{
    ActualLrPsByProcessGuidsRequest, ActualLrPsRequest, ActualLrpInstanceKey, ActualLrpKey,
    ActualLrpNetInfo, ClaimActualLrpRequest, CrashActualLrpRequest,
    EvacuateClaimedActualLrpRequest, EvacuateCrashedActualLrpRequest,
    EvacuateRunningActualLrpRequest, EvacuateStoppedActualLrpRequest, FailActualLrpRequest,
    RemoveActualLrpRequest, RemoveEvacuatingActualLrpRequest, RetireActualLrpRequest,
    StartActualLrpRequest,
};

use super::{Findings, Validate};

rules! {
    ActualLrpKey: required process_guid, not_negative index, required domain;
    ActualLrpInstanceKey: required cell_id, required instance_guid;
    ActualLrpNetInfo: required address;
    // The index is not validated: one without a row is not found.
    ClaimActualLrpRequest: required process_guid, part actual_lrp_instance_key;
    StartActualLrpRequest:
        part actual_lrp_key, part actual_lrp_instance_key, part actual_lrp_net_info;
    // The error message may be empty.
    CrashActualLrpRequest: part actual_lrp_key, part actual_lrp_instance_key;
    FailActualLrpRequest: part actual_lrp_key, required error_message;
    RetireActualLrpRequest: part actual_lrp_key;
    // The instance key may be absent or empty, which matches any instance.
    RemoveActualLrpRequest: required process_guid, not_negative index;
    EvacuateClaimedActualLrpRequest: part actual_lrp_key, part actual_lrp_instance_key;
    EvacuateRunningActualLrpRequest:
        part actual_lrp_key, part actual_lrp_instance_key, part actual_lrp_net_info;
    EvacuateStoppedActualLrpRequest: part actual_lrp_key, part actual_lrp_instance_key;
    EvacuateCrashedActualLrpRequest:
        part actual_lrp_key, part actual_lrp_instance_key, required error_message;
    RemoveEvacuatingActualLrpRequest: part actual_lrp_key, part actual_lrp_instance_key;
}

/// Any filter is valid.
impl Validate for ActualLrPsRequest {
    fn validate(&self, _: &mut Findings) {}
}

impl Validate for ActualLrPsByProcessGuidsRequest {
    fn validate(&self, findings: &mut Findings) {
        if self.process_guids.is_empty() {
            findings.add("process_guids must not be empty");
        }
    }
}

#[cfg(test)]
mod tests;
