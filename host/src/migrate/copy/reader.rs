//! The first stage of the copy: which units come next, and their rows and residue.

use std::sync::Arc;

use bbs_database::Transaction;
use bbs_lens::Residue;
use bbs_units::{Bounds, KeyRange, Measure, UnitBatch, UnitKey};
use bbs_work::pauses;

use super::checksum::{self, Checksum};
use super::residue_only::{self, Pass, UnitsWithoutRows};
use super::transform::{ReadBatch, TransformedBatch};
use crate::migrate::quarantine::RefusedUnit;
use crate::migrate::{Context, Job, MigrateError};

/// A pass over a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupPass {
    pub(super) group: usize,
    pub(super) kind: Pass,
}

/// One batch between reading and writing.
pub(super) struct CopyBatch {
    pub(super) after: Option<UnitKey>,
    pub(super) last: UnitKey,
    /// Its units, in the order of the database.
    pub(super) keys: Vec<UnitKey>,
    /// Its rows, until they are transformed. None if the database copies them by itself.
    pub(super) read: Option<ReadBatch>,
    /// For each unit, the checksum of its rows as they were read. None where clients write
    /// meanwhile, or the database copies rows by itself.
    originals: Vec<Checksum>,
    pub(super) transformed: TransformedBatch,
}

impl CopyBatch {
    pub(super) fn units(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Computes the checksums of the units that were read.
    pub(super) fn note_originals(&mut self, job: &Job) {
        if let Some(read) = self.read.as_ref().filter(|_| !job.is_online)
            && self.originals.is_empty()
        {
            self.originals = checksum::of_units(&read.rows, &job.lens.source);
            // A unit above the limit has no rows here.
            self.originals.resize(self.keys.len(), Checksum::default());
        }
    }

    /// The checksum of its units as they were read.
    pub(super) fn originals(&self) -> Checksum {
        let mut sum = Checksum::default();
        self.originals.iter().for_each(|unit| sum.add(*unit));
        sum
    }

    /// The batch without its rows, of which one was refused.
    pub(super) fn left_out(self, refused: RefusedUnit) -> Self {
        Self {
            transformed: TransformedBatch::of_refused(refused),
            ..self
        }
    }

    /// The parts with either half of its rows, which cannot be transformed at once.
    pub(super) fn divided(self, job: &Job, read: &ReadBatch) -> [Self; 2] {
        let [front, back] = read.halves(job);
        let end = front.rows.units.last().expect("half of several units");
        let last = self.keys.iter().position(|key| key == end);
        let at = last.expect("a unit of the batch") + 1;
        let [mut first, mut second] = self.divided_at(at);
        first.read = Some(front);
        second.read = Some(back);
        [first, second]
    }

    /// The halves of a transformed batch of several units.
    ///
    /// # Errors
    /// A value that was just sealed does not open.
    pub(super) fn halves(mut self, job: &Job) -> Result<[Self; 2], MigrateError> {
        let at = self.keys.len() / 2;
        let transformed = std::mem::take(&mut self.transformed);
        let [front, back] = transformed.divided(job, &self.keys[..at])?;
        let [mut first, mut second] = self.divided_at(at);
        first.transformed = front;
        second.transformed = back;
        Ok([first, second])
    }

    /// The ranges before and after a place, without rows.
    fn divided_at(mut self, at: usize) -> [Self; 2] {
        assert!(0 < at && at < self.keys.len(), "either part has a unit");
        let keys = self.keys.split_off(at);
        let originals = self.originals.split_off(at.min(self.originals.len()));
        let end = self.keys[at - 1].clone();
        let second = Self {
            after: Some(end.clone()),
            last: std::mem::replace(&mut self.last, end),
            keys,
            read: None,
            originals,
            transformed: TransformedBatch::default(),
        };
        [self, second]
    }
}

/// Reads the units of one pass over a group, batch by batch.
pub(super) struct BatchReader {
    context: Context,
    job: Arc<Job>,
    pass: GroupPass,
    /// The last key that was read.
    after: Option<UnitKey>,
    /// The number of units that fill a batch, estimated from the last one.
    fitting: u64,
    /// Whether only rows are read: no residue, and none of units above the limit, which are not
    /// refused.
    rows_only: bool,
}

impl BatchReader {
    pub(super) fn new(
        context: Context,
        job: Arc<Job>,
        pass: GroupPass,
        after: Option<UnitKey>,
    ) -> Self {
        Self {
            context,
            job,
            pass,
            after,
            fitting: u64::MAX,
            rows_only: false,
        }
    }

    /// Reads the rows of a group from its beginning.
    pub(super) fn rows_only(context: Context, job: Arc<Job>, group: usize) -> Self {
        let kind = Pass::Stored;
        Self {
            rows_only: true,
            ..Self::new(context, job, GroupPass { group, kind }, None)
        }
    }

    /// The next batch, or none at the end. Of a group in which nothing is computed only the bounds
    /// are read.
    pub(super) async fn next(&mut self, most: u64) -> Result<Option<CopyBatch>, MigrateError> {
        let most = most.min(self.fitting);
        let attempt = || self.read_batch(most);
        let progress = &self.context.progress;
        let read = pauses::retry_batch(progress, MigrateError::is_transient, attempt).await?;
        let Some((batch, fitting)) = read else {
            return Ok(None);
        };
        debug_assert_ne!(
            self.after.as_ref(),
            Some(&batch.last),
            "the cursor moves forward"
        );
        self.after = Some(batch.last.clone());
        self.fitting = fitting;
        Ok(Some(batch))
    }

    /// The batch after the cursor, of at most this number of units, in one transaction, and the
    /// number of units that fill a batch, estimated from this one.
    async fn read_batch(&self, most: u64) -> Result<Option<(CopyBatch, u64)>, MigrateError> {
        let context = &self.context;
        let job = &self.job;
        let GroupPass { group, kind } = self.pass;
        let mut reader = context.database.read().await?;
        let after = self.after.as_ref();
        let Some(mut found) = self.next_units(&mut reader, after, most).await? else {
            return Ok(None);
        };
        let read = if !job.visits_units(group) {
            None
        } else if kind == Pass::ResidueOnly {
            Some(self.read_residue_only(&mut reader, &mut found).await?)
        } else {
            Some(self.read_stored(&mut reader, &mut found).await?)
        };
        let batch = CopyBatch {
            after: self.after.clone(),
            last: found.last,
            keys: found.units,
            read,
            originals: Vec::new(),
            transformed: TransformedBatch::default(),
        };
        Ok(Some((batch, found.fitting)))
    }

    /// The next units.
    async fn next_units(
        &self,
        reader: &mut Transaction,
        after: Option<&UnitKey>,
        most: u64,
    ) -> Result<Option<FoundUnits>, MigrateError> {
        let job = &self.job;
        let group = self.pass.group;
        if self.pass.kind == Pass::ResidueOnly {
            let found = residue_only::next_units(job, reader, group, after, most).await?;
            return Ok(found.map(|UnitsWithoutRows { units, last }| FoundUnits {
                units,
                fitting: u64::MAX,
                last,
            }));
        }
        // Rows that are read are bounded while they are read; those that the database copies by
        // itself have to be measured before.
        let measure = if job.visits_units(group) {
            Measure::Keys
        } else {
            Measure::Bytes {
                most: self.context.tuning.batch_bytes,
            }
        };
        let Bounds { units, bytes } =
            bbs_units::next_units(reader, &job.sources(group), after, most, measure).await?;
        let last = units.last().cloned();
        let fitting = match measure {
            Measure::Keys => self.fitting,
            Measure::Bytes { .. } => self.context.tuning.units_that_fit(units.len(), bytes),
        };
        Ok(last.map(|last| FoundUnits {
            units,
            fitting,
            last,
        }))
    }

    /// The rows of the units that were found: all, or the first of them that fit into a batch.
    async fn read_stored(
        &self,
        reader: &mut Transaction,
        found: &mut FoundUnits,
    ) -> Result<ReadBatch, MigrateError> {
        let context = &self.context;
        let job = &self.job;
        let group = self.pass.group;
        let after = self.after.as_ref();
        let range = KeyRange {
            after,
            units: &found.units,
        };
        let limits = context.tuning.limits();
        let loaded =
            bbs_units::load_range(reader, &job.originals, &job.wanted[group], range, limits)
                .await?;
        let rows = loaded.batch;
        found.fitting = context
            .tuning
            .units_that_fit(rows.units.len(), loaded.bytes);
        let oversized: Vec<_> = loaded.oversized.into_iter().collect();
        let above_limit = oversized.iter().map(|(key, _)| key);
        found.units = rows.units.iter().chain(above_limit).cloned().collect();
        if self.rows_only {
            found.last = loaded.last;
            return Ok(ReadBatch {
                rows,
                ..ReadBatch::default()
            });
        }
        let refused = RefusedUnit::all(job, group, oversized)?;
        let mut read = ReadBatch {
            rows,
            left: Residue::default(),
            refused,
        };
        let count = read.rows.units.len();
        read.left = job.residue_of(reader, &mut read.rows).await?;
        if read.rows.units.len() == count {
            found.last = loaded.last;
        } else {
            found.end_with(&read.rows);
        }
        Ok(read)
    }

    /// Units without rows, for their residue.
    async fn read_residue_only(
        &self,
        reader: &mut Transaction,
        found: &mut FoundUnits,
    ) -> Result<ReadBatch, MigrateError> {
        let wanted = &self.job.wanted[self.pass.group];
        let (rows, left) = residue_only::load(&self.job, reader, wanted, &found.units).await?;
        if rows.units.len() < found.units.len() {
            found.end_with(&rows);
        }
        Ok(ReadBatch {
            rows,
            left,
            refused: Vec::new(),
        })
    }
}

/// The units of the next batch.
struct FoundUnits {
    units: Vec<UnitKey>,
    /// The number of units that fill a batch, estimated from these once they are measured.
    fitting: u64,
    /// The last key of their range, behind which the next batch begins. It may have been left out
    /// of the units.
    last: UnitKey,
}

impl FoundUnits {
    /// Leaves out the units behind those of a batch, for the next one.
    fn end_with(&mut self, batch: &UnitBatch) {
        let last = batch.units.last();
        let end = last.and_then(|last| self.units.iter().position(|unit| unit == last));
        self.units
            .truncate(end.expect("the first units remain") + 1);
        self.last = self.units[self.units.len() - 1].clone();
    }
}
