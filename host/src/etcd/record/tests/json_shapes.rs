//! Shapes of JSON records: those of the receptor and those of the BBS.

use bbs_proto::models::{
    Action, ActualLrp, DesiredLrp, EmitProgressAction, IcmpInfo, PortMapping, PortRange,
    ResourceLimits, RouteEntry, SecurityGroupRule, Task, UploadAction,
};

use super::{base64, decoded, sealed};
use crate::etcd::record::{EtcdRecord, RecordError, split};

fn task(json: &str) -> Result<Task, RecordError> {
    match decoded("/v1/task/t", json)? {
        EtcdRecord::Task(task) => Ok(*task),
        other => panic!("not a task: {other:?}"),
    }
}

/// A task with further members.
fn task_with(members: &str) -> Result<Task, RecordError> {
    task(&format!(r#"{{"task_guid":"t",{members}}}"#))
}

fn action(json: &str) -> Result<Action, RecordError> {
    Ok(task_with(&format!(r#""action":{json}"#))?
        .task_definition
        .unwrap()
        .action
        .unwrap())
}

fn desired_lrp(json: &str) -> DesiredLrp {
    match decoded("/v1/desired/g", json) {
        Ok(EtcdRecord::DesiredLrp(lrp)) => *lrp,
        other => panic!("not a desired LRP: {other:?}"),
    }
}

fn actual_lrp(json: &str) -> ActualLrp {
    match decoded("/v1/actual/g/7/instance", json) {
        Ok(EtcdRecord::ActualLrp {
            lrp,
            evacuating: false,
        }) => *lrp,
        other => panic!("not an actual LRP: {other:?}"),
    }
}

#[test]
fn actual_lrps_of_both_writers_are_equal() {
    // The receptor omits a zero host port.
    let receptor = r#"{"process_guid":"g","index":7,"domain":"d","instance_guid":"i","cell_id":"c","address":"1.2.3.4",
        "ports":[{"container_port":8080},{"container_port":8081,"host_port":9}],"crash_count":2,"state":"RUNNING",
        "since":1430000000123456789,"modification_tag":{"epoch":"e","index":4294967295}}"#;
    let bbs = r#"{"Process_Guid":"g","index":7,"domain":"d","instance_guid":"i","cell_id":"c","address":"1.2.3.4",
        "ports":[{"container_port":8080,"host_port":0},{"container_port":8081,"host_port":9}],"crash_count":2,
        "crash_reason":"","state":"RUNNING","placement_error":"","since":1430000000123456789,
        "modification_tag":{"epoch":"e","index":4294967295},"unknown":{"process_guid":"other"}}"#;
    let lrp = actual_lrp(receptor);
    assert_eq!(lrp, actual_lrp(bbs));
    let port = |container_port, host_port| PortMapping {
        container_port,
        host_port,
        ..PortMapping::default()
    };
    assert_eq!(
        lrp.actual_lrp_net_info.unwrap().ports,
        [port(8080, 0), port(8081, 9)]
    );
    assert_eq!(
        (lrp.since, lrp.crash_count),
        (1_430_000_000_123_456_789, 2),
        "exact beyond 2^53"
    );
    assert_eq!(lrp.modification_tag.unwrap().index, u32::MAX);
}

#[test]
fn each_encoding_and_envelope_of_json_decodes_alike() {
    let json = r#"{"process_guid":"g","index":7,"domain":"d","state":"UNCLAIMED"}"#;
    let plain = actual_lrp(json);
    let enveloped = |version: u8| [&[1, version], json.as_bytes()].concat();
    let mut values = vec![
        format!("00{json}"),
        base64(json.as_bytes()),
        sealed(json.as_bytes()),
    ];
    for version in 0..=2 {
        let text = String::from_utf8(enveloped(version)).unwrap();
        values.extend([
            text.clone(),
            format!("00{text}"),
            base64(text.as_bytes()),
            sealed(text.as_bytes()),
        ]);
    }
    for value in values {
        assert_eq!(actual_lrp(&value), plain, "{value:?}");
    }
}

#[test]
fn task_state_is_a_number_or_a_name() {
    for (number, name) in ["Invalid", "Pending", "Running", "Completed", "Resolving"]
        .into_iter()
        .enumerate()
    {
        let by_number = task_with(&format!(r#""state":{number}"#)).unwrap();
        assert_eq!(
            by_number,
            task_with(&format!(r#""state":"{name}""#)).unwrap()
        );
        assert_eq!(by_number.state, i32::try_from(number).unwrap());
    }
    assert_eq!(task_with(r#""state":null"#).unwrap().state, 0);
    for wrong in ["5", "-1", "1.0", "\"pending\"", "\"\"", "true", "[]"] {
        let found = task_with(&format!(r#""state":{wrong}"#));
        assert!(
            matches!(found, Err(RecordError::JsonMember { key: "state", .. })),
            "{wrong}: {found:?}"
        );
    }
}

#[test]
fn callback_is_a_string_or_the_parts_of_a_url() {
    let url = |json: &str| {
        let task = task_with(&format!(r#""completion_callback_url":{json}"#))?;
        Ok(String::from_utf8(task.task_definition.unwrap().completion_callback_url).unwrap())
    };
    assert_eq!(
        url(r#""http://u:p@h/cb?a=1\u0026b""#),
        Ok("http://u:p@h/cb?a=1&b".into())
    );
    let parts = r#"{"Scheme":"http","Opaque":"","User":{},"Host":"h:1","Path":"/cb","RawQuery":"a=1&b","Fragment":""}"#;
    assert_eq!(
        url(parts),
        Ok("http://h:1/cb?a=1&b".into()),
        "the credentials are not in the store"
    );
    assert_eq!(url("null"), Ok(String::new()));
    for wrong in ["1", "[]", r#"{"Host":1}"#] {
        assert!(
            matches!(url(wrong), Err(RecordError::JsonMember { .. })),
            "{wrong}"
        );
    }
}

#[test]
fn task_definition_is_inlined() {
    let task = task_with(
        r#""rootfs":"r","env":[{"name":"A","value":"1"}],"action":null,"cpu_weight":100,"metrics_guid":"m",
        "annotation":"n","result_file":"f","result":"x","failed":true,"failure_reason":"y","egress_rules":[
            {"protocol":"tcp","destinations":["0.0.0.0/0","1.1.1.1"],"ports":[80,443],"log":true},
            {"protocol":"udp","destinations":["0.0.0.0/0"],"port_range":{"start":1,"end":65535}},
            {"protocol":"icmp","icmp_info":{"type":-1,"code":-1},"log":false}]"#,
    )
    .unwrap();
    let definition = task.task_definition.unwrap();
    assert_eq!(
        (task.failed, &task.failure_reason[..], &task.result[..]),
        (true, &b"y"[..], &b"x"[..])
    );
    assert_eq!(
        (
            definition.action,
            &definition.metrics_guid[..],
            definition.cpu_weight
        ),
        (None, &b"m"[..], 100)
    );
    assert_eq!(
        (&definition.annotation[..], &definition.result_file[..]),
        (&b"n"[..], &b"f"[..])
    );
    let rule = |protocol: &str, destinations: &[&str]| SecurityGroupRule {
        protocol: protocol.into(),
        destinations: destinations.iter().map(|text| (*text).into()).collect(),
        ..SecurityGroupRule::default()
    };
    assert_eq!(
        definition.egress_rules,
        [
            SecurityGroupRule {
                ports: vec![80, 443],
                log: true,
                ..rule("tcp", &["0.0.0.0/0", "1.1.1.1"])
            },
            SecurityGroupRule {
                port_range: Some(PortRange {
                    start: 1,
                    end: 65535
                }),
                ..rule("udp", &["0.0.0.0/0"])
            },
            SecurityGroupRule {
                icmp_info: Some(IcmpInfo {
                    r#type: -1,
                    code: -1
                }),
                ..rule("icmp", &[])
            },
        ]
    );
}

#[test]
fn each_kind_of_action_is_decoded() {
    let download = r#"{"download":{"artifact":"a","from":"f","to":"t","cache_key":"k","user":"u","log_source":"l"}}"#;
    let found = action(download).unwrap().download_action.unwrap();
    assert_eq!(
        [&found.artifact, &found.from, &found.to, &found.cache_key],
        [b"a", b"f", b"t", b"k"]
    );
    assert_eq!([&found.user, &found.log_source], [b"u", b"l"]);

    let upload = UploadAction {
        artifact: b"a".into(),
        from: b"f".into(),
        to: b"t".into(),
        user: b"u".into(),
        log_source: b"l".into(),
    };
    let found =
        action(r#"{"upload":{"artifact":"a","from":"f","to":"t","user":"u","log_source":"l"}}"#)
            .unwrap();
    assert_eq!(
        found,
        Action {
            upload_action: Some(upload),
            ..Action::default()
        }
    );

    let run = r#"{"run":{"path":"p","args":["a","",null],"dir":"d","env":[{"name":"N","value":"V"}],"user":"u",
        "resource_limits":{"nofile":0},"log_source":"l"}}"#;
    let found = action(run).unwrap().run_action.unwrap();
    assert_eq!(
        [&found.path[..], &found.dir, &found.user, &found.log_source],
        [b"p", b"d", b"u", b"l"]
    );
    assert_eq!(found.args, [b"a".to_vec(), vec![], vec![]]);
    assert_eq!(
        (&found.env[0].name[..], &found.env[0].value[..]),
        (&b"N"[..], &b"V"[..])
    );
    assert_eq!(
        found.resource_limits,
        Some(ResourceLimits {
            nofile: Some(0),
            nproc: None
        })
    );

    let inner = r#"{"run":{"path":"p"}}"#;
    let run = action(inner).unwrap();
    let emit = format!(
        r#"{{"emit_progress":{{"action":{inner},"start_message":"s","success_message":"o",
        "failure_message_prefix":"f","log_source":"l"}}}}"#
    );
    let emitted = EmitProgressAction {
        action: Some(Box::new(run.clone())),
        start_message: b"s".into(),
        success_message: b"o".into(),
        failure_message_prefix: b"f".into(),
        log_source: b"l".into(),
    };
    assert_eq!(
        action(&emit).unwrap().emit_progress_action,
        Some(Box::new(emitted))
    );
    let found = action(&format!(
        r#"{{"try":{{"action":{inner},"log_source":"l"}}}}"#
    ))
    .unwrap()
    .try_action
    .unwrap();
    assert_eq!(
        (found.action.as_deref(), &found.log_source[..]),
        (Some(&run), &b"l"[..])
    );
    let found = action(&format!(
        r#"{{"timeout":{{"action":{inner},"timeout":2000000,"log_source":"l"}}}}"#
    ))
    .unwrap();
    let found = found.timeout_action.unwrap();
    assert_eq!(
        (
            found.action.as_deref(),
            found.timeout_ms,
            found.deprecated_timeout_ns
        ),
        (Some(&run), 2, 0)
    );
}

#[test]
fn lists_of_actions_are_decoded() {
    let list = |kind: &str| {
        let one = r#"{"run":{"path":"p"}}"#;
        action(&format!(
            r#"{{"{kind}":{{"actions":[{one},{{"try":{{"action":{one}}}}}],"log_source":"l"}}}}"#
        ))
        .unwrap()
    };
    let run = action(r#"{"run":{"path":"p"}}"#).unwrap();
    let attempt = action(r#"{"try":{"action":{"run":{"path":"p"}}}}"#).unwrap();
    let actions = vec![run, attempt];
    let parallel = list("parallel").parallel_action.unwrap();
    let serial = list("serial").serial_action.unwrap();
    let codependent = list("codependent").codependent_action.unwrap();
    assert_eq!(
        [&parallel.actions, &serial.actions, &codependent.actions],
        [&actions; 3]
    );
    assert_eq!(
        [
            &parallel.log_source,
            &serial.log_source,
            &codependent.log_source
        ],
        [b"l"; 3]
    );
}

#[test]
fn action_without_its_kind_is_an_error() {
    for wrong in [
        "{}",
        r#"{"run":null}"#,
        r#"{"shout":{}}"#,
        r#"{"run":{},"try":{}}"#,
        r#"{"serial":{"actions":[{}]}}"#,
        r#"{"serial":{"actions":[null]}}"#,
        r#"{"try":{"action":{}}}"#,
    ] {
        assert_eq!(action(wrong), Err(RecordError::ActionKind), "{wrong}");
    }
    assert_eq!(
        action("[]"),
        Err(RecordError::JsonMember {
            key: "action",
            expected: "an object"
        })
    );
    assert_eq!(
        action(r#"{"run":[]}"#),
        Err(RecordError::JsonMember {
            key: "run",
            expected: "an object"
        })
    );
}

#[test]
fn empty_parts_of_a_desired_lrp_may_be_null_or_absent() {
    let absent = r#"{"process_guid":"g","domain":"d"}"#;
    let null = r#"{"process_guid":"g","domain":"d","env":null,"setup":null,"action":null,"monitor":null,"ports":null,
        "routes":null,"annotation":null,"egress_rules":null,"modification_tag":null,"start_timeout":null,
        "privileged":null}"#;
    assert_eq!(desired_lrp(absent), desired_lrp(null));
    assert_eq!(desired_lrp(absent).routes, None);
    let empty = desired_lrp(r#"{"process_guid":"g","domain":"d","routes":{},"env":[]}"#);
    assert_eq!(empty.routes.unwrap().routes, []);
}

#[test]
fn routes_keep_their_json() {
    let lrp = desired_lrp(
        r#"{"process_guid":"g","routes":{"cf-router":[ {"port": 1.50} ],"ssh":"x","nil":null}}"#,
    );
    let route = |key: &str, value: &str| RouteEntry {
        key: key.into(),
        value: value.into(),
    };
    assert_eq!(
        lrp.routes.unwrap().routes,
        [
            route("cf-router", r#"[ {"port": 1.50} ]"#),
            route("ssh", "\"x\""),
            route("nil", "null")
        ]
    );
}

#[test]
fn whole_desired_lrp_is_split_without_loss() {
    let lrp = desired_lrp(
        r#"{"process_guid":"g","domain":"d","log_guid":"l","annotation":"n","instances":3,"memory_mb":4,"disk_mb":5,
        "rootfs":"r","routes":{"a":1},"modification_tag":{"epoch":"e","index":6},"env":[{"name":"N","value":"V"}],
        "setup":{"run":{"path":"s"}},"action":{"run":{"path":"a"}},"monitor":{"run":{"path":"m"}},"start_timeout":7,
        "privileged":true,"cpu_weight":8,"ports":[9],"egress_rules":[{"protocol":"all"}],"log_source":"s",
        "metrics_guid":"m"}"#,
    );
    let (scheduling_info, run_info) = split(lrp.clone());
    let key = run_info.desired_lrp_key.unwrap();
    let resource = scheduling_info.desired_lrp_resource.unwrap();
    assert_eq!(scheduling_info.desired_lrp_key, Some(key.clone()));
    assert_eq!(
        (
            scheduling_info.volume_placement,
            run_info.created_at,
            resource.max_pids
        ),
        (None, 0, 0)
    );
    let joined = DesiredLrp {
        process_guid: key.process_guid,
        domain: key.domain,
        log_guid: key.log_guid,
        annotation: scheduling_info.annotation,
        instances: scheduling_info.instances,
        memory_mb: resource.memory_mb,
        disk_mb: resource.disk_mb,
        root_fs: resource.root_fs,
        routes: scheduling_info.routes,
        modification_tag: scheduling_info.modification_tag,
        environment_variables: run_info.environment_variables,
        setup: run_info.setup,
        action: run_info.action,
        monitor: run_info.monitor,
        start_timeout_ms: run_info.start_timeout_ms,
        privileged: run_info.privileged,
        cpu_weight: run_info.cpu_weight,
        ports: run_info.ports,
        egress_rules: run_info.egress_rules,
        log_source: run_info.log_source,
        metrics_guid: run_info.metrics_guid,
        ..DesiredLrp::default()
    };
    assert_eq!(joined, lrp);
    assert_eq!(joined.start_timeout_ms, 7000);
}
