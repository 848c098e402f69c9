//! The one type an author writes for a migration: a manifest and two row functions. How the rows
//! reach them is [`crate::transform`]'s.

use crate::manifest::Manifest;
use crate::unit::Unit;

/// A migration. One that only changes the layout has a manifest and nothing else.
pub trait Migration {
    fn manifest() -> Manifest;

    /// Turns one unit of the version before into one of this version.
    fn up(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let _ = (run, unit);
        Ok(())
    }

    /// Turns one unit of this version into one of the version before.
    fn down(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let _ = (run, unit);
        Ok(())
    }
}

/// What a step may need from outside: the same values each time this migration runs on this
/// database, whoever runs it and in whichever direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// When the migration was first used here, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// A UUID, for deterministic identifiers (version 5).
    pub namespace: String,
}

/// Why a unit cannot be transformed. The host names the unit; the reason says what is wrong in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub reason: String,
}

impl Refused {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl From<crate::wire::WireError> for Refused {
    fn from(error: crate::wire::WireError) -> Self {
        Self::new(error.to_string())
    }
}
