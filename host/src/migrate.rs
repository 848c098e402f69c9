//! Migrations: what to do about the versions found, and doing it. Owns the order of the steps, each of which is
//! durable and safe to repeat; what each does is in a file of its own.

mod check;
mod copy;
mod cut_over;
mod decide;
mod error;
pub mod fault;
mod fresh;
mod key;
mod look;
pub mod online;
mod own_tables;
mod part;
mod plan;
mod prepare;
mod quarantine;
mod read;
mod replay;
mod residue;
mod state;
mod status;
mod tally;
mod transform;
mod verify;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::database::schema::{self, PhysicalTable};
use crate::database::{Database, Dialect, SqlError};
use crate::layout::fold::{LayoutError, Line};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Table;
use crate::lens::transform::Transform;
use crate::lens::{Arguments, Lens, LensError};
use crate::lock::fence::Fence;
use crate::pace::Pace;
use crate::progress::Progress;
use crate::record::Keyring;

pub use check::{Checked, CheckedMigration, Example, Trouble, check};
pub use decide::{Decision, Found, Intent, Reason, decide};
pub use error::MigrateError;
use look::look_along;
pub use look::{check_way_back, look};
pub use own_tables::tables as own_tables;
use part::Allowance;
pub use part::{Part, Progressed};
pub use plan::Strategy;
use plan::TablePlan;
use prepare::{begin, prepare, start_over};
pub use quarantine::{Entry as QuarantineEntry, Fate, list as quarantined, retry};
pub use replay::{Replay, ReplayError, ReplayTable};
use state::Phase;
pub use status::{Migration, Plan, Status, TableChange, found, is_between, plan, status};

/// What a migration works with.
#[derive(Clone)]
pub struct Context {
    pub database: Database,
    /// The catalog's migrations, oldest first.
    pub migrations: Vec<Arc<dyn Transform>>,
    pub keyring: Arc<Keyring>,
    pub progress: Progress,
    /// How fast it may go: asked before each batch.
    pub pace: Pace,
    /// When this run began, in nanoseconds since 1970: what history and first uses are stamped with.
    pub now_ns: i64,
    /// Where a unit that cannot be transformed is saved, sealed. Nowhere if absent.
    pub replays: Option<PathBuf>,
    pub tuning: Tuning,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("database", &self.database)
            .field("tuning", &self.tuning)
            .finish_non_exhaustive()
    }
}

/// Bounds of a batch. The defaults suit every database; tests make them small.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub batch_bytes: u64,
    pub batch_units: u64,
    /// A batch grows or shrinks until writing it takes about this long.
    pub batch_time: Duration,
    /// A unit above this is refused by name: it has to fit in memory, and in a module's.
    pub unit_bytes: u64,
    pub refused_units: RefusedUnits,
}

/// What becomes of a unit that a migration cannot take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RefusedUnits {
    /// The migration stops and names it.
    #[default]
    Stop,
    /// It is left out and kept whole, until it is put back.
    Quarantine,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            batch_bytes: 4 << 20,
            batch_units: 20_000,
            batch_time: Duration::from_millis(250),
            unit_bytes: 16 << 20,
            refused_units: RefusedUnits::Stop,
        }
    }
}

/// One migration of this database between two versions, worked out.
pub(crate) struct Work {
    lens: Lens,
    plans: Vec<TablePlan>,
    /// Columns that are read, by table: what the lens needs, and what goes along unopened.
    loads: BTreeMap<String, BTreeSet<String>>,
    arguments: Arguments,
    keyring: Arc<Keyring>,
    replays: Option<PathBuf>,
    refused_units: RefusedUnits,
    from: DataVersion,
    to: DataVersion,
    token: i64,
    tuning: Tuning,
    now_ns: i64,
    /// Where clients write while rows are copied.
    following: Option<online::Following>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("lens", &self.lens).finish_non_exhaustive()
    }
}

impl Work {
    fn new(
        context: &Context,
        line: &Line,
        from: DataVersion,
        to: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let lens = Lens::new(line, &context.migrations, from, to, restorable);
        Self::through(context, line, lens, (from, to), None)
    }

    /// The same for a migration during which clients write: they may come to need any of what the way back kept.
    fn following(context: &Context, line: &Line, from: DataVersion, to: DataVersion) -> Self {
        let lens = Lens::restoring(line, &context.migrations, from, to);
        Self::through(context, line, lens, (from, to), Some(online::Following::new(context.database.dialect())))
    }

    fn through(
        context: &Context,
        line: &Line,
        lens: Lens,
        (from, to): (DataVersion, DataVersion),
        following: Option<online::Following>,
    ) -> Self {
        let mut plans = plan::tables(&lens, line, &context.migrations, to, context.database.dialect());
        for plan in &mut plans {
            plan.is_shared = following.is_some();
        }
        let mut loads = lens.needed.clone();
        for plan in plans.iter().filter(|plan| plan.strategy == Strategy::Copy && !plan.by_range()) {
            for (table, column) in plan.kept_columns() {
                loads.entry(table.clone()).or_default().insert(column.clone());
            }
        }
        Self {
            lens,
            plans,
            loads,
            arguments: Arguments::new(),
            keyring: Arc::clone(&context.keyring),
            replays: context.replays.clone(),
            refused_units: context.tuning.refused_units,
            from,
            to,
            token: 0,
            tuning: context.tuning.clone(),
            now_ns: context.now_ns,
            following,
        }
    }

    fn locks(&self) -> Option<&online::UnitLocks> {
        self.following.as_ref().map(|following| &following.locks)
    }

    /// The tables of a group that units are read from.
    fn sources(&self, group: usize) -> Vec<&Table> {
        self.lens.groups[group].sources.iter().map(|name| &self.lens.near.tables[name]).collect()
    }

    fn loads_of(&self, table: &str) -> &BTreeSet<String> {
        static NOTHING: BTreeSet<String> = BTreeSet::new();
        self.loads.get(table).unwrap_or(&NOTHING)
    }

    fn copied(&self, table: &str) -> Option<&TablePlan> {
        self.plans.iter().find(|plan| plan.table.name == table && plan.strategy == Strategy::Copy)
    }

    fn has_copies(&self, group: usize) -> bool {
        self.plans.iter().any(|plan| plan.group == group && plan.strategy == Strategy::Copy)
    }

    /// Tables beside the real ones: copies on their way, and originals that were replaced.
    fn side_tables(&self) -> Vec<String> {
        let copies = self.plans.iter().filter(|plan| plan.strategy == Strategy::Copy).map(|plan| plan.staged(self.to));
        let originals = self.lens.near.tables.keys().map(|table| format!("{table}__{}", self.from));
        copies.chain(originals).collect()
    }

    /// A table as it may be found: an earlier start may have added some of what this migration adds to it.
    fn with_what_is_added(&self, near: &Table, found: Option<&PhysicalTable>) -> Table {
        let mut table = near.clone();
        let (Some(plan), Some(found)) = (self.plans.iter().find(|plan| plan.table.name == near.name), found) else {
            return table;
        };
        if plan.strategy == Strategy::InPlace {
            let (columns, new, old) = plan.additions(Some(near));
            let has_column = |name: &str| found.columns.iter().any(|column| column.name == name);
            let has_index = |name: &str| found.indexes.iter().any(|index| index.name == name);
            table.columns.extend(columns.into_iter().filter(|column| has_column(&column.name)));
            table.indexes.extend(new.into_iter().filter(|index| has_index(&index.name)));
            table.indexes.retain(|index| !old.contains(index) || has_index(&index.name));
        }
        table
    }

    /// Whether a group's units have to be read: something is computed or would be lost, or rows come together
    /// from several tables.
    fn visits_units(&self, group: usize) -> bool {
        let mut copied = self.plans.iter().filter(|plan| plan.group == group && plan.strategy == Strategy::Copy);
        self.lens.groups[group].visits_units || copied.any(|plan| !plan.by_range())
    }

    /// The versions whose steps run.
    fn versions(&self) -> std::ops::RangeInclusive<DataVersion> {
        versions(self.from, self.to)
    }

    fn describe(&self) -> String {
        format!("{} {} to {}", self.lens.direction, self.from, self.to)
    }

    /// Of the ends, of every module between them, and of whether clients write to the copies, too: then these hold rows
    /// that lie ahead of the cursor, and only a copier that expects them may take the work up.
    fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.describe());
        if self.following.is_some() {
            hash.update(" online");
        }
        for step in self.lens.steps() {
            hash.update(format!("\n{} {}", step.manifest().version, step.digest()));
        }
        key::to_hex(&hash.finalize())
    }

    /// Names the unit that a lens failed at, and saves it.
    fn at_fault(&self, fault: LensError, units: &[String]) -> MigrateError {
        let unit = units[fault.unit()].clone();
        let replay = self.replays.as_ref().and_then(|folder| self.replay(&unit, &fault)?.save(folder, &self.keyring));
        MigrateError::Unit { unit, replay, source: Box::new(fault) }
    }

    fn replay(&self, unit: &str, fault: &LensError) -> Option<Replay> {
        let LensError::Unit { version, direction, .. } = fault else { return None };
        let mut steps = self.lens.steps();
        let step = steps.find(|step| step.manifest().version == *version)?;
        Replay::of(&self.arguments, step.manifest().accesses(*direction), unit, fault)
    }
}

fn versions(from: DataVersion, to: DataVersion) -> std::ops::RangeInclusive<DataVersion> {
    from.min(to) + 1..=from.max(to)
}

/// The layouts of the catalog's versions.
pub fn line(migrations: &[Arc<dyn Transform>]) -> Result<Line, LayoutError> {
    Line::new(migrations.iter().map(|migration| migration.manifest()))
}

/// What the migrations of some versions are given from outside: drawn and stored at first use, the same ever after.
pub async fn arguments(
    context: &Context,
    fence: &Fence,
    versions: std::ops::RangeInclusive<DataVersion>,
) -> Result<Arguments, MigrateError> {
    let mut tx = fence.begin().await?;
    let mut arguments = Arguments::new();
    let known = context.migrations.iter().map(|migration| migration.manifest().version);
    for version in known.filter(|version| versions.contains(version)) {
        arguments.insert(version, state::run_arguments(&mut tx, version, context.now_ns).await?);
    }
    tx.commit().await.map_err(sql("bbs_run_arguments"))?;
    Ok(arguments)
}

/// Reads the version, decides, and does what was decided. Serving is the caller's.
pub async fn run(context: &Context, fence: &Fence, intent: Intent) -> Result<Decision, MigrateError> {
    match run_part(context, fence, intent, None).await? {
        Progressed::Done(decision) => Ok(decision),
        Progressed::Part(_) => unreachable!("nothing bounds it"),
    }
}

/// The same for at most so many units; the next run goes on from there.
pub async fn run_part(
    context: &Context,
    fence: &Fence,
    intent: Intent,
    most: Option<u64>,
) -> Result<Progressed, MigrateError> {
    let line = line(&context.migrations)?;
    let decision = decided(context, fence, &line, intent).await?;
    match decision {
        Decision::ShutDown(_) => {}
        Decision::Serve | Decision::Stay { .. } => settle(context, fence).await?,
        Decision::Begin { from, to } | Decision::Continue { from, to } => {
            let going_down = matches!(intent, Intent::Down { .. });
            let allowance = Arc::new(Allowance::of(most));
            let (work, complete) = bring_across(context, fence, &line, (from, to), going_down, &allowance).await?;
            if !complete {
                return Ok(Progressed::Part(part::counted(context, &work).await?));
            }
            finish(context, fence, &work, going_down).await?;
        }
    }
    Ok(Progressed::Done(decision))
}

/// What is to be done, once nothing is left between two names.
async fn decided(context: &Context, fence: &Fence, line: &Line, intent: Intent) -> Result<Decision, MigrateError> {
    // Again, now that no other host writes: what was seen before the fence was raised may have changed since.
    let decision = look_along(context, line, intent).await?;
    if !matches!(decision, Decision::ShutDown(_)) {
        state::create_tables(context, fence).await?;
        cut_over::end_arrived(context, fence, line).await?;
    }
    Ok(decision)
}

/// Before serving: a finished migration is cleaned up, and an unfinished one is of no use once the
/// originals are written to.
async fn settle(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let underway = state::underway(&mut reader).await?;
    drop(reader);
    if underway.is_some() { cut_over::clean_up(context, fence).await } else { Ok(()) }
}

/// Everything up to a finished copy, from wherever an earlier start got to, or up to where it has to stop.
async fn bring_across(
    context: &Context,
    fence: &Fence,
    line: &Line,
    (from, to): (DataVersion, DataVersion),
    going_down: bool,
    allowance: &Arc<Allowance>,
) -> Result<(Arc<Work>, bool), MigrateError> {
    let mut reader = context.database.read().await?;
    let restorable = residue::restorable(&mut reader, from, to).await?;
    drop(reader);
    let mut work = Work::new(context, line, from, to, restorable);
    let resumed = begin(context, fence, &mut work, going_down).await?;
    let work = Arc::new(work);
    if !resumed {
        prepare(context, fence, &work, going_down).await?;
    }
    let complete = copy::copy(context, fence, &work, allowance).await?;
    if complete {
        fault::point(fault::AFTER_COPY);
        cut_over::build_indexes(context, fence, &work).await?;
        cut_over::change_ahead(context, fence, &work).await?;
    }
    Ok((work, complete))
}

/// Makes a finished copy real, if it is what it has to be.
async fn finish(context: &Context, fence: &Fence, work: &Arc<Work>, going_down: bool) -> Result<(), MigrateError> {
    match verify::verify(context, work).await {
        Err(fault @ MigrateError::Verify { .. }) => {
            start_over(context, fence, work, going_down).await?;
            return Err(fault);
        }
        verified => verified?,
    }
    fault::point(fault::AFTER_VERIFY);
    cut_over::cut_over(context, fence, work).await?;
    cut_over::check_names(context, work).await?;
    cut_over::clean_up(context, fence).await
}

fn same_schema(dialect: Dialect, name: &str, found: Option<PhysicalTable>, table: &Table) -> Result<(), MigrateError> {
    let differences = found.map_or_else(
        || vec!["it is missing".to_owned()],
        |found| schema::differences(&found, &schema::expected(dialect, table)),
    );
    if differences.is_empty() {
        Ok(())
    } else {
        Err(MigrateError::SchemaDiffers { table: name.to_owned(), differences })
    }
}

fn sql(what: &'static str) -> impl FnOnce(SqlError) -> MigrateError {
    move |source| MigrateError::Sql { what: what.to_owned(), source }
}

#[cfg(test)]
mod tests;
