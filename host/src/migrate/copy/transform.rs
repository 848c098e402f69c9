//! From loaded units to rows ready to be copied: through the lens, with their checksums, sealed.
//! Pure work on memory, run away from the threads that serve.

use std::collections::{BTreeMap, HashSet};

use bbs_database::{SqlError, refusal};
use bbs_lens::Residue;
use bbs_units::residue::{self, SealedEntry};
use bbs_units::{TableRows, UnitBatch, UnitKey};

use super::checksum::Checksum;
use crate::migrate::quarantine::RefusedUnit;
use crate::migrate::{Job, MigrateError, OnUnreadable};

/// One batch of a group as it was read, with the residue of its units.
#[derive(Debug, Default)]
pub(crate) struct ReadBatch {
    pub rows: UnitBatch,
    pub left: Residue,
    /// A unit that no module can take, since it is above the limit of units. Then there are no
    /// rows.
    pub refused: Vec<RefusedUnit>,
}

impl ReadBatch {
    /// The halves of a batch of more than one unit.
    pub(crate) fn halves(&self, job: &Job) -> [Self; 2] {
        bbs_units::halves(&job.lens.source, &self.rows, &self.left).map(|(rows, left)| Self {
            rows,
            left,
            refused: Vec::new(),
        })
    }
}

/// A batch at the target.
#[derive(Debug, Default)]
pub(crate) struct TransformedBatch {
    /// The units that were transformed.
    pub units: Vec<UnitKey>,
    /// The units that are not in it, since they cannot be transformed.
    pub refused: Vec<RefusedUnit>,
    /// The rows for each copy, as it stores them.
    pub tables: BTreeMap<String, (TableRows, Checksum)>,
    pub residue: Vec<SealedEntry>,
    pub stale: u64,
    /// The number of rows that modules removed.
    pub removed: u64,
}

impl TransformedBatch {
    /// A unit that is left out.
    pub(super) fn of_refused(refused: RefusedUnit) -> Self {
        Self {
            refused: vec![refused],
            ..Self::default()
        }
    }

    /// The parts of units that are in the front part of a batch, and of the others.
    pub(crate) fn divided(self, job: &Job, front: &[UnitKey]) -> Result<[Self; 2], MigrateError> {
        let front: HashSet<&UnitKey> = front.iter().collect();
        let names: HashSet<String> = front.iter().map(|key| key.name()).collect();
        let (first, second): (Vec<_>, Vec<_>) =
            (0..self.units.len()).partition(|place| front.contains(&self.units[*place]));
        let part = |places: &[usize]| -> Result<Self, MigrateError> {
            let units = places
                .iter()
                .map(|place| self.units[*place].clone())
                .collect();
            let tables = self.tables.iter().map(|(name, (rows, _))| {
                let plan = job.copied(name).expect("the table is copied");
                let rows = rows.only(&plan.table, places);
                let checksum = Checksum::of_copied(plan, rows.clone(), &job.keyring)?;
                Ok((name.clone(), (rows, checksum)))
            });
            Ok(Self {
                units,
                tables: tables.collect::<Result<_, MigrateError>>()?,
                ..Self::default()
            })
        };
        let mut first = part(&first)?;
        let mut second = part(&second)?;
        (first.refused, second.refused) = self
            .refused
            .into_iter()
            .partition(|refused| front.contains(&refused.key));
        (first.residue, second.residue) = self
            .residue
            .into_iter()
            .partition(|entry| names.contains(entry.unit()));
        // Of all units together; for the log alone.
        (first.stale, first.removed) = (self.stale, self.removed);
        Ok([first, second])
    }

    /// The error of its only unit, a row of which the database has refused.
    pub(super) fn refused_unit(
        &self,
        job: &Job,
        key: &UnitKey,
        table: &str,
        source: &SqlError,
    ) -> RefusedUnit {
        let flaw = refusal(source);
        let largest = self.residue.iter().max_by_key(|entry| entry.sealed_bytes());
        let unstorable = match largest.filter(|_| table == residue::TABLE) {
            Some(entry) => bbs_units::refused_residue(&job.lens, entry.left_by(), &flaw),
            None => bbs_units::refused_row(&job.lens, table, &flaw),
        };
        let error = MigrateError::Unstorable {
            unit: key.name(),
            source: Box::new(unstorable),
        };
        RefusedUnit {
            key: key.clone(),
            error,
        }
    }
}

/// Transforms a batch. Where the operator chose quarantine, units that cannot be transformed are
/// left out and returned. None if its units cannot be transformed at once; then
/// [`ReadBatch::halves`] of it can.
///
/// # Errors
/// A unit cannot be transformed, or a module is too slow to find those that cannot.
pub(crate) fn transform(
    job: &Job,
    group: usize,
    read: &mut ReadBatch,
) -> Result<Option<TransformedBatch>, MigrateError> {
    if read.rows.units.is_empty() {
        let refused = std::mem::take(&mut read.refused);
        return Ok(Some(TransformedBatch {
            refused,
            ..TransformedBatch::default()
        }));
    }
    let at_fault = |(unit, fault): (usize, _)| {
        let key = &read.rows.units[unit];
        RefusedUnit {
            key: key.clone(),
            error: job.at_fault(fault, key.name()),
        }
    };
    let keyring = &*job.keyring;
    let groups = [group];
    let passage = job.passage(&groups, &job.arguments);
    let transformed = match job.on_unreadable {
        OnUnreadable::Quarantine => passage.sift(&read.rows, &read.left),
        OnUnreadable::Stop => match passage.all(&read.rows, &read.left) {
            Ok(transformed) => Ok(transformed),
            Err((_, fault)) if fault.is_of_several_units() => Err(fault),
            Err(refused) => return Err(at_fault(refused).stop(group)),
        },
    };
    let transformed = match transformed {
        Ok(transformed) => transformed,
        Err(fault) if fault.is_of_module() => return Err(fault.into()),
        Err(several) => {
            tracing::info!(reason = %several, "a batch is divided");
            return Ok(None);
        }
    };
    let residue = residue::seal(keyring, transformed.residue, &transformed.batch.names());
    let mut batch = TransformedBatch {
        units: transformed.batch.units,
        refused: transformed.refused.into_iter().map(at_fault).collect(),
        tables: BTreeMap::new(),
        residue,
        stale: transformed.stale,
        removed: transformed.removed,
    };
    for (name, rows) in transformed.batch.tables {
        let Some(plan) = job.copied(&name).filter(|plan| !plan.by_range()) else {
            continue;
        };
        let checksum = Checksum::of(plan, &rows);
        batch
            .tables
            .insert(name, (plan.stored(rows, keyring), checksum));
    }
    Ok(Some(batch))
}
