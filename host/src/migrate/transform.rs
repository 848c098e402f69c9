//! From loaded units to rows ready to be copied: through the lens, with their checksums, sealed. Pure work on memory,
//! run away from the threads that serve.

use std::collections::{BTreeMap, HashSet};

use super::checksum::Checksum;
use super::quarantine::RefusedUnit;
use super::{Job, MigrateError, RefusedUnits};
use crate::lens::Residue;
use crate::rows::residue::{self, SealedEntry};
use crate::rows::{Passage, Sifted, TableRows, UnitBatch, UnitKey};

/// One batch of a group as it was read, with the residue of its units.
#[derive(Debug, Default)]
pub(super) struct ReadBatch {
    pub rows: UnitBatch,
    pub left: Residue,
}

impl ReadBatch {
    /// Removes some of the units.
    pub(super) fn leave_out(&mut self, job: &Job, units: &HashSet<UnitKey>) {
        if !units.is_empty() {
            let others = |unit: &usize| !units.contains(&self.rows.units[*unit]);
            let others: Vec<_> = (0..self.rows.units.len()).filter(others).collect();
            self.rows = self.rows.only(&job.lens.source, &others);
            self.left = self.left.only(&others);
        }
    }
}

/// The same batch at the target.
#[derive(Debug, Default)]
pub(super) struct TransformedBatch {
    /// The units that are not in it, since they cannot be transformed.
    pub refused: Vec<RefusedUnit>,
    /// The rows for each copy, as it stores them.
    pub tables: BTreeMap<String, (TableRows, Checksum)>,
    pub residue: Vec<SealedEntry>,
    pub stale: u64,
}

/// Transforms a batch. Where the operator chose quarantine, units that cannot be transformed are left out and returned.
pub(super) fn transform(job: &Job, group: usize, read: &ReadBatch) -> Result<TransformedBatch, MigrateError> {
    let at_fault = |(unit, fault): (usize, _)| {
        let key = &read.rows.units[unit];
        RefusedUnit { key: key.clone(), error: job.at_fault(fault, key.name()) }
    };
    let (lens, arguments, keyring) = (&job.lens, &job.arguments, &*job.keyring);
    let passage = Passage { lens, groups: &[group], arguments, keyring };
    let sifted = match job.refused_units {
        RefusedUnits::Quarantine => passage.sift(&read.rows, &read.left),
        RefusedUnits::Stop => {
            let transformed = passage.all(&read.rows, &read.left).map_err(|refused| at_fault(refused).error)?;
            Sifted { transformed, ..Sifted::default() }
        }
    };
    let transformed = sifted.transformed;
    let mut batch = TransformedBatch {
        refused: sifted.refused.into_iter().map(at_fault).collect(),
        tables: BTreeMap::new(),
        residue: residue::seal(keyring, transformed.residue, &transformed.batch.names()),
        stale: transformed.stale,
    };
    for (name, rows) in transformed.batch.tables {
        let Some(plan) = job.copied(&name).filter(|plan| !plan.by_range()) else { continue };
        let checksum = Checksum::of(plan, &rows);
        batch.tables.insert(name, (plan.stored(rows, keyring), checksum));
    }
    Ok(batch)
}
