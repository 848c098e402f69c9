//! Validation of tasks and the requests about them. Fewer rules than for a desired LRP:
//! environment, volumes, metric tags and the callback's URL are not validated.

use bbs_proto::models::{
    CompleteTaskRequest, DesireTaskRequest, FailTaskRequest, RejectTaskRequest, StartTaskRequest,
    TaskByGuidRequest, TaskDefinition, TaskGuidRequest, TasksRequest,
};

use super::desired_lrp::{LONGEST_ANNOTATION, log_rate};
use super::{Findings, Validate, actions, check, image, url};

impl Validate for TaskDefinition {
    fn validate(&self, findings: &mut Findings) {
        // An empty root filesystem has no scheme, so this finds it too.
        findings.invalid_if(!url::has_scheme(&self.root_fs), "rootfs");
        actions::required("action", self.action.as_ref(), findings);
        findings.at_least(0, "memory_mb", self.memory_mb);
        findings.at_least(0, "disk_mb", self.disk_mb);
        log_rate("log_rate_limit", self.log_rate_limit.as_ref(), findings);
        findings.at_least(0, "max_pids", self.max_pids);
        findings.at_most(LONGEST_ANNOTATION, "annotation", self.annotation.len());
        for rule in &self.egress_rules {
            findings.invalid_if(check(rule).is_err(), "egress_rules");
        }
        image::credentials(
            !self.image_username.is_empty(),
            !self.image_password.is_empty(),
            findings,
        );
        image::cached_dependencies(&self.cached_dependencies, findings);
        image::layers(&self.image_layers, &self.legacy_download_user, findings);
    }
}

/// Any filter is valid.
impl Validate for TasksRequest {
    fn validate(&self, _: &mut Findings) {}
}

rules! {
    DesireTaskRequest: guid task_guid, required domain, part task_definition;
    StartTaskRequest: guid task_guid, required cell_id;
    CompleteTaskRequest: guid task_guid, required cell_id;
    FailTaskRequest: guid task_guid, required failure_reason;
    // Any guid is valid: one that no task can have is not found.
    TaskByGuidRequest: required task_guid;
    // The request of cancel, resolve and delete.
    TaskGuidRequest: required task_guid;
}

impl Validate for RejectTaskRequest {
    fn validate(&self, findings: &mut Findings) {
        findings.guid("task_guid", &self.task_guid);
        // Diego names the other field, and clients know that text.
        findings.required("failure_reason", &self.rejection_reason);
    }
}

#[cfg(test)]
mod tests;
