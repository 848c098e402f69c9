//! What the service can do: desired LRPs, actual LRPs, tasks, domains. Owns what calls mean and what
//! they accept; knows neither HTTP nor how anything is stored.

pub mod actual_lrps;
mod attempts;
pub mod cells;
pub mod convergence;
pub mod desired_lrps;
pub mod domains;
pub mod evacuation;
mod page;
mod service;
pub mod tasks;
mod turns;
pub mod validation;

pub use page::Page;
pub use service::{Policy, Service};
pub use turns::Turn;

use crate::clients::ClientError;
use crate::clients::cells::CellsError;
use crate::model::{slot, task};
use crate::store::StoreError;

/// Why a call did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The findings, in Diego's words.
    #[error("{0}")]
    Invalid(String),
    #[error("the request cannot be decoded")]
    Undecodable(#[source] prost::DecodeError),
    #[error("the request holds a value that its record cannot")]
    Refused(#[source] StoreError),
    #[error("the resource already exists")]
    Exists,
    #[error("the resource could not be found")]
    NotFound,
    #[error("the database has no place for what the request holds")]
    NotHeld(#[source] StoreError),
    #[error(transparent)]
    Task(#[from] task::Refusal),
    #[error("the record cannot be read")]
    Unreadable(#[source] StoreError),
    /// What is asked for does not happen to an instance as it is.
    #[error(transparent)]
    NotAllowed(slot::Refusal),
    #[error("it is not known which cells there are")]
    Cells(#[source] CellsError),
    #[error("a cell was not told")]
    Client(#[source] ClientError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<slot::Refusal> for DomainError {
    fn from(refusal: slot::Refusal) -> Self {
        match refusal {
            slot::Refusal::NotFound => Self::NotFound,
            slot::Refusal::Exists => Self::Exists,
            slot::Refusal::CannotBeClaimed
            | slot::Refusal::CannotBeStarted
            | slot::Refusal::CannotBeCrashed
            | slot::Refusal::CannotBeFailed
            | slot::Refusal::CannotBeUnclaimed => Self::NotAllowed(refusal),
        }
    }
}

impl From<StoreError> for DomainError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists => Self::Exists,
            StoreError::NotText { .. }
            | StoreError::TooLong { .. }
            | StoreError::DoesNotFit { .. }
            | StoreError::NotJson { .. } => Self::Refused(error),
            StoreError::Unreadable { .. } => Self::Unreadable(error),
            StoreError::NotHeld { .. } => Self::NotHeld(error),
            StoreError::Fence(_)
            | StoreError::Units { .. }
            | StoreError::Raced
            | StoreError::DualWrite(_)
            | StoreError::Database(_)
            | StoreError::Statement { .. }
            | StoreError::Commit { .. } => Self::Store(error),
        }
    }
}

impl DomainError {
    /// What the database said, where nothing can succeed any more.
    pub fn unrecoverable(&self) -> Option<String> {
        let Self::Store(fault) = self else { return None };
        fault.missing_table().map(ToString::to_string)
    }

    /// Whether the same transaction, done again from its start, may succeed.
    fn is_transient(&self) -> bool {
        matches!(self, Self::Store(fault) if fault.is_transient())
    }
}
