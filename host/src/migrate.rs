//! Migrations: decides what to do about the versions that were found, and does it. The steps are in
//! `steps`, and each of them has a file of its own. `state` is the record of a migration in the
//! database, `look` examines the database before the first write, and `copy` makes the copies.

mod abort;
mod check;
mod copy;
mod cut_over;
mod decide;
mod error;
pub mod fault;
pub mod filling;
mod fresh;
mod job;
mod layout_sql;
mod lock_waits;
mod look;
pub mod online;
mod plan;
mod prepare;
mod quarantine;
mod replay;
mod state;
mod statements;
mod status;
mod steps;
mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bbs_database::schema::{self, PhysicalTable};
use bbs_database::{Database, Dialect, StatementResult};
use bbs_encryption::Keyring;
use bbs_lens::Arguments;
use bbs_lens::layout::history::{LayoutError, LayoutHistory};
use bbs_lens::layout::manifest::{DataVersion, Manifest};
use bbs_lens::layout::schema::Table;
use bbs_lens::transform::Transform;
use bbs_units::ByteLimits;
use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;

use crate::clock::Clock;
pub use crate::config::OnUnreadable;
use crate::lock::fence::Fence;

pub use abort::{GivenUp, abort, abortable};
pub use check::{Checked, Trouble, check};
pub use copy::partial_run::{PartialRun, RunOutcome};
use copy::{UnitBudget, partial_run};
use cut_over::BegunBy;
pub use decide::{Decision, Found, Intent, Reason, decide};
pub use error::{MigrateError, command};
pub use fresh::other_tables;
use job::{Job, Work};
pub use layout_sql::{LayoutChange, LayoutStep, layout_sql};
pub use lock_waits::{LockWaits, holders as lock_holders};
pub use look::{check_way_back, layout_that_ran, look, reasons_against_rollback};
pub use plan::Strategy;
use prepare::start_over;
pub use quarantine::{
    Fate, ForeignRecord, QuarantineDocument, QuarantineEntry, SealedValues, ServingQuarantine,
    WriteMode, delete as delete_quarantined, export as export_quarantined,
    import as import_quarantined, inner_texts, json_of_bytes, keep_foreign, list as quarantined,
    reseal_inner_texts, retry,
};
pub use replay::{Replay, ReplayInput, ReplayTable, replay};
pub use state::catalog_serials::{catalog_serials, remember_catalog_serials};
pub use state::found::{found, read as found_in, settled_version};
use state::history_pair::HistoryPair;
pub use state::own_tables::{
    IMPORT, IMPORT_RUN, create as create_own_tables, import_run, table as own_table,
    tables as own_tables,
};
pub use state::runs::{MigrationRun, RunState, Runner, migrations_ran, runs};
pub use state::{MigrationRan, lock_version};
use state::{Phase, Underway, history_pair, own_tables, runs};
pub use status::{
    Plan, PlannedMigration, Status, TableChange, decision, is_between, plan, resumable, status,
};

/// The longest wait for a lock of another client before a change of the schema is postponed.
const SHORT_LOCK_WAIT: Duration = Duration::from_secs(5);

/// The inputs of a migration.
#[derive(Clone)]
pub struct Context {
    /// The database to migrate.
    pub database: Database,
    /// The catalog's migrations, oldest first.
    pub migrations: Vec<Arc<dyn Transform>>,
    /// Their layouts, if these are computed already, as those of a loaded catalog are.
    pub known_layouts: Option<Arc<LayoutHistory>>,
    /// Opens and seals encrypted columns.
    pub keyring: Arc<Keyring>,
    /// Receives phases, counts and reasons for waiting.
    pub progress: Progress,
    /// Limits the rate; awaited before each batch.
    pub throttle: Throttle,
    /// The clock, for the history.
    pub clock: Arc<dyn Clock>,
    /// This process, for the history.
    pub runner: Runner,
    /// The start of this run, in nanoseconds since 1970: the time in the history and of first uses.
    pub now_ns: i64,
    /// Bounds of batches and units.
    pub tuning: Tuning,
    /// Whether a start serves clients while it copies rows. Such a migration copies more tables, so
    /// it is examined and planned as such.
    pub is_online: bool,
}

impl Context {
    /// The manifests of the catalog's migrations, oldest first.
    fn manifests(&self) -> impl Iterator<Item = &Manifest> + Clone {
        self.migrations.iter().map(|migration| migration.manifest())
    }

    /// The layouts of the catalog's versions.
    ///
    /// # Errors
    /// A migration does not fit the layout before it.
    pub fn layouts(&self) -> Result<Arc<LayoutHistory>, LayoutError> {
        match &self.known_layouts {
            Some(known) => Ok(Arc::clone(known)),
            None => layout_history(&self.migrations).map(Arc::new),
        }
    }

    fn migration(&self, version: DataVersion) -> Option<&Arc<dyn Transform>> {
        self.migrations
            .iter()
            .find(|migration| migration.manifest().version == version)
    }

    /// This context for changes of the schema that clients wait for, and that can be made later.
    fn with_short_lock_waits(&self) -> Self {
        let mut context = self.clone();
        let longest = &mut context.tuning.lock_timeout;
        *longest = SHORT_LOCK_WAIT.min(*longest);
        context
    }

    /// This context for changes of the schema that a start makes before clients are served, if it
    /// serves them while it copies rows.
    fn before_serving(&self) -> Self {
        if self.is_online {
            self.with_short_lock_waits()
        } else {
            self.clone()
        }
    }
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
    /// A larger unit is refused by name: it has to fit into memory, and into that of a module. Far
    /// above what the API accepts of one guid: `host/model/src/bounds.rs`.
    pub unit_bytes: u64,
    /// The handling of units that cannot be transformed.
    pub on_unreadable: OnUnreadable,
    /// The most units of a group of tables that go into quarantine, unless one in a hundred is
    /// more; never more than half of several.
    pub quarantine_limit: u64,
    /// How long a change of the schema is tried again while other clients hold locks.
    pub lock_timeout: Duration,
}

impl Tuning {
    fn limits(&self) -> ByteLimits {
        ByteLimits {
            batch: self.batch_bytes,
            unit: self.unit_bytes,
        }
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
            unit_bytes: 32 << 20,
            on_unreadable: OnUnreadable::Stop,
            quarantine_limit: 100,
            lock_timeout: Duration::from_secs(600),
        }
    }
}

/// The layouts of the versions of these migrations.
///
/// # Errors
/// A migration does not fit the layout before it.
pub fn layout_history(migrations: &[Arc<dyn Transform>]) -> Result<LayoutHistory, LayoutError> {
    LayoutHistory::new(migrations.iter().map(|migration| migration.manifest()))
}

/// The layouts of what ran on this database, and of what the catalog has above as far as it fits
/// without what it has inserted.
///
/// # Errors
/// A migration does not fit the layout before it, or the database cannot be read.
pub async fn layouts_that_ran(context: &Context) -> Result<Arc<LayoutHistory>, MigrateError> {
    Ok(
        HistoryPair::declared(context, &mut context.database.read().await?)
            .await?
            .ran,
    )
}

/// The arguments of the migrations of some versions: drawn and stored at the first use, the same at
/// every later one.
///
/// # Errors
/// Another host has raised the fence, the database fails, or a stored namespace is no UUID.
pub async fn arguments(
    context: &Context,
    fence: &Fence,
    versions: std::ops::RangeInclusive<DataVersion>,
) -> Result<Arguments, MigrateError> {
    let mut tx = fence.begin().await?;
    let known = context.manifests().map(|manifest| manifest.version);
    let known = known.filter(|version| versions.contains(version));
    let arguments = state::arguments::arguments(&mut tx, known, context.now_ns).await?;
    tx.commit().await.about("bbs_run_arguments")?;
    Ok(arguments)
}

/// Reads the version, decides, and does what was decided. Does not serve.
///
/// # Errors
/// The migration cannot be planned, a unit cannot be transformed, the copies do not pass
/// verification, another host has raised the fence, or the database fails. The next run continues
/// after what is committed. A decision to shut down is no error.
pub async fn run(
    context: &Context,
    fence: &Fence,
    intent: Intent,
) -> Result<Decision, MigrateError> {
    match run_partially(context, fence, intent, None).await? {
        RunOutcome::Done(decision) => Ok(decision),
        RunOutcome::Partial(_) => unreachable!("nothing bounds it"),
    }
}

/// Migrates at most `most` units; the next run continues from there.
///
/// # Errors
/// As [`run`].
pub async fn run_partially(
    context: &Context,
    fence: &Fence,
    intent: Intent,
    most: Option<u64>,
) -> Result<RunOutcome, MigrateError> {
    let decision = decided(context, fence, intent).await?;
    match decision {
        Decision::ShutDown(_) => {}
        Decision::Serve | Decision::Stay { .. } => settle(context, fence).await?,
        Decision::Begin { from, to } | Decision::Continue { from, to } => {
            // At a drain this host has served: a commit that goes on without its connection would
            // change what is copied already.
            lock_waits::patiently(context, || async {
                Ok(fence.wait_for_transactions().await?)
            })
            .await?;
            let job = begin(context, fence, (from, to)).await?;
            let budget = Arc::new(UnitBudget::of(most));
            if !steps::copy(context, fence, &job, &budget).await? {
                return Ok(RunOutcome::Partial(
                    partial_run::counted(context, &job).await?,
                ));
            }
            finish(context, fence, &job).await?;
        }
    }
    Ok(RunOutcome::Done(decision))
}

/// Decides once no cut-over is unfinished.
async fn decided(
    context: &Context,
    fence: &Fence,
    intent: Intent,
) -> Result<Decision, MigrateError> {
    // A drain may have ended this host's own cut-over while its commit was in flight.
    state::wait_for_commits(context, fence).await?;
    // Looks again, now that no other host writes: what was seen before the fence was raised may
    // have changed since.
    let decision = look(context, intent).await?;
    if matches!(decision, Decision::ShutDown(_)) {
        return Ok(decision);
    }
    own_tables::create(context, fence).await?;
    let arrived = cut_over::end_arrived(context, fence).await?;
    // The tables may not have had the names under which they are examined; and a server may have
    // ended a commit without an answer after the first look.
    let decision = if arrived.is_some_and(Phase::has_arrived) {
        look(context, intent).await?
    } else {
        decision
    };
    if matches!(decision, Decision::Begin { .. } | Decision::Continue { .. }) {
        trial::try_schema_changes(context, fence).await?;
    }
    Ok(decision)
}

/// Before serving: records which migrations have run, and discards an unfinished one, which is
/// useless once clients write to the originals. After a finished one, [`run`] and [`online::start`]
/// have cleaned up; what that had to postpone is removed while clients are served.
///
/// # Errors
/// Another host has raised the fence, or the database fails.
pub async fn settle(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let underway = state::underway(&mut reader).await?;
    let recorded = state::recorded_migrations(&mut reader).await?;
    let ran = history_pair::ran_of_any_catalog(context, &mut reader).await?;
    drop(reader);
    if recorded != ran {
        let mut tx = fence.begin().await?;
        state::record_migrations(&mut tx, &ran).await?;
        tx.commit().await.about(own_tables::APPLIED)?;
    }
    let Some(underway) = underway.filter(|found| !found.phase.has_arrived()) else {
        return Ok(());
    };
    let mut tx = fence.begin().await?;
    runs::give_up(&mut tx, context, &underway).await?;
    // At a reload this host has its token, too, and would resume what is left of its copies.
    state::write_phase(&mut tx, underway, Phase::Begun).await?;
    tx.commit().await.about(own_tables::RUN)?;
    cut_over::clean_up_or_postpone(context, fence).await
}

/// Undoes the changes that an abandoned migration has made ahead of its cut-over, if this catalog
/// has it.
async fn undo_abandoned(
    context: &Context,
    fence: &Fence,
    underway: &Underway,
) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let histories = HistoryPair::here(context, &mut reader).await?;
    let row = state::version_row(&mut reader).await?;
    drop(reader);
    // If another BBS has migrated the database since, what was changed ahead is its own.
    let is_at_its_beginning = row.is_some_and(|row| row.current_version == underway.from);
    let is_known = histories.have(underway.from, underway.to);
    if !is_known || !is_at_its_beginning || !matches!(underway.phase, Phase::Begun | Phase::Copying)
    {
        return Ok(());
    }
    let way = histories.way(underway.from, underway.to);
    let work = Work::new(context, way, BTreeSet::new())?;
    let online = Work::online(context, way)?;
    let fingerprints = [&work, &online].map(Work::fingerprint);
    let begun_by = if fingerprints.contains(&underway.fingerprint) {
        BegunBy::TheseModules
    } else {
        BegunBy::OtherModules
    };
    cut_over::undo_ahead(context, fence, &work, begun_by).await
}

/// Begins a migration between two versions, or continues one that an earlier run began.
async fn begin(
    context: &Context,
    fence: &Fence,
    (from, to): (DataVersion, DataVersion),
) -> Result<Arc<Job>, MigrateError> {
    let mut reader = context.database.read().await?;
    let histories = HistoryPair::here(context, &mut reader).await?;
    let work = Work::restoring(context, &mut reader, histories.way(from, to)).await?;
    drop(reader);
    steps::begin(context, fence, work).await
}

/// Makes a finished copy real once it is verified.
async fn finish(context: &Context, fence: &Fence, job: &Arc<Job>) -> Result<(), MigrateError> {
    match steps::verify(context, fence, job).await {
        Err(fault @ MigrateError::Verify { .. }) => {
            start_over(context, fence, job).await?;
            return Err(fault);
        }
        verified => verified?,
    }
    lock_waits::patiently(context, || cut_over::cut_over(context, fence, job)).await?;
    cut_over::check_names(context, job).await?;
    cut_over::clean_up_or_postpone(context, fence).await
}

/// [`clean_up_rows`], then [`clean_up_tables`].
///
/// # Errors
/// As theirs.
pub async fn clean_up(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    clean_up_rows(context, fence).await?;
    clean_up_tables(context, fence).await
}

/// Removes the rows that nothing needs after a complete migration, if there is such a one, and puts
/// units in quarantine back that it has made whole.
///
/// # Errors
/// Another host has raised the fence, or the database fails.
pub async fn clean_up_rows(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    if phase(context).await? == Some(Phase::CleaningUp) {
        cut_over::remove_leftover_rows(context, fence).await?;
    }
    Ok(())
}

/// Removes the tables that a complete migration has replaced, or an abandoned one has made, if there
/// is such a one: the end of its clean-up. Only while no migration is under way in this process.
///
/// # Errors
/// A table cannot be dropped, another host has raised the fence, or the database fails.
pub async fn clean_up_tables(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    if let Some(Phase::Begun | Phase::CleaningUp) = phase(context).await? {
        cut_over::remove_leftover_tables(context, fence).await?;
    }
    Ok(())
}

async fn phase(context: &Context) -> Result<Option<Phase>, MigrateError> {
    state::phase(&mut context.database.read().await?).await
}

fn same_schema(
    dialect: Dialect,
    name: &str,
    found: Option<PhysicalTable>,
    table: &Table,
) -> Result<(), MigrateError> {
    let differences = found.map_or_else(
        || vec!["it is missing".to_owned()],
        |found| schema::differences(&found, &schema::expected(dialect, table)),
    );
    if differences.is_empty() {
        Ok(())
    } else {
        Err(MigrateError::SchemaDiffers {
            table: name.to_owned(),
            differences,
        })
    }
}

#[cfg(test)]
mod tests;
