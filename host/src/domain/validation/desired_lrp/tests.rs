//! A valid desired LRP with one violation at a time, and the order of findings with many.

use bbs_proto::models::{
    Action, CachedDependency, Check, CheckDefinition, File, ImageLayer, MetricTagEntry,
    MetricTagValue, ProtoRoutes, RouteEntry, RunAction, SecurityGroupRule, VolumeMount,
};

use super::super::check;
use super::*;

fn action() -> Option<Action> {
    let run = RunAction {
        path: b"ls".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    Some(Action {
        run_action: Some(run),
        ..Default::default()
    })
}

fn bad_action() -> Option<Action> {
    Some(Action {
        run_action: Some(RunAction::default()),
        ..Default::default()
    })
}

const BAD_ACTION: &str = "Invalid field: path, Invalid field: user";

fn tag(key: &str, text: &str) -> MetricTagEntry {
    let value = MetricTagValue {
        r#static: text.into(),
        dynamic: 0,
    };
    MetricTagEntry {
        key: key.into(),
        value: Some(value),
    }
}

fn routes(length: usize) -> Option<ProtoRoutes> {
    Some(ProtoRoutes {
        routes: vec![RouteEntry {
            key: b"cf-router".to_vec(),
            value: vec![b' '; length],
        }],
    })
}

fn lrp() -> DesiredLrp {
    DesiredLrp {
        process_guid: b"guid-1".to_vec(),
        domain: b"cf-apps".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        action: action(),
        metric_tags: vec![tag("source_id", "s")],
        ..Default::default()
    }
}

/// The findings of a valid LRP after one change.
#[track_caller]
fn expect(change: impl FnOnce(&mut DesiredLrp), expected: &str) {
    let mut lrp = lrp();
    change(&mut lrp);
    assert_eq!(check(&lrp).err().unwrap_or_default(), expected);
    let request = DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    assert_eq!(
        check(&request).err().unwrap_or_default(),
        expected,
        "the request says what the LRP says"
    );
}

#[test]
fn valid_lrp_passes_and_its_request_needs_one() {
    expect(|_| (), "");
    assert_eq!(
        check(&DesireLrpRequest::default()).unwrap_err(),
        "Invalid field: desired_lrp"
    );
}

#[test]
fn process_guid_and_domain_are_validated() {
    expect(
        |lrp| lrp.process_guid = vec![],
        "Invalid field: process_guid",
    );
    expect(
        |lrp| lrp.process_guid = b"a.b".to_vec(),
        "Invalid field: process_guid",
    );
    expect(
        |lrp| lrp.process_guid = vec![0xff],
        "Invalid field: process_guid",
    );
    expect(
        |lrp| lrp.domain = vec![],
        "Invalid field: domain, Invalid field: domain",
    );
    expect(|lrp| lrp.domain = vec![0xff], "");
}

#[test]
fn root_filesystem_must_be_a_url() {
    expect(
        |lrp| lrp.root_fs = vec![],
        "Invalid field: rootfs, Invalid field: rootfs",
    );
    expect(
        |lrp| lrp.root_fs = b"cflinuxfs4".to_vec(),
        "Invalid field: rootfs",
    );
    expect(|lrp| lrp.root_fs = b"docker:///x".to_vec(), "");
}

#[test]
fn numbers_must_not_be_negative() {
    expect(|lrp| lrp.instances = -1, "Invalid field: instances");
    expect(|lrp| lrp.memory_mb = -1, "Invalid field: memory_mb");
    expect(|lrp| lrp.disk_mb = -1, "Invalid field: disk_mb");
    expect(|lrp| lrp.max_pids = -1, "Invalid field: max_pids");
    expect(
        |lrp| {
            (lrp.instances, lrp.memory_mb, lrp.disk_mb, lrp.max_pids) =
                (10_000, i32::MAX, i32::MAX, i32::MAX)
        },
        "",
    );
}

#[test]
fn number_of_instances_is_bounded() {
    let finding = "Invalid field: instances, of which one LRP has at most 10000";
    expect(|lrp| lrp.instances = 10_001, finding);
    let update = |instances| DesiredLrpUpdate {
        instances: Some(instances),
        ..Default::default()
    };
    assert_eq!(check(&update(10_000)), Ok(()));
    assert_eq!(check(&update(i32::MAX)).unwrap_err(), finding);
}

#[test]
fn log_rate_below_minus_one_is_rejected() {
    let limited = |bytes_per_second| {
        move |lrp: &mut DesiredLrp| lrp.log_rate_limit = Some(LogRateLimit { bytes_per_second })
    };
    expect(limited(0), "");
    expect(limited(-1), "");
    expect(limited(i64::MAX), "");
    expect(
        limited(-2),
        "Invalid field: log_rate_limit_bytes_per_second, Invalid field: log_rate_limit",
    );
}

#[test]
fn sizes_are_bounded() {
    expect(|lrp| lrp.annotation = vec![b'x'; 10_240], "");
    expect(
        |lrp| lrp.annotation = vec![b'x'; 10_241],
        "Invalid field: annotation",
    );
    expect(|lrp| lrp.routes = routes(131_072), "");
    expect(|lrp| lrp.routes = routes(131_073), "Invalid field: routes");
    let file = |length| {
        vec![File {
            content: vec![0; length],
            ..Default::default()
        }]
    };
    expect(|lrp| lrp.volume_mounted_files = file(1_048_576), "");
    expect(
        |lrp| lrp.volume_mounted_files = file(1_048_577),
        "Invalid field: volumeMountedFiles, Invalid field: volumeMountedFiles",
    );
}

#[test]
fn at_least_one_metric_tag_is_required() {
    expect(|lrp| lrp.metric_tags = vec![], "Invalid field: metric_tags");
    expect(|lrp| lrp.metric_tags = vec![tag("anything", "x")], "");
    expect(
        |lrp| lrp.metric_tags = vec![tag("a", "")],
        "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic",
    );
    expect(|lrp| lrp.metrics_guid = b"s".to_vec(), "");
    expect(
        |lrp| lrp.metrics_guid = b"t".to_vec(),
        "Invalid field: metric_tags, Invalid field: source_id should match metrics_guid",
    );
}

#[test]
fn actions() {
    expect(|lrp| lrp.action = None, "invalid action type");
    expect(
        |lrp| lrp.action = bad_action(),
        &format!("Invalid field: action, {BAD_ACTION}"),
    );
    expect(|lrp| lrp.setup = action(), "");
    expect(
        |lrp| lrp.setup = bad_action(),
        &format!("Invalid field: setup, {BAD_ACTION}"),
    );
    expect(|lrp| lrp.monitor = action(), "");
    expect(
        |lrp| lrp.monitor = bad_action(),
        &format!("Invalid field: monitor, {BAD_ACTION}"),
    );
}

#[test]
fn environment_variables_need_names() {
    let variable = |name: &str| EnvironmentVariable {
        name: name.into(),
        value: vec![],
    };
    expect(|lrp| lrp.environment_variables = vec![variable("A")], "");
    let blank = "invalid field: name cannot be blank";
    expect(
        |lrp| lrp.environment_variables = vec![variable(""), variable("A"), variable("")],
        &format!("{blank}, {blank}"),
    );
}

#[test]
fn each_bad_egress_rule_is_a_finding() {
    let rule = |protocol: &str| SecurityGroupRule {
        protocol: protocol.into(),
        destinations: vec![b"1.1.1.1".to_vec()],
        ..Default::default()
    };
    let bad = "Invalid field: egress_rules, Invalid field: protocol";
    expect(|lrp| lrp.egress_rules = vec![rule("all")], "");
    expect(
        |lrp| lrp.egress_rules = vec![rule("x"), rule("all"), rule("y")],
        &format!("{bad}, {bad}"),
    );
}

#[test]
fn sidecars() {
    let sidecar = |action: Option<Action>, memory_mb, disk_mb| Sidecar {
        action,
        memory_mb,
        disk_mb,
    };
    expect(|lrp| lrp.sidecars = vec![sidecar(action(), 0, 0)], "");
    expect(
        |lrp| lrp.sidecars = vec![sidecar(None, 0, 0)],
        "Invalid field: sidecars, invalid action type",
    );
    expect(
        |lrp| lrp.sidecars = vec![sidecar(action(), -1, 0)],
        "Invalid field: sidecars, Invalid field: memory_mb",
    );
    expect(
        |lrp| lrp.sidecars = vec![sidecar(action(), 0, -1)],
        "Invalid field: sidecars, Invalid field: disk_mb",
    );
    expect(
        |lrp| {
            lrp.sidecars = vec![
                sidecar(bad_action(), 0, 0),
                sidecar(action(), 0, 0),
                sidecar(None, 0, 0),
            ]
        },
        &format!(
            "Invalid field: sidecars, Invalid field: action, {BAD_ACTION}, invalid action type"
        ),
    );
}

#[test]
fn image_and_its_parts_are_validated() {
    expect(
        |lrp| {
            lrp.cached_dependencies = vec![CachedDependency {
                to: b"t".to_vec(),
                ..Default::default()
            }]
        },
        "Invalid field: cached_dependency, Invalid field: from",
    );
    let layer = |layer_type| ImageLayer {
        url: b"u".to_vec(),
        destination_path: b"d".to_vec(),
        layer_type,
        media_type: 1,
        digest_algorithm: 1,
        digest_value: b"v".to_vec(),
        ..Default::default()
    };
    expect(|lrp| lrp.image_layers = vec![layer(1)], "");
    expect(
        |lrp| lrp.image_layers = vec![layer(3)],
        "Invalid field: image_layer, Invalid field: layer_type",
    );
    expect(
        |lrp| lrp.image_layers = vec![layer(2)],
        "Invalid field: legacy_download_user",
    );
    expect(
        |lrp| {
            lrp.image_layers = vec![layer(2)];
            lrp.legacy_download_user = b"vcap".to_vec();
        },
        "",
    );
    expect(
        |lrp| lrp.image_username = b"u".to_vec(),
        "Invalid field: image_password",
    );
    expect(
        |lrp| lrp.image_password = b"p".to_vec(),
        "Invalid field: image_username",
    );
    expect(
        |lrp| (lrp.image_username, lrp.image_password) = (b"u".to_vec(), b"p".to_vec()),
        "",
    );
}

#[test]
fn volumes_and_checks_are_validated() {
    expect(
        |lrp| {
            lrp.volume_mounts = vec![VolumeMount {
                mode: b"r".to_vec(),
                ..Default::default()
            }]
        },
        "invalid volume_mount driver",
    );
    expect(
        |lrp| lrp.check_definition = Some(CheckDefinition::default()),
        "",
    );
    let nothing = CheckDefinition {
        checks: vec![Check::default()],
        ..Default::default()
    };
    expect(
        |lrp| lrp.check_definition = Some(nothing),
        "Invalid field: check_definition, Invalid field: port",
    );
}

#[test]
fn remaining_fields_are_not_validated() {
    expect(
        |lrp| {
            lrp.cpu_weight = u32::MAX;
            lrp.ports = vec![0, 70_000];
            lrp.start_timeout_ms = -1;
            lrp.placement_tags = vec![vec![]];
            lrp.log_guid = vec![0xff];
            lrp.update_strategy = 77;
        },
        "",
    );
}

#[test]
fn findings_come_in_diegos_order() {
    let everything = DesiredLrp {
        instances: -1,
        memory_mb: -1,
        disk_mb: -1,
        max_pids: -1,
        annotation: vec![b'x'; 10_241],
        routes: routes(131_073),
        log_rate_limit: Some(LogRateLimit {
            bytes_per_second: -2,
        }),
        volume_mounted_files: vec![File {
            content: vec![0; 1_048_577],
            ..Default::default()
        }],
        setup: Some(Action::default()),
        monitor: Some(Action::default()),
        environment_variables: vec![EnvironmentVariable::default()],
        egress_rules: vec![SecurityGroupRule {
            destinations: vec![b"::".to_vec()],
            ..Default::default()
        }],
        cached_dependencies: vec![CachedDependency {
            to: b"t".to_vec(),
            ..Default::default()
        }],
        image_layers: vec![ImageLayer {
            layer_type: 2,
            media_type: 1,
            digest_algorithm: 1,
            ..Default::default()
        }],
        sidecars: vec![Sidecar::default()],
        volume_mounts: vec![VolumeMount {
            driver: b"d".to_vec(),
            ..Default::default()
        }],
        image_username: b"u".to_vec(),
        check_definition: Some(CheckDefinition {
            checks: vec![Check::default()],
            ..Default::default()
        }),
        ..Default::default()
    };
    let expected = [
        "volumeMountedFiles",
        "domain",
        "rootfs",
        "rootfs",
        "instances",
        "memory_mb",
        "disk_mb",
        "log_rate_limit_bytes_per_second",
        "annotation",
        "max_pids",
        "routes",
        "metric_tags",
        "domain",
        "process_guid",
        "volumeMountedFiles",
        "setup",
        "inner-action",
        "!invalid action type",
        "monitor",
        "inner-action",
        "!invalid field: name cannot be blank",
        "egress_rules",
        "protocol",
        "cached_dependency",
        "from",
        "image_layer",
        "url",
        "destination_path",
        "digest_value",
        "legacy_download_user",
        "sidecars",
        "!invalid action type",
        "!invalid volume_mount mode",
        "image_password",
        "check_definition",
        "port",
        "log_rate_limit",
    ];
    let texts = expected.map(|name| match name.strip_prefix('!') {
        Some(text) => text.to_owned(),
        None => format!("Invalid field: {name}"),
    });
    assert_eq!(check(&everything).unwrap_err(), texts.join(", "));
}

#[test]
fn update_validates_the_fields_that_it_carries() {
    let update = DesiredLrpUpdate::default;
    let found = |update: DesiredLrpUpdate| check(&update).err().unwrap_or_default();
    assert_eq!(found(update()), "");
    assert_eq!(
        found(DesiredLrpUpdate {
            instances: Some(0),
            ..update()
        }),
        ""
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            instances: Some(-1),
            ..update()
        }),
        "Invalid field: instances"
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            annotation: Some(vec![b'x'; 10_240]),
            ..update()
        }),
        ""
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            annotation: Some(vec![b'x'; 10_241]),
            ..update()
        }),
        "Invalid field: annotation"
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            routes: routes(131_072),
            ..update()
        }),
        ""
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            routes: routes(131_073),
            ..update()
        }),
        "Invalid field: routes"
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            metric_tags: vec![tag("source_id", "x")],
            ..update()
        }),
        ""
    );
    assert_eq!(
        found(DesiredLrpUpdate {
            metric_tags: vec![tag("a", "")],
            ..update()
        }),
        "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic"
    );
}

#[test]
fn update_needs_both_credentials_or_neither() {
    let found = |image_username: Option<&str>, image_password: Option<&str>| {
        let update = DesiredLrpUpdate {
            image_username: image_username.map(Into::into),
            image_password: image_password.map(Into::into),
            ..Default::default()
        };
        check(&update).err().unwrap_or_default()
    };
    assert_eq!(found(Some("u"), Some("p")), "");
    assert_eq!(found(Some(""), Some("")), "");
    assert_eq!(found(Some("u"), Some("")), "");
    assert_eq!(found(Some(""), None), "Invalid field: image_password");
    assert_eq!(found(None, Some("")), "Invalid field: image_username");
}

#[test]
fn findings_of_an_update_come_in_diegos_order() {
    let update = DesiredLrpUpdate {
        instances: Some(-1),
        annotation: Some(vec![b'x'; 10_241]),
        routes: routes(131_073),
        metric_tags: vec![tag("a", "")],
        image_username: Some(vec![]),
        image_password: None,
        lrp_definition: None,
    };
    let names = [
        "process_guid",
        "instances",
        "annotation",
        "routes",
        "metric_tags",
        "static",
        "dynamic",
        "image_password",
    ];
    let request = UpdateDesiredLrpRequest {
        process_guid: vec![],
        update: Some(update),
    };
    assert_eq!(
        check(&request).unwrap_err(),
        names
            .map(|name| format!("Invalid field: {name}"))
            .join(", ")
    );
}

#[test]
fn update_request_needs_a_guid_and_an_update() {
    let found = |guid: &str, update: Option<DesiredLrpUpdate>| {
        check(&UpdateDesiredLrpRequest {
            process_guid: guid.into(),
            update,
        })
        .err()
        .unwrap_or_default()
    };
    assert_eq!(found("any thing", Some(DesiredLrpUpdate::default())), "");
    assert_eq!(
        found("", Some(DesiredLrpUpdate::default())),
        "Invalid field: process_guid"
    );
    assert_eq!(found("p", None), "Invalid field: update");
    assert_eq!(found("", None), "Invalid field: process_guid");
}

#[test]
fn reads_and_removal_need_a_guid() {
    assert_eq!(check(&DesiredLrPsRequest::default()), Ok(()));
    assert_eq!(
        check(&DesiredLrpByProcessGuidRequest::default()).unwrap_err(),
        "Invalid field: process_guid"
    );
    assert_eq!(
        check(&DesiredLrpByProcessGuidRequest {
            process_guid: b"a b".to_vec()
        }),
        Ok(())
    );
    assert_eq!(
        check(&RemoveDesiredLrpRequest::default()).unwrap_err(),
        "Invalid field: process_guid"
    );
    assert_eq!(
        check(&RemoveDesiredLrpRequest {
            process_guid: b"a b".to_vec()
        }),
        Ok(())
    );
}
