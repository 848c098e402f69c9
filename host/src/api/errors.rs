//! Failures as clients see them: Diego's error types and texts.

use std::error::Error as _;

use bbs_proto::models::error::Type;
use bbs_proto::models::{DesiredLrpLifecycleResponse, Error};
use prost::Message;

use crate::domain::DomainError;
use crate::model::{slot, task};
use crate::modules::translate::TranslateError;

const INVALID_REQUEST: &str = "the request received is invalid";

pub(super) fn error(error: &DomainError) -> Error {
    let (kind, message) = typed(error);
    Error { r#type: kind.into(), message: message.into() }
}

/// An answer that holds only the error. Every answer has it in the same field, so any type will do.
pub(super) fn answer(error: &DomainError) -> Vec<u8> {
    encode(typed(error))
}

/// The answer to a request whose body broke off.
pub(super) fn broken_off() -> Vec<u8> {
    encode((Type::UnknownError, "the request failed for an unknown reason".into()))
}

/// The answer to a call that a translator could not answer.
pub(super) fn fault(fault: TranslateError) -> Vec<u8> {
    tracing::error!(reason = fault.reason, "a translated call was not answered");
    encode((Type::UnknownError, fault.reason))
}

fn encode((kind, message): (Type, String)) -> Vec<u8> {
    let error = Error { r#type: kind.into(), message: message.into() };
    DesiredLrpLifecycleResponse { error: Some(error) }.encode_to_vec()
}

fn typed(error: &DomainError) -> (Type, String) {
    match error {
        DomainError::Invalid(findings) => (Type::InvalidRequest, findings.clone()),
        DomainError::Undecodable(_) => (Type::InvalidRequest, INVALID_REQUEST.into()),
        DomainError::NotHeld(source) | DomainError::Refused(source) => {
            tracing::info!(reason = %source, "a request was refused");
            (Type::InvalidRequest, INVALID_REQUEST.into())
        }
        DomainError::Exists => (Type::ResourceExists, "the requested resource already exists".into()),
        DomainError::NotFound => (Type::ResourceNotFound, "the requested resource could not be found".into()),
        DomainError::Task(refusal) => {
            let kind = match refusal {
                task::Refusal::NoTransition { .. } => Type::InvalidStateTransition,
                task::Refusal::OtherCell { .. } => Type::RunningOnDifferentCell,
                task::Refusal::Rejection => Type::InvalidRequest,
            };
            (kind, refusal.to_string())
        }
        DomainError::NotAllowed(refusal) => not_allowed(*refusal),
        DomainError::Cells(source) => failed(source),
        DomainError::Client(source) => failed(source),
        DomainError::Unreadable(source) => {
            tracing::warn!(reason = %source, cause = source.source().map(tracing::field::display), "a record cannot be read");
            (Type::Deserialize, "could not deserialize record".into())
        }
        DomainError::Store(source) => {
            let failure = failed(source);
            match error.unrecoverable() {
                Some(said) => (Type::Unrecoverable, format!("Unrecoverable Error: {said}")),
                None => failure,
            }
        }
    }
}

/// Because of somebody else, who may have said more than the client is told.
fn failed(source: &dyn std::error::Error) -> (Type, String) {
    tracing::error!(reason = %source, cause = source.source().map(tracing::field::display), "a call failed");
    (Type::UnknownError, source.to_string())
}

fn not_allowed(refusal: slot::Refusal) -> (Type, String) {
    let (kind, verb) = match refusal {
        slot::Refusal::NotFound => return typed(&DomainError::NotFound),
        slot::Refusal::Exists => return typed(&DomainError::Exists),
        slot::Refusal::CannotBeClaimed => (Type::ActualLrpCannotBeClaimed, "claim"),
        slot::Refusal::CannotBeStarted => (Type::ActualLrpCannotBeStarted, "start"),
        slot::Refusal::CannotBeCrashed => (Type::ActualLrpCannotBeCrashed, "crash"),
        slot::Refusal::CannotBeFailed => (Type::ActualLrpCannotBeFailed, "fail"),
        slot::Refusal::CannotBeUnclaimed => (Type::ActualLrpCannotBeUnclaimed, "unclaim"),
    };
    (kind, format!("cannot {verb} actual LRP"))
}
