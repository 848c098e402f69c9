//! Validation of requests, compared with the answers of the Go BBS to the same bytes, and on random
//! and damaged bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs::testing::domain::validation::{Validate, check};
use bbs_proto::models::*;
use bbs_proto::prost::{DecodeError, Message};
use proptest::prelude::*;

use crate::harness::workspace;

/// Decodes and validates the bytes of a request. The outer error is that of the decoder.
type ValidateBytes = fn(&[u8]) -> Result<Result<(), String>, DecodeError>;

fn validate<T: Message + Default + Validate>(
    bytes: &[u8],
) -> Result<Result<(), String>, DecodeError> {
    T::decode(bytes).map(|request| check(&request))
}

/// Every request with fields, by Diego's name for it.
const REQUESTS: &[(&str, ValidateBytes)] = &[
    (
        "ActualLRPsByProcessGuidsRequest",
        validate::<ActualLrPsByProcessGuidsRequest>,
    ),
    ("ActualLRPsRequest", validate::<ActualLrPsRequest>),
    ("ClaimActualLRPRequest", validate::<ClaimActualLrpRequest>),
    ("CompleteTaskRequest", validate::<CompleteTaskRequest>),
    ("CrashActualLRPRequest", validate::<CrashActualLrpRequest>),
    ("DesireLRPRequest", validate::<DesireLrpRequest>),
    ("DesireTaskRequest", validate::<DesireTaskRequest>),
    (
        "DesiredLRPByProcessGuidRequest",
        validate::<DesiredLrpByProcessGuidRequest>,
    ),
    ("DesiredLRPsRequest", validate::<DesiredLrPsRequest>),
    (
        "EvacuateClaimedActualLRPRequest",
        validate::<EvacuateClaimedActualLrpRequest>,
    ),
    (
        "EvacuateCrashedActualLRPRequest",
        validate::<EvacuateCrashedActualLrpRequest>,
    ),
    (
        "EvacuateRunningActualLRPRequest",
        validate::<EvacuateRunningActualLrpRequest>,
    ),
    (
        "EvacuateStoppedActualLRPRequest",
        validate::<EvacuateStoppedActualLrpRequest>,
    ),
    ("EventsByCellId", validate::<EventsByCellId>),
    ("FailActualLRPRequest", validate::<FailActualLrpRequest>),
    ("FailTaskRequest", validate::<FailTaskRequest>),
    ("RejectTaskRequest", validate::<RejectTaskRequest>),
    ("RemoveActualLRPRequest", validate::<RemoveActualLrpRequest>),
    (
        "RemoveDesiredLRPRequest",
        validate::<RemoveDesiredLrpRequest>,
    ),
    (
        "RemoveEvacuatingActualLRPRequest",
        validate::<RemoveEvacuatingActualLrpRequest>,
    ),
    ("RetireActualLRPRequest", validate::<RetireActualLrpRequest>),
    ("StartActualLRPRequest", validate::<StartActualLrpRequest>),
    ("StartTaskRequest", validate::<StartTaskRequest>),
    ("TaskByGuidRequest", validate::<TaskByGuidRequest>),
    ("TaskGuidRequest", validate::<TaskGuidRequest>),
    ("TasksRequest", validate::<TasksRequest>),
    (
        "UpdateDesiredLRPRequest",
        validate::<UpdateDesiredLrpRequest>,
    ),
    ("UpsertDomainRequest", validate::<UpsertDomainRequest>),
];

/// One line of the vectors: a request and the Go BBS's answer to it, empty when it was accepted.
struct Vector {
    message: String,
    request: Vec<u8>,
    answer: String,
    about: String,
}

impl Vector {
    fn validator(&self) -> ValidateBytes {
        let found = REQUESTS.iter().find(|(name, _)| *name == self.message);
        found
            .unwrap_or_else(|| panic!("{}: no such request", self.message))
            .1
    }
}

fn vectors() -> Vec<Vector> {
    let path = workspace().join("tests/vectors/validation.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("message\trequest_base64\terror_message\tdescription")
    );
    lines
        .map(|line| {
            let [message, request, answer, about] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not four columns: {line}");
            };
            let request = STANDARD
                .decode(request)
                .unwrap_or_else(|e| panic!("{line}: {e}"));
            Vector {
                message: message.into(),
                request,
                answer: answer.into(),
                about: about.into(),
            }
        })
        .collect()
}

#[test]
fn validation_answers_equal_those_of_the_go_bbs() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 62);
    let wrong: Vec<String> = vectors
        .iter()
        .filter_map(|vector| {
            let found = vector.validator()(&vector.request)
                .expect("the vectors decode")
                .err()
                .unwrap_or_default();
            let Vector {
                message,
                answer,
                about,
                ..
            } = vector;
            (found != *answer)
                .then(|| format!("{message}, {about}:\n  found    {found}\n  expected {answer}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A request whose action is a serial action in a serial action, `levels` deep, with nothing
/// innermost.
fn nested(levels: usize) -> Vec<u8> {
    let action = (0..levels).fold(Vec::new(), |inner, _| delimited(8, &delimited(1, &inner)));
    delimited(1, &delimited(7, &action))
}

#[test]
fn nested_actions_are_validated_to_the_decoding_depth_without_overflow() {
    for (levels, finding) in [(39, "inner-action"), (40, "action (nested too deep)")] {
        let found = validate::<DesireLrpRequest>(&nested(levels))
            .expect("forty levels can be read")
            .unwrap_err();
        assert!(
            found.ends_with(&format!("Invalid field: action, Invalid field: {finding}")),
            "{found}"
        );
    }
    for levels in [100, 10_000] {
        assert!(
            validate::<DesireLrpRequest>(&nested(levels)).is_err(),
            "{levels} levels cannot be read"
        );
    }
}

#[test]
fn many_validation_errors_are_truncated_in_the_answer() {
    let empty_dependencies = [0xb2, 0x01, 0x00].repeat(100_000);
    let answer = validate::<DesireLrpRequest>(&delimited(1, &empty_dependencies))
        .expect("it can be read")
        .unwrap_err();
    assert!(answer.len() < 100_000, "{} bytes", answer.len());
}

/// Well-formed protobuf bytes: fields of every wire type, some of them nested messages.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let numbers = 1u32..40;
    let text = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..12),
        "[a-z0-9:/%@\\[\\].,-]{0,24}".prop_map(String::into_bytes),
    ];
    let number = (numbers.clone(), prop_oneof![0u64..4, any::<u64>()])
        .prop_map(|(number, value)| [varint(u64::from(number) << 3), varint(value)].concat());
    let leaf = prop_oneof![
        (numbers.clone(), text).prop_map(|(number, text)| delimited(number, &text)),
        number
    ];
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
    [
        &varint(u64::from(number) << 3 | 2),
        &varint(content.len() as u64),
        content,
    ]
    .concat()
}

/// Asserts that validation is deterministic and that every error has a text.
fn validate_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    for (name, validate) in REQUESTS {
        let Ok(answer) = validate(bytes) else {
            continue;
        };
        prop_assert_eq!(validate(bytes).ok(), Some(answer.clone()), "{}", name);
        prop_assert_ne!(answer, Err(String::new()), "{}", name);
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_in_validation(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        validate_all(&bytes)?;
    }

    #[test]
    fn arbitrary_messages_never_panic_in_validation(bytes in message()) {
        validate_all(&bytes)?;
    }

    #[test]
    fn damaged_requests_never_panic_in_validation(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let vectors = vectors();
        let mut bytes = which.get(&vectors).request.clone();
        if !bytes.is_empty() {
            *place.get_mut(&mut bytes) = byte;
            validate_all(&bytes[..length.index(bytes.len() + 1)])?;
            validate_all(&bytes)?;
        }
    }
}
