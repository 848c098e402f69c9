//! Failures as clients see them: Diego's error types and texts, and calls without an answer.

use bbs_model::{slot, task};
use bbs_modules::translate::TranslateError;
use bbs_proto::models::error::Type;
use bbs_proto::models::{Error, EvacuationResponse};
use bbs_work::causes::with_causes;
use prost::Message;

use crate::domain::DomainError;

/// Why a run has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The database, at its pinned version, has no column for a value of the request.
    #[error("{0}")]
    NotHeld(String),
    /// The native handler cannot take the call now; the client has to repeat it.
    #[error("{0}")]
    Unavailable(String),
    #[error("this host runs as many calls of this kind as it can at once; send the request again")]
    Busy,
    #[error(transparent)]
    Translate(#[from] TranslateError),
}

const INVALID_REQUEST: &str = "the request received is invalid";

pub(super) fn error(error: &DomainError) -> Error {
    let (kind, message) = typed(error);
    Error {
        r#type: kind.into(),
        message: message.into(),
    }
}

/// The text of an error that is answered with a status of HTTP.
pub(super) fn text(error: &DomainError) -> String {
    typed(error).1
}

/// Encodes an answer that holds only the error.
pub(super) fn answer(error: &DomainError) -> Vec<u8> {
    encode(typed(error), false)
}

/// The answer to a request whose body ended early.
pub(super) fn interrupted_body(keeps_container: bool) -> Vec<u8> {
    let reason = "the request failed for an unknown reason";
    encode((Type::UnknownError, reason.into()), keeps_container)
}

/// The end of a list whose transaction was kept for too long.
pub(super) fn slow_list() -> Vec<u8> {
    let reason = "the list is not complete: it was received too slowly to be read at one moment; receive it faster, or \
                  list less with a filter";
    encode((Type::UnknownError, reason.into()), false)
}

/// The answer to a call that failed in a translator, which has logged it.
pub(super) fn fault(fault: TranslateError, keeps_container: bool) -> Vec<u8> {
    encode((Type::UnknownError, fault.reason), keeps_container)
}

/// Every response message has its error in field 1, so that this type serves for all.
fn encode((kind, message): (Type, String), keep_container: bool) -> Vec<u8> {
    let error = Error {
        r#type: kind.into(),
        message: message.into(),
    };
    EvacuationResponse {
        error: Some(error),
        keep_container,
    }
    .encode_to_vec()
}

fn typed(error: &DomainError) -> (Type, String) {
    match error {
        DomainError::Invalid(findings) => (Type::InvalidRequest, findings.clone()),
        DomainError::Undecodable(_) => (Type::InvalidRequest, INVALID_REQUEST.into()),
        DomainError::TooManyElements { .. } => (Type::InvalidRequest, error.to_string()),
        DomainError::NotHeld(source) | DomainError::Refused(source) => {
            tracing::info!(reason = %with_causes(source), "a request was rejected");
            (Type::InvalidRequest, INVALID_REQUEST.into())
        }
        DomainError::Exists => (
            Type::ResourceExists,
            "the requested resource already exists".into(),
        ),
        DomainError::NotFound => (
            Type::ResourceNotFound,
            "the requested resource could not be found".into(),
        ),
        DomainError::UpdateInProgress => (Type::UpdateInProgress, error.to_string()),
        DomainError::NoUpdateInProgress => (Type::NoUpdateInProgress, error.to_string()),
        DomainError::DefinitionNotFound => (Type::DefinitionNotFound, error.to_string()),
        DomainError::DefinitionExists => (Type::DefinitionExists, error.to_string()),
        DomainError::Task(refusal) => {
            let kind = match refusal {
                task::TaskError::NoTransition { .. } => Type::InvalidStateTransition,
                task::TaskError::OtherCell { .. } => Type::RunningOnDifferentCell,
                task::TaskError::Rejection => Type::InvalidRequest,
            };
            (kind, refusal.to_string())
        }
        DomainError::NotAllowed(refusal) => not_allowed(*refusal),
        DomainError::Cells(source) => failed(source),
        DomainError::Client(source) => failed(source),
        DomainError::Unreadable(source) => {
            tracing::warn!(reason = %with_causes(source), "a record cannot be read");
            (Type::Deserialize, "could not deserialize record".into())
        }
        DomainError::TooManyUnreadable { .. } | DomainError::Busy => failed(error),
        DomainError::Store(source) => {
            let failure = failed(source);
            match error.unrecoverable() {
                Some(fault) => (Type::Unrecoverable, format!("Unrecoverable Error: {fault}")),
                None if error.is_deadlock() => {
                    (Type::Deadlock, "the request failed due to deadlock".into())
                }
                None => failure,
            }
        }
    }
}

/// A failure of the database or another component, with its causes.
fn failed(source: &dyn std::error::Error) -> (Type, String) {
    let reason = with_causes(source).to_string();
    tracing::error!(%reason, "a call failed");
    (Type::UnknownError, reason)
}

fn not_allowed(refusal: slot::SlotError) -> (Type, String) {
    let (kind, verb) = match refusal {
        slot::SlotError::NotFound => return typed(&DomainError::NotFound),
        slot::SlotError::Exists => return typed(&DomainError::Exists),
        slot::SlotError::CannotBeClaimed => (Type::ActualLrpCannotBeClaimed, "claim"),
        slot::SlotError::CannotBeStarted => (Type::ActualLrpCannotBeStarted, "start"),
        slot::SlotError::CannotBeCrashed => (Type::ActualLrpCannotBeCrashed, "crash"),
        slot::SlotError::CannotBeFailed => (Type::ActualLrpCannotBeFailed, "fail"),
        slot::SlotError::CannotBeUnclaimed => (Type::ActualLrpCannotBeUnclaimed, "unclaim"),
    };
    (kind, format!("cannot {verb} actual LRP"))
}
