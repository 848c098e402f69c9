//! The seed's worked example against an oracle: one message at 0.9, two at 0.10, and Diego's own at
//! 0.11.

use bbs_proto::{v0_9, v0_10};

use super::generated::desired_lrps;
use super::*;

/// Objects in one list.
const BATCH: usize = 500;

/// Generated desired LRPs with values in the fields that 0.10 may change, and a guid of their own.
fn objects() -> Vec<proto::DesiredLrp> {
    desired_lrps()
        .into_iter()
        .enumerate()
        .map(|(at, mut lrp)| {
            lrp.process_guid =
                format!("{}-{at}", String::from_utf8_lossy(&lrp.process_guid)).into_bytes();
            lrp.instances = i32::try_from(at % 7).unwrap() - 1;
            lrp.start_timeout_ms %= 1_000_000;
            lrp.annotation = vec![b'a'; at % 3];
            lrp.routes =
                (!at.is_multiple_of(4)).then(|| crate::api::routes(&[("router", "[]")][..at % 2]));
            lrp
        })
        .collect()
}

fn mutable(lrp: &proto::DesiredLrp) -> v0_10::MutableDesiredLrp {
    let proto::DesiredLrp {
        process_guid,
        instances,
        routes,
        annotation,
        ..
    } = lrp.clone();
    v0_10::MutableDesiredLrp {
        process_guid,
        instances,
        routes,
        annotation,
    }
}

/// The other fields, in any message that has their numbers.
fn immutable<M: Message + Default>(lrp: &proto::DesiredLrp) -> M {
    let rest = proto::DesiredLrp {
        instances: 0,
        routes: None,
        annotation: Vec::new(),
        ..lrp.clone()
    };
    M::decode(&rest.encode_to_vec()[..]).unwrap()
}

fn whole(lrp: &proto::DesiredLrp) -> v0_9::DesiredLrp {
    v0_9::DesiredLrp::decode(&lrp.encode_to_vec()[..]).unwrap()
}

/// The answer of a component to a call, and the requests that it makes of the newer version.
fn requested(
    translator: &dyn Translate,
    method: &str,
    request: &impl Message,
) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let mut calls = Vec::new();
    let answer = modules::call(
        translator,
        method,
        &request.encode_to_vec(),
        &mut |method, request| {
            calls.push((method.to_owned(), request.to_vec()));
            Ok(Vec::new())
        },
    );
    (answer.unwrap(), calls)
}

#[test]
fn generated_desired_lrps_of_0_9_are_split_for_0_10() {
    let translator = translator("0.9");
    for lrp in objects() {
        let request = v0_9::CreateDesiredLrpRequest {
            desired_lrp: Some(whole(&lrp)),
        };
        let (_, calls) = requested(&*translator, "CreateDesiredLRP_0_9", &request);
        let [(method, sent)] = &calls[..] else {
            panic!("{calls:?}")
        };
        let split = v0_10::CreateDesiredLrpRequest {
            mutable_desired_lrp: Some(mutable(&lrp)),
            immutable_desired_lrp: Some(immutable(&lrp)),
        };
        assert_eq!(
            (
                &**method,
                v0_10::CreateDesiredLrpRequest::decode(&sent[..]).unwrap()
            ),
            ("CreateDesiredLRP", split)
        );
    }
}

#[test]
fn generated_lists_of_0_10_are_joined_for_0_9() {
    let translator = translator("0.9");
    for lrps in objects().chunks(BATCH) {
        // One in nine has only one of its two messages, and is left out.
        let kept = |skipped: usize| {
            lrps.iter()
                .enumerate()
                .filter(move |(at, _)| at % 9 != skipped)
                .map(|(_, lrp)| lrp)
        };
        let mut mutable_desired_lrps: Vec<_> = kept(3).map(mutable).collect();
        mutable_desired_lrps.reverse();
        let mutables = v0_10::ListMutableDesiredLrPsResponse {
            error: None,
            mutable_desired_lrps,
        };
        let immutable_desired_lrps = kept(5).map(immutable).collect();
        let immutables = v0_10::ListImmutableDesiredLrPsResponse {
            error: None,
            immutable_desired_lrps,
        };
        let answer = modules::call(
            &*translator,
            "ListDesiredLRPs_0_9",
            &[],
            &mut |method, _| match method {
                "ListMutableDesiredLRPs" => Ok(mutables.encode_to_vec()),
                "ListImmutableDesiredLRPs" => Ok(immutables.encode_to_vec()),
                other => panic!("{other}"),
            },
        );
        let found = v0_9::ListDesiredLrPsResponse::decode(&answer.unwrap()[..])
            .unwrap()
            .desired_lrps;
        let expected: Vec<_> = kept(3)
            .filter(|lrp| kept(5).any(|other| other.process_guid == lrp.process_guid))
            .collect();
        assert_eq!(found.len(), expected.len());
        found
            .iter()
            .zip(expected)
            .for_each(|(found, lrp)| assert_eq!(*found, whole(lrp)));
    }
}

/// Edits the timeout of every action in an action: in milliseconds, and in nanoseconds.
fn each_timeout(action: &mut proto::Action, edit: &impl Fn(&mut i64, &mut i64)) {
    if let Some(timeout) = &mut action.timeout_action {
        edit(&mut timeout.timeout_ms, &mut timeout.deprecated_timeout_ns);
    }
    let wrapped = [
        action
            .timeout_action
            .as_mut()
            .and_then(|outer| outer.action.as_deref_mut()),
        action
            .emit_progress_action
            .as_mut()
            .and_then(|outer| outer.action.as_deref_mut()),
        action
            .try_action
            .as_mut()
            .and_then(|outer| outer.action.as_deref_mut()),
    ];
    let parallel = action
        .parallel_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions);
    let serial = action
        .serial_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions);
    let codependent = action
        .codependent_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions);
    let inner = wrapped
        .into_iter()
        .flatten()
        .chain(parallel)
        .chain(serial)
        .chain(codependent);
    inner.for_each(|action| each_timeout(action, edit));
}

fn with_timeouts(lrp: &mut proto::DesiredLrp, edit: impl Fn(&mut i64, &mut i64)) {
    [&mut lrp.setup, &mut lrp.action, &mut lrp.monitor]
        .into_iter()
        .flatten()
        .for_each(|action| each_timeout(action, &edit));
}

/// Rounded up; none for a negative timeout.
fn seconds(timeout_ms: i64) -> u32 {
    u32::try_from(timeout_ms).unwrap_or(0).div_ceil(1_000)
}

#[test]
fn generated_lists_of_0_11_are_split_for_0_10() {
    let translator = translator("0.10");
    for lrps in objects().chunks(BATCH) {
        let native = proto::DesiredLrPsResponse {
            error: None,
            desired_lrps: lrps.to_vec(),
        }
        .encode_to_vec();
        let answer = translated(&*translator, "ListMutableDesiredLRPs", &[], &native);
        let found = v0_10::ListMutableDesiredLrPsResponse::decode(&answer[..])
            .unwrap()
            .mutable_desired_lrps;
        assert_eq!(found, lrps.iter().map(mutable).collect::<Vec<_>>());

        let answer = translated(&*translator, "ListImmutableDesiredLRPs", &[], &native);
        // In Diego's message, which has the newer fields too.
        let found = proto::DesiredLrPsResponse::decode(&answer[..])
            .unwrap()
            .desired_lrps;
        assert_eq!(found.len(), lrps.len());
        for (found, lrp) in found.iter().zip(lrps) {
            let mut expected: proto::DesiredLrp = immutable(lrp);
            if expected.start_timeout_ms != 0 {
                expected.deprecated_start_timeout_s = seconds(expected.start_timeout_ms);
            }
            with_timeouts(&mut expected, |ms, ns| *ns = ms.saturating_mul(1_000_000));
            assert_eq!(*found, expected);
        }
    }
}

#[test]
fn generated_desired_lrps_of_0_10_become_those_of_0_11() {
    let translator = translator("0.10");
    for (at, mut lrp) in objects().into_iter().enumerate() {
        // A client of 0.10 sends back what it has read, or sets the timeout that it knows.
        let is_read = at.is_multiple_of(3);
        lrp.start_timeout_ms = lrp.start_timeout_ms.abs();
        let other = u32::try_from(at % 50).unwrap();
        lrp.deprecated_start_timeout_s = if is_read {
            seconds(lrp.start_timeout_ms)
        } else {
            other
        };
        if is_read {
            with_timeouts(&mut lrp, |ms, ns| *ns = *ms * 1_000_000);
        }
        // The message of 0.10 has no number for newer fields, which a client may send back all the
        // same.
        let parts = [
            mutable(&lrp).encode_to_vec(),
            immutable::<proto::DesiredLrp>(&lrp).encode_to_vec(),
        ];
        let request = TwoParts {
            mutable: parts[0].clone(),
            immutable: parts[1].clone(),
        };
        let (_, calls) = requested(&*translator, "CreateDesiredLRP", &request);
        let [(method, sent)] = &calls[..] else {
            panic!("{calls:?}")
        };

        let known_s = std::mem::take(&mut lrp.deprecated_start_timeout_s);
        if known_s != 0 && seconds(lrp.start_timeout_ms) != known_s {
            lrp.start_timeout_ms = i64::from(known_s) * 1_000;
        }
        with_timeouts(&mut lrp, |ms, ns| {
            if *ns != 0 && *ms * 1_000_000 != *ns {
                *ms = (*ns + 999_999) / 1_000_000;
            }
            *ns = 0;
        });
        lrp.metric_tags = vec![crate::api::tag(
            "source_id",
            std::str::from_utf8(&lrp.process_guid).unwrap(),
        )];
        let found = proto::DesireLrpRequest::decode(&sent[..])
            .unwrap()
            .desired_lrp;
        assert_eq!((&**method, found), ("DesireDesiredLRP_r2", Some(lrp)));
    }
}

/// A request with two encoded messages.
#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct TwoParts {
    #[prost(bytes = "vec", tag = "1")]
    mutable: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    immutable: Vec<u8>,
}
