//! Information for an operator before and after a migration: the version of the database, what
//! would run, and what it would do to each table. Reads only, without a lock.

use std::collections::BTreeSet;

use bbs_database::{Database, Transaction, schema};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_lens::layout::schema::Sealing;
use bbs_lens::transform::Transform;
use serde::Serialize;

use super::copy::partial_run::{self, PartialRun};
use super::decide::{Decision, Found, Intent, Reason, decide};
use super::look::{check_ends, look, reasons_against_rollback};
use super::plan::{Strategy, replaced};
use super::state::own_tables::RESIDUE;
use super::state::{self, Phase, Underway, found, history_pair};
use super::{Context, HistoryPair, MigrateError, Work, fresh, quarantine};

/// The rate of rows on a small machine, for an estimate before there is a measured rate.
const COPIED_BYTES_PER_SECOND: u64 = 100 << 20;

#[derive(Debug, Clone, Serialize)]
pub struct Status {
    pub found: Found,
    /// Tables of other programs, if the database has no version and no rows.
    pub other_tables: Vec<String>,
    /// The newest version of the catalog.
    pub newest: DataVersion,
    /// The decision of a start.
    pub decision: Decision,
    /// Why such a start would end before it writes anything, if it would.
    pub refused: Option<String>,
    /// Why a drain could not roll back as this host is configured to, if it could not.
    pub rollback_refused: Option<String>,
    /// Migrations that have not run here, oldest first.
    pub pending: Vec<PlannedMigration>,
    /// Pending migrations that the catalog has inserted below others that ran.
    pub inserted: Vec<DataVersion>,
    /// The phase of a migration that has begun.
    pub underway: Option<Phase>,
    /// The progress of its copy, if this catalog can resume it.
    pub copied: Option<PartialRun>,
    /// Migrations that are applied according to the history, with the digest of the module that
    /// ran.
    pub history: Vec<AppliedMigration>,
    pub encryption_key_label: Option<String>,
    /// The number of residue entries.
    pub residue: u64,
    /// The number of units in quarantine.
    pub quarantined: u64,
    pub rows: Vec<RowCount>,
    /// The migrations of the catalog that ran here.
    #[serde(skip)]
    ran: MigrationSet,
}

impl Status {
    /// Whether a migration is applied, also if Diego's BBS ran it, which keeps no history.
    pub fn has_run(&self, version: DataVersion) -> bool {
        let mut recorded = self.history.iter().map(|applied| applied.version);
        self.ran.has(version) || recorded.any(|recorded| recorded == version)
    }

    /// Whether a migration that has not run may be part of the one that is under way. Up to the
    /// higher end, others may be inserted.
    pub fn may_be_under_way(&self, version: DataVersion) -> bool {
        match self.underway {
            None | Some(Phase::CleaningUp) => false,
            // A host that has begun may wait for the lock of a table, and goes on after it.
            Some(Phase::Begun | Phase::Copying) => match self.found {
                Found::Versioned {
                    current, target, ..
                } => version <= current.max(target),
                // A first migration: the database has no version before its cut-over.
                Found::Fresh | Found::Unversioned { .. } => true,
            },
            // The database has the version of the target alone.
            Some(Phase::Renaming | Phase::Settling) => true,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct AppliedMigration {
    pub version: DataVersion,
    pub digest: String,
    /// Whether the catalog's module is the one that ran; absent if the catalog has none.
    pub same_module: Option<bool>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RowCount {
    pub table: String,
    pub rows: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct PlannedMigration {
    pub version: DataVersion,
    pub direction: Direction,
    pub name: String,
    pub summary: String,
    pub digest: String,
    pub reversible: bool,
    /// Whether it runs over rows in this direction; otherwise it changes the layout alone.
    pub transforms_rows: bool,
    pub leaves_residue: bool,
    /// Whether it may remove rows; `--check` counts them.
    pub removes_rows: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub from: DataVersion,
    pub to: DataVersion,
    pub direction: Direction,
    /// In the order in which they run. Where the catalog has inserted some, the way goes down to
    /// the last migration below them and up again, in memory.
    pub migrations: Vec<PlannedMigration>,
    /// Migrations that run for the first time below others that ran.
    pub inserted: Vec<DataVersion>,
    pub tables: Vec<TableChange>,
    /// Whether every migration of the plan is reversible.
    pub reversible: bool,
    /// Why it would end before it writes anything, if it would.
    pub refused: Option<String>,
    /// Whether that is decided from the version of the database alone, so that no part of this plan
    /// applies.
    #[serde(skip)]
    pub is_refused_by_version: bool,
    pub bytes_to_copy: u64,
    /// Estimated from the bytes and a cautious rate; the real rate is measured once rows are
    /// copied.
    pub estimated_seconds: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct TableChange {
    pub table: String,
    /// Absent for a table that is dropped.
    pub strategy: Option<Strategy>,
    pub rows: u64,
    pub bytes: u64,
    /// Sealed columns that are opened: for a module, to be sealed anew, or to be saved as residue.
    pub opened: Vec<String>,
    /// Columns with new values: written by modules, or sealed or opened by the host.
    pub computed: Vec<String>,
    /// Whether the server rewrites the table although it is changed in place; clients' writes of it
    /// wait meanwhile.
    pub rewritten_by_server: bool,
    /// Indexes that are built over all rows within the cut-over, for which calls wait, also those
    /// of clients of an online migration.
    pub awaited_indexes: Vec<String>,
}

impl PlannedMigration {
    fn of(migration: &dyn Transform, direction: Direction) -> Self {
        let manifest = migration.manifest();
        Self {
            version: manifest.version,
            direction,
            name: manifest.name.clone(),
            summary: manifest.summary.clone(),
            digest: migration.digest().to_owned(),
            reversible: manifest.reversible,
            transforms_rows: !manifest.accesses(direction).is_empty(),
            leaves_residue: manifest.leaves_residue,
            removes_rows: manifest.removes_rows,
        }
    }
}

/// Whether there may be copies of records. An abandoned target is only a number: a host that serves
/// below it has removed its copies, and so has one whose online migration has failed, unless another
/// session keeps them.
///
/// # Errors
/// The database fails, or its version entry is damaged.
pub async fn is_between(database: &Database) -> Result<bool, MigrateError> {
    let mut tx = database.read().await?;
    if !matches!(found::read(&mut tx).await?, Found::Versioned { .. }) {
        return Ok(true);
    }
    match state::phase(&mut tx).await? {
        None => Ok(false),
        // No start resumes the copies of this phase.
        Some(Phase::Begun) => Ok(!state::leftovers(&mut tx).await?.is_empty()),
        Some(Phase::Copying | Phase::Renaming | Phase::Settling | Phase::CleaningUp) => Ok(true),
    }
}

/// The state of the database, and what a start with this intent would do.
///
/// # Errors
/// The migrations have no valid layouts, or the database fails. That a start would be refused is in
/// the result.
pub async fn status(context: &Context, intent: Intent) -> Result<Status, MigrateError> {
    let layouts = context.layouts()?;
    let refused = look(context, intent)
        .await
        .err()
        .map(|refusal| refusal.to_string());
    let rollback = match intent {
        Intent::UpUntilDrained { wanted, back_to } => {
            reasons_against_rollback(context, wanted, back_to).await?
        }
        Intent::Up { .. } | Intent::Down { .. } => Vec::new(),
    };
    let mut reader = context.database.read().await?;
    let found = found::read(&mut reader).await?;
    let ran = history_pair::ran(context, &mut reader).await?;
    let pending = context
        .migrations
        .iter()
        .filter(|migration| !ran.has(migration.manifest().version));
    let mut history = Vec::new();
    for (version, digest) in state::applied(&mut reader).await? {
        let known = context.migration(version);
        history.push(AppliedMigration {
            version,
            same_module: known.map(|known| known.digest() == digest),
            digest,
        });
    }
    let residue = if state::exists(&mut reader, RESIDUE).await? {
        state::count(&mut reader, RESIDUE).await?.unsigned_abs()
    } else {
        0
    };
    let entries = quarantine::entries(&mut reader).await?;
    let quarantined = entries.iter().filter(|entry| !entry.stopped).count() as u64;
    let underway = state::underway(&mut reader).await?;
    let encryption_key_label = state::encryption_key_label(&mut reader).await?;
    let rows = rows(&mut reader).await?;
    drop(reader);
    let other_tables = if found == Found::Fresh {
        fresh::other_tables(context).await?
    } else {
        Vec::new()
    };
    Ok(Status {
        other_tables,
        newest: layouts.newest(),
        decision: decided(context, &found, underway.as_ref(), intent),
        refused,
        rollback_refused: MigrateError::refuse(rollback)
            .err()
            .map(|refusal| refusal.to_string()),
        pending: pending
            .map(|migration| PlannedMigration::of(migration.as_ref(), Direction::Up))
            .collect(),
        inserted: ran.inserted(&layouts.migrations()).collect(),
        underway: underway.map(|underway| underway.phase),
        copied: copied(context).await?,
        history,
        encryption_key_label,
        residue,
        quarantined,
        rows,
        found,
        ran,
    })
}

/// The decision of a start with this intent, from the version of the database alone.
///
/// # Errors
/// The database fails, or its version entry is damaged.
pub async fn decision(context: &Context, intent: Intent) -> Result<Decision, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = found::read(&mut reader).await?;
    let underway = state::underway(&mut reader).await?;
    Ok(decided(context, &found, underway.as_ref(), intent))
}

fn decided(
    context: &Context,
    found: &Found,
    underway: Option<&Underway>,
    intent: Intent,
) -> Decision {
    decide(found, intent)
        .explained(|version| context.migration(version).is_some())
        .resuming(resumed_to(underway))
}

/// The target of the migration that is under way; a run to it completes that migration.
pub async fn resumable(database: &Database) -> Result<Option<DataVersion>, MigrateError> {
    let mut reader = database.read().await?;
    Ok(resumed_to(state::underway(&mut reader).await?.as_ref()))
}

/// No start resumes the first phase.
fn resumed_to(underway: Option<&Underway>) -> Option<DataVersion> {
    underway
        .filter(|underway| underway.phase != Phase::Begun)
        .map(|underway| underway.to)
}

/// The units that the unfinished copy has written, and all units: the host that copies may be
/// another process.
async fn copied(context: &Context) -> Result<Option<PartialRun>, MigrateError> {
    let mut reader = context.database.read().await?;
    let underway = state::underway(&mut reader)
        .await?
        .filter(|underway| underway.phase == Phase::Copying);
    let Some(Underway {
        from,
        to,
        fingerprint,
        ..
    }) = underway
    else {
        return Ok(None);
    };
    let histories = HistoryPair::declared(context, &mut reader).await?;
    if !histories.have(from, to) {
        return Ok(None);
    }
    let way = histories.way(from, to);
    let offline = Work::restoring(context, &mut reader, way).await?;
    drop(reader);
    let works = [offline, Work::online(context, way)?];
    match works.iter().find(|work| work.fingerprint() == fingerprint) {
        Some(work) => partial_run::counted(context, work).await.map(Some),
        None => Ok(None),
    }
}

async fn rows(tx: &mut Transaction) -> Result<Vec<RowCount>, MigrateError> {
    let mut counted = Vec::new();
    for table in state::COUNTED_TABLES {
        if state::exists(tx, table).await? {
            let rows = state::count(tx, table).await?.unsigned_abs();
            counted.push(RowCount {
                table: table.to_owned(),
                rows,
            });
        }
    }
    Ok(counted)
}

/// The plan of a migration to a version, as a start in this context makes it.
///
/// # Errors
/// The migrations do not lead from the database's version to the other one, or the database fails.
pub async fn plan(context: &Context, to: DataVersion) -> Result<Plan, MigrateError> {
    let mut reader = context.database.read().await?;
    let from = state::current_of(&found::read(&mut reader).await?);
    let direction = Direction::between(from, to);
    let intent = match direction {
        Direction::Up => Intent::Up { wanted: to },
        Direction::Down => Intent::Down { to },
    };
    let histories = HistoryPair::here(context, &mut reader).await?;
    drop(reader);
    check_ends(context, &histories, from, to)?;
    let refusal = refusal(context, intent).await?;
    let way = histories.way(from, to);
    let mut reader = context.database.read().await?;
    let work = Work::planned(context, &mut reader, way).await?;
    let tables = table_changes(&mut reader, &work).await?;
    let copied = tables
        .iter()
        .filter(|table| table.strategy == Some(Strategy::Copy));
    let bytes_to_copy = copied.map(|table| table.bytes).sum();
    let migrations = work.lens.steps().zip(work.lens.legs());
    let migrations: Vec<_> = migrations
        .map(|(step, leg)| PlannedMigration::of(step.as_ref(), leg.direction))
        .collect();
    Ok(Plan {
        from,
        to,
        direction,
        reversible: migrations.iter().all(|migration| migration.reversible),
        is_refused_by_version: matches!(refusal, Some(PlanRefusal::Version(_))),
        refused: refusal.map(|refusal| refusal.to_string()),
        inserted: way.inserted(),
        migrations,
        tables,
        bytes_to_copy,
        estimated_seconds: bytes_to_copy.div_ceil(COPIED_BYTES_PER_SECOND),
    })
}

/// Why a start ends before it writes anything.
#[derive(Debug, thiserror::Error)]
enum PlanRefusal {
    #[error(transparent)]
    Version(Reason),
    #[error(transparent)]
    Obstacle(MigrateError),
}

/// Why a start with this intent ends before it writes anything, if it does.
async fn refusal(context: &Context, intent: Intent) -> Result<Option<PlanRefusal>, MigrateError> {
    match look(context, intent).await {
        Ok(Decision::ShutDown(reason)) => Ok(Some(PlanRefusal::Version(reason))),
        Ok(_) => Ok(None),
        Err(
            fault @ (MigrateError::Sql { .. }
            | MigrateError::Database(_)
            | MigrateError::ReadBack(_)),
        ) => Err(fault),
        Err(obstacle) => Ok(Some(PlanRefusal::Obstacle(obstacle))),
    }
}

/// The changes of each table that a migration changes or removes.
async fn table_changes(
    reader: &mut Transaction,
    work: &Work,
) -> Result<Vec<TableChange>, MigrateError> {
    let mut tables = Vec::new();
    for plan in &work.plans {
        let mut rows = 0;
        let mut bytes = 0;
        let mut opened = BTreeSet::new();
        for source in &plan.sources {
            let (counted, sized) = size_of(reader, work, source).await?;
            rows += counted;
            bytes += sized;
            let original = &work.lens.source.tables[source];
            let sealed = |name: &&String| {
                original
                    .find_column(name)
                    .is_some_and(|column| column.sealing != Sealing::Plain)
            };
            opened.extend(
                work.lens
                    .needed
                    .get(source)
                    .into_iter()
                    .flatten()
                    .filter(sealed)
                    .cloned(),
            );
        }
        let copied = plan.is_copied();
        let computed = plan.computed().filter(|_| copied);
        let original = work.lens.source.tables.get(&plan.table.name);
        let (added, ..) = plan.additions(original);
        let rewrites = schema::rewrites_to_add(work.server, &added);
        tables.push(TableChange {
            table: plan.table.name.clone(),
            strategy: Some(plan.strategy.clone()),
            rows,
            bytes,
            opened: opened.into_iter().filter(|_| copied).collect(),
            computed: computed.map(|column| column.name.clone()).collect(),
            rewritten_by_server: plan.strategy == Strategy::InPlace && rewrites,
            awaited_indexes: plan.awaited_indexes(original, work.dialect),
        });
    }
    for table in replaced(&work.lens, &work.plans)
        .into_iter()
        .filter(|name| !work.lens.target.tables.contains_key(name))
    {
        let (rows, bytes) = size_of(reader, work, &table).await?;
        tables.push(TableChange {
            table,
            rows,
            bytes,
            ..TableChange::default()
        });
    }
    Ok(tables)
}

async fn size_of(
    tx: &mut Transaction,
    work: &Work,
    table: &str,
) -> Result<(u64, u64), MigrateError> {
    if !state::exists(tx, table).await? {
        return Ok((0, 0));
    }
    let rows = state::count(tx, table).await?.unsigned_abs();
    // A column that is missing refuses the migration, or is one of an unfinished cut-over.
    let found = schema::read_back(tx, table).await?;
    let is_there = |name: &str| found.as_ref().is_some_and(|found| found.has_column(name));
    let texts = work.lens.source.tables[table]
        .columns
        .iter()
        .filter(|column| column.kind.is_text() && is_there(&column.name));
    let bytes = state::text_bytes(tx, table, texts.map(|column| column.name.as_str())).await?;
    Ok((rows, bytes))
}
