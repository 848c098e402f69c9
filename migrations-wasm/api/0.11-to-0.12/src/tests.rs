//! The translator as a plain function, with a closure as API 0.12. `tests/suite/revisions` compares
//! its reads with an oracle.

use std::cell::RefCell;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::*;

/// Calls a method. Returns what it called of the newer API.
fn call(method: &str, request: &[u8]) -> (String, Vec<u8>) {
    let called = RefCell::new(Vec::new());
    let next = |method: &str, request: &[u8]| {
        called
            .borrow_mut()
            .push((method.to_owned(), request.to_vec()));
        Ok(Vec::new())
    };
    FirstRevision::call(method, request, &next).unwrap();
    let [called] = <[_; 1]>::try_from(called.into_inner()).unwrap();
    called
}

#[test]
fn every_declared_method_calls_a_newer_revision() {
    for method in FirstRevision::manifest().methods {
        let revision =
            if method.name.starts_with("Desire") && !method.name.starts_with("DesiredLRP") {
                2
            } else {
                1
            };
        assert_eq!(
            call(method.name, b"").0,
            format!("{}_r{revision}", method.name)
        );
    }
    assert!(FirstRevision::call("Tasks_r1", b"", &|_: &str, _: &[u8]| Ok(Vec::new())).is_err());
}

fn timeout(timeout_ms: i64, deprecated_timeout_ns: i64) -> Option<proto::Action> {
    let timeout = proto::TimeoutAction {
        timeout_ms,
        deprecated_timeout_ns,
        ..Default::default()
    };
    Some(proto::Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    })
}

#[test]
fn desired_lrp_gets_timeouts_in_the_new_units_and_a_metric_tag() {
    let actions = |ms| proto::DesiredLrp {
        process_guid: b"p".to_vec(),
        setup: timeout(ms, 2_000_000),
        action: timeout(ms, 2_000_000),
        monitor: timeout(ms, 2_000_000),
        ..Default::default()
    };
    for (seconds, ms) in [
        (0, 0),
        (61, 61_000),
        (u32::MAX, i64::from(u32::MAX.wrapping_mul(1_000))),
    ] {
        let old = proto::DesiredLrp {
            deprecated_start_timeout_s: seconds,
            start_timeout_ms: 7,
            ..actions(0)
        };
        let request = proto::DesireLrpRequest {
            desired_lrp: Some(old.clone()),
        };
        let (_, called) = call("DesireDesiredLRP", &request.encode_to_vec());
        let mut lrp = proto::DesireLrpRequest::decode(&called[..])
            .unwrap()
            .desired_lrp
            .unwrap();
        assert_eq!(lrp.metric_tags.len(), 1);
        lrp.metric_tags.clear();
        assert_eq!(
            lrp,
            proto::DesiredLrp {
                deprecated_start_timeout_s: seconds,
                start_timeout_ms: ms,
                ..actions(2)
            }
        );
    }
}

#[test]
fn task_gets_timeouts_in_milliseconds() {
    let request = |ms| proto::DesireTaskRequest {
        task_definition: Some(proto::TaskDefinition {
            action: timeout(ms, 3_000_000),
            ..Default::default()
        }),
        task_guid: b"t".to_vec(),
        ..Default::default()
    };
    let (_, called) = call("DesireTask", &request(0).encode_to_vec());
    assert_eq!(
        proto::DesireTaskRequest::decode(&called[..]).unwrap(),
        request(3)
    );
}

#[test]
fn request_without_its_object_or_malformed_stays_as_it_is() {
    for request in [&b""[..], b"\x0a\x05x", b"\x12\x01x"] {
        assert_eq!(call("DesireDesiredLRP", request).1, request);
        assert_eq!(call("DesireTask", request).1, request);
    }
}
