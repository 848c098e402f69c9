//! The translator as a plain function, with a recorded answer of the newer API.

use bbs_proto::models as proto;
use prost::Message;

use super::*;

fn info(process_guid: &str, definition: &str) -> proto::DesiredLrpSchedulingInfo {
    let key = proto::DesiredLrpKey { process_guid: process_guid.into(), ..proto::DesiredLrpKey::default() };
    proto::DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(key),
        definition_id: definition.into(),
        ..proto::DesiredLrpSchedulingInfo::default()
    }
}

fn infos(infos: &[proto::DesiredLrpSchedulingInfo]) -> Vec<u8> {
    let desired_lrp_scheduling_infos = infos.to_vec();
    proto::DesiredLrpSchedulingInfosResponse { error: None, desired_lrp_scheduling_infos }.encode_to_vec()
}

fn call(method: &str, answer: Vec<u8>) -> Vec<u8> {
    let next = |called: &str, request: &[u8]| {
        assert_eq!((called, request), (&*format!("{method}_r1"), &b"request"[..]));
        Ok(answer.clone())
    };
    WithoutDefinitions::call(method, b"request", &next).unwrap()
}

#[test]
fn list_has_only_the_current_definition_of_each_desired_lrp() {
    let (a, b, c) = (info("a", "1"), info("b", "2"), info("c", "1"));
    let both = infos(&[a.clone(), b.clone(), info("b", "1"), c.clone()]);
    assert_eq!(call("DesiredLRPSchedulingInfos", both), infos(&[a, b, c]));
}

#[test]
fn answer_without_an_update_stays_as_it_is() {
    let unknown = [0xfa, 0x3e, 1, 7];
    let answer = [&infos(&[info("a", "1"), info("b", "1")])[..], &unknown].concat();
    assert_eq!(call("DesiredLRPSchedulingInfos", answer.clone()), answer);
    let failed =
        proto::DesiredLrpSchedulingInfosResponse { error: Some(proto::Error::default()), ..Default::default() };
    assert_eq!(call("DesiredLRPSchedulingInfos", failed.encode_to_vec()), failed.encode_to_vec());
}

#[test]
fn single_info_is_that_of_the_current_definition() {
    let answer = call("DesiredLRPSchedulingInfoByProcessGuid", infos(&[info("a", "2"), info("a", "1")]));
    let answer = proto::DesiredLrpSchedulingInfoByProcessGuidResponse::decode(&answer[..]).unwrap();
    assert_eq!(answer.desired_lrp_scheduling_info, Some(info("a", "2")));
}

#[test]
fn malformed_answer_and_unknown_method_are_faults() {
    let next = |_: &str, _: &[u8]| Ok(vec![0x12, 9, 1]);
    let malformed = Fault::from(WireError::Truncated { at: 0 });
    assert_eq!(WithoutDefinitions::call("DesiredLRPSchedulingInfos", b"", &next), Err(malformed));
    let unknown = Fault::new("API 1.1 has no method DesiredLRPSchedulingInfos_r1");
    assert_eq!(WithoutDefinitions::call("DesiredLRPSchedulingInfos_r1", b"", &next), Err(unknown));
}
