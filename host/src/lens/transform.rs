//! The seam between the lens and whatever runs a migration's row function. In production that is
//! a sandboxed component; unit tests of the lens put plain functions here.

use crate::layout::columns::{Batch, Outcome, RunArguments};
use crate::layout::manifest::{Direction, Manifest};

/// One migration, ready to run.
pub trait Transform: Send + Sync {
    fn manifest(&self) -> &Manifest;

    /// The sha256 of what runs, in hexadecimal: what the history table remembers.
    fn digest(&self) -> &str;

    /// Runs the row function over one batch. The outcome has passed every structural check: columns of
    /// the declared number and the right length, offsets in range and ascending, one residue a unit.
    fn apply(&self, direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, TransformError>;
}

/// Why a batch came back without an outcome. The caller halves the batch until one unit is left.
#[derive(Debug, thiserror::Error)]
#[error("{direction} of migration {version} ({module}, sha256 {digest}) failed: {reason}")]
pub struct TransformError {
    pub module: String,
    pub version: u64,
    pub digest: String,
    pub direction: Direction,
    /// What went wrong and what to do about it.
    pub reason: String,
}
