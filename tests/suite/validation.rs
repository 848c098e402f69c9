//! Validation against what the Go BBS answered to the same bytes, and against bytes that nobody would send.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs::domain::validation::{Validate, check};
use bbs_proto::models::*;
use bbs_proto::prost::{DecodeError, Message};
use proptest::prelude::*;

use crate::harness::workspace;

/// What a request's bytes lead to: unreadable, or read and judged.
type Judge = fn(&[u8]) -> Result<Result<(), String>, DecodeError>;

fn judge<T: Message + Default + Validate>(bytes: &[u8]) -> Result<Result<(), String>, DecodeError> {
    T::decode(bytes).map(|request| check(&request))
}

/// Every request that carries something, by Diego's name for it.
const REQUESTS: &[(&str, Judge)] = &[
    ("ActualLRPGroupByProcessGuidAndIndexRequest", judge::<ActualLrpGroupByProcessGuidAndIndexRequest>),
    ("ActualLRPGroupsByProcessGuidRequest", judge::<ActualLrpGroupsByProcessGuidRequest>),
    ("ActualLRPGroupsRequest", judge::<ActualLrpGroupsRequest>),
    ("ActualLRPsByProcessGuidsRequest", judge::<ActualLrPsByProcessGuidsRequest>),
    ("ActualLRPsRequest", judge::<ActualLrPsRequest>),
    ("ClaimActualLRPRequest", judge::<ClaimActualLrpRequest>),
    ("CompleteTaskRequest", judge::<CompleteTaskRequest>),
    ("CrashActualLRPRequest", judge::<CrashActualLrpRequest>),
    ("DesireLRPRequest", judge::<DesireLrpRequest>),
    ("DesireTaskRequest", judge::<DesireTaskRequest>),
    ("DesiredLRPByProcessGuidRequest", judge::<DesiredLrpByProcessGuidRequest>),
    ("DesiredLRPsRequest", judge::<DesiredLrPsRequest>),
    ("EvacuateClaimedActualLRPRequest", judge::<EvacuateClaimedActualLrpRequest>),
    ("EvacuateCrashedActualLRPRequest", judge::<EvacuateCrashedActualLrpRequest>),
    ("EvacuateRunningActualLRPRequest", judge::<EvacuateRunningActualLrpRequest>),
    ("EvacuateStoppedActualLRPRequest", judge::<EvacuateStoppedActualLrpRequest>),
    ("EventsByCellId", judge::<EventsByCellId>),
    ("FailActualLRPRequest", judge::<FailActualLrpRequest>),
    ("FailTaskRequest", judge::<FailTaskRequest>),
    ("RejectTaskRequest", judge::<RejectTaskRequest>),
    ("RemoveActualLRPRequest", judge::<RemoveActualLrpRequest>),
    ("RemoveDesiredLRPRequest", judge::<RemoveDesiredLrpRequest>),
    ("RemoveEvacuatingActualLRPRequest", judge::<RemoveEvacuatingActualLrpRequest>),
    ("RetireActualLRPRequest", judge::<RetireActualLrpRequest>),
    ("StartActualLRPRequest", judge::<StartActualLrpRequest>),
    ("StartTaskRequest", judge::<StartTaskRequest>),
    ("TaskByGuidRequest", judge::<TaskByGuidRequest>),
    ("TaskGuidRequest", judge::<TaskGuidRequest>),
    ("TasksRequest", judge::<TasksRequest>),
    ("UpdateDesiredLRPRequest", judge::<UpdateDesiredLrpRequest>),
    ("UpsertDomainRequest", judge::<UpsertDomainRequest>),
];

/// One line of the vectors: a request and the Go BBS's answer to it, empty when it was accepted.
struct Vector {
    message: String,
    request: Vec<u8>,
    answer: String,
    about: String,
}

impl Vector {
    fn judge(&self) -> Judge {
        let found = REQUESTS.iter().find(|(name, _)| *name == self.message);
        found.unwrap_or_else(|| panic!("{}: no such request", self.message)).1
    }
}

fn vectors() -> Vec<Vector> {
    let path = workspace().join("tests/vectors/validation.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("message\trequest_base64\terror_message\tdescription"));
    lines
        .map(|line| {
            let [message, request, answer, about] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not four columns: {line}");
            };
            let request = STANDARD.decode(request).unwrap_or_else(|e| panic!("{line}: {e}"));
            Vector { message: message.into(), request, answer: answer.into(), about: about.into() }
        })
        .collect()
}

#[test]
fn every_request_gets_the_answer_that_the_go_bbs_gave() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 62);
    let wrong: Vec<String> = vectors
        .iter()
        .filter_map(|vector| {
            let found = vector.judge()(&vector.request).expect("the vectors decode").err().unwrap_or_default();
            let Vector { message, answer, about, .. } = vector;
            (found != *answer).then(|| format!("{message}, {about}:\n  found    {found}\n  expected {answer}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A request whose action is a serial action in a serial action, `levels` deep, with nothing innermost.
fn nested(levels: usize) -> Vec<u8> {
    let action = (0..levels).fold(Vec::new(), |inner, _| delimited(8, &delimited(1, &inner)));
    delimited(1, &delimited(7, &action))
}

#[test]
fn nesting_is_judged_as_deep_as_it_is_read_and_never_overflows() {
    let shallow = judge::<DesireLrpRequest>(&nested(40)).expect("forty levels can be read").unwrap_err();
    assert!(shallow.ends_with("Invalid field: action, Invalid field: inner-action"), "{shallow}");
    for levels in [100, 10_000] {
        assert!(judge::<DesireLrpRequest>(&nested(levels)).is_err(), "{levels} levels cannot be read");
    }
}

#[test]
fn a_flood_of_findings_makes_a_short_answer() {
    let empty_dependencies = [0xb2, 0x01, 0x00].repeat(100_000);
    let answer = judge::<DesireLrpRequest>(&delimited(1, &empty_dependencies)).expect("it can be read").unwrap_err();
    assert!(answer.len() < 100_000, "{} bytes", answer.len());
}

/// Bytes with the shape of a message: fields of every kind, some of them messages again.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let numbers = 1u32..40;
    let text = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..12),
        "[a-z0-9:/%@\\[\\].,-]{0,24}".prop_map(String::into_bytes),
    ];
    let number = (numbers.clone(), prop_oneof![0u64..4, any::<u64>()])
        .prop_map(|(number, value)| [varint(u64::from(number) << 3), varint(value)].concat());
    let leaf = prop_oneof![(numbers.clone(), text).prop_map(|(number, text)| delimited(number, &text)), number];
    let fields = leaf.prop_recursive(6, 64, 6, move |inner| {
        (numbers.clone(), prop::collection::vec(inner, 0..6))
            .prop_map(|(number, fields)| delimited(number, &fields.concat()))
    });
    prop::collection::vec(fields, 0..8).prop_map(|fields| fields.concat())
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn delimited(number: u32, content: &[u8]) -> Vec<u8> {
    [&varint(u64::from(number) << 3 | 2), &varint(content.len() as u64), content].concat()
}

/// Judged twice, a request gets one answer, and a refusal says why.
fn judge_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    for (name, judge) in REQUESTS {
        let Ok(answer) = judge(bytes) else { continue };
        prop_assert_eq!(judge(bytes).ok(), Some(answer.clone()), "{}", name);
        prop_assert_ne!(answer, Err(String::new()), "{}", name);
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_bytes_make_validation_fail(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        judge_all(&bytes)?;
    }

    #[test]
    fn no_message_makes_validation_fail(bytes in message()) {
        judge_all(&bytes)?;
    }

    #[test]
    fn no_damage_to_a_real_request_makes_validation_fail(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let vectors = vectors();
        let mut bytes = which.get(&vectors).request.clone();
        if !bytes.is_empty() {
            *place.get_mut(&mut bytes) = byte;
            judge_all(&bytes[..length.index(bytes.len() + 1)])?;
            judge_all(&bytes)?;
        }
    }
}
