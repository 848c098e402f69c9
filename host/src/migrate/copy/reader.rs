//! The first stage of the copy: which units come next, and their rows and residue. Owns the locks
//! that keep clients from writing a batch between its read and its commit.

use std::collections::HashSet;
use std::sync::Arc;

use crate::database::Transaction;
use crate::lens::Residue;
use crate::migrate::plan::Strategy;
use crate::migrate::quarantine::RefusedUnit;
use crate::migrate::transform::{ReadBatch, TransformedBatch};
use crate::migrate::unit_locks::HeldUnits;
use crate::migrate::{Context, Job, MigrateError};
use crate::rows::{self, Bounds, KeyRange, Measure, TableRows, UnitBatch, UnitKey};

/// Which units of a group are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Those that have rows in the tables of the group, in the order of their keys.
    Stored,
    /// Those that have no row there and of which the other direction saved rows of dropped tables,
    /// in the order of the digests of their names.
    ResidueOnly,
}

/// One batch between reading and writing.
pub(super) struct CopyBatch {
    pub(super) after: Option<UnitKey>,
    pub(super) last: UnitKey,
    /// Its units, in the order of the database.
    pub(super) keys: Vec<UnitKey>,
    pub(super) transformed: TransformedBatch,
    /// Locked until the batch is committed, with all parts that it was divided into, if clients
    /// write meanwhile.
    held: Option<Arc<HeldUnits>>,
}

impl CopyBatch {
    pub(super) fn units(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The batch without its rows, of which one was refused.
    pub(super) fn left_out(self, refused: RefusedUnit) -> Self {
        Self {
            transformed: TransformedBatch::of_refused(refused),
            ..self
        }
    }

    /// Divides it after a unit, before it is transformed.
    pub(super) fn divided_after(self, end: &UnitKey) -> (Self, Self) {
        let at = self
            .keys
            .iter()
            .position(|key| key == end)
            .expect("a unit of the batch")
            + 1;
        self.divided_at(
            at,
            [TransformedBatch::default(), TransformedBatch::default()],
        )
    }

    /// The halves of a transformed batch of several units.
    ///
    /// # Errors
    /// A value that was just sealed does not open.
    pub(super) fn halves(mut self, job: &Job) -> Result<(Self, Self), MigrateError> {
        let at = self.keys.len() / 2;
        let parts = std::mem::take(&mut self.transformed).divided(job, &self.keys[..at])?;
        Ok(self.divided_at(at, parts))
    }

    fn divided_at(mut self, at: usize, [front, back]: [TransformedBatch; 2]) -> (Self, Self) {
        let rest = self.keys.split_off(at);
        let end = self.keys.last().cloned().expect("either part has a unit");
        assert!(!rest.is_empty(), "either part has a unit");
        let second = Self {
            after: Some(end.clone()),
            last: std::mem::replace(&mut self.last, end),
            keys: rest,
            transformed: back,
            held: self.held.clone(),
        };
        self.transformed = front;
        (self, second)
    }
}

/// Reads the units of one pass over a group, batch by batch.
pub(super) struct BatchReader {
    context: Context,
    job: Arc<Job>,
    group: usize,
    pass: Pass,
    /// The last key that was read.
    after: Option<UnitKey>,
    /// The number of units that fill a batch, estimated from the last one.
    fitting: u64,
}

impl BatchReader {
    pub(super) fn new(
        context: Context,
        job: Arc<Job>,
        group: usize,
        pass: Pass,
        after: Option<UnitKey>,
    ) -> Self {
        Self {
            context,
            job,
            group,
            pass,
            after,
            fitting: u64::MAX,
        }
    }

    /// The next batch, or none at the end. Of a group in which nothing is computed only the bounds
    /// are read.
    pub(super) async fn next(
        &mut self,
        most: u64,
    ) -> Result<Option<(CopyBatch, Option<ReadBatch>)>, MigrateError> {
        let (context, job, group) = (&self.context, &self.job, self.group);
        let mut reader = context.database.read().await?;
        let after = self.after.take();
        let most = most.min(self.fitting);
        let Some((mut found, last)) = self.next_units(&mut reader, after.as_ref(), most).await?
        else {
            return Ok(None);
        };
        let held = match job.locks() {
            None => None,
            Some(locks) => {
                // Locked before the units are read again, in a state that includes the commits of
                // earlier holders.
                drop(reader);
                let held = locks
                    .take(
                        found
                            .units
                            .iter()
                            .map(|unit| (group, unit.clone()))
                            .collect(),
                    )
                    .await;
                reader = context.database.read().await?;
                if self.pass == Pass::ResidueOnly {
                    leave_out_stored(job, &mut reader, group, &mut found.units).await?;
                }
                Some(Arc::new(held))
            }
        };
        let mut last = last;
        let read = match job.visits_units(group) {
            false => {
                self.fitting = context
                    .tuning
                    .units_that_fit(found.units.len(), found.bytes);
                None
            }
            true if self.pass == Pass::ResidueOnly => {
                let count = found.units.len();
                let read = self.read_kept(&mut reader, &mut found).await?;
                if found.units.len() < count {
                    last = found.units.last().cloned().expect("there is one");
                }
                Some(read)
            }
            true => {
                let read;
                (read, last) = self
                    .read_stored(&mut reader, after.as_ref(), &mut found)
                    .await?;
                Some(read)
            }
        };
        self.after = Some(last.clone());
        let batch = CopyBatch {
            after,
            last,
            keys: found.units,
            transformed: TransformedBatch::default(),
            held,
        };
        Ok(Some((batch, read)))
    }

    /// The next units, and the last key of their range.
    async fn next_units(
        &self,
        reader: &mut Transaction,
        after: Option<&UnitKey>,
        most: u64,
    ) -> Result<Option<(Bounds, UnitKey)>, MigrateError> {
        let Self {
            context,
            job,
            group,
            ..
        } = self;
        if self.pass == Pass::ResidueOnly {
            return kept_units(job, reader, *group, after, most).await;
        }
        // Rows that are read are bounded while they are read; those that the database copies by
        // itself have to be measured before.
        let measure = match job.visits_units(*group) {
            true => Measure::Keys,
            false => Measure::Bytes {
                most: context.tuning.batch_bytes,
            },
        };
        let found = rows::next_units(reader, &job.sources(*group), after, most, measure).await?;
        Ok(found.units.last().cloned().map(|last| (found, last)))
    }

    /// The rows of the units that were found: all, or the first of them that fit into a batch; and
    /// the last of them.
    async fn read_stored(
        &mut self,
        reader: &mut Transaction,
        after: Option<&UnitKey>,
        found: &mut Bounds,
    ) -> Result<(ReadBatch, UnitKey), MigrateError> {
        let (context, job, group) = (&self.context, &self.job, self.group);
        let range = KeyRange {
            after,
            units: &found.units,
            is_shared: job.locks().is_some(),
        };
        let limits = context.tuning.limits();
        let loaded =
            rows::load_range(reader, &job.originals, &job.wanted[group], range, limits).await?;
        let rows = loaded.batch;
        self.fitting = context
            .tuning
            .units_that_fit(rows.units.len(), loaded.bytes);
        let refused = RefusedUnit::all(job, group, loaded.oversized.into_iter().collect())?;
        found.units = rows
            .units
            .iter()
            .chain(refused.iter().map(|refused| &refused.key))
            .cloned()
            .collect();
        let mut read = ReadBatch {
            rows,
            left: Residue::default(),
            refused,
        };
        if job.locks().is_some() && !read.rows.units.is_empty() {
            let there = copied_already(reader, job, group, after, &read.rows.units).await?;
            read.leave_out(job, &there);
        }
        let count = read.rows.units.len();
        read.left = job.residue_of(reader, &mut read.rows).await?;
        if read.rows.units.len() == count {
            return Ok((read, loaded.last));
        }
        found.end_with(&read.rows);
        let last = found.units.last().cloned().expect("its first units remain");
        Ok((read, last))
    }

    /// Units without rows, for their residue.
    async fn read_kept(
        &self,
        reader: &mut Transaction,
        found: &mut Bounds,
    ) -> Result<ReadBatch, MigrateError> {
        let job = &self.job;
        let empty = |(name, columns): (&String, _)| {
            (
                name.clone(),
                TableRows::empty(&job.lens.source.tables[name], columns, found.units.len()),
            )
        };
        let tables = job.wanted[self.group].iter().map(empty).collect();
        let mut rows = UnitBatch {
            units: found.units.clone(),
            tables,
        };
        let left = job.residue_of(reader, &mut rows).await?;
        found.end_with(&rows);
        Ok(ReadBatch {
            rows,
            left,
            refused: Vec::new(),
        })
    }
}

/// The places of units of a range that are in the copies because a client has written them since.
/// They are up to date.
async fn copied_already(
    tx: &mut Transaction,
    job: &Job,
    group: usize,
    after: Option<&UnitKey>,
    units: &[UnitKey],
) -> Result<HashSet<usize>, MigrateError> {
    let mut there = HashSet::new();
    for plan in job
        .plans
        .iter()
        .filter(|plan| plan.group == group && plan.strategy == Strategy::Copy)
    {
        there.extend(
            rows::places_between(tx, &plan.table, &plan.staged(job.to), after, units).await?,
        );
    }
    Ok(there)
}

/// The next units of dropped tables of which only residue is left, and the last that was looked at.
async fn kept_units(
    job: &Job,
    tx: &mut Transaction,
    group: usize,
    after: Option<&UnitKey>,
    most: u64,
) -> Result<Option<(Bounds, UnitKey)>, MigrateError> {
    let restored = &job.lens.groups[group].restored;
    let mut after = after.map(UnitKey::name);
    loop {
        let names = crate::migrate::residue::units_of(tx, restored, after.as_deref(), most).await?;
        let mut units: Vec<_> = names.into_iter().map(UnitKey::text).collect();
        let Some(last) = units.last().cloned() else {
            return Ok(None);
        };
        leave_out_stored(job, tx, group, &mut units).await?;
        if !units.is_empty() {
            return Ok(Some((Bounds { units, bytes: 0 }, last)));
        }
        after = Some(last.name());
    }
}

/// Removes units that have rows in a table of the group.
async fn leave_out_stored(
    job: &Job,
    tx: &mut Transaction,
    group: usize,
    units: &mut Vec<UnitKey>,
) -> Result<(), MigrateError> {
    for table in job.sources(group) {
        if units.is_empty() {
            break;
        }
        let stored = rows::places_among(tx, table, &table.name, units).await?;
        let mut places = 0..;
        units.retain(|_| places.next().is_some_and(|place| !stored.contains(&place)));
    }
    Ok(())
}
