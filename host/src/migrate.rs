//! Migrations: decides what to do about the versions that were found, and does it. Owns the order of the steps, each of
//! which is durable and safe to repeat; each step has a file of its own.

mod check;
mod checksum;
mod copy;
mod cut_over;
mod decide;
mod error;
pub mod fault;
mod fresh;
mod look;
pub mod online;
mod own_tables;
mod partial_run;
mod plan;
mod prepare;
mod quarantine;
mod replay;
mod residue;
mod state;
mod status;
mod transform;
mod unit_locks;
mod verify;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::database::schema::{self, PhysicalTable};
use crate::database::{Database, Dialect, SqlError, Transaction};
use crate::encryption::Keyring;
use crate::layout::history::{LayoutError, LayoutHistory};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Table;
use crate::lens::transform::Transform;
use crate::lens::{Arguments, Lens, LensError, Residue};
use crate::lock::fence::Fence;
use crate::progress::Progress;
use crate::rows::digest::to_hex;
use crate::rows::{self, ByteLimits, Place, RowsError, UnitBatch, WantedColumns};
use crate::throttle::Throttle;

pub use check::{Checked, Trouble, check};
use copy::UnitBudget;
pub use decide::{Decision, Found, Intent, Reason, decide};
pub use error::MigrateError;
use look::look_along;
pub use look::{check_way_back, look};
pub use own_tables::tables as own_tables;
pub use partial_run::{PartialRun, RunOutcome};
pub use plan::Strategy;
use plan::TablePlan;
use prepare::{begin, prepare, start_over};
pub use quarantine::{Fate, QuarantineEntry, list as quarantined, retry};
pub use replay::{Replay, ReplayTable};
use state::Phase;
pub use status::{Plan, PlannedMigration, Status, TableChange, found, is_between, plan, status};

/// What a migration works with.
#[derive(Clone)]
pub struct Context {
    /// The database to migrate.
    pub database: Database,
    /// The catalog's migrations, oldest first.
    pub migrations: Vec<Arc<dyn Transform>>,
    /// Opens and seals encrypted columns.
    pub keyring: Arc<Keyring>,
    /// Receives phases, counts and reasons for waiting.
    pub progress: Progress,
    /// Limits the rate; awaited before each batch.
    pub throttle: Throttle,
    /// The start of this run, in nanoseconds since 1970: the time in the history and of first uses.
    pub now_ns: i64,
    /// The folder in which a unit that cannot be transformed is saved, sealed. Absent: units are not saved.
    pub replays: Option<PathBuf>,
    /// Bounds of batches and units.
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
    /// Bytes of text; a batch ends with the unit that reaches them.
    pub batch_bytes: u64,
    /// The most units of a batch.
    pub batch_units: u64,
    /// The time that writing a batch should take; batches grow or shrink towards it.
    pub batch_time: Duration,
    /// A larger unit is refused by name: it has to fit into memory, and into that of a module.
    pub unit_bytes: u64,
    /// What happens to a unit that cannot be transformed.
    pub refused_units: RefusedUnits,
}

/// What a migration does with a unit that it cannot transform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RefusedUnits {
    /// Stops and names the unit.
    #[default]
    Stop,
    /// Leaves the unit out and keeps it whole in quarantine until an operator puts it back.
    Quarantine,
}

impl Tuning {
    fn limits(&self) -> ByteLimits {
        ByteLimits { batch: self.batch_bytes, unit: self.unit_bytes }
    }

    /// The number of units that fill a batch if they are as large as these.
    fn units_that_fit(&self, units: usize, bytes: u64) -> u64 {
        let full = self.batch_bytes.saturating_mul(units as u64);
        (full / bytes.max(1)).max(1)
    }
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

/// A migration of this database between two versions that is planned: the lens, the plan of each table, and what both
/// work with.
pub(crate) struct Work {
    lens: Lens,
    plans: Vec<TablePlan>,
    /// The tables that units are read from.
    originals: Place,
    /// The tables that they are copied to.
    copies: Place,
    /// By group, the columns that are read: what the lens needs, and what passes it unread.
    wanted: Vec<WantedColumns>,
    keyring: Arc<Keyring>,
    replays: Option<PathBuf>,
    refused_units: RefusedUnits,
    from: DataVersion,
    to: DataVersion,
    tuning: Tuning,
    now_ns: i64,
    /// Present if clients write while rows are copied.
    dual_writes: Option<online::DualWrites>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("lens", &self.lens).finish_non_exhaustive()
    }
}

impl Work {
    fn new(
        context: &Context,
        layouts: &LayoutHistory,
        from: DataVersion,
        to: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let lens = Lens::new(layouts, &context.migrations, from, to, restorable);
        Self::through(context, layouts, lens, (from, to), None)
    }

    /// The same for a migration during which clients write: they may need any residue that the other direction left.
    fn with_dual_writes(context: &Context, layouts: &LayoutHistory, from: DataVersion, to: DataVersion) -> Self {
        let lens = Lens::restoring(layouts, &context.migrations, from, to);
        Self::through(context, layouts, lens, (from, to), Some(online::DualWrites::new(context.database.dialect())))
    }

    fn through(
        context: &Context,
        layouts: &LayoutHistory,
        lens: Lens,
        (from, to): (DataVersion, DataVersion),
        dual_writes: Option<online::DualWrites>,
    ) -> Self {
        let mut plans = plan::tables(&lens, layouts, &context.migrations, to, context.database.dialect());
        for plan in &mut plans {
            plan.is_shared = dual_writes.is_some();
        }
        let staged = plans.iter().filter(|plan| plan.strategy == Strategy::Copy);
        let staged = staged.map(|plan| (plan.table.name.clone(), plan.staged(to))).collect();
        Self {
            originals: Place::new(lens.source.clone()),
            copies: Place::new(lens.target.clone()).named(staged),
            wanted: wanted(&lens, &plans),
            lens,
            plans,
            keyring: Arc::clone(&context.keyring),
            replays: context.replays.clone(),
            refused_units: context.tuning.refused_units,
            from,
            to,
            tuning: context.tuning.clone(),
            now_ns: context.now_ns,
            dual_writes,
        }
    }

    fn locks(&self) -> Option<&unit_locks::UnitLocks> {
        self.dual_writes.as_ref().map(|dual_writes| &dual_writes.locks)
    }

    /// The tables of a group that units are read from.
    fn sources(&self, group: usize) -> Vec<&Table> {
        self.lens.groups[group].sources.iter().map(|name| &self.lens.source.tables[name]).collect()
    }

    /// The residue that steps of the other direction left of these units.
    async fn residue_of(&self, tx: &mut Transaction, batch: &UnitBatch) -> Result<Residue, RowsError> {
        if self.lens.restorable().is_empty() {
            return Ok(Residue::default());
        }
        let direction = self.lens.direction.opposite();
        let entries = rows::residue::load(tx, &self.keyring, direction, &self.versions(), &batch.names()).await?;
        Ok(entries.into())
    }

    fn copied(&self, table: &str) -> Option<&TablePlan> {
        self.plans.iter().find(|plan| plan.table.name == table && plan.strategy == Strategy::Copy)
    }

    fn has_copies(&self, group: usize) -> bool {
        self.plans.iter().any(|plan| plan.group == group && plan.strategy == Strategy::Copy)
    }

    /// Tables beside the real ones: unfinished copies, and originals that were replaced.
    fn side_tables(&self) -> Vec<String> {
        let copies = self.plans.iter().filter(|plan| plan.strategy == Strategy::Copy).map(|plan| plan.staged(self.to));
        let originals = self.lens.source.tables.keys().map(|table| format!("{table}__{}", self.from));
        copies.chain(originals).collect()
    }

    /// A source table as it may be found: an earlier start may have added some of what this migration adds to it.
    fn with_what_is_added(&self, source: &Table, found: Option<&PhysicalTable>) -> Table {
        let mut table = source.clone();
        let (Some(plan), Some(found)) = (self.plans.iter().find(|plan| plan.table.name == source.name), found) else {
            return table;
        };
        if plan.strategy == Strategy::InPlace {
            let (columns, new, old) = plan.additions(Some(source));
            let has_column = |name: &str| found.columns.iter().any(|column| column.name == name);
            let has_index = |name: &str| found.indexes.iter().any(|index| index.name == name);
            table.columns.extend(columns.into_iter().filter(|column| has_column(&column.name)));
            table.indexes.extend(new.into_iter().filter(|index| has_index(&index.name)));
            table.indexes.retain(|index| !old.contains(index) || has_index(&index.name));
        }
        table
    }

    /// Whether a group's units have to be read: a step computes something or saves what it would lose, or rows of
    /// several tables come together.
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

    /// A digest of the two versions, of every module between them, and of whether clients write to the copies too: then
    /// the copies have rows beyond the cursor, and only a copier that expects them may resume the copy.
    fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.describe());
        if self.dual_writes.is_some() {
            hash.update(" online");
        }
        for step in self.lens.steps() {
            hash.update(format!("\n{} {}", step.manifest().version, step.digest()));
        }
        to_hex(&hash.finalize())
    }

    /// The arguments of its steps, drawn once for each migration and then stored.
    async fn draw_arguments(&self, tx: &mut Transaction, now_ns: i64) -> Result<Arguments, MigrateError> {
        let mut arguments = Arguments::new();
        for step in self.lens.steps() {
            let version = step.manifest().version;
            arguments.insert(version, state::run_arguments(tx, version, now_ns).await?);
        }
        Ok(arguments)
    }
}

/// A migration that is recorded in the database as under way: its plan, and what it runs with.
#[derive(Debug)]
pub(crate) struct Job {
    work: Work,
    arguments: Arguments,
    /// The fence's token when it began or was resumed.
    token: i64,
}

impl std::ops::Deref for Job {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl Job {
    /// Names the unit that cannot be transformed, and saves it where a module failed.
    fn at_fault(&self, fault: RowsError, unit: String) -> MigrateError {
        let fault = match fault {
            RowsError::Lens(fault) => fault,
            RowsError::Sealed { table, column, source } => {
                return MigrateError::Record { unit, table, column, source };
            }
            fault => return fault.into(),
        };
        let replay = self.replays.as_ref().and_then(|folder| self.replay(&unit, &fault)?.save(folder, &self.keyring));
        MigrateError::Unit { unit, replay, source: fault }
    }

    fn replay(&self, unit: &str, fault: &LensError) -> Option<Replay> {
        let LensError::Unit { version, direction, .. } = fault else { return None };
        let mut steps = self.lens.steps();
        let step = steps.find(|step| step.manifest().version == *version)?;
        Replay::of(&self.arguments, step.manifest().accesses(*direction), unit, fault)
    }
}

/// By group, the columns that are read of each of its tables.
fn wanted(lens: &Lens, plans: &[TablePlan]) -> Vec<WantedColumns> {
    let needed = |table: &String| (table.clone(), lens.needed.get(table).cloned().unwrap_or_default());
    let mut wanted: Vec<WantedColumns> =
        lens.groups.iter().map(|group| group.sources.iter().map(needed).collect()).collect();
    for plan in plans.iter().filter(|plan| plan.strategy == Strategy::Copy && !plan.by_range()) {
        for (table, column) in plan.unread_columns() {
            wanted[plan.group].entry(table.clone()).or_default().insert(column.clone());
        }
    }
    wanted
}

fn versions(from: DataVersion, to: DataVersion) -> std::ops::RangeInclusive<DataVersion> {
    from.min(to) + 1..=from.max(to)
}

/// The layouts of the catalog's versions.
///
/// # Errors
/// A migration does not fit the layout before it.
pub fn layout_history(migrations: &[Arc<dyn Transform>]) -> Result<LayoutHistory, LayoutError> {
    LayoutHistory::new(migrations.iter().map(|migration| migration.manifest()))
}

/// The arguments of the migrations of some versions: drawn and stored at the first use, the same at every later one.
///
/// # Errors
/// Another host has raised the fence, the database fails, or a stored namespace is no UUID.
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

/// Reads the version, decides, and does what was decided. Does not serve.
///
/// # Errors
/// The migration cannot be planned, a unit cannot be transformed, the copies do not pass verification, another host has
/// raised the fence, or the database fails. The next run continues after what is committed. A decision to shut down is
/// no error.
pub async fn run(context: &Context, fence: &Fence, intent: Intent) -> Result<Decision, MigrateError> {
    match run_partially(context, fence, intent, None).await? {
        RunOutcome::Done(decision) => Ok(decision),
        RunOutcome::Partial(_) => unreachable!("nothing bounds it"),
    }
}

/// The same for a limited number of units; the next run continues from there.
///
/// # Errors
/// As [`run`].
pub async fn run_partially(
    context: &Context,
    fence: &Fence,
    intent: Intent,
    most: Option<u64>,
) -> Result<RunOutcome, MigrateError> {
    let layouts = layout_history(&context.migrations)?;
    let decision = decided(context, fence, &layouts, intent).await?;
    match decision {
        Decision::ShutDown(_) => {}
        Decision::Serve | Decision::Stay { .. } => settle(context, fence).await?,
        Decision::Begin { from, to } | Decision::Continue { from, to } => {
            let going_down = matches!(intent, Intent::Down { .. });
            let budget = Arc::new(UnitBudget::of(most));
            let (job, complete) = bring_across(context, fence, &layouts, (from, to), going_down, &budget).await?;
            if !complete {
                return Ok(RunOutcome::Partial(partial_run::counted(context, &job).await?));
            }
            finish(context, fence, &job, going_down).await?;
        }
    }
    Ok(RunOutcome::Done(decision))
}

/// Decides once no renaming is unfinished.
async fn decided(
    context: &Context,
    fence: &Fence,
    layouts: &LayoutHistory,
    intent: Intent,
) -> Result<Decision, MigrateError> {
    // Looks again, now that no other host writes: what was seen before the fence was raised may have changed since.
    let decision = look_along(context, layouts, intent).await?;
    if !matches!(decision, Decision::ShutDown(_)) {
        state::create_tables(context, fence).await?;
        cut_over::end_arrived(context, fence, layouts).await?;
    }
    Ok(decision)
}

/// Before serving: cleans up after a finished migration, and discards an unfinished one, which is useless once clients
/// write to the originals.
async fn settle(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let underway = state::underway(&mut reader).await?;
    drop(reader);
    if underway.is_some() { cut_over::clean_up(context, fence).await } else { Ok(()) }
}

/// Everything up to a finished copy, from where an earlier start stopped, or up to the limit of units.
async fn bring_across(
    context: &Context,
    fence: &Fence,
    layouts: &LayoutHistory,
    (from, to): (DataVersion, DataVersion),
    going_down: bool,
    budget: &Arc<UnitBudget>,
) -> Result<(Arc<Job>, bool), MigrateError> {
    let mut reader = context.database.read().await?;
    let restorable = residue::restorable(&mut reader, from, to).await?;
    drop(reader);
    let work = Work::new(context, layouts, from, to, restorable);
    let (job, resumed) = begin(context, fence, work, going_down).await?;
    if !resumed {
        prepare(context, fence, &job, going_down).await?;
    }
    let complete = copy::copy(context, fence, &job, budget).await?;
    if complete {
        fault::point(fault::AFTER_COPY);
        cut_over::build_indexes(context, fence, &job).await?;
        cut_over::change_ahead(context, fence, &job).await?;
    }
    Ok((job, complete))
}

/// Makes a finished copy real once it is verified.
async fn finish(context: &Context, fence: &Fence, job: &Arc<Job>, going_down: bool) -> Result<(), MigrateError> {
    match verify::verify(context, job).await {
        Err(fault @ MigrateError::Verify { .. }) => {
            start_over(context, fence, job, going_down).await?;
            return Err(fault);
        }
        verified => verified?,
    }
    fault::point(fault::AFTER_VERIFY);
    cut_over::cut_over(context, fence, job).await?;
    cut_over::check_names(context, job).await?;
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
