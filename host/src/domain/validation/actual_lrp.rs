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

impl Validate for ActualLrpKey {
    fn validate(&self, findings: &mut Findings) {
        findings.required("process_guid", &self.process_guid);
        findings.at_least(0, "index", self.index);
        findings.required("domain", &self.domain);
    }
}

impl Validate for ActualLrpInstanceKey {
    fn validate(&self, findings: &mut Findings) {
        findings.required("cell_id", &self.cell_id);
        findings.required("instance_guid", &self.instance_guid);
    }
}

impl Validate for ActualLrpNetInfo {
    fn validate(&self, findings: &mut Findings) {
        findings.required("address", &self.address);
    }
}

fn key(key: Option<&ActualLrpKey>, findings: &mut Findings) {
    findings.part("actual_lrp_key", key);
}

fn instance_key(key: Option<&ActualLrpInstanceKey>, findings: &mut Findings) {
    findings.part("actual_lrp_instance_key", key);
}

fn net_info(info: Option<&ActualLrpNetInfo>, findings: &mut Findings) {
    findings.part("actual_lrp_net_info", info);
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

/// The index is not validated: one without a row is not found.
impl Validate for ClaimActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        findings.required("process_guid", &self.process_guid);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
    }
}

impl Validate for StartActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
        net_info(self.actual_lrp_net_info.as_ref(), findings);
    }
}

/// The error message may be empty.
impl Validate for CrashActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
    }
}

impl Validate for FailActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        findings.required("error_message", &self.error_message);
    }
}

impl Validate for RetireActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
    }
}

/// The instance key may be absent or empty, which matches any instance.
impl Validate for RemoveActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        findings.required("process_guid", &self.process_guid);
        findings.at_least(0, "index", self.index);
    }
}

impl Validate for EvacuateClaimedActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
    }
}

impl Validate for EvacuateRunningActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
        net_info(self.actual_lrp_net_info.as_ref(), findings);
    }
}

impl Validate for EvacuateStoppedActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
    }
}

impl Validate for EvacuateCrashedActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
        findings.required("error_message", &self.error_message);
    }
}

impl Validate for RemoveEvacuatingActualLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        key(self.actual_lrp_key.as_ref(), findings);
        instance_key(self.actual_lrp_instance_key.as_ref(), findings);
    }
}

#[cfg(test)]
mod tests;
