//! The vectors of `tests/vectors/etcd.tsv`: values of every form, and what they mean.

use bbs_encryption::EncryptionError;
use bbs_files::digest::to_hex;
use bbs_proto::models::{
    Action, ActualLrp, ActualLrpInstanceKey, ActualLrpKey, ActualLrpNetInfo, DesiredLrp,
    DesiredLrpKey, DesiredLrpResource, DesiredLrpRunInfo, DesiredLrpSchedulingInfo, DownloadAction,
    EnvironmentVariable, ModificationTag, PortMapping, ProtoRoutes, ResourceLimits, RouteEntry,
    RunAction, SerialAction, Task, TaskDefinition, TimeoutAction, VolumePlacement,
};

use super::{decoded, keyring};
use crate::etcd::record::value::plain;
use crate::etcd::record::{
    EtcdRecord, RecordError, RecordKey, RecordKind, StoreVersion, StoredAs, judge, label,
};

pub(super) struct Vector {
    pub(super) case: String,
    pub(super) path: String,
    pub(super) value: String,
    /// The value without its tag. `-` if it has none.
    pub(super) decoded_hex: String,
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut lines = include_str!("../../../../../tests/vectors/etcd.tsv").lines();
    assert_eq!(
        lines.next(),
        Some("case\tpath\tttl_s\tvalue_json\tdecoded_hex\tmeaning")
    );
    lines
        .map(|line| {
            let [case, path, _, value, decoded_hex, _] = line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("not six columns: {line}");
            };
            let value = serde_json::from_str(value).unwrap();
            Vector {
                case: case.into(),
                path: path.into(),
                value,
                decoded_hex: decoded_hex.into(),
            }
        })
        .collect()
}

#[test]
fn vectors_decode_to_their_meaning() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 20);
    for Vector {
        case,
        path,
        value,
        decoded_hex,
    } in vectors
    {
        let found = plain(&value, &keyring());
        match decoded_hex.as_str() {
            "-" => assert_eq!(found.unwrap(), value.as_bytes(), "{case}"),
            "unreadable" => assert_eq!(found, Err(unknown_label()), "{case}"),
            plain => assert_eq!(to_hex(&found.unwrap()), plain, "{case}"),
        }
        let found = decoded(&path, &value);
        assert_eq!(found, expected(&case), "{case}");
        if let Ok(EtcdRecord::Version(version)) = found {
            assert_eq!(judge(Some(version)), expected_version(&case), "{case}");
        }
    }
}

#[test]
fn labels_of_the_vectors_are_read_without_a_key() {
    let labels: Vec<_> = vectors()
        .iter()
        .filter_map(|vector| {
            Some((
                label(&vector.value).unwrap()?,
                RecordKey::of(&vector.path).kind,
            ))
        })
        .collect();
    let labels: Vec<_> = labels
        .iter()
        .map(|(label, kind)| (label.as_str(), *kind))
        .collect();
    assert_eq!(
        labels,
        [
            ("old-2015", RecordKind::Domain),
            ("key1", RecordKind::SchedulingInfo),
            ("key1", RecordKind::RunInfo),
            ("old-2015", RecordKind::SchedulingInfo),
            ("lost", RecordKind::RunInfo),
            ("key1", RecordKind::ActualLrp),
            ("key1", RecordKind::EvacuatingActualLrp),
            ("key1", RecordKind::Task),
        ]
    );
}

fn unknown_label() -> RecordError {
    let label = "lost".to_owned();
    EncryptionError::UnknownKey { label }.into()
}

fn expected_version(case: &str) -> StoreVersion {
    match case {
        "version, released layout" | "version, interrupted migration" => StoreVersion::Readable {
            stored_as: Some(StoredAs::Halves),
        },
        "version, already imported" => StoreVersion::AlreadyImported {
            current: 1_451_635_201,
        },
        _ => panic!("no version is expected of {case}"),
    }
}

fn expected(case: &str) -> Result<EtcdRecord, RecordError> {
    let domain = |name: &str| EtcdRecord::Domain { name: name.into() };
    let actual_lrp = |lrp, evacuating| EtcdRecord::ActualLrp {
        lrp: Box::new(lrp),
        evacuating,
    };
    Ok(match case {
        "version, released layout" => EtcdRecord::Version(1_451_635_200),
        "version, interrupted migration" => EtcdRecord::Version(1_442_529_338),
        "version, already imported" => EtcdRecord::Version(1_451_635_201),
        "domain with TTL" => domain("cf-apps"),
        "domain without TTL" => domain("forever"),
        "domain after a key rotation" => domain("cf-tasks"),
        "whole desired LRP, legacy JSON" => EtcdRecord::DesiredLrp(Box::new(pg_old())),
        "whole desired LRP, base64 protobuf" => EtcdRecord::DesiredLrp(Box::new(pg_old2())),
        "scheduling info, encrypted" => EtcdRecord::SchedulingInfo(Box::new(scheduling_info_1())),
        "run info, encrypted, before 1451635200" => EtcdRecord::RunInfo(Box::new(run_info_1())),
        "scheduling info, nothing optional" => {
            EtcdRecord::SchedulingInfo(Box::new(scheduling_info_2()))
        }
        "run info, unencrypted, after 1451635200" => EtcdRecord::RunInfo(Box::new(run_info_2())),
        "run info, unknown key, no scheduling info" => {
            return Err(unknown_label());
        }
        "actual LRP, running" => actual_lrp(running(), false),
        "actual LRP, evacuating" => actual_lrp(evacuating(), true),
        "actual LRP, legacy JSON" => actual_lrp(crashed(), false),
        "actual LRP, tag 00, JSON envelope" => actual_lrp(unclaimed(), false),
        "task, encrypted, version byte 1" => EtcdRecord::Task(Box::new(t_1())),
        "task, legacy JSON, receptor era" => EtcdRecord::Task(Box::new(t_2())),
        "task, tag 01 over bare JSON" => EtcdRecord::Task(Box::new(t_3())),
        _ => panic!("no meaning of {case}"),
    })
}

fn run(run: RunAction) -> Action {
    Action {
        run_action: Some(run),
        ..Action::default()
    }
}

fn run_of(path: &str, user: &str) -> RunAction {
    RunAction {
        path: path.into(),
        user: user.into(),
        ..RunAction::default()
    }
}

fn timeout(ms: i64, action: Action) -> Action {
    let timeout = TimeoutAction {
        action: Some(Box::new(action)),
        timeout_ms: ms,
        ..TimeoutAction::default()
    };
    Action {
        timeout_action: Some(Box::new(timeout)),
        ..Action::default()
    }
}

fn variable(name: &str, value: &str) -> EnvironmentVariable {
    EnvironmentVariable {
        name: name.into(),
        value: value.into(),
    }
}

fn tag(epoch: &str, index: u32) -> Option<ModificationTag> {
    Some(ModificationTag {
        epoch: epoch.into(),
        index,
    })
}

fn routes(value: &str) -> Option<ProtoRoutes> {
    Some(ProtoRoutes {
        routes: vec![RouteEntry {
            key: b"cf-router".to_vec(),
            value: value.into(),
        }],
    })
}

fn pg_old() -> DesiredLrp {
    let download = DownloadAction {
        from: b"http://fs/a.tgz".to_vec(),
        to: b"/app".to_vec(),
        user: b"vcap".to_vec(),
        ..DownloadAction::default()
    };
    let download = Action {
        download_action: Some(download),
        ..Action::default()
    };
    let serial = SerialAction {
        actions: vec![download],
        ..SerialAction::default()
    };
    let app = RunAction {
        args: vec![b"-v".to_vec()],
        env: vec![variable("PORT", "8080")],
        ..run_of("/bin/app", "vcap")
    };
    DesiredLrp {
        process_guid: b"pg-old".to_vec(),
        domain: b"cf-apps".to_vec(),
        root_fs: b"preloaded:cflinuxfs2".to_vec(),
        instances: 2,
        environment_variables: vec![variable("A", "1")],
        setup: Some(Action {
            serial_action: Some(serial),
            ..Action::default()
        }),
        action: Some(timeout(1500, run(app))),
        disk_mb: 1024,
        memory_mb: 256,
        cpu_weight: 10,
        ports: vec![8080],
        routes: routes(r#"[{"hostnames":["a.example.com"],"port":8080}]"#),
        log_source: b"APP".to_vec(),
        log_guid: b"log-old".to_vec(),
        metrics_guid: b"log-old".to_vec(),
        modification_tag: tag("e-1", 4),
        start_timeout_ms: 60_000,
        ..DesiredLrp::default()
    }
}

fn pg_old2() -> DesiredLrp {
    DesiredLrp {
        process_guid: b"pg-old2".to_vec(),
        domain: b"cf-apps".to_vec(),
        root_fs: b"preloaded:cflinuxfs2".to_vec(),
        instances: 1,
        action: Some(run(run_of("/bin/app", "vcap"))),
        disk_mb: 512,
        memory_mb: 128,
        cpu_weight: 5,
        privileged: true,
        ports: vec![8080],
        routes: routes("[]"),
        log_source: b"APP".to_vec(),
        log_guid: b"log-2".to_vec(),
        annotation: b"note".to_vec(),
        modification_tag: tag("e-2", 0),
        start_timeout_ms: 90_000,
        ..DesiredLrp::default()
    }
}

fn lrp_key(process_guid: &str, log_guid: &str) -> Option<DesiredLrpKey> {
    let process_guid = process_guid.into();
    let log_guid = log_guid.into();
    Some(DesiredLrpKey {
        process_guid,
        domain: b"cf-apps".to_vec(),
        log_guid,
    })
}

fn scheduling_info_1() -> DesiredLrpSchedulingInfo {
    DesiredLrpSchedulingInfo {
        desired_lrp_key: lrp_key("pg-1", "log-1"),
        annotation: b"v1".to_vec(),
        instances: 2,
        desired_lrp_resource: Some(DesiredLrpResource {
            memory_mb: 256,
            disk_mb: 1024,
            root_fs: b"preloaded:cflinuxfs2".to_vec(),
            max_pids: 0,
        }),
        routes: routes(r#"[{"hostnames":["a.example.com"],"port":8080}]"#),
        modification_tag: tag("e-3", 3),
        volume_placement: Some(VolumePlacement {
            driver_names: vec![b"local".to_vec()],
        }),
        placement_tags: vec![b"iso-1".to_vec()],
        ..DesiredLrpSchedulingInfo::default()
    }
}

fn run_info_1() -> DesiredLrpRunInfo {
    DesiredLrpRunInfo {
        desired_lrp_key: lrp_key("pg-1", "log-1"),
        environment_variables: vec![variable("FOO", "bar")],
        action: Some(timeout(5000, run(run_of("/bin/app", "vcap")))),
        privileged: false,
        cpu_weight: 10,
        ports: vec![8080],
        log_source: b"APP".to_vec(),
        metrics_guid: b"log-1".to_vec(),
        created_at: 1_450_000_000_000_000_000,
        start_timeout_ms: 60_000,
        ..DesiredLrpRunInfo::default()
    }
}

fn scheduling_info_2() -> DesiredLrpSchedulingInfo {
    DesiredLrpSchedulingInfo {
        desired_lrp_key: lrp_key("pg-2", "log-2"),
        desired_lrp_resource: Some(DesiredLrpResource {
            memory_mb: 64,
            root_fs: b"docker:///x/y".to_vec(),
            ..DesiredLrpResource::default()
        }),
        routes: Some(ProtoRoutes::default()),
        modification_tag: tag("e-4", 0),
        ..DesiredLrpSchedulingInfo::default()
    }
}

fn run_info_2() -> DesiredLrpRunInfo {
    DesiredLrpRunInfo {
        desired_lrp_key: lrp_key("pg-2", "log-2"),
        action: Some(timeout(5000, run(run_of("/bin/app", "vcap")))),
        created_at: 1_460_000_000_000_000_000,
        start_timeout_ms: 60_000,
        ..DesiredLrpRunInfo::default()
    }
}

fn actual(process_guid: &str, index: i32, state: &str) -> ActualLrp {
    ActualLrp {
        actual_lrp_key: Some(ActualLrpKey {
            process_guid: process_guid.into(),
            index,
            domain: b"cf-apps".to_vec(),
        }),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::default()),
        actual_lrp_net_info: Some(ActualLrpNetInfo::default()),
        state: state.into(),
        ..ActualLrp::default()
    }
}

fn placed(instance_guid: &str, cell_id: &str) -> Option<ActualLrpInstanceKey> {
    Some(ActualLrpInstanceKey {
        instance_guid: instance_guid.into(),
        cell_id: cell_id.into(),
    })
}

fn net_info(address: &str, host_port: u32) -> Option<ActualLrpNetInfo> {
    let ports = vec![PortMapping {
        container_port: 8080,
        host_port,
        ..PortMapping::default()
    }];
    Some(ActualLrpNetInfo {
        address: address.into(),
        ports,
        ..ActualLrpNetInfo::default()
    })
}

fn running() -> ActualLrp {
    ActualLrp {
        actual_lrp_instance_key: placed("ig-1", "cell-1"),
        actual_lrp_net_info: net_info("10.0.0.1", 61001),
        since: 1_450_000_001_000_000_000,
        modification_tag: tag("e-5", 2),
        ..actual("pg-1", 0, "RUNNING")
    }
}

fn evacuating() -> ActualLrp {
    ActualLrp {
        actual_lrp_instance_key: placed("ig-2", "cell-2"),
        actual_lrp_net_info: net_info("10.0.0.2", 61002),
        since: 1_450_000_002_000_000_000,
        modification_tag: tag("e-6", 1),
        ..actual("pg-1", 1, "RUNNING")
    }
}

fn crashed() -> ActualLrp {
    ActualLrp {
        crash_count: 3,
        crash_reason: b"exit status 1".to_vec(),
        since: 1_440_000_000_000_000_000,
        modification_tag: tag("e-7", 9),
        ..actual("pg-2", 0, "CRASHED")
    }
}

fn unclaimed() -> ActualLrp {
    ActualLrp {
        placement_error: b"insufficient resources".to_vec(),
        since: 1_440_000_000_000_000_000,
        modification_tag: tag("e-8", 1),
        ..actual("pg-1", 1, "UNCLAIMED")
    }
}

fn t_1() -> Task {
    let definition = TaskDefinition {
        root_fs: b"preloaded:cflinuxfs2".to_vec(),
        action: Some(run(run_of("/bin/task", "vcap"))),
        disk_mb: 1024,
        memory_mb: 256,
        log_source: b"TASK".to_vec(),
        log_guid: b"log-t".to_vec(),
        result_file: b"/tmp/result".to_vec(),
        completion_callback_url: b"http://cc/cb".to_vec(),
        annotation: br#"{"k":1}"#.to_vec(),
        ..TaskDefinition::default()
    };
    Task {
        task_definition: Some(definition),
        task_guid: b"t-1".to_vec(),
        domain: b"cf-tasks".to_vec(),
        created_at: 1_450_000_000_000_000_000,
        updated_at: 1_450_000_005_000_000_000,
        first_completed_at: 1_450_000_005_000_000_000,
        state: 3,
        failed: true,
        failure_reason: b"exit status 2".to_vec(),
        ..Task::default()
    }
}

fn t_2() -> Task {
    let limits = ResourceLimits {
        nofile: Some(1024),
        ..ResourceLimits::default()
    };
    let definition = TaskDefinition {
        root_fs: b"preloaded:cflinuxfs2".to_vec(),
        action: Some(run(RunAction {
            resource_limits: Some(limits),
            ..run_of("/bin/task", "root")
        })),
        disk_mb: 512,
        memory_mb: 256,
        privileged: true,
        log_source: b"TASK".to_vec(),
        log_guid: b"l".to_vec(),
        completion_callback_url: b"http://cc:9022/cb?a=1".to_vec(),
        ..TaskDefinition::default()
    };
    Task {
        task_definition: Some(definition),
        task_guid: b"t-2".to_vec(),
        domain: b"cf-tasks".to_vec(),
        created_at: 1_430_000_000_000_000_000,
        updated_at: 1_430_000_001_000_000_000,
        state: 2,
        cell_id: b"cell-1".to_vec(),
        ..Task::default()
    }
}

fn t_3() -> Task {
    let definition = TaskDefinition {
        root_fs: b"preloaded:cflinuxfs2".to_vec(),
        action: Some(run(run_of("/bin/task", "vcap"))),
        disk_mb: 1,
        memory_mb: 2,
        ..TaskDefinition::default()
    };
    Task {
        task_definition: Some(definition),
        task_guid: b"t-3".to_vec(),
        domain: b"cf-tasks".to_vec(),
        created_at: 1_441_000_000_000_000_000,
        updated_at: 1_441_000_000_000_000_000,
        state: 1,
        ..Task::default()
    }
}
