//! The translator as a plain function, with a closure as API 1.0. `tests/suite/revisions` compares
//! its reads with an oracle.

use std::cell::RefCell;

use bbs_proto::models as proto;
use bbs_sdk::wire::Value;
use prost::Message;

use super::*;

/// Calls a method. Returns what it called of the newer API, and its answer to a recorded one.
fn call(method: &str, request: &[u8], answer: &[u8]) -> ((String, Vec<u8>), Vec<u8>) {
    let called = RefCell::new(Vec::new());
    let next = |method: &str, request: &[u8]| {
        called
            .borrow_mut()
            .push((method.to_owned(), request.to_vec()));
        Ok(answer.to_vec())
    };
    let answer = RevisionOne::call(method, request, &next).unwrap();
    let [called] = <[_; 1]>::try_from(called.into_inner()).unwrap();
    (called, answer)
}

#[test]
fn every_declared_method_calls_the_next_revision() {
    for method in RevisionOne::manifest().methods {
        let ((called, _), _) = call(method.name, b"", b"");
        // Cells have no second revision.
        let newer = if method.name == "Cells_r1" {
            method.name.to_owned()
        } else {
            method.name.replace("_r1", "_r2")
        };
        assert_eq!(called, newer);
        assert_eq!(
            RevisionOne::manifest().hides.contains(&&*called),
            newer != "Cells_r1"
        );
    }
    assert!(RevisionOne::call("Tasks_r2", b"", &|_: &str, _: &[u8]| Ok(Vec::new())).is_err());
}

#[test]
fn list_is_filtered_by_its_domain_alone() {
    let request = proto::DesiredLrPsRequest {
        domain: b"d".to_vec(),
        process_guids: vec![b"p".to_vec()],
        app_guids: vec![b"a".to_vec()],
    };
    let ((_, called), _) = call("DesiredLRPs_r1", &request.encode_to_vec(), b"");
    let domain = proto::DesiredLrPsRequest {
        domain: b"d".to_vec(),
        ..Default::default()
    };
    assert_eq!(called, domain.encode_to_vec());
    assert_eq!(call("DesiredLRPs_r1", b"\x0a\xff", b"").0.1, b"\x0a\xff");
}

#[test]
fn failed_list_has_no_desired_lrps_and_tasks_as_they_are() {
    let timeout = proto::TimeoutAction {
        timeout_ms: 5,
        ..Default::default()
    };
    let action = proto::Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    };
    let error = Some(proto::Error {
        r#type: 3,
        message: b"m".to_vec(),
    });
    let lrp = proto::DesiredLrp {
        action: Some(action.clone()),
        ..Default::default()
    };
    let lrps = proto::DesiredLrPsResponse {
        error: error.clone(),
        desired_lrps: vec![lrp],
    };
    let empty = proto::DesiredLrPsResponse {
        error: error.clone(),
        desired_lrps: Vec::new(),
    };
    assert_eq!(
        call("DesiredLRPs_r1", b"", &lrps.encode_to_vec()).1,
        empty.encode_to_vec()
    );
    let task_definition = Some(proto::TaskDefinition {
        action: Some(action),
        ..Default::default()
    });
    let task = proto::Task {
        task_definition,
        ..Default::default()
    };
    let tasks = proto::TasksResponse {
        error,
        tasks: vec![task],
    }
    .encode_to_vec();
    assert_eq!(call("Tasks_r1", b"", &tasks).1, tasks);
}

/// A volume mount of the old form, with a mode of the new one that is ignored.
fn old_mount(mode: Option<u64>) -> Vec<u8> {
    let mut mount = Vec::new();
    wire::append(&mut mount, 1, Value::Bytes(b"driver"));
    wire::append(&mut mount, 2, Value::Bytes(b"volume"));
    wire::append(&mut mount, 3, Value::Bytes(b"/dir"));
    if let Some(mode) = mode {
        wire::append(&mut mount, 4, Value::Varint(mode));
    }
    wire::append(&mut mount, 5, Value::Bytes(b"{}"));
    wire::append(&mut mount, 6, Value::Bytes(b"ignored"));
    mount
}

fn new_mount(mode: &str) -> proto::VolumeMount {
    proto::VolumeMount {
        driver: b"driver".to_vec(),
        container_dir: b"/dir".to_vec(),
        mode: mode.into(),
        shared: Some(proto::SharedDevice {
            volume_id: b"volume".to_vec(),
            mount_config: b"{}".to_vec(),
        }),
        dedicated: None,
    }
}

#[test]
fn old_volume_mounts_are_converted_for_desired_lrps_and_tasks() {
    for (mode, expected) in [(None, "r"), (Some(0), "r"), (Some(1), "rw")] {
        let mut lrp = proto::DesiredLrp {
            process_guid: b"p".to_vec(),
            ..Default::default()
        }
        .encode_to_vec();
        wire::append(
            &mut lrp,
            desired_lrp::VOLUME_MOUNTS,
            Value::Bytes(&old_mount(mode)),
        );
        let mut request = Vec::new();
        wire::append(&mut request, 1, Value::Bytes(&lrp));
        let ((_, called), _) = call("DesireDesiredLRP_r1", &request, b"");
        let lrp = proto::DesireLrpRequest::decode(&called[..])
            .unwrap()
            .desired_lrp
            .unwrap();
        assert_eq!(lrp.volume_mounts, [new_mount(expected)], "{mode:?}");
        assert_eq!(lrp.metric_tags[0].key, b"source_id");

        let mut definition = Vec::new();
        wire::append(
            &mut definition,
            task_definition::VOLUME_MOUNTS,
            Value::Bytes(&old_mount(mode)),
        );
        let mut request = proto::DesireTaskRequest {
            task_guid: b"t".to_vec(),
            ..Default::default()
        }
        .encode_to_vec();
        wire::append(&mut request, 1, Value::Bytes(&definition));
        let ((_, called), _) = call("DesireTask_r1", &request, b"");
        let request = proto::DesireTaskRequest::decode(&called[..]).unwrap();
        assert_eq!(
            request.task_definition.unwrap().volume_mounts,
            [new_mount(expected)],
            "{mode:?}"
        );
        assert_eq!(request.task_guid, b"t");
    }
}

#[test]
fn mount_of_the_new_form_loses_its_volume() {
    let mount = mounts::newer(&new_mount("rw").encode_to_vec()).unwrap();
    let mount = proto::VolumeMount::decode(&mount[..]).unwrap();
    assert_eq!(
        (&mount.mode[..], mount.shared),
        (&b"r"[..], Some(proto::SharedDevice::default()))
    );
}
