//! `bbs migrate plan --check`: takes every unit of the database through each migration and back, in
//! memory, and reports the units that cannot be transformed or do not come back as they were, with
//! the reasons. Writes nothing and reports no value of a record.

mod round_trip;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::schema::Sealing;
use bbs_lens::{Arguments, ComposeError, Residue};
use bbs_units::{Bounds, KeyRange, Measure, RowsError, UnitBatch, UnitKey};
use bbs_work::batches::{self, BatchPace, ReadBatches, Worked, WorkedBatches};
use bbs_work::pauses;
use bbs_work::progress::Counted;
use bbs_work::throttle::Throttle;
use serde::Serialize;

use super::copy::partial_run;
use super::copy::residue_only::{self, Pass, UnitsWithoutRows};
use super::look::check_ends;
use super::look::readable::check_keys;
use super::plan::Strategy;
use super::state::{current_of, found};
use super::{Context, HistoryPair, MigrateError, Work};
use round_trip::{Loss, RoundTrip, reason};

/// The units that are named for one reason; the others are counted.
const EXAMPLES: usize = 3;
/// The different reasons that are reported for one migration; further ones are counted together.
const REASONS: usize = 20;
const OTHER_REASONS: &str = "other reasons";

/// The effect of a migration to a version and back on the present rows.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    pub from: DataVersion,
    pub to: DataVersion,
    pub units: u64,
    /// Records that a migration reads and that do not open, and units above the limit. They would
    /// stop the migration before any module runs.
    pub unreadable: Vec<Trouble>,
    /// Sealed columns that were not opened, by table: no migration reads them, so damaged values in
    /// them were not found.
    pub unopened: BTreeMap<String, Vec<String>>,
    /// In the order in which they run.
    pub migrations: Vec<CheckedMigration>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CheckedMigration {
    pub version: DataVersion,
    pub name: String,
    pub direction: Direction,
    pub reversible: bool,
    /// Units that have rows in tables that it changes, without those that an earlier migration
    /// cannot transform.
    pub units: u64,
    /// The units of those that cannot be transformed or do not come back as they were.
    pub lost: u64,
    /// Rows that it removes from the others, as its manifest declares.
    pub removed_rows: u64,
    pub troubles: Vec<Trouble>,
}

/// Units with the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub reason: String,
    pub units: u64,
    pub examples: Vec<Example>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    pub unit: String,
    /// Without a value of the record.
    pub detail: Option<String>,
}

impl Checked {
    pub fn lost(&self) -> u64 {
        let unreadable = self.unreadable.iter().map(|trouble| trouble.units);
        let lost = self.migrations.iter().map(|migration| migration.lost);
        unreadable.chain(lost).sum()
    }
}

#[derive(Debug, Default)]
struct Troubles(BTreeMap<String, Trouble>);

impl Troubles {
    fn note(&mut self, reason: &str, unit: &str, detail: Option<String>) {
        let full = self.0.len() >= REASONS && !self.0.contains_key(reason);
        let reason = if full { OTHER_REASONS } else { reason };
        let new = || Trouble {
            reason: reason.to_owned(),
            units: 0,
            examples: Vec::new(),
        };
        let trouble = self.0.entry(reason.to_owned()).or_insert_with(new);
        trouble.units += 1;
        if trouble.examples.len() < EXAMPLES {
            trouble.examples.push(Example {
                unit: unit.to_owned(),
                detail,
            });
        }
    }

    fn finish(self) -> Vec<Trouble> {
        let mut troubles: Vec<_> = self.0.into_values().collect();
        troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.units));
        troubles
    }
}

/// One migration of the check and its results so far.
struct CheckedStep {
    round_trip: Arc<RoundTrip>,
    /// Without the troubles.
    checked: CheckedMigration,
    troubles: Troubles,
}

/// Takes every unit to a version and back.
///
/// # Errors
/// The migration cannot be planned, or the database fails. Units at fault are in the result.
pub async fn check(context: &Context, to: DataVersion) -> Result<Checked, MigrateError> {
    let mut reader = context.database.read().await?;
    let from = current_of(&found::read(&mut reader).await?);
    let histories = HistoryPair::here(context, &mut reader).await?;
    check_ends(context, &histories, from, to)?;
    let way = histories.way(from, to);
    let work = Arc::new(Work::restoring(context, &mut reader, way).await?);
    check_keys(&mut reader, &work, 0..work.lens.groups.len()).await?;
    let arguments = work.stored_arguments(&mut reader, context.now_ns).await?;
    drop(reader);
    let is_insertion = !way.inserted().is_empty();
    let steps = work.lens.steps().zip(work.lens.legs()).map(|(step, leg)| {
        let restorable = work.lens.restorable().iter();
        let found = restorable.filter(|(of, _)| *of == leg.version).cloned();
        let layouts = way.layouts(leg.direction);
        let manifest = step.manifest();
        // An insertion goes through the layouts below what ran in memory alone.
        let is_written = !is_insertion || leg.version > from;
        let round_trip = RoundTrip::new(
            layouts,
            &context.migrations,
            manifest,
            leg.direction,
            found,
            is_written.then_some(work.dialect),
        )?;
        Ok(CheckedStep {
            round_trip: Arc::new(round_trip),
            checked: CheckedMigration {
                version: manifest.version,
                name: manifest.name.clone(),
                direction: leg.direction,
                reversible: manifest.reversible,
                units: 0,
                lost: 0,
                removed_rows: 0,
                troubles: Vec::new(),
            },
            troubles: Troubles::default(),
        })
    });
    let mut walk = Walk {
        work: Arc::clone(&work),
        steps: steps.collect::<Result<_, ComposeError>>()?,
        arguments: Arc::new(arguments),
        unreadable: Troubles::default(),
        units: 0,
        is_insertion,
        refused: BTreeSet::new(),
    };
    let total = partial_run::all_units(context, &work).await?;
    context
        .progress
        .enter("check", work.describe(), Some(Counted::Units.total(total)));
    for group in 0..work.lens.groups.len() {
        let pace = BatchPace {
            throttle: Throttle::default(),
            ..context.pace()
        };
        batches::run(
            pace,
            |found| read_group(context.clone(), Arc::clone(&work), group, found),
            |units| Ok(Worked::Done(units)),
            |units| walk.take(group, units),
        )
        .await?;
    }
    Ok(walk.finish())
}

fn unopened(work: &Work) -> BTreeMap<String, Vec<String>> {
    let mut unopened: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, table) in &work.lens.source.tables {
        let opened = work.lens.needed.get(name);
        for column in &table.columns {
            if column.sealing != Sealing::Plain
                && !opened.is_some_and(|opened| opened.contains(&column.name))
            {
                let columns = unopened.entry(name.clone()).or_default();
                columns.push(column.name.clone());
            }
        }
    }
    unopened
}

/// Units with all their rows.
struct WholeUnits {
    batch: UnitBatch,
    left: Residue,
    /// A unit above the limit, which has no rows here.
    oversized: Option<(UnitKey, RowsError)>,
    /// The number of units.
    count: u64,
    /// The last key that was read.
    last: UnitKey,
    /// The number of units that fill a batch, estimated from this one.
    fitting: u64,
}

/// Whether the migration, or the one back, may read units of a group.
fn is_read(work: &Work, group: usize) -> bool {
    let mut plans = work.plans.iter().filter(|plan| plan.group == group);
    let mut steps = work.lens.steps().zip(work.lens.legs());
    work.walks(group)
        || plans.any(|plan| plan.strategy != Strategy::Untouched)
        || steps.any(|(step, leg)| {
            let back = step.manifest().accesses(leg.direction.opposite());
            back.iter()
                .any(|access| work.group_of(&access.table) == Some(group))
        })
}

/// The places (versions and tables) of the saved rows that other groups restore.
fn restored_elsewhere(work: &Work, group: usize) -> BTreeSet<(DataVersion, String)> {
    let groups = work.lens.groups.iter().enumerate();
    let others = groups.filter(|(other, _)| *other != group);
    let restored = others.flat_map(|(_, other)| &other.restored);
    restored
        .map(|left| (left.left_by.version, left.table.clone()))
        .collect()
}

/// Reads the units of a group.
async fn read_group(
    context: Context,
    work: Arc<Work>,
    group: usize,
    mut found: ReadBatches<WholeUnits>,
) -> Result<(), MigrateError> {
    // A unit above the limit stops a migration only if its group is read.
    let is_read = is_read(&work, group);
    // A unit of another group may have the same name.
    let elsewhere = restored_elsewhere(&work, group);
    let of_group = &work.lens.groups[group];
    let residue_only = (!of_group.restored.is_empty()).then_some(Pass::ResidueOnly);
    for pass in std::iter::once(Pass::Stored).chain(residue_only) {
        let mut after = None;
        let mut fitting = u64::MAX;
        loop {
            let most = found.next_size().await.min(fitting);
            let attempt = || read_units(&context, &work, group, pass, after.as_ref(), most);
            let read =
                pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await?;
            let Some(mut units) = read else {
                break;
            };
            if !is_read {
                units.oversized = None;
            }
            units.left.discard(&elsewhere);
            after = Some(units.last.clone());
            fitting = units.fitting;
            let count = units.count;
            if !found.send(units, count).await {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads the next units of a pass over a group, at most this number, in one transaction.
async fn read_units(
    context: &Context,
    work: &Work,
    group: usize,
    pass: Pass,
    after: Option<&UnitKey>,
    most: u64,
) -> Result<Option<WholeUnits>, MigrateError> {
    let sources = work.sources(group);
    let wanted = bbs_units::whole(sources.iter().copied());
    let mut reader = context.database.read().await?;
    if pass == Pass::ResidueOnly {
        let found = residue_only::next_units(work, &mut reader, group, after, most).await?;
        let Some(UnitsWithoutRows { units, last }) = found else {
            return Ok(None);
        };
        let (batch, left) = residue_only::load(work, &mut reader, &wanted, &units).await?;
        let is_whole = batch.units.len() == units.len();
        let last_loaded = batch.units.last().filter(|_| !is_whole).cloned();
        return Ok(Some(WholeUnits {
            count: batch.units.len() as u64,
            last: last_loaded.unwrap_or(last),
            batch,
            left,
            oversized: None,
            fitting: u64::MAX,
        }));
    }
    let limits = context.tuning.limits();
    let Bounds { units, .. } =
        bbs_units::next_units(&mut reader, &sources, after, most, Measure::Keys).await?;
    if units.is_empty() {
        return Ok(None);
    }
    let range = KeyRange {
        after,
        units: &units,
    };
    let loaded =
        bbs_units::load_range(&mut reader, &work.originals, &wanted, range, limits).await?;
    let mut batch = loaded.batch;
    let fitting = context
        .tuning
        .units_that_fit(batch.units.len(), loaded.bytes);
    let left = work.residue_of(&mut reader, &mut batch).await?;
    // Its residue may have left only the first units in the batch.
    let last = batch.units.last().unwrap_or(&loaded.last).clone();
    let count = batch.units.len() as u64 + u64::from(loaded.oversized.is_some());
    Ok(Some(WholeUnits {
        batch,
        left,
        oversized: loaded.oversized,
        count,
        last,
        fitting,
    }))
}

/// The last stage: takes units through the migrations and back, and collects the results.
struct Walk {
    work: Arc<Work>,
    steps: Vec<CheckedStep>,
    arguments: Arc<Arguments>,
    unreadable: Troubles,
    units: u64,
    /// Whether migrations are taken down and up again for others below them. Each restores on its way
    /// up the residue of its way down; the round trip of a single migration does not show that.
    is_insertion: bool,
    /// The names of the units of a batch that a migration by itself cannot transform.
    refused: BTreeSet<String>,
}

/// A unit that a migration cannot transform after those before it.
struct RefusedByStep {
    unit: String,
    /// The place of the migration among the steps.
    step: usize,
    reason: String,
}

impl Walk {
    /// Takes units of a group through every migration.
    async fn take(
        &mut self,
        group: usize,
        mut batches: WorkedBatches<WholeUnits>,
    ) -> Result<(), MigrateError> {
        while let Some(units) = batches.next().await {
            if let Some((unit, fault)) = units.oversized {
                let limit = self.work.tuning.unit_bytes;
                let reason = format!("above the limit of {limit} bytes for one unit");
                self.unreadable
                    .note(&reason, &unit.name(), Some(fault.to_string()));
            }
            self.units += units.count;
            let (batch, left) = self.open(units.batch, units.left);
            let refused = if self.is_insertion {
                self.refused_by_all(group, batch.clone(), left.clone())
                    .await?
            } else {
                Vec::new()
            };
            self.refused.clear();
            // Each with the step from which on it is left to do.
            let mut waiting = vec![(0, batch, left)];
            while let Some((first, batch, left)) = waiting.pop() {
                waiting.extend(self.take_from(first, batch, left).await?);
            }
            for RefusedByStep { unit, step, reason } in refused {
                if !self.refused.contains(&unit) {
                    let step = &mut self.steps[step];
                    step.checked.lost += 1;
                    step.troubles.note(&reason, &unit, None);
                }
            }
            batches.written(units.count);
        }
        Ok(())
    }

    /// The units of a group that the migrations cannot transform one after the other, as a start
    /// runs them.
    async fn refused_by_all(
        &self,
        group: usize,
        batch: UnitBatch,
        left: Residue,
    ) -> Result<Vec<RefusedByStep>, MigrateError> {
        let mut all = Vec::new();
        let mut waiting = vec![(batch, left)];
        while let Some((batch, left)) = waiting.pop() {
            let work = Arc::clone(&self.work);
            let arguments = Arc::clone(&self.arguments);
            let (sifted, batch, left) = tokio::task::spawn_blocking(move || {
                let groups = [group];
                let sifted = work.passage(&groups, &arguments).sift(&batch, &left);
                (sifted, batch, left)
            })
            .await?;
            match sifted {
                Ok(transformed) => {
                    let refused = transformed.refused.iter();
                    all.extend(refused.map(|(unit, fault)| RefusedByStep {
                        unit: batch.units[*unit].name(),
                        step: self.step_at_fault(fault),
                        reason: reason(fault),
                    }));
                }
                Err(fault) if fault.is_of_module() => return Err(fault.into()),
                Err(_) => {
                    let source = &self.work.lens.source;
                    waiting.extend(bbs_units::halves(source, &batch, &left));
                }
            }
        }
        Ok(all)
    }

    /// The place of the step that is at fault: the first one if the fault is of none.
    fn step_at_fault(&self, fault: &RowsError) -> usize {
        let leg = match fault {
            RowsError::Unstorable(unstorable) => Some(unstorable.step.leg()),
            RowsError::Lens(fault) => Some(fault.leg()),
            _ => None,
        };
        let mut legs = self.work.lens.legs();
        leg.and_then(|leg| legs.position(|other| other == leg))
            .unwrap_or_default()
    }

    /// Opens what the migrations read. Units of which such a record does not open are noted and
    /// left out.
    fn open(&mut self, mut batch: UnitBatch, left: Residue) -> (UnitBatch, Residue) {
        let work = &self.work;
        let closed = batch.open(&work.lens.needed, &work.keyring);
        if closed.is_empty() {
            return (batch, left);
        }
        for (unit, fault) in &closed {
            if let RowsError::Sealed {
                table,
                column,
                source,
            } = fault
            {
                self.unreadable.note(
                    &format!("`{column}` of `{table}`: {source}"),
                    &batch.units[*unit].name(),
                    None,
                );
            }
        }
        let others: Vec<_> = (0..batch.units.len())
            .filter(|unit| !closed.contains_key(unit))
            .collect();
        (batch.only(&work.lens.source, &others), left.only(&others))
    }

    /// Takes units through the migrations from one on; a unit that one of them cannot transform is
    /// not given to the next. Returns the halves of a batch that one of them cannot transform at
    /// once.
    async fn take_from(
        &mut self,
        first: usize,
        mut batch: UnitBatch,
        mut left: Residue,
    ) -> Result<Vec<(usize, UnitBatch, Residue)>, MigrateError> {
        for (number, step) in self.steps.iter_mut().enumerate().skip(first) {
            let (round_trip, arguments) =
                (Arc::clone(&step.round_trip), Arc::clone(&self.arguments));
            let keyring = Arc::clone(&self.work.keyring);
            let (source, outcome, unused) = tokio::task::spawn_blocking(move || {
                let outcome = round_trip.run_both_ways(&batch, &left, &arguments, &keyring);
                (batch, outcome, left)
            })
            .await?;
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(fault) if fault.is_of_module() => return Err(fault.into()),
                Err(_) => {
                    let halves = bbs_units::halves(step.round_trip.source(), &source, &unused);
                    return Ok(halves.map(|(batch, left)| (number, batch, left)).into());
                }
            };
            step.checked.units += step.round_trip.concerns(&source);
            step.checked.removed_rows += outcome.removed;
            for Loss {
                unit,
                reason,
                detail,
            } in outcome.losses
            {
                step.checked.lost += 1;
                let name = source.units[unit].name();
                step.troubles.note(&reason, &name, detail);
                if outcome.units.binary_search(&unit).is_err() {
                    self.refused.insert(name);
                }
            }
            left = unused.only(&outcome.units);
            batch = outcome.target;
        }
        Ok(Vec::new())
    }

    fn finish(self) -> Checked {
        let work = self.work;
        let migrations = self.steps.into_iter().map(|step| CheckedMigration {
            troubles: step.troubles.finish(),
            ..step.checked
        });
        Checked {
            from: work.from,
            to: work.to,
            units: self.units,
            unreadable: self.unreadable.finish(),
            unopened: unopened(&work),
            migrations: migrations.collect(),
        }
    }
}
