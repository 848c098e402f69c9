//! The error with which a row function refuses a unit.

use crate::wire::WireError;

/// Why a unit cannot be transformed. The host adds the unit's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The fault of the unit.
    pub reason: String,
}

impl Refused {
    /// A refusal with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Self::new(error.to_string())
    }
}
