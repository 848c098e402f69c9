//! The interface between the lens and a migration's row function: a sandboxed component in
//! production, a plain function in unit tests of the lens.

use crate::layout::columns::{Batch, Outcome};
use crate::layout::manifest::{Direction, Manifest};

/// One migration, ready to run.
pub trait Transform: Send + Sync {
    /// The layout changes of the migration, and the columns that its row function reads and writes.
    fn manifest(&self) -> &Manifest;

    /// The sha256 of the component, in hexadecimal, as the history table records it.
    fn digest(&self) -> &str;

    /// Calls the row function for one batch. The outcome has passed every structural check: columns
    /// of the declared number and the right length, offsets in range and ascending, one residue for
    /// each unit.
    ///
    /// # Errors
    /// The call failed. Units that the function refuses by name are part of the outcome.
    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError>;
}

/// The time and the UUID namespace that a step may use. Stored at first use and the same in every
/// later run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunArguments {
    /// The first use of the migration on this database, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// The namespace of UUIDs of version 5, which a step derives from names.
    pub namespace: uuid::Uuid,
}

/// A call without an outcome. The caller halves the batch until one unit is left.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TransformError {
    /// The fault, with the remedy.
    pub reason: String,
    /// Whether it took half of the time that a call may take, or more: few of such calls are made
    /// for one batch.
    pub is_slow: bool,
}
