//! Protobuf records of older releases: timeouts, volume mounts, envelope versions and texts.

use bbs_proto::models::{
    Action, ActualLrp, ActualLrpKey, CodependentAction, DesiredLrp, DesiredLrpKey,
    DesiredLrpResource, DesiredLrpRunInfo, DesiredLrpSchedulingInfo, EmitProgressAction,
    EnvironmentVariable, ModificationTag, Network, ParallelAction, SerialAction, SharedDevice,
    Task, TaskDefinition, TextEntry, TimeoutAction, TryAction, VolumeMount,
};
use bbs_proto::prost::Message;

use super::{base64, decoded, enveloped, sealed};
use crate::etcd::record::{EtcdRecord, RecordError};

fn run_info_key() -> Option<DesiredLrpKey> {
    Some(DesiredLrpKey {
        process_guid: b"g".to_vec(),
        ..DesiredLrpKey::default()
    })
}

/// Stores the run info as a release did, and decodes it.
fn decoded_run_info(info: &DesiredLrpRunInfo) -> DesiredLrpRunInfo {
    let info = DesiredLrpRunInfo {
        desired_lrp_key: run_info_key(),
        ..info.clone()
    };
    run_info_of(&enveloped(0, &info)).unwrap()
}

fn run_info_of(plain: &[u8]) -> Result<DesiredLrpRunInfo, RecordError> {
    match decoded("/v1/desired_lrp/run/g", &sealed(plain))? {
        EtcdRecord::RunInfo(info) => Ok(*info),
        other => panic!("not a run info: {other:?}"),
    }
}

fn task_of(plain: &[u8]) -> Result<Task, RecordError> {
    match decoded("/v1/task/t", &base64(plain))? {
        EtcdRecord::Task(task) => Ok(*task),
        other => panic!("not a task: {other:?}"),
    }
}

fn task(definition: TaskDefinition) -> Task {
    Task {
        task_guid: b"t".to_vec(),
        task_definition: Some(definition),
        ..Task::default()
    }
}

fn timeout(timeout_ms: i64, deprecated_timeout_ns: i64, inner: Option<Action>) -> Action {
    let action = inner.map(Box::new);
    let log_source = Vec::new();
    let timeout = TimeoutAction {
        action,
        deprecated_timeout_ns,
        log_source,
        timeout_ms,
    };
    Action {
        timeout_action: Some(Box::new(timeout)),
        ..Action::default()
    }
}

#[test]
fn start_timeout_in_seconds_counts_without_milliseconds() {
    for (seconds, ms, expected) in [
        (0, 0, 0),
        (60, 0, 60_000),
        (0, 5, 5),
        (60, 5, 5),
        (u32::MAX, 0, 4_294_967_295_000),
    ] {
        let info = DesiredLrpRunInfo {
            deprecated_start_timeout_s: seconds,
            start_timeout_ms: ms,
            ..DesiredLrpRunInfo::default()
        };
        let info = decoded_run_info(&info);
        assert_eq!(
            (info.start_timeout_ms, info.deprecated_start_timeout_s),
            (expected, 0),
            "{seconds} s, {ms} ms"
        );

        let whole = DesiredLrp {
            process_guid: b"g".to_vec(),
            deprecated_start_timeout_s: seconds,
            start_timeout_ms: ms,
            ..DesiredLrp::default()
        };
        let Ok(EtcdRecord::DesiredLrp(whole)) =
            decoded("/v1/desired/g", &base64(&enveloped(2, &whole)))
        else {
            panic!("not a desired LRP");
        };
        assert_eq!(
            (whole.start_timeout_ms, whole.deprecated_start_timeout_s),
            (expected, 0),
            "{seconds} s, {ms} ms"
        );
    }
}

#[test]
fn timeout_in_nanoseconds_counts_without_milliseconds_and_is_at_least_one() {
    for (ns, ms, expected) in [
        (0, 0, 0),
        (1_500_000_000, 0, 1500),
        (1_999_999, 0, 1),
        (999_999, 0, 1),
        (1, 0, 1),
        (-1, 0, 1),
        (i64::MIN, 0, 1),
        (i64::MAX, 0, 9_223_372_036_854),
        (5, 7, 7),
        (0, 7, 7),
    ] {
        let task = task(TaskDefinition {
            action: Some(timeout(ms, ns, None)),
            ..TaskDefinition::default()
        });
        let found = task_of(&enveloped(1, &task))
            .unwrap()
            .task_definition
            .unwrap()
            .action
            .unwrap();
        assert_eq!(found, timeout(expected, 0, None), "{ns} ns, {ms} ms");
    }
}

/// Goal: no place of an action is left out. Method: a timeout within each kind of action, in each
/// field of the records.
#[test]
fn timeouts_are_converted_at_every_place() {
    let nest = |inner: Action| {
        let boxed = |action: Action| Some(Box::new(action));
        let none = Action::default;
        let within = timeout(3, 0, Some(inner));
        let actions = vec![within.clone(), within.clone()];
        let emit = EmitProgressAction {
            action: boxed(within.clone()),
            ..EmitProgressAction::default()
        };
        let attempt = TryAction {
            action: boxed(within),
            ..TryAction::default()
        };
        let parallel = ParallelAction {
            actions: actions.clone(),
            ..ParallelAction::default()
        };
        let serial = SerialAction {
            actions: actions.clone(),
            ..SerialAction::default()
        };
        let codependent = CodependentAction {
            actions,
            ..CodependentAction::default()
        };
        let all = vec![
            Action {
                emit_progress_action: Some(Box::new(emit)),
                ..none()
            },
            Action {
                try_action: Some(Box::new(attempt)),
                ..none()
            },
            Action {
                parallel_action: Some(parallel),
                ..none()
            },
            Action {
                serial_action: Some(serial),
                ..none()
            },
            Action {
                codependent_action: Some(codependent),
                ..none()
            },
        ];
        Some(Action {
            serial_action: Some(SerialAction {
                actions: all,
                ..SerialAction::default()
            }),
            ..none()
        })
    };
    let before = nest(timeout(0, 4_000_000, None));
    let after = nest(timeout(4, 0, None));

    let run_info = |actions: &Option<Action>| DesiredLrpRunInfo {
        desired_lrp_key: run_info_key(),
        setup: actions.clone(),
        action: actions.clone(),
        monitor: actions.clone(),
        ..DesiredLrpRunInfo::default()
    };
    assert_eq!(decoded_run_info(&run_info(&before)), run_info(&after));

    let whole = |actions: &Option<Action>| DesiredLrp {
        process_guid: b"g".to_vec(),
        setup: actions.clone(),
        action: actions.clone(),
        monitor: actions.clone(),
        ..DesiredLrp::default()
    };
    let found = decoded("/v1/desired/g", &base64(&enveloped(0, &whole(&before))));
    assert_eq!(found, Ok(EtcdRecord::DesiredLrp(Box::new(whole(&after)))));

    let definition = |action: &Option<Action>| TaskDefinition {
        action: action.clone(),
        ..TaskDefinition::default()
    };
    let found = task_of(&enveloped(0, &task(definition(&before))));
    assert_eq!(found, Ok(task(definition(&after))));
}

/// A field of bytes, or a message, of a number below 16.
fn delimited(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16 && content.len() < 128);
    [
        &[number << 3 | 2, u8::try_from(content.len()).unwrap()],
        content,
    ]
    .concat()
}

/// A volume mount as releases v0.1462 to v0.1481 wrote it.
fn early_mount(driver: &str, mode: u8) -> Vec<u8> {
    let texts = [
        delimited(1, driver.as_bytes()),
        delimited(2, b"volume"),
        delimited(3, b"/data"),
    ]
    .concat();
    [texts, vec![4 << 3, mode], delimited(5, b"config")].concat()
}

/// Appends mounts to a message, as a repeated field of a number from 16 to 31.
fn with_mounts(message: &impl Message, number: u8, mounts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    for mount in mounts {
        bytes.extend([
            (number << 3 | 2) & 0x7f | 0x80,
            number >> 4,
            u8::try_from(mount.len()).unwrap(),
        ]);
        bytes.extend(mount);
    }
    bytes
}

fn mount(driver: &str, mode: &str) -> VolumeMount {
    let shared = SharedDevice {
        volume_id: b"volume".to_vec(),
        mount_config: b"config".to_vec(),
    };
    VolumeMount {
        driver: driver.into(),
        container_dir: b"/data".to_vec(),
        mode: mode.into(),
        shared: Some(shared),
        dedicated: None,
    }
}

fn run_info_with_mounts(mounts: &[Vec<u8>]) -> Result<DesiredLrpRunInfo, RecordError> {
    let info = DesiredLrpRunInfo {
        desired_lrp_key: run_info_key(),
        ..DesiredLrpRunInfo::default()
    };
    run_info_of(&[vec![2, 0], with_mounts(&info, 17, mounts)].concat())
}

#[test]
fn early_volume_mounts_are_converted() {
    let present = mount("present", "rw");
    let mounts = [
        early_mount("a", 0),
        present.encode_to_vec(),
        early_mount("b", 1),
    ];
    let expected = [mount("a", "r"), present, mount("b", "rw")];
    assert_eq!(
        run_info_with_mounts(&mounts).unwrap().volume_mounts,
        expected
    );

    let definition = with_mounts(&TaskDefinition::default(), 18, &mounts);
    let mut bytes = vec![
        2,
        1,
        0x0a,
        u8::try_from(definition.len() & 0x7f).unwrap() | 0x80,
    ];
    bytes.push(u8::try_from(definition.len() >> 7).unwrap());
    bytes.extend(definition);
    bytes.extend(delimited(2, b"t"));
    assert_eq!(
        task_of(&bytes)
            .unwrap()
            .task_definition
            .unwrap()
            .volume_mounts,
        expected
    );
}

#[test]
fn present_volume_mounts_stay() {
    let partial = VolumeMount {
        driver: b"d".to_vec(),
        ..VolumeMount::default()
    };
    let mounts = [
        mount("a", ""),
        VolumeMount {
            shared: None,
            ..mount("b", "r")
        },
        partial,
    ];
    let encoded = mounts.clone().map(|mount| mount.encode_to_vec());
    assert_eq!(
        run_info_with_mounts(&encoded).unwrap().volume_mounts,
        mounts
    );
}

#[test]
fn early_volume_mount_of_unknown_mode_is_an_error() {
    assert_eq!(
        run_info_with_mounts(&[early_mount("a", 2)]),
        Err(RecordError::VolumeMode { mode: 2 })
    );
}

#[test]
fn later_fields_of_a_release_are_kept() {
    let properties = vec![TextEntry {
        key: b"policy_group_id".to_vec(),
        value: b"x".to_vec(),
    }];
    let info = DesiredLrpRunInfo {
        desired_lrp_key: run_info_key(),
        network: Some(Network { properties }),
        trusted_system_certificates_path: b"/certs".to_vec(),
        legacy_download_user: b"vcap".to_vec(),
        ..DesiredLrpRunInfo::default()
    };
    assert_eq!(decoded_run_info(&info), info);
}

#[test]
fn each_encoding_and_envelope_version_of_protobuf_decodes_alike() {
    let task = task(TaskDefinition::default());
    for version in 0..=2 {
        let plain = enveloped(version, &task);
        for value in [
            base64(&plain),
            sealed(&plain),
            format!("00{}", String::from_utf8(plain).unwrap()),
        ] {
            assert_eq!(
                decoded("/v1/task/t", &value),
                Ok(EtcdRecord::Task(Box::new(task.clone()))),
                "{value:?}"
            );
        }
    }
}

#[test]
fn invalid_utf8_is_replaced_in_columns_and_kept_in_stored_messages() {
    let bad = b"a\xffb".to_vec();
    let good = "a\u{fffd}b".as_bytes().to_vec();
    let variable = EnvironmentVariable {
        name: bad.clone(),
        value: bad.clone(),
    };
    let definition = TaskDefinition {
        environment_variables: vec![variable],
        ..TaskDefinition::default()
    };
    let with = |text: &Vec<u8>| Task {
        domain: text.clone(),
        result: text.clone(),
        failure_reason: text.clone(),
        cell_id: text.clone(),
        ..task(definition.clone())
    };
    assert_eq!(task_of(&enveloped(1, &with(&bad))), Ok(with(&good)));

    let lrp = |text: &Vec<u8>| ActualLrp {
        actual_lrp_key: Some(ActualLrpKey {
            process_guid: b"g".to_vec(),
            index: 0,
            domain: text.clone(),
        }),
        crash_reason: text.clone(),
        placement_error: text.clone(),
        modification_tag: Some(ModificationTag {
            epoch: text.clone(),
            index: 1,
        }),
        ..ActualLrp::default()
    };
    let found = decoded(
        "/v1/actual/g/0/evacuating",
        &sealed(&enveloped(0, &lrp(&bad))),
    );
    assert_eq!(
        found,
        Ok(EtcdRecord::ActualLrp {
            lrp: Box::new(lrp(&good)),
            evacuating: true
        })
    );

    let key = |text: &Vec<u8>| {
        Some(DesiredLrpKey {
            domain: text.clone(),
            ..run_info_key().unwrap()
        })
    };
    let info = |text: &Vec<u8>| DesiredLrpSchedulingInfo {
        desired_lrp_key: key(text),
        annotation: text.clone(),
        desired_lrp_resource: Some(DesiredLrpResource {
            root_fs: text.clone(),
            ..DesiredLrpResource::default()
        }),
        placement_tags: vec![text.clone()],
        ..DesiredLrpSchedulingInfo::default()
    };
    let found = decoded(
        "/v1/desired_lrp/schedule/g",
        &sealed(&enveloped(0, &info(&bad))),
    );
    assert_eq!(found, Ok(EtcdRecord::SchedulingInfo(Box::new(info(&good)))));
    let run_info = DesiredLrpRunInfo {
        desired_lrp_key: key(&bad),
        ..DesiredLrpRunInfo::default()
    };
    assert_eq!(
        run_info_of(&enveloped(0, &run_info))
            .unwrap()
            .desired_lrp_key,
        key(&good)
    );
}
