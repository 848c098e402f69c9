//! The translator as a plain function, with a closure as the next version.

use std::cell::RefCell;

use bbs_proto::models::{ProtoRoutes, RouteEntry};
use bbs_proto::{v0_9, v0_10};

use super::*;

fn lrp() -> v0_9::DesiredLrp {
    v0_9::DesiredLrp {
        process_guid: b"guid".to_vec(),
        domain: b"domain".to_vec(),
        instances: 3,
        ports: vec![8080],
        routes: Some(ProtoRoutes {
            routes: vec![RouteEntry {
                key: b"cf".to_vec(),
                value: b"[]".to_vec(),
            }],
        }),
        annotation: b"\xff not UTF-8".to_vec(),
        start_timeout_s: 9,
        ..Default::default()
    }
}

fn no_next(method: &str, _: &[u8]) -> Result<Vec<u8>, Fault> {
    panic!("{method} was called")
}

/// Returns the request that 0.10 received.
fn created(request: &[u8]) -> v0_10::CreateDesiredLrpRequest {
    let asked = RefCell::new(Vec::new());
    let next = |method: &str, request: &[u8]| {
        assert_eq!(method, "CreateDesiredLRP");
        asked.borrow_mut().extend_from_slice(request);
        Ok(vec![0x0a, 2, 8, 12])
    };
    assert_eq!(
        OneMessage::call("CreateDesiredLRP_0_9", request, &next),
        Ok(vec![0x0a, 2, 8, 12])
    );
    v0_10::CreateDesiredLrpRequest::decode(&asked.borrow()[..]).unwrap()
}

#[test]
fn create_separates_the_mutable_fields() {
    let request = v0_9::CreateDesiredLrpRequest {
        desired_lrp: Some(lrp()),
    }
    .encode_to_vec();
    let created = created(&request);
    let mutable = created.mutable_desired_lrp.unwrap();
    assert_eq!(
        (&mutable.process_guid[..], mutable.instances),
        (&b"guid"[..], 3)
    );
    assert_eq!(
        (mutable.routes, mutable.annotation),
        (lrp().routes, lrp().annotation)
    );
    let immutable = created.immutable_desired_lrp.unwrap();
    assert_eq!(
        (&immutable.process_guid[..], &immutable.domain[..]),
        (&b"guid"[..], &b"domain"[..])
    );
    assert_eq!(
        (immutable.ports, immutable.start_timeout_s),
        (vec![8080], 9)
    );
}

#[test]
fn unknown_field_goes_to_the_immutable_message() {
    let mut message = lrp().encode_to_vec();
    wire::append(&mut message, 999, Value::Varint(7));
    let mut request = Vec::new();
    wire::append(&mut request, DESIRED_LRP, Value::Bytes(&message));
    let split = split_request(&request).unwrap();
    let immutable = wire::get(&split, IMMUTABLE_DESIRED_LRP).unwrap().unwrap();
    assert_eq!(
        wire::get(immutable.bytes().unwrap(), 999)
            .unwrap()
            .unwrap()
            .value,
        Value::Varint(7)
    );
}

#[test]
fn message_in_two_parts_is_merged_and_an_absent_one_stays_absent() {
    let first = v0_9::DesiredLrp {
        process_guid: b"guid".to_vec(),
        ..Default::default()
    }
    .encode_to_vec();
    let second = v0_9::DesiredLrp {
        instances: 2,
        ..Default::default()
    }
    .encode_to_vec();
    let mut request = Vec::new();
    wire::append(&mut request, DESIRED_LRP, Value::Bytes(&first));
    wire::append(&mut request, DESIRED_LRP, Value::Bytes(&second));
    let mutable = created(&request).mutable_desired_lrp.unwrap();
    assert_eq!(
        (&mutable.process_guid[..], mutable.instances),
        (&b"guid"[..], 2)
    );
    assert_eq!(created(b""), v0_10::CreateDesiredLrpRequest::default());
}

#[test]
fn malformed_request_is_rejected_with_diegos_error() {
    for garbage in [&b"\xff"[..], b"\x0a\x05x", b"\x0a\x01\xff", b"\x08\x01"] {
        let answer = OneMessage::call("CreateDesiredLRP_0_9", garbage, &no_next).unwrap();
        let error = CreateDesiredLrpResponse::decode(&answer[..])
            .unwrap()
            .error
            .unwrap();
        assert_eq!(error.r#type(), Type::InvalidRequest);
    }
}

fn listed(
    mutable: &v0_10::ListMutableDesiredLrPsResponse,
    immutable: &v0_10::ListImmutableDesiredLrPsResponse,
) -> v0_9::ListDesiredLrPsResponse {
    let next = |method: &str, request: &[u8]| {
        assert_eq!(request, b"\x0a\x01d");
        Ok(match method {
            "ListMutableDesiredLRPs" => mutable.encode_to_vec(),
            "ListImmutableDesiredLRPs" => immutable.encode_to_vec(),
            other => panic!("{other} was called"),
        })
    };
    let answer = OneMessage::call("ListDesiredLRPs_0_9", b"\x0a\x01d", &next).unwrap();
    v0_9::ListDesiredLrPsResponse::decode(&answer[..]).unwrap()
}

fn halves(guid: &str) -> (v0_10::MutableDesiredLrp, v0_10::ImmutableDesiredLrp) {
    let (mutable, immutable) = split_lrp(
        &v0_9::DesiredLrp {
            process_guid: guid.into(),
            ..lrp()
        }
        .encode_to_vec(),
    )
    .unwrap();
    (
        Message::decode(&mutable[..]).unwrap(),
        Message::decode(&immutable[..]).unwrap(),
    )
}

#[test]
fn lists_are_joined_in_any_order() {
    let ((first_mutable, first), (second_mutable, second)) = (halves("a"), halves("b"));
    let mutable = v0_10::ListMutableDesiredLrPsResponse {
        error: None,
        mutable_desired_lrps: vec![second_mutable, first_mutable],
    };
    let immutable = v0_10::ListImmutableDesiredLrPsResponse {
        error: None,
        immutable_desired_lrps: vec![first, second],
    };
    let list = listed(&mutable, &immutable);
    let expected = |guid: &str| v0_9::DesiredLrp {
        process_guid: guid.into(),
        ..lrp()
    };
    assert_eq!(list.desired_lrps, [expected("a"), expected("b")]);
    assert_eq!(list.error, None);
}

#[test]
fn incomplete_items_are_omitted_and_errors_passed_on() {
    let ((mutable, _), (_, immutable)) = (halves("a"), halves("b"));
    let error = Some(Error {
        r#type: Type::UnknownError.into(),
        message: b"why".to_vec(),
    });
    let mutable = v0_10::ListMutableDesiredLrPsResponse {
        error: None,
        mutable_desired_lrps: vec![mutable],
    };
    let immutable = v0_10::ListImmutableDesiredLrPsResponse {
        error: error.clone(),
        immutable_desired_lrps: vec![immutable],
    };
    let list = listed(&mutable, &immutable);
    assert_eq!((list.error, list.desired_lrps), (error.clone(), vec![]));
    let failed = v0_10::ListMutableDesiredLrPsResponse {
        error: error.clone(),
        mutable_desired_lrps: vec![],
    };
    assert_eq!(listed(&failed, &Default::default()).error, error);
}

#[test]
fn fault_of_the_next_version_is_returned() {
    let next = |_: &str, _: &[u8]| Err(Fault::new("next"));
    for method in ["CreateDesiredLRP_0_9", "ListDesiredLRPs_0_9"] {
        assert_eq!(
            OneMessage::call(method, b"", &next),
            Err(Fault::new("next"))
        );
    }
    assert!(OneMessage::call("Other", b"", &no_next).is_err());
}
