//! The faults of a run, drawn from its seed before it begins: nothing that happens during the run
//! changes a later decision.

use std::fmt::{self, Display, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;

use super::diego::{CELLS, Fault};
use crate::harness::database::Kind;
use crate::harness::diego::cell::ContainerKey;
use crate::harness::layouts::{NEWEST, SPLIT};

/// One in this many containers crashes.
const CRASHING: u64 = 4;

/// A fault, and the decisions of its injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFault {
    pub fault: Fault,
    /// Operations of the clients between the previous fault and this one.
    pub operations_before: u64,
    /// Operations during the fault, if it lasts for a number of them.
    pub operations: u64,
    /// The number of the cell, if it is the fault of one.
    pub cell: usize,
    /// Decides which containers crash, if it is a crash.
    crashes: u64,
}

/// The faults that are possible on a database, in a random order.
pub fn plan(seed: u64, kind: Kind, faults: &[Fault], operations_before: u64) -> Vec<PlannedFault> {
    let mut random = Rng::with_seed(seed);
    let mut faults: Vec<_> = faults
        .iter()
        .copied()
        .filter(|fault| fault.is_possible_on(kind))
        .collect();
    random.shuffle(&mut faults);
    faults
        .into_iter()
        .map(|fault| PlannedFault {
            fault,
            operations_before,
            operations: random.u64(20..100),
            cell: random.usize(..CELLS),
            crashes: random.u64(..),
        })
        .collect()
}

/// The data version before the faults, at which the first migration among them can begin.
pub fn first_version(faults: &[PlannedFault]) -> u64 {
    let first = faults
        .iter()
        .find(|planned| matches!(planned.fault, Fault::MigrateUp | Fault::MigrateDown));
    let begins_with_down = first.is_some_and(|planned| planned.fault == Fault::MigrateDown);
    if begins_with_down { SPLIT } else { NEWEST }
}

impl PlannedFault {
    /// Whether a container crashes, the `nth` of its index of the LRP. Instance guids are no part
    /// of it: they depend on how the auctions of a run interleave.
    pub fn crashes(&self, container: &ContainerKey, nth: usize) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.crashes, &container.process_guid, container.index, nth).hash(&mut hasher);
        hasher.finish().is_multiple_of(CRASHING)
    }
}

impl Display for PlannedFault {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} after {} operations",
            self.fault, self.operations_before
        )?;
        match self.fault {
            Fault::LoseCell | Fault::DisconnectCell | Fault::Evacuate => {
                write!(formatter, ", cell-{}", self.cell)
            }
            Fault::Auctioneer(_) | Fault::Reps(_) | Fault::Receiver(_) | Fault::TakeOver => {
                write!(formatter, ", for {}", self.operations)
            }
            Fault::Crash
            | Fault::Kill
            | Fault::Restart
            | Fault::CutDatabase
            | Fault::LoseLock
            | Fault::MigrateUp
            | Fault::MigrateDown => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_decides_all_faults_and_another_seed_decides_otherwise() {
        let planned = |seed| plan(seed, Kind::Sqlite, &Fault::all(), 10);
        assert_eq!(planned(1_591_079_052), planned(1_591_079_052));
        assert_ne!(planned(1_591_079_052), planned(1_591_079_053));
    }

    #[test]
    fn about_a_quarter_of_the_containers_crashes_whatever_their_instance_guids_are() {
        let planned = &plan(1, Kind::Sqlite, &[Fault::Crash], 10)[0];
        let container = |index, name: &str| ContainerKey {
            process_guid: b"process-1".to_vec(),
            index,
            instance_guid: name.into(),
        };
        let crashing = |name| {
            (0..1_000)
                .filter(|index| planned.crashes(&container(*index, name), 0))
                .collect::<Vec<_>>()
        };
        assert_eq!(crashing("cell-0-instance-1"), crashing("cell-1-instance-7"));
        assert!(
            (200..300).contains(&crashing("").len()),
            "{:?}",
            crashing("").len()
        );
    }
}
