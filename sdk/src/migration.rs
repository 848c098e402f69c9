//! The trait that an author implements for a migration: a manifest and two row functions.
//! [`crate::transform()`] passes the rows to them.

use crate::manifest::Manifest;
use crate::refused::Refused;
use crate::unit::Unit;

/// A migration. One that only changes the layout implements only the manifest.
pub trait Migration {
    /// The declarations of the migration. Has to return the same value each time.
    fn manifest() -> Manifest;

    /// Transforms one unit of the version before into one of this version.
    ///
    /// # Errors
    /// If the unit cannot be transformed; the migration stops at it, or quarantines it.
    fn up(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let _ = (run, unit);
        Ok(())
    }

    /// Transforms one unit of this version into one of the version before.
    ///
    /// # Errors
    /// If the unit cannot be transformed; the migration stops at it, or quarantines it.
    fn down(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let _ = (run, unit);
        Ok(())
    }
}

/// Arguments from outside: the same values each time this migration runs on this database, on any
/// host and in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// When the migration was first used on this database, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// A UUID as the namespace of deterministic identifiers (version 5).
    pub namespace: String,
}
