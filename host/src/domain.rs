//! The operations of the service: desired LRPs, actual LRPs, tasks, domains. Defines what calls
//! mean and accept; independent of HTTP and of how records are stored.

pub mod actual_lrps;
pub mod cells;
pub mod convergence;
pub mod desired_lrps;
pub mod domains;
pub mod evacuation;
mod key_locks;
pub mod lrp_updates;
mod page;
mod retry;
mod service;
pub mod tasks;
mod update_hints;
pub mod validation;

pub use page::Page;
pub use retry::retry;
pub use service::{Policy, Service};

use bbs_model::{slot, task};

use crate::clients::ClientError;
use crate::clients::cells::CellsError;
use crate::store::StoreError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// Validation findings, in Diego's words, or a bound that the request exceeds.
    #[error("{0}")]
    Invalid(String),
    #[error("the request cannot be decoded")]
    Undecodable(#[source] prost::DecodeError),
    #[error("the request has more than {most} elements; send fewer at once")]
    TooManyElements { most: usize },
    #[error("the request holds a value that its record cannot")]
    Refused(#[source] StoreError),
    #[error("the resource already exists")]
    Exists,
    #[error("the resource could not be found")]
    NotFound,
    #[error("an update to another definition is under way; wait for its end, or cancel it")]
    UpdateInProgress,
    #[error("no update to another definition is under way")]
    NoUpdateInProgress,
    #[error("the definition is not stored, or not any more; update with its whole content instead")]
    DefinitionNotFound,
    #[error("there is a definition with this id and another content; choose another id")]
    DefinitionExists,
    #[error("the database has no place for what the request holds")]
    NotHeld(#[source] StoreError),
    #[error(transparent)]
    Task(#[from] task::TaskError),
    #[error("the record cannot be read")]
    Unreadable(#[source] StoreError),
    #[error(
        "{unreadable} of {all} records in {table} cannot be read, too many to be damaged, so this host ends and moves none \
         into quarantine; check the encryption keys with `bbs keys status`, or raise `quarantine_limit`"
    )]
    TooManyUnreadable {
        table: &'static str,
        unreadable: u64,
        all: u64,
    },
    /// The state of the instance does not allow the call.
    #[error(transparent)]
    NotAllowed(slot::SlotError),
    #[error("the cells cannot be listed")]
    Cells(#[from] CellsError),
    #[error("a cell or another component did not take a request")]
    Client(#[from] ClientError),
    #[error("earlier calls on this record still wait for the database; send the request again")]
    Busy,
    #[error(transparent)]
    Store(StoreError),
}

impl From<slot::SlotError> for DomainError {
    fn from(refusal: slot::SlotError) -> Self {
        match refusal {
            slot::SlotError::NotFound => Self::NotFound,
            slot::SlotError::Exists => Self::Exists,
            slot::SlotError::CannotBeClaimed
            | slot::SlotError::CannotBeStarted
            | slot::SlotError::CannotBeCrashed
            | slot::SlotError::CannotBeFailed
            | slot::SlotError::CannotBeUnclaimed => Self::NotAllowed(refusal),
        }
    }
}

impl From<StoreError> for DomainError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists => Self::Exists,
            StoreError::TooLarge { .. }
            | StoreError::TooManyPatterns { .. }
            | StoreError::IndexTooHigh { .. }
            | StoreError::Characters { .. } => Self::Invalid(error.to_string()),
            StoreError::NotText { .. }
            | StoreError::TooLong { .. }
            | StoreError::DoesNotFit { .. }
            | StoreError::NotJson { .. } => Self::Refused(error),
            StoreError::Unreadable { .. } => Self::Unreadable(error),
            StoreError::NotHeld { .. } => Self::NotHeld(error),
            StoreError::Closed
            | StoreError::Fence(_)
            | StoreError::Units { .. }
            | StoreError::Raced
            | StoreError::Quarantine(_)
            | StoreError::Database(_)
            | StoreError::Statement { .. }
            | StoreError::Commit { .. } => Self::Store(error),
        }
    }
}

impl DomainError {
    /// The database's error, if no call can succeed any more: a table is missing.
    pub fn unrecoverable(&self) -> Option<String> {
        let Self::Store(fault) = self else {
            return None;
        };
        fault.missing_table().map(ToString::to_string)
    }

    /// Whether the database ended the transaction because of a deadlock, in Diego's sense: that of
    /// MySQL and MariaDB.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Self::Store(fault) if fault.is_deadlock())
    }

    /// Whether the transaction was refused before it wrote, so that the client has to repeat the
    /// call, here or at the next master. Failures of the database are answered as Diego answers
    /// them.
    pub fn is_to_be_repeated(&self) -> bool {
        match self {
            Self::Busy => true,
            Self::Store(fault) => fault.is_refusal(),
            _ => false,
        }
    }

    /// Whether the same transaction may succeed when it is retried from its start.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(fault) if fault.is_transient())
    }
}
