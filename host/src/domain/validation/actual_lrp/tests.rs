//! Each request about an actual LRP without its parts, with empty parts and with valid ones.

use super::super::check;
use super::*;

const KEY: &str = "Invalid field: actual_lrp_key";
const INSTANCE_KEY: &str = "Invalid field: actual_lrp_instance_key";
const NET_INFO: &str = "Invalid field: actual_lrp_net_info";
const EMPTY_KEY: &str = "Invalid field: process_guid, Invalid field: index, Invalid field: domain";
const EMPTY_INSTANCE_KEY: &str = "Invalid field: cell_id, Invalid field: instance_guid";
const EMPTY_NET_INFO: &str = "Invalid field: address";
const ERROR_MESSAGE: &str = "Invalid field: error_message";

/// A part of each kind: absent, invalid in every field, or valid.
type Parts = (
    Option<ActualLrpKey>,
    Option<ActualLrpInstanceKey>,
    Option<ActualLrpNetInfo>,
);

fn bad() -> Parts {
    let key = ActualLrpKey {
        index: -1,
        ..Default::default()
    };
    (
        Some(key),
        Some(ActualLrpInstanceKey::default()),
        Some(ActualLrpNetInfo::default()),
    )
}

fn good() -> Parts {
    let key = ActualLrpKey {
        process_guid: b"p".to_vec(),
        index: 0,
        domain: b"d".to_vec(),
    };
    let instance_key = ActualLrpInstanceKey {
        instance_guid: b"i".to_vec(),
        cell_id: b"c".to_vec(),
    };
    let net_info = ActualLrpNetInfo {
        address: b"a".to_vec(),
        ..Default::default()
    };
    (Some(key), Some(instance_key), Some(net_info))
}

fn found<T: Validate>(request: T) -> String {
    check(&request).err().unwrap_or_default()
}

/// Validates a request without parts, with invalid ones and with valid ones.
#[track_caller]
fn carries<T: Validate>(request: impl Fn(Parts) -> T, absent: &[&str], empty: &[&str], fine: &str) {
    assert_eq!(found(request((None, None, None))), absent.join(", "));
    assert_eq!(found(request(bad())), empty.join(", "));
    assert_eq!(found(request(good())), fine);
}

#[test]
fn each_field_of_a_key_is_required() {
    let (Some(key), Some(instance_key), Some(net_info)) = good() else {
        unreachable!("all are there")
    };
    assert_eq!(
        found(ActualLrpKey {
            process_guid: vec![],
            ..key.clone()
        }),
        "Invalid field: process_guid"
    );
    assert_eq!(
        found(ActualLrpKey {
            index: -1,
            ..key.clone()
        }),
        "Invalid field: index"
    );
    assert_eq!(
        found(ActualLrpKey {
            domain: vec![],
            ..key.clone()
        }),
        "Invalid field: domain"
    );
    assert_eq!(
        found(ActualLrpKey {
            index: i32::MAX,
            process_guid: b"any thing/\xff".to_vec(),
            ..key
        }),
        ""
    );
    assert_eq!(
        found(ActualLrpInstanceKey {
            cell_id: vec![],
            ..instance_key.clone()
        }),
        "Invalid field: cell_id"
    );
    assert_eq!(
        found(ActualLrpInstanceKey {
            instance_guid: vec![],
            ..instance_key
        }),
        "Invalid field: instance_guid"
    );
    assert_eq!(
        found(ActualLrpNetInfo {
            address: vec![],
            ..net_info
        }),
        "Invalid field: address"
    );
}

#[test]
fn any_filter_is_valid() {
    assert_eq!(
        found(ActualLrPsRequest {
            index: Some(-1),
            ..Default::default()
        }),
        ""
    );
}

#[test]
fn reads_need_the_key_that_they_read() {
    assert_eq!(
        found(ActualLrPsByProcessGuidsRequest::default()),
        "process_guids must not be empty"
    );
    assert_eq!(
        found(ActualLrPsByProcessGuidsRequest {
            process_guids: vec![vec![]]
        }),
        ""
    );
}

#[test]
fn claim_needs_a_guid_and_an_instance_key() {
    let claim = |guid: &'static str| {
        move |(_, actual_lrp_instance_key, _): Parts| ClaimActualLrpRequest {
            process_guid: guid.into(),
            index: -1,
            actual_lrp_instance_key,
        }
    };
    carries(claim("p"), &[INSTANCE_KEY], &[EMPTY_INSTANCE_KEY], "");
    assert_eq!(
        found(claim("")(bad())),
        format!("Invalid field: process_guid, {EMPTY_INSTANCE_KEY}")
    );
}

#[test]
fn remove_does_not_validate_the_instance_key() {
    let remove = |guid: &str, index| RemoveActualLrpRequest {
        process_guid: guid.into(),
        index,
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::default()),
    };
    assert_eq!(found(remove("p", 0)), "");
    assert_eq!(found(remove("", 0)), "Invalid field: process_guid");
    assert_eq!(found(remove("p", -1)), "Invalid field: index");
}

#[test]
fn start_and_evacuate_running_need_all_three_parts() {
    let absent = [KEY, INSTANCE_KEY, NET_INFO];
    let empty = [EMPTY_KEY, EMPTY_INSTANCE_KEY, EMPTY_NET_INFO];
    let start = |(actual_lrp_key, actual_lrp_instance_key, actual_lrp_net_info): Parts| {
        StartActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
            actual_lrp_net_info,
            ..Default::default()
        }
    };
    carries(start, &absent, &empty, "");
    let running = |(actual_lrp_key, actual_lrp_instance_key, actual_lrp_net_info): Parts| {
        let request = EvacuateRunningActualLrpRequest::default();
        EvacuateRunningActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
            actual_lrp_net_info,
            ..request
        }
    };
    carries(running, &absent, &empty, "");
}

#[test]
fn crash_and_three_evacuation_requests_need_both_keys_only() {
    let absent = [KEY, INSTANCE_KEY];
    let empty = [EMPTY_KEY, EMPTY_INSTANCE_KEY];
    let crash = |(actual_lrp_key, actual_lrp_instance_key, _): Parts| CrashActualLrpRequest {
        actual_lrp_key,
        actual_lrp_instance_key,
        error_message: vec![],
    };
    carries(crash, &absent, &empty, "");
    let claimed =
        |(actual_lrp_key, actual_lrp_instance_key, _): Parts| EvacuateClaimedActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
        };
    carries(claimed, &absent, &empty, "");
    let stopped =
        |(actual_lrp_key, actual_lrp_instance_key, _): Parts| EvacuateStoppedActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
        };
    carries(stopped, &absent, &empty, "");
    let evacuating =
        |(actual_lrp_key, actual_lrp_instance_key, _): Parts| RemoveEvacuatingActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
        };
    carries(evacuating, &absent, &empty, "");
}

#[test]
fn fail_and_evacuate_crashed_need_an_error_message() {
    let fail = |why: &'static str| {
        move |(actual_lrp_key, ..): Parts| FailActualLrpRequest {
            actual_lrp_key,
            error_message: why.into(),
        }
    };
    carries(
        fail(""),
        &[KEY, ERROR_MESSAGE],
        &[EMPTY_KEY, ERROR_MESSAGE],
        ERROR_MESSAGE,
    );
    carries(fail("x"), &[KEY], &[EMPTY_KEY], "");
    let crashed = |why: &'static str| {
        move |(actual_lrp_key, actual_lrp_instance_key, _): Parts| EvacuateCrashedActualLrpRequest {
            actual_lrp_key,
            actual_lrp_instance_key,
            error_message: why.into(),
        }
    };
    let empty = [EMPTY_KEY, EMPTY_INSTANCE_KEY, ERROR_MESSAGE];
    carries(
        crashed(""),
        &[KEY, INSTANCE_KEY, ERROR_MESSAGE],
        &empty,
        ERROR_MESSAGE,
    );
    carries(
        crashed("x"),
        &[KEY, INSTANCE_KEY],
        &[EMPTY_KEY, EMPTY_INSTANCE_KEY],
        "",
    );
}

#[test]
fn retire_needs_a_key() {
    carries(
        |(actual_lrp_key, ..): Parts| RetireActualLrpRequest { actual_lrp_key },
        &[KEY],
        &[EMPTY_KEY],
        "",
    );
}
