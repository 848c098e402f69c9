//! Why a lens cannot be composed, or applied to units.

use std::fmt;

use super::budget::{MOST_SLOW_CALLS, OverBudget};
use super::transform::Transform;
use crate::layout::history::Leg;
use crate::layout::manifest::{DataVersion, Direction};

/// Why a way cannot come up again through a migration.
pub(super) const SAVES_ANEW: &str = "it ran before and saved values that it loses on its way up, and those that it would save \
                                     now would take their place before the migration is complete; take the database down below \
                                     it first, and up again from there";

/// Why a row function cannot be applied to a unit whose row it returns with another key.
pub(super) const MOVES_ROW: &str = "a row is returned with a partition key that is not that of its unit, so it would move to another \
                                    one; return the key as it was given";

/// The advice about a fault that the rules for manifests did not find.
pub(super) const BREAKS_A_RULE: &str = "its manifest breaks a rule that this host relies on, so remove the module, and report it \
                                        with the file";

/// Why a way cannot come up again through a migration with a unit.
pub(super) const LOSES_SAVED: &str = "what it saved of the unit on the way down does not belong to the unit any more, which an \
                                      inserted migration has changed";

/// Why a way cannot end below migrations that it goes down through, when it comes up through one.
pub(super) const CHANGES_SAVED: &str = "it would change rows for which migrations above it save values on the way down; take the \
                                        database up with it first, to a version above those that ran, and down from there";

/// The step that is at fault: a direction of a migration, and its module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// The migration's name.
    pub module: String,
    pub version: DataVersion,
    pub digest: String,
    pub direction: Direction,
}

impl FailedStep {
    pub fn of(transform: &dyn Transform, direction: Direction) -> Self {
        let manifest = transform.manifest();
        Self {
            module: manifest.name.clone(),
            version: manifest.version,
            digest: transform.digest().to_owned(),
            direction,
        }
    }

    pub fn leg(&self) -> Leg {
        Leg {
            version: self.version,
            direction: self.direction,
        }
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            module,
            version,
            digest,
            direction,
        } = self;
        write!(
            f,
            "{direction} of migration {version} ({module}, sha256 {digest})"
        )
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LensError {
    /// `unit` is its place in the batch; the caller knows its key.
    #[error("{step} cannot transform a unit: {reason}")]
    Unit {
        unit: usize,
        step: FailedStep,
        reason: String,
    },
    #[error(
        "{direction} of migration {version} moves columns from {from} to {to}, but a row has no counterpart there; \
         add or remove the row, then start again"
    )]
    Counterpart {
        unit: usize,
        version: DataVersion,
        direction: Direction,
        from: String,
        to: String,
    },
    /// The host refuses what a module returned for so many units, or fails over it. Of several
    /// units, only a smaller batch shows which is at fault.
    #[error(
        "{step} cannot be applied to {}: {reason}",
        if *.units == 1 { "a unit".to_owned() } else { format!("{units} units") }
    )]
    Step {
        unit: usize,
        units: usize,
        step: FailedStep,
        reason: String,
    },
    /// So many calls took long and failed that no more are made to find the units at fault.
    #[error(
        "{step} took nearly all of its time, or more, in {MOST_SLOW_CALLS} calls for one batch, and failed: {reason}; correct the \
         module"
    )]
    Slow { step: FailedStep, reason: String },
}

impl LensError {
    /// The place of the unit at fault, or of the first of several; that of the first unit where
    /// none is known.
    pub fn unit(&self) -> usize {
        match self {
            Self::Unit { unit, .. } | Self::Counterpart { unit, .. } | Self::Step { unit, .. } => {
                *unit
            }
            Self::Slow { .. } => 0,
        }
    }

    /// The migration at fault, in the direction that failed.
    pub fn leg(&self) -> Leg {
        match self {
            Self::Unit { step, .. } | Self::Step { step, .. } | Self::Slow { step, .. } => {
                step.leg()
            }
            Self::Counterpart {
                version, direction, ..
            } => Leg {
                version: *version,
                direction: *direction,
            },
        }
    }

    /// Whether it is not known which of several units is at fault.
    pub fn is_of_several_units(&self) -> bool {
        matches!(self, Self::Step { units: 2.., .. })
    }

    /// Whether the module is at fault, whatever the units.
    pub fn is_of_module(&self) -> bool {
        matches!(self, Self::Slow { .. })
    }
}

/// Migrations whose manifests are valid one by one, but have no lens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "migration {version}-{name} cannot be composed with those before it, {direction} from {source_version} to {target}: \
     {reason}"
)]
pub struct ComposeError {
    pub version: DataVersion,
    pub name: String,
    pub direction: Direction,
    pub source_version: DataVersion,
    pub target: DataVersion,
    pub reason: String,
}

/// Why a step cannot be applied.
#[derive(Debug)]
pub(super) enum StepError {
    /// To these units.
    Units(Vec<LensError>),
    /// To all units at once.
    Batch(String),
    /// To any units.
    Module(LensError),
}

impl From<Vec<LensError>> for StepError {
    fn from(faults: Vec<LensError>) -> Self {
        Self::Units(faults)
    }
}

impl From<OverBudget> for StepError {
    fn from(fault: OverBudget) -> Self {
        Self::Batch(fault.to_string())
    }
}

/// Why a change cannot be applied to the rows.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// Units with a row that has no counterpart in the table that a column moves to, or the other
    /// way round.
    NoCounterpart {
        units: Vec<usize>,
        from: String,
        to: String,
    },
    OverBudget(OverBudget),
}

impl From<OverBudget> for ChangeError {
    fn from(fault: OverBudget) -> Self {
        Self::OverBudget(fault)
    }
}
