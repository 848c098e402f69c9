//! A valid task with one violation at a time, and the requests about tasks.

use bbs_proto::models::{
    Action, CachedDependency, EnvironmentVariable, File, ImageLayer, LogRateLimit, MetricTagEntry,
    RunAction, SecurityGroupRule, VolumeMount,
};

use super::super::check;
use super::*;

fn task() -> TaskDefinition {
    let run = RunAction {
        path: b"ls".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    TaskDefinition {
        root_fs: b"docker:///x".to_vec(),
        action: Some(Action {
            run_action: Some(run),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn found<T: Validate>(request: T) -> String {
    check(&request).err().unwrap_or_default()
}

#[track_caller]
fn expect(change: impl FnOnce(&mut TaskDefinition), expected: &str) {
    let mut definition = task();
    change(&mut definition);
    assert_eq!(found(definition.clone()), expected);
    let request = DesireTaskRequest {
        task_guid: b"t".to_vec(),
        domain: b"d".to_vec(),
        task_definition: Some(definition),
    };
    assert_eq!(
        found(request),
        expected,
        "the request says what the definition says"
    );
}

#[test]
fn root_filesystem_and_action_are_validated() {
    expect(|_| (), "");
    expect(|task| task.root_fs = vec![], "Invalid field: rootfs");
    expect(|task| task.root_fs = b"x".to_vec(), "Invalid field: rootfs");
    expect(|task| task.action = None, "invalid action type");
    expect(
        |task| task.action = Some(Action::default()),
        "Invalid field: action, Invalid field: inner-action",
    );
}

#[test]
fn numbers_and_sizes_are_bounded() {
    expect(|task| task.memory_mb = -1, "Invalid field: memory_mb");
    expect(|task| task.disk_mb = -1, "Invalid field: disk_mb");
    expect(|task| task.max_pids = -1, "Invalid field: max_pids");
    expect(
        |task| {
            task.log_rate_limit = Some(LogRateLimit {
                bytes_per_second: -1,
            })
        },
        "",
    );
    expect(
        |task| {
            task.log_rate_limit = Some(LogRateLimit {
                bytes_per_second: -2,
            })
        },
        "Invalid field: log_rate_limit",
    );
    expect(|task| task.annotation = vec![b'x'; 10_240], "");
    expect(
        |task| task.annotation = vec![b'x'; 10_241],
        "Invalid field: annotation",
    );
}

#[test]
fn each_bad_egress_rule_is_a_finding_without_its_reasons() {
    let good = || SecurityGroupRule {
        protocol: b"all".to_vec(),
        destinations: vec![b"1.1.1.1".to_vec()],
        ..Default::default()
    };
    expect(|task| task.egress_rules = vec![good()], "");
    expect(
        |task| {
            task.egress_rules = vec![
                SecurityGroupRule::default(),
                good(),
                SecurityGroupRule::default(),
            ]
        },
        "Invalid field: egress_rules, Invalid field: egress_rules",
    );
}

#[test]
fn image_and_its_parts_are_validated() {
    expect(
        |task| task.image_username = b"u".to_vec(),
        "Invalid field: image_password",
    );
    expect(
        |task| task.image_password = b"p".to_vec(),
        "Invalid field: image_username",
    );
    expect(
        |task| (task.image_username, task.image_password) = (b"u".to_vec(), b"p".to_vec()),
        "",
    );
    expect(
        |task| {
            task.cached_dependencies = vec![CachedDependency {
                from: b"f".to_vec(),
                ..Default::default()
            }]
        },
        "Invalid field: cached_dependency, Invalid field: to",
    );
    let exclusive = || ImageLayer {
        url: b"u".to_vec(),
        destination_path: b"d".to_vec(),
        layer_type: 2,
        media_type: 1,
        digest_algorithm: 1,
        digest_value: b"v".to_vec(),
        ..Default::default()
    };
    expect(
        |task| task.image_layers = vec![exclusive()],
        "Invalid field: legacy_download_user",
    );
    expect(
        |task| {
            task.image_layers = vec![exclusive()];
            task.legacy_download_user = b"vcap".to_vec();
        },
        "",
    );
}

#[test]
fn remaining_fields_are_not_validated() {
    expect(
        |task| {
            task.metric_tags = vec![MetricTagEntry::default()];
            task.volume_mounts = vec![VolumeMount::default()];
            task.volume_mounted_files = vec![File {
                content: vec![0; 1_048_577],
                ..Default::default()
            }];
            task.environment_variables = vec![EnvironmentVariable::default()];
            task.completion_callback_url = b"nowhere".to_vec();
            task.cpu_weight = u32::MAX;
        },
        "",
    );
}

#[test]
fn findings_come_in_diegos_order() {
    let everything = TaskDefinition {
        action: Some(Action::default()),
        memory_mb: -1,
        disk_mb: -1,
        log_rate_limit: Some(LogRateLimit {
            bytes_per_second: -2,
        }),
        max_pids: -1,
        annotation: vec![b'x'; 10_241],
        egress_rules: vec![SecurityGroupRule::default()],
        image_password: b"p".to_vec(),
        cached_dependencies: vec![CachedDependency {
            from: b"f".to_vec(),
            ..Default::default()
        }],
        image_layers: vec![ImageLayer {
            layer_type: 1,
            media_type: 1,
            url: b"u".to_vec(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let names = [
        "task_guid",
        "domain",
        "rootfs",
        "action",
        "inner-action",
        "memory_mb",
        "disk_mb",
        "log_rate_limit",
        "max_pids",
        "annotation",
        "egress_rules",
        "image_username",
        "cached_dependency",
        "to",
        "image_layer",
        "destination_path",
    ];
    let request = DesireTaskRequest {
        task_definition: Some(everything),
        ..Default::default()
    };
    assert_eq!(
        found(request),
        names
            .map(|name| format!("Invalid field: {name}"))
            .join(", ")
    );
}

#[test]
fn desire_request_needs_a_guid_a_domain_and_a_definition() {
    let request = |guid: &str, domain: &str, task_definition| DesireTaskRequest {
        task_guid: guid.into(),
        domain: domain.into(),
        task_definition,
    };
    assert_eq!(found(request("t_1-A", "d", Some(task()))), "");
    assert_eq!(
        found(request("t 1", "d", Some(task()))),
        "Invalid field: task_guid"
    );
    assert_eq!(
        found(request("t", "", Some(task()))),
        "Invalid field: domain"
    );
    assert_eq!(
        found(request("t", "d", None)),
        "Invalid field: task_definition"
    );
}

#[test]
fn transition_requests_need_their_fields() {
    let start = |guid: &str, cell: &str| {
        found(StartTaskRequest {
            task_guid: guid.into(),
            cell_id: cell.into(),
        })
    };
    let complete = |guid: &str, cell: &str| {
        found(CompleteTaskRequest {
            task_guid: guid.into(),
            cell_id: cell.into(),
            ..Default::default()
        })
    };
    for step in [&start as &dyn Fn(&str, &str) -> String, &complete] {
        assert_eq!(step("t", "c"), "");
        assert_eq!(step("t", ""), "Invalid field: cell_id");
        assert_eq!(step("a b", "c"), "Invalid field: task_guid");
        assert_eq!(
            step("", ""),
            "Invalid field: task_guid, Invalid field: cell_id"
        );
    }
    let fail = |guid: &str, why: &str| {
        found(FailTaskRequest {
            task_guid: guid.into(),
            failure_reason: why.into(),
        })
    };
    let reject = |guid: &str, why: &str| {
        found(RejectTaskRequest {
            task_guid: guid.into(),
            rejection_reason: why.into(),
        })
    };
    for step in [&fail as &dyn Fn(&str, &str) -> String, &reject] {
        assert_eq!(step("t", "why"), "");
        assert_eq!(step("t", ""), "Invalid field: failure_reason");
        assert_eq!(step("a b", "why"), "Invalid field: task_guid");
        assert_eq!(
            step("", ""),
            "Invalid field: task_guid, Invalid field: failure_reason"
        );
    }
}

#[test]
fn reads_and_cancel_take_any_guid_but_an_empty_one() {
    assert_eq!(found(TasksRequest::default()), "");
    assert_eq!(
        found(TaskByGuidRequest {
            task_guid: b"a b\xff".to_vec()
        }),
        ""
    );
    assert_eq!(
        found(TaskByGuidRequest::default()),
        "Invalid field: task_guid"
    );
    assert_eq!(
        found(TaskGuidRequest {
            task_guid: b"a b\xff".to_vec()
        }),
        ""
    );
    assert_eq!(
        found(TaskGuidRequest::default()),
        "Invalid field: task_guid"
    );
}
