//! Validation of desired LRPs, their updates and the requests about them, in Diego's order:
//! scheduling fields first, then the run information, with some fields checked twice.

use bbs_proto::models::{
    CancelUpdateDesiredLrpRequest, DesireLrpRequest, DesiredLrPsRequest, DesiredLrp,
    DesiredLrpByProcessGuidRequest, DesiredLrpUpdate, DesiredLrpUpdateStatusRequest,
    EnvironmentVariable, LogRateLimit, LrpDefinition, LrpDefinitionsRequest,
    RemoveDesiredLrpRequest, RollbackDesiredLrpRequest, Sidecar, UpdateDesiredLrpRequest,
};

use super::{Findings, Validate, actions, entries, image, url, volumes};

pub(super) const LONGEST_ANNOTATION: usize = 10 * 1024;

/// Any filter is valid.
impl Validate for DesiredLrPsRequest {
    fn validate(&self, _: &mut Findings) {}
}

rules! {
    DesiredLrpByProcessGuidRequest: required process_guid;
    RemoveDesiredLrpRequest: required process_guid;
    CancelUpdateDesiredLrpRequest: required process_guid;
    RollbackDesiredLrpRequest: required process_guid, required definition_id;
    LrpDefinitionsRequest: required process_guid;
    DesiredLrpUpdateStatusRequest: required process_guid;
    DesireLrpRequest: part desired_lrp;
}

impl Validate for UpdateDesiredLrpRequest {
    fn validate(&self, findings: &mut Findings) {
        findings.required("process_guid", &self.process_guid);
        match &self.update {
            Some(update) => update.validate(findings),
            // Diego has no finding for this and fails when it applies the update. If the guid is
            // missing too, Diego answers with that finding alone.
            None => findings.invalid_if(!self.process_guid.is_empty(), "update"),
        }
    }
}

impl Validate for DesiredLrpUpdate {
    fn validate(&self, findings: &mut Findings) {
        findings.at_least(0, "instances", self.instances.unwrap_or_default());
        findings.instances(self.instances.unwrap_or_default());
        findings.at_most(
            LONGEST_ANNOTATION,
            "annotation",
            self.annotation.as_ref().map_or(0, Vec::len),
        );
        entries::routes(self.routes.as_ref(), findings);
        entries::metric_tags(&self.metric_tags, b"", findings);
        // An empty value is valid: it removes the credentials.
        image::credentials(
            self.image_username.is_some(),
            self.image_password.is_some(),
            findings,
        );
        if let Some(definition) = &self.lrp_definition {
            let changes_a_part = !self.metric_tags.is_empty() || self.image_username.is_some();
            if changes_a_part {
                findings.add("Invalid field: lrp_definition, which has the metric tags and image credentials itself");
            }
            findings.within("lrp_definition", |findings| definition.validate(findings));
        }
    }
}

impl Validate for LrpDefinition {
    fn validate(&self, findings: &mut Findings) {
        let lrp = DesiredLrp::from(self);
        findings.required("rootfs", &lrp.root_fs);
        findings.invalid_if(!url::has_scheme(&lrp.root_fs), "rootfs");
        findings.at_least(0, "memory_mb", lrp.memory_mb);
        findings.at_least(0, "disk_mb", lrp.disk_mb);
        findings.at_least(0, "max_pids", lrp.max_pids);
        // Diego has no such message, so the text may say more than its own.
        metric_tags(
            &lrp,
            "metric_tags, of which a definition has at least one, for example source_id",
            findings,
        );
        run_info(&lrp, findings);
    }
}

impl Validate for DesiredLrp {
    fn validate(&self, findings: &mut Findings) {
        volumes::files(&self.volume_mounted_files, findings);
        findings.required("domain", &self.domain);
        findings.required("rootfs", &self.root_fs);
        findings.invalid_if(!url::has_scheme(&self.root_fs), "rootfs");
        findings.at_least(0, "instances", self.instances);
        findings.instances(self.instances);
        findings.at_least(0, "memory_mb", self.memory_mb);
        findings.at_least(0, "disk_mb", self.disk_mb);
        log_rate(
            "log_rate_limit_bytes_per_second",
            self.log_rate_limit.as_ref(),
            findings,
        );
        findings.at_most(LONGEST_ANNOTATION, "annotation", self.annotation.len());
        findings.at_least(0, "max_pids", self.max_pids);
        entries::routes(self.routes.as_ref(), findings);
        metric_tags(self, "metric_tags", findings);
        findings.required("domain", &self.domain);
        findings.guid("process_guid", &self.process_guid);
        run_info(self, findings);
    }
}

/// Validates the tags; `absent` is the finding if there are none.
fn metric_tags(lrp: &DesiredLrp, absent: &str, findings: &mut Findings) {
    // An empty map and an absent one are the same on the wire, and an absent one is rejected.
    findings.invalid_if(lrp.metric_tags.is_empty(), absent);
    entries::metric_tags(&lrp.metric_tags, &lrp.metrics_guid, findings);
}

/// Validates the run information, which is stored encrypted, after the other fields.
fn run_info(lrp: &DesiredLrp, findings: &mut Findings) {
    volumes::files(&lrp.volume_mounted_files, findings);
    actions::optional("setup", lrp.setup.as_ref(), findings);
    actions::required("action", lrp.action.as_ref(), findings);
    actions::optional("monitor", lrp.monitor.as_ref(), findings);
    for variable in &lrp.environment_variables {
        variable.validate(findings);
    }
    for rule in &lrp.egress_rules {
        findings.within("egress_rules", |findings| rule.validate(findings));
    }
    image::cached_dependencies(&lrp.cached_dependencies, findings);
    image::layers(&lrp.image_layers, &lrp.legacy_download_user, findings);
    findings.within("sidecars", |findings| {
        lrp.sidecars
            .iter()
            .for_each(|sidecar| sidecar.validate(findings))
    });
    for mount in &lrp.volume_mounts {
        mount.validate(findings);
    }
    image::credentials(
        !lrp.image_username.is_empty(),
        !lrp.image_password.is_empty(),
        findings,
    );
    if let Some(definition) = &lrp.check_definition {
        findings.within("check_definition", |findings| definition.validate(findings));
    }
    log_rate("log_rate_limit", lrp.log_rate_limit.as_ref(), findings);
}

/// -1 means no limit.
pub(super) fn log_rate(field: &str, limit: Option<&LogRateLimit>, findings: &mut Findings) {
    findings.at_least(-1, field, limit.map_or(0, |limit| limit.bytes_per_second));
}

impl Validate for EnvironmentVariable {
    fn validate(&self, findings: &mut Findings) {
        if self.name.is_empty() {
            findings.add("invalid field: name cannot be blank");
        }
    }
}

impl Validate for Sidecar {
    fn validate(&self, findings: &mut Findings) {
        actions::required("action", self.action.as_ref(), findings);
        findings.at_least(0, "memory_mb", self.memory_mb);
        findings.at_least(0, "disk_mb", self.disk_mb);
    }
}

#[cfg(test)]
mod tests;
