//! The translator as a plain function, with a closure as the next version.

use std::cell::RefCell;

use bbs_proto::models::{Action, Error, TryAction};
use bbs_proto::models::{
    DesireLrpRequest, DesiredLrPsResponse, DesiredLrp, MetricTagEntry, MetricTagValue,
    ModificationTag, ProtoRoutes, RouteEntry, RunAction, SerialAction, TimeoutAction,
};
use bbs_proto::v0_10;

use super::*;

fn routes() -> ProtoRoutes {
    ProtoRoutes {
        routes: vec![RouteEntry {
            key: b"cf".to_vec(),
            value: b"[]".to_vec(),
        }],
    }
}

fn mutable() -> v0_10::MutableDesiredLrp {
    v0_10::MutableDesiredLrp {
        process_guid: b"guid".to_vec(),
        instances: 3,
        routes: Some(routes()),
        annotation: b"\xff".to_vec(),
    }
}

fn immutable() -> v0_10::ImmutableDesiredLrp {
    v0_10::ImmutableDesiredLrp {
        process_guid: b"guid".to_vec(),
        domain: b"domain".to_vec(),
        ..Default::default()
    }
}

/// Returns the LRP that Diego was asked to desire.
fn desired(request: &[u8]) -> Option<DesiredLrp> {
    let asked = RefCell::new(Vec::new());
    let next = |method: &str, request: &[u8]| {
        assert_eq!(method, "DesireDesiredLRP_r2");
        asked.borrow_mut().extend_from_slice(request);
        Ok(vec![0x0a, 2, 8, 12])
    };
    assert_eq!(
        TwoMessages::call("CreateDesiredLRP", request, &next),
        Ok(vec![0x0a, 2, 8, 12])
    );
    DesireLrpRequest::decode(&asked.borrow()[..])
        .unwrap()
        .desired_lrp
}

fn create(mutable: v0_10::MutableDesiredLrp, immutable: v0_10::ImmutableDesiredLrp) -> DesiredLrp {
    let request = v0_10::CreateDesiredLrpRequest {
        mutable_desired_lrp: Some(mutable),
        immutable_desired_lrp: Some(immutable),
    };
    desired(&request.encode_to_vec()).unwrap()
}

fn refusal(request: &[u8]) -> String {
    let next = |method: &str, _: &[u8]| -> Result<Vec<u8>, Fault> { panic!("{method} was called") };
    let answer = TwoMessages::call("CreateDesiredLRP", request, &next).unwrap();
    let error = v0_10::CreateDesiredLrpResponse::decode(&answer[..])
        .unwrap()
        .error
        .unwrap();
    assert_eq!(error.r#type(), Type::InvalidRequest);
    String::from_utf8(error.message).unwrap()
}

fn source_id(lrp: &DesiredLrp) -> &[u8] {
    let [tag] = &lrp.metric_tags[..] else {
        panic!("{:?}", lrp.metric_tags)
    };
    assert_eq!(tag.key, b"source_id");
    &tag.value.as_ref().unwrap().r#static
}

#[test]
fn create_merges_the_two_messages() {
    let lrp = create(mutable(), immutable());
    assert_eq!(
        (&lrp.process_guid[..], &lrp.domain[..], lrp.instances),
        (&b"guid"[..], &b"domain"[..], 3)
    );
    assert_eq!(
        (lrp.routes, &lrp.annotation[..]),
        (Some(routes()), &b"\xff"[..])
    );
}

#[test]
fn missing_metric_tag_is_added() {
    assert_eq!(source_id(&create(mutable(), immutable())), b"guid");
    let with_metrics_guid = v0_10::ImmutableDesiredLrp {
        metrics_guid: b"metrics".to_vec(),
        ..immutable()
    };
    assert_eq!(source_id(&create(mutable(), with_metrics_guid)), b"metrics");
}

#[test]
fn newer_fields_that_a_client_sends_back_pass_through() {
    let tag = MetricTagEntry {
        key: b"mine".to_vec(),
        value: Some(MetricTagValue {
            r#static: b"x".to_vec(),
            ..Default::default()
        }),
    };
    let newer = DesiredLrp {
        metric_tags: vec![tag.clone()],
        max_pids: 5,
        ..Default::default()
    };
    let mut immutable = immutable().encode_to_vec();
    immutable.extend(newer.encode_to_vec());
    let mut request = Vec::new();
    wire::append(
        &mut request,
        IMMUTABLE_DESIRED_LRP,
        Value::Bytes(&immutable),
    );
    let lrp = desired(&request).unwrap();
    assert_eq!((lrp.metric_tags, lrp.max_pids), (vec![tag], 5));
}

#[test]
fn process_guid_may_be_in_either_message_but_must_not_differ() {
    let nameless = v0_10::ImmutableDesiredLrp {
        process_guid: vec![],
        ..immutable()
    };
    assert_eq!(create(mutable(), nameless).process_guid, b"guid");
    let nameless = v0_10::MutableDesiredLrp {
        process_guid: vec![],
        ..mutable()
    };
    assert_eq!(create(nameless, immutable()).process_guid, b"guid");
    let other = v0_10::CreateDesiredLrpRequest {
        mutable_desired_lrp: Some(v0_10::MutableDesiredLrp {
            process_guid: b"other".to_vec(),
            ..mutable()
        }),
        immutable_desired_lrp: Some(immutable()),
    };
    assert_eq!(
        refusal(&other.encode_to_vec()),
        "Invalid field: process_guid"
    );
}

#[test]
fn absent_lrp_stays_absent_and_malformed_requests_are_rejected() {
    assert_eq!(desired(b""), None);
    for garbage in [
        &b"\xff"[..],
        b"\x0a\x05x",
        b"\x12\x01\xff",
        b"\x08\x01",
        b"\x12\x02\x08\x01",
    ] {
        assert_eq!(
            refusal(garbage),
            "the request received is invalid",
            "{garbage:?}"
        );
    }
}

#[test]
fn start_timeout_is_converted_between_units() {
    let timeout = |s, ms| {
        let mut immutable = v0_10::ImmutableDesiredLrp {
            start_timeout_s: s,
            ..immutable()
        }
        .encode_to_vec();
        immutable.extend(
            DesiredLrp {
                start_timeout_ms: ms,
                ..Default::default()
            }
            .encode_to_vec(),
        );
        let lrp = lrp::native(b"", &immutable).unwrap();
        let lrp = DesiredLrp::decode(&lrp[..]).unwrap();
        (lrp.deprecated_start_timeout_s, lrp.start_timeout_ms)
    };
    assert_eq!(timeout(60, 0), (0, 60_000));
    assert_eq!(timeout(0, 1_500), (0, 1_500));
    // Sent back unchanged, and sent back with a change.
    assert_eq!(timeout(2, 1_500), (0, 1_500));
    assert_eq!(timeout(3, 1_500), (0, 3_000));
    let read = |ms| {
        let lrp = DesiredLrp {
            start_timeout_ms: ms,
            ..Default::default()
        }
        .encode_to_vec();
        v0_10::ImmutableDesiredLrp::decode(&lrp::immutable(&lrp).unwrap()[..])
            .unwrap()
            .start_timeout_s
    };
    assert_eq!(
        (read(0), read(1), read(1_000), read(1_500), read(-1)),
        (0, 1, 1, 2, 0)
    );
}

fn run() -> Action {
    let run = RunAction {
        path: b"x".to_vec(),
        user: b"u".to_vec(),
        ..Default::default()
    };
    Action {
        run_action: Some(run),
        ..Default::default()
    }
}

fn timeout(inner: Action, ms: i64, ns: i64) -> Action {
    let timeout = TimeoutAction {
        action: Some(Box::new(inner)),
        timeout_ms: ms,
        deprecated_timeout_ns: ns,
        ..Default::default()
    };
    Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    }
}

fn nested(inner: Action) -> Action {
    let tried = TryAction {
        action: Some(Box::new(inner)),
        ..Default::default()
    };
    let tried = Action {
        try_action: Some(Box::new(tried)),
        ..Default::default()
    };
    let serial = SerialAction {
        actions: vec![run(), tried],
        ..Default::default()
    };
    Action {
        serial_action: Some(serial),
        ..Default::default()
    }
}

#[test]
fn timeouts_of_nested_actions_are_converted_between_units() {
    let created = |action: Action| {
        create(
            mutable(),
            v0_10::ImmutableDesiredLrp {
                action: Some(action),
                ..immutable()
            },
        )
        .action
        .unwrap()
    };
    assert_eq!(
        created(nested(timeout(run(), 0, 1_500_001))),
        nested(timeout(run(), 2, 0))
    );
    assert_eq!(
        created(timeout(timeout(run(), 0, 1), 0, 5_000_000)),
        timeout(timeout(run(), 1, 0), 5, 0)
    );
    assert_eq!(created(timeout(run(), 7, 7_000_000)), timeout(run(), 7, 0));
    assert_eq!(created(timeout(run(), 7, 8_000_000)), timeout(run(), 8, 0));
    assert_eq!(created(timeout(run(), 7, 0)), timeout(run(), 7, 0));
    let lrp = DesiredLrp {
        setup: Some(nested(timeout(run(), 3, 0))),
        monitor: Some(run()),
        ..Default::default()
    };
    let read = lrp::immutable(&lrp.encode_to_vec()).unwrap();
    let read = v0_10::ImmutableDesiredLrp::decode(&read[..]).unwrap();
    assert_eq!(
        (read.setup, read.monitor),
        (Some(nested(timeout(run(), 3, 3_000_000))), Some(run()))
    );
}

fn lists(
    native: &DesiredLrPsResponse,
) -> (
    v0_10::ListMutableDesiredLrPsResponse,
    v0_10::ListImmutableDesiredLrPsResponse,
) {
    // A field that this version does not have must not become a filter of the next one.
    let request = b"\x0a\x01d\x12\x01x";
    let next = |method: &str, request: &[u8]| {
        assert_eq!((method, request), ("DesiredLRPs_r3", &b"\x0a\x01d"[..]));
        Ok(native.encode_to_vec())
    };
    let answer = |method| TwoMessages::call(method, request, &next).unwrap();
    let (mutable, immutable) = (
        answer("ListMutableDesiredLRPs"),
        answer("ListImmutableDesiredLRPs"),
    );
    (
        Message::decode(&mutable[..]).unwrap(),
        Message::decode(&immutable[..]).unwrap(),
    )
}

#[test]
fn list_returns_one_of_the_two_messages() {
    let lrp = DesiredLrp {
        process_guid: b"guid".to_vec(),
        domain: b"domain".to_vec(),
        instances: 3,
        routes: Some(routes()),
        annotation: b"\xff".to_vec(),
        modification_tag: Some(ModificationTag {
            epoch: b"e".to_vec(),
            index: 4,
        }),
        ..Default::default()
    };
    let error = Some(Error {
        r#type: Type::UnknownError.into(),
        message: b"why".to_vec(),
    });
    let (mutables, immutables) = lists(&DesiredLrPsResponse {
        error: error.clone(),
        desired_lrps: vec![lrp.clone()],
    });
    assert_eq!(
        (mutables.error, mutables.mutable_desired_lrps),
        (error.clone(), vec![mutable()])
    );
    let expected = v0_10::ImmutableDesiredLrp {
        modification_tag: lrp.modification_tag,
        ..immutable()
    };
    assert_eq!(
        (immutables.error, immutables.immutable_desired_lrps),
        (error, vec![expected])
    );
}

#[test]
fn fault_of_the_next_version_is_returned() {
    let next = |_: &str, _: &[u8]| Err(Fault::new("next"));
    for method in [
        "CreateDesiredLRP",
        "ListMutableDesiredLRPs",
        "ListImmutableDesiredLRPs",
    ] {
        assert_eq!(
            TwoMessages::call(method, b"", &next),
            Err(Fault::new("next"))
        );
    }
    let nonsense = |_: &str, _: &[u8]| Ok(b"\xff".to_vec());
    assert!(TwoMessages::call("ListMutableDesiredLRPs", b"", &nonsense).is_err());
    assert!(TwoMessages::call("Other", b"", &nonsense).is_err());
}
