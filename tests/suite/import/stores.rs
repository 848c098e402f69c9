//! Stores in the layouts of Diego's releases: the same deployment, written as each of them wrote
//! it. Owns the encodings; uses nothing of the host's decoding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_encryption::{Keyring, Sealing};
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::json;

pub use proto::{ActualLrp, DesiredLrpRunInfo, DesiredLrpSchedulingInfo, Task};

use crate::harness::etcd::Etcd;

/// A leaf of a store.
pub type Written = (String, String);

/// The layouts of the store, by the version that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLayout {
    /// Before versions: bare JSON of the receptor.
    Receptor,
    /// Version 0: bare JSON of the BBS; no migration has run.
    Json,
    /// 1441411196: base64 over protobuf.
    Protobuf,
    /// 1442529338: sealed, with desired LRPs in two halves.
    Halves,
    /// 1450292094: the same.
    HalvesAgain,
    /// 1451635200: times in milliseconds; run information and tasks are not sealed.
    Milliseconds,
}

impl StoreLayout {
    pub const ALL: [Self; 6] = [
        Self::Receptor,
        Self::Json,
        Self::Protobuf,
        Self::Halves,
        Self::HalvesAgain,
        Self::Milliseconds,
    ];

    fn version(self) -> Option<i64> {
        Some(match self {
            Self::Receptor => return None,
            Self::Json => 0,
            Self::Protobuf => 1_441_411_196,
            Self::Halves => 1_442_529_338,
            Self::HalvesAgain => 1_450_292_094,
            Self::Milliseconds => 1_451_635_200,
        })
    }

    fn is_json(self) -> bool {
        matches!(self, Self::Receptor | Self::Json)
    }
}

pub fn keyring() -> Keyring {
    Keyring::new(
        [
            ("key1", "correct horse battery staple"),
            ("old-2015", "tr0ub4dor&3"),
        ],
        "key1",
    )
    .expect("two keys")
}

/// The value of a version node.
pub fn version(current: i64, target: i64) -> String {
    format!(r#"{{"CurrentVersion":{current},"TargetVersion":{target}}}"#)
}

/// `02` over an enveloped message.
pub fn sealed(message: &impl Message) -> String {
    sealed_under(&keyring(), message)
}

/// [`sealed`] under the active key of another keyring.
pub fn sealed_under(keyring: &Keyring, message: &impl Message) -> String {
    let sealed = keyring.seal(Sealing::Enveloped, &message.encode_to_vec());
    String::from_utf8(sealed).expect("sealed text is ASCII")
}

/// `01` over an enveloped message.
pub fn encoded(message: &impl Message) -> String {
    format!(
        "01{}",
        STANDARD.encode([&[2, 0][..], &message.encode_to_vec()].concat())
    )
}

fn run(path: &str) -> proto::Action {
    let run = proto::RunAction {
        path: path.into(),
        user: "vcap".into(),
        ..Default::default()
    };
    proto::Action {
        run_action: Some(run),
        ..Default::default()
    }
}

/// An action that ends after 1.5 s, in the unit of the layout.
fn limited(layout: StoreLayout) -> proto::Action {
    let limit = proto::TimeoutAction {
        action: Some(Box::new(run("/bin/app"))),
        ..Default::default()
    };
    let limit = match layout {
        StoreLayout::Milliseconds => proto::TimeoutAction {
            timeout_ms: 1500,
            ..limit
        },
        _ => proto::TimeoutAction {
            deprecated_timeout_ns: 1_500_000_000,
            ..limit
        },
    };
    proto::Action {
        timeout_action: Some(Box::new(limit)),
        ..Default::default()
    }
}

/// The routes of `web`.
pub fn routes() -> proto::ProtoRoutes {
    let value = br#"[{"hostnames":["a.example.com"],"port":8080}]"#.to_vec();
    proto::ProtoRoutes {
        routes: vec![proto::RouteEntry {
            key: "cf-router".into(),
            value,
        }],
    }
}

fn key(guid: &str) -> proto::DesiredLrpKey {
    proto::DesiredLrpKey {
        process_guid: guid.into(),
        domain: "cf-apps".into(),
        log_guid: format!("log-{guid}").into(),
    }
}

fn tag(epoch: &str, index: u32) -> proto::ModificationTag {
    proto::ModificationTag {
        epoch: epoch.into(),
        index,
    }
}

/// The half of a desired LRP for scheduling.
pub fn scheduling(guid: &str) -> DesiredLrpSchedulingInfo {
    DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(key(guid)),
        annotation: "note".into(),
        instances: 2,
        desired_lrp_resource: Some(proto::DesiredLrpResource {
            memory_mb: 256,
            disk_mb: 1024,
            root_fs: "preloaded:cflinuxfs2".into(),
            max_pids: 0,
        }),
        routes: Some(routes()),
        modification_tag: Some(tag("e-1", 4)),
        ..Default::default()
    }
}

/// The half of a desired LRP for running.
pub fn run_info(guid: &str, layout: StoreLayout) -> DesiredLrpRunInfo {
    let info = DesiredLrpRunInfo {
        desired_lrp_key: Some(key(guid)),
        environment_variables: vec![proto::EnvironmentVariable {
            name: "A".into(),
            value: "1".into(),
        }],
        action: Some(limited(layout)),
        privileged: true,
        cpu_weight: 10,
        ports: vec![8080],
        egress_rules: vec![proto::SecurityGroupRule {
            protocol: "tcp".into(),
            destinations: vec!["0.0.0.0/0".into()],
            ports: vec![443],
            ..Default::default()
        }],
        log_source: "APP".into(),
        metrics_guid: format!("log-{guid}").into(),
        ..Default::default()
    };
    match layout {
        StoreLayout::Milliseconds => DesiredLrpRunInfo {
            start_timeout_ms: 60_000,
            ..info
        },
        _ => DesiredLrpRunInfo {
            deprecated_start_timeout_s: 60,
            ..info
        },
    }
}

/// A whole desired LRP of the first layouts.
pub fn whole(guid: &str, layout: StoreLayout) -> proto::DesiredLrp {
    let info = scheduling(guid);
    let run = run_info(guid, layout);
    let resource = info.desired_lrp_resource.expect("it has one");
    proto::DesiredLrp {
        process_guid: guid.into(),
        domain: "cf-apps".into(),
        root_fs: resource.root_fs,
        instances: info.instances,
        environment_variables: run.environment_variables,
        action: run.action,
        deprecated_start_timeout_s: run.deprecated_start_timeout_s,
        disk_mb: resource.disk_mb,
        memory_mb: resource.memory_mb,
        cpu_weight: run.cpu_weight,
        privileged: run.privileged,
        ports: run.ports,
        routes: info.routes,
        log_source: run.log_source,
        log_guid: format!("log-{guid}").into(),
        metrics_guid: run.metrics_guid,
        annotation: info.annotation,
        egress_rules: run.egress_rules,
        modification_tag: info.modification_tag,
        ..Default::default()
    }
}

/// An instance of a process.
pub fn instance(guid: &str, index: i32, state: &str, cell: &str) -> ActualLrp {
    let placed = !cell.is_empty();
    let net_info = proto::ActualLrpNetInfo {
        address: "10.0.0.7".into(),
        ports: vec![proto::PortMapping {
            container_port: 8080,
            host_port: 61_001,
            ..Default::default()
        }],
        ..Default::default()
    };
    ActualLrp {
        actual_lrp_key: Some(proto::ActualLrpKey {
            process_guid: guid.into(),
            index,
            domain: "cf-apps".into(),
        }),
        actual_lrp_instance_key: placed.then(|| proto::ActualLrpInstanceKey {
            instance_guid: format!("{guid}-{index}-{cell}").into(),
            cell_id: cell.into(),
        }),
        actual_lrp_net_info: placed.then_some(net_info),
        state: state.into(),
        since: 1_460_000_000_000_000_001,
        modification_tag: Some(tag("e-2", 1)),
        ..Default::default()
    }
}

/// The instances of the deployment: index, `instance` or `evacuating`, record.
fn instances() -> Vec<(&'static str, ActualLrp)> {
    let crashed = ActualLrp {
        crash_count: 3,
        crash_reason: "out of memory".into(),
        ..instance("web", 1, "CRASHED", "")
    };
    let waiting = ActualLrp {
        placement_error: "no cells".into(),
        ..instance("worker", 0, "UNCLAIMED", "")
    };
    vec![
        ("instance", instance("web", 0, "RUNNING", "cell-1")),
        ("evacuating", instance("web", 0, "RUNNING", "cell-0")),
        ("instance", crashed),
        ("instance", waiting),
    ]
}

pub fn task(guid: &str, state: i32, layout: StoreLayout) -> Task {
    let definition = proto::TaskDefinition {
        root_fs: "preloaded:cflinuxfs2".into(),
        action: Some(limited(layout)),
        disk_mb: 512,
        memory_mb: 128,
        completion_callback_url: "http://user:secret@callback.example/done?a=b".into(),
        annotation: "note".into(),
        ..Default::default()
    };
    let completed = state == 3;
    Task {
        task_definition: Some(definition),
        task_guid: guid.into(),
        domain: "cf-tasks".into(),
        created_at: 1_460_000_000_000_000_001,
        updated_at: 1_460_000_000_000_000_003,
        first_completed_at: if completed {
            1_460_000_000_000_000_002
        } else {
            0
        },
        state,
        cell_id: if completed {
            "cell-1".into()
        } else {
            Vec::new()
        },
        result: if completed {
            "partial".into()
        } else {
            Vec::new()
        },
        failed: completed,
        failure_reason: if completed {
            "exit status 1".into()
        } else {
            Vec::new()
        },
        ..Default::default()
    }
}

fn json_action() -> serde_json::Value {
    json!({ "timeout": { "action": { "run": { "path": "/bin/app", "resource_limits": {}, "user": "vcap" } }, "timeout": 1_500_000_000 } })
}

fn json_lrp(guid: &str) -> serde_json::Value {
    json!({
        "process_guid": guid, "domain": "cf-apps", "rootfs": "preloaded:cflinuxfs2", "instances": 2,
        "env": [{ "name": "A", "value": "1" }], "action": json_action(), "start_timeout": 60, "disk_mb": 1024, "memory_mb": 256,
        "cpu_weight": 10, "privileged": true, "ports": [8080],
        "routes": { "cf-router": [{ "hostnames": ["a.example.com"], "port": 8080 }] },
        "log_source": "APP", "log_guid": format!("log-{guid}"), "metrics_guid": format!("log-{guid}"), "annotation": "note",
        "egress_rules": [{ "protocol": "tcp", "destinations": ["0.0.0.0/0"], "ports": [443], "log": false }],
        "modification_tag": { "epoch": "e-1", "index": 4 },
    })
}

fn json_instance(lrp: &ActualLrp) -> serde_json::Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let key = lrp.actual_lrp_key.clone().expect("a key");
    let instance = lrp.actual_lrp_instance_key.clone();
    let instance = instance.unwrap_or_default();
    let net = lrp.actual_lrp_net_info.clone().unwrap_or_default();
    let ports = net
        .ports
        .iter()
        .map(|port| json!({ "container_port": port.container_port, "host_port": port.host_port }));
    json!({
        "process_guid": text(&key.process_guid), "index": key.index, "domain": text(&key.domain),
        "instance_guid": text(&instance.instance_guid), "cell_id": text(&instance.cell_id), "address": text(&net.address),
        "ports": ports.collect::<Vec<_>>(), "crash_count": lrp.crash_count, "crash_reason": text(&lrp.crash_reason),
        "placement_error": text(&lrp.placement_error), "state": text(&lrp.state), "since": lrp.since,
        "modification_tag": { "epoch": "e-2", "index": 1 },
    })
}

fn json_task(task: &Task, layout: StoreLayout) -> serde_json::Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let names = ["Invalid", "Pending", "Running", "Completed", "Resolving"];
    let state = match layout {
        StoreLayout::Receptor => json!(task.state),
        _ => json!(names[task.state as usize]),
    };
    json!({
        "task_guid": text(&task.task_guid), "domain": text(&task.domain), "cell_id": text(&task.cell_id),
        "result": text(&task.result), "failed": task.failed, "failure_reason": text(&task.failure_reason), "state": state,
        "created_at": task.created_at, "updated_at": task.updated_at, "first_completed_at": task.first_completed_at,
        "rootfs": "preloaded:cflinuxfs2", "disk_mb": 512, "memory_mb": 128, "cpu_weight": 0, "privileged": false,
        "log_guid": "", "log_source": "", "metrics_guid": "", "result_file": "", "env": null, "annotation": "note",
        "action": json_action(), "completion_callback_url": "http://user:secret@callback.example/done?a=b",
    })
}

/// All leaves of the deployment that do not expire.
pub fn deployment(layout: StoreLayout) -> Vec<Written> {
    let mut leaves: Vec<Written> = Vec::new();
    if let Some(number) = layout.version() {
        leaves.push((
            "/version".to_owned(),
            version(number, 1_451_635_200.max(number)),
        ));
    }
    for guid in ["web", "worker"] {
        let info = scheduling(guid);
        let run = run_info(guid, layout);
        match layout {
            StoreLayout::Receptor | StoreLayout::Json => {
                leaves.push((format!("/v1/desired/{guid}"), json_lrp(guid).to_string()));
            }
            StoreLayout::Protobuf => {
                leaves.push((format!("/v1/desired/{guid}"), encoded(&whole(guid, layout))))
            }
            StoreLayout::Halves | StoreLayout::HalvesAgain | StoreLayout::Milliseconds => {
                let is_open = layout == StoreLayout::Milliseconds;
                leaves.push((format!("/v1/desired_lrp/schedule/{guid}"), sealed(&info)));
                let run = if is_open { encoded(&run) } else { sealed(&run) };
                leaves.push((format!("/v1/desired_lrp/run/{guid}"), run));
            }
        }
    }
    if !layout.is_json() && layout != StoreLayout::Protobuf {
        leaves.push(("/encryption-key".to_owned(), "key1".to_owned()));
    }
    for (slot, lrp) in instances()
        .into_iter()
        .filter(|(slot, _)| *slot == "instance")
    {
        leaves.push((instance_key(&lrp, slot), instance_value(&lrp, layout)));
    }
    for (guid, state) in [("task-1", 1), ("task-2", 3)] {
        let task = task(guid, state, layout);
        let value = match layout {
            StoreLayout::Receptor | StoreLayout::Json => json_task(&task, layout).to_string(),
            StoreLayout::Protobuf | StoreLayout::Milliseconds => encoded(&task),
            StoreLayout::Halves | StoreLayout::HalvesAgain => sealed(&task),
        };
        leaves.push((format!("/v1/task/{guid}"), value));
    }
    leaves.push(("/v1/domain/forever".to_owned(), String::new()));
    leaves
}

fn instance_key(lrp: &ActualLrp, slot: &str) -> String {
    let key = lrp.actual_lrp_key.clone().expect("a key");
    format!(
        "/v1/actual/{}/{}/{slot}",
        String::from_utf8_lossy(&key.process_guid),
        key.index
    )
}

fn instance_value(lrp: &ActualLrp, layout: StoreLayout) -> String {
    match layout {
        StoreLayout::Receptor | StoreLayout::Json => json_instance(lrp).to_string(),
        StoreLayout::Protobuf => encoded(lrp),
        StoreLayout::Halves | StoreLayout::HalvesAgain | StoreLayout::Milliseconds => sealed(lrp),
    }
}

/// Writes the deployment, with an evacuating instance and a domain that expire long after the test.
pub async fn write(etcd: &Etcd, layout: StoreLayout) {
    etcd.put_all(deployment(layout)).await;
    for (slot, lrp) in instances()
        .into_iter()
        .filter(|(slot, _)| *slot == "evacuating")
    {
        etcd.put(
            &instance_key(&lrp, slot),
            &instance_value(&lrp, layout),
            Some(3600),
        )
        .await;
    }
    etcd.put("/v1/domain/cf-apps", "", Some(3600)).await;
}
