//! A migration between two versions: as it is planned ([`Work`]), and as it is recorded in the
//! database ([`Job`]). Owns what its steps share; decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::OnceCell;

use bbs_database::{Dialect, ServerKind, Transaction};
use bbs_encryption::Keyring;
use bbs_files::digest::to_hex;
use bbs_lens::layout::history::{Additions, Way};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_lens::layout::schema::{Layout, Table};
use bbs_lens::transform::RunArguments;
use bbs_lens::{Arguments, ComposeError, Lens, Residue};
use bbs_units::{Passage, Place, RowsError, UnitBatch, WantedColumns};
use bbs_work::log_sampling::LineLimit;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::plan::{self, Strategy, TablePlan, replaced, side_table};
use super::state::{self, Phase, Underway, arguments, residue};
use super::{Context, MigrateError, OnUnreadable, Tuning};

/// Log lines about units that go into quarantine; all of them are in the database.
const QUARANTINE_BURST: u32 = 100;
const QUARANTINE_LINES_PER_MINUTE: u32 = 10;

/// A migration of this database between two versions that is planned: the lens, the plan of each
/// table, and what both work with.
pub(super) struct Work {
    pub(super) lens: Lens,
    pub(super) plans: Vec<TablePlan>,
    /// The tables that units are read from.
    pub(super) originals: Place,
    /// The tables that they are copied to.
    pub(super) copies: Place,
    /// By group, the columns that are read: what the lens needs, and what passes it unread.
    pub(super) wanted: Vec<WantedColumns>,
    pub(super) keyring: Arc<Keyring>,
    pub(super) on_unreadable: OnUnreadable,
    pub(super) server: ServerKind,
    pub(super) dialect: Dialect,
    /// The migrations that ran on the database before.
    pub(super) ran: MigrationSet,
    /// By table of the source, what its owner has added to it.
    pub(super) added: BTreeMap<String, Additions>,
    /// The layouts between its ends, and that of the target.
    pub(super) passed: Vec<Layout>,
    pub(super) from: DataVersion,
    pub(super) to: DataVersion,
    pub(super) tuning: Tuning,
    pub(super) now_ns: i64,
    /// By group, the number of its units, once one of them was refused.
    pub(super) unit_counts: Vec<OnceCell<u64>>,
    /// The limit of log lines about units that go into quarantine.
    pub(super) quarantine_lines: LineLimit,
    /// Whether clients write while rows are copied.
    pub(super) is_online: bool,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("lens", &self.lens)
            .finish_non_exhaustive()
    }
}

impl Work {
    pub(super) fn new(
        context: &Context,
        way: Way<'_>,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Result<Self, ComposeError> {
        let lens = Lens::new(way, &context.migrations, restorable)?;
        Ok(Self::through(context, way, lens, false))
    }

    /// A migration that gives back the residue which the database has.
    pub(super) async fn restoring(
        context: &Context,
        tx: &mut Transaction,
        way: Way<'_>,
    ) -> Result<Self, MigrateError> {
        let restorable = residue::restorable(tx, way).await?;
        Ok(Self::new(context, way, restorable)?)
    }

    /// A migration during which clients write: they may need any residue that the other direction
    /// left.
    pub(super) fn online(context: &Context, way: Way<'_>) -> Result<Self, ComposeError> {
        let lens = Lens::restoring(way, &context.migrations)?;
        Ok(Self::through(context, way, lens, true))
    }

    /// The migration that a start makes in this context. One of an empty database is offline, as is
    /// each way down.
    pub(super) async fn planned(
        context: &Context,
        tx: &mut Transaction,
        way: Way<'_>,
    ) -> Result<Self, MigrateError> {
        let is_up = Direction::between(way.from, way.to) == Direction::Up;
        if context.is_online && way.from > 0 && is_up {
            Ok(Self::online(context, way)?)
        } else {
            Self::restoring(context, tx, way).await
        }
    }

    fn through(context: &Context, way: Way<'_>, lens: Lens, is_online: bool) -> Self {
        let from = way.from;
        let to = way.to;
        let mut plans = plan::tables(
            &lens,
            way,
            &context.migrations,
            context.database.server_kind(),
        );
        for plan in &mut plans {
            plan.is_shared = is_online;
        }
        let staged = plans.iter().filter(|plan| plan.is_copied());
        let staged = staged
            .map(|plan| (plan.table.name.clone(), plan.staged(to)))
            .collect();
        Self {
            originals: Place::new(lens.source.clone()),
            copies: Place::new(lens.target.clone()).named(staged),
            wanted: wanted(&lens, &plans),
            unit_counts: lens.groups.iter().map(|_| OnceCell::new()).collect(),
            lens,
            plans,
            keyring: Arc::clone(&context.keyring),
            on_unreadable: context.tuning.on_unreadable,
            ran: way.layouts(Direction::Down).migrations().up_to(from),
            added: way.layouts(Direction::Down).additions().clone(),
            passed: way.passed().cloned().collect(),
            from,
            to,
            tuning: context.tuning.clone(),
            server: context.database.server_kind(),
            dialect: context.database.dialect(),
            now_ns: context.now_ns,
            quarantine_lines: LineLimit::new(QUARANTINE_BURST, QUARANTINE_LINES_PER_MINUTE),
            is_online,
        }
    }

    /// The group that a table is read in.
    pub(super) fn group_of(&self, table: &str) -> Option<usize> {
        self.lens
            .groups
            .iter()
            .position(|group| group.sources.iter().any(|name| name == table))
    }

    /// The tables of a group that units are read from.
    pub(super) fn sources(&self, group: usize) -> Vec<&Table> {
        self.lens.groups[group]
            .sources
            .iter()
            .map(|name| &self.lens.source.tables[name])
            .collect()
    }

    /// The residue that steps of the other direction left of these units. Where that is too large
    /// to be in memory at once, only the first units remain in the batch.
    pub(super) async fn residue_of(
        &self,
        tx: &mut Transaction,
        batch: &mut UnitBatch,
    ) -> Result<Residue, RowsError> {
        if self.lens.restorable().is_empty() {
            return Ok(Residue::default());
        }
        loop {
            let names = batch.names();
            match bbs_units::residue::load(tx, &self.keyring, &self.lens.returning, &names).await {
                Err(fault) if fault.is_of_several_units() => {
                    let first: Vec<_> = (0..names.len() / 2).collect();
                    *batch = batch.only(&self.lens.source, &first);
                }
                entries => return entries.map(Residue::from),
            }
        }
    }

    /// The way of units of these groups to the target, which is written.
    pub(super) fn passage<'a>(
        &'a self,
        groups: &'a [usize],
        arguments: &'a Arguments,
    ) -> Passage<'a> {
        Passage {
            lens: &self.lens,
            groups,
            arguments,
            keyring: &self.keyring,
            writes_to: Some(self.dialect),
        }
    }

    /// The tables that are copied.
    pub(super) fn copied_plans(&self) -> impl Iterator<Item = &TablePlan> {
        self.plans.iter().filter(|plan| plan.is_copied())
    }

    pub(super) fn copied(&self, table: &str) -> Option<&TablePlan> {
        self.copied_plans().find(|plan| plan.table.name == table)
    }

    /// The tables of a group that are copied.
    pub(super) fn copies_of(&self, group: usize) -> impl Iterator<Item = &TablePlan> {
        self.copied_plans().filter(move |plan| plan.group == group)
    }

    pub(super) fn has_copies(&self, group: usize) -> bool {
        self.copies_of(group).next().is_some()
    }

    /// Whether verification compares the rows of each copy with those of an original, and there is
    /// a copy for everything that is read: then it finds what another program has written to the
    /// originals meanwhile.
    pub(super) fn compares_all_copies(&self) -> bool {
        let mut groups = 0..self.lens.groups.len();
        self.copied_plans().all(|plan| !plan.digests_all)
            && groups.all(|group| !self.visits_units(group) || self.has_copies(group))
    }

    /// Tables beside the real ones: unfinished copies, and originals that were replaced.
    pub(super) fn side_tables(&self) -> Vec<String> {
        let copies = self.copied_plans().map(|plan| plan.staged(self.to));
        let originals = replaced(&self.lens, &self.plans)
            .into_iter()
            .map(|table| side_table(&table, self.from));
        copies.chain(originals).collect()
    }

    /// The plan of a table that is changed in place.
    pub(super) fn in_place(&self, table: &str) -> Option<&TablePlan> {
        let mut plans = self.plans.iter();
        plans.find(|plan| plan.table.name == table && plan.strategy == Strategy::InPlace)
    }

    /// Whether a group's units have to be read: a step computes something or saves what it would
    /// lose, or rows of several tables come together.
    pub(super) fn visits_units(&self, group: usize) -> bool {
        self.lens.groups[group].visits_units || self.copies_of(group).any(|plan| !plan.by_range())
    }

    /// Whether a group is walked: its units are copied, or leave residue of a table that is dropped.
    pub(super) fn walks(&self, group: usize) -> bool {
        self.has_copies(group) || self.visits_units(group)
    }

    /// A description for people.
    pub(super) fn describe(&self) -> String {
        match self.from {
            0 => format!("of an empty database to {}", self.to),
            from => format!("{} from {from} to {}", self.lens.direction, self.to),
        }
    }

    /// A digest of the two versions, of every module between them, and of whether clients write
    /// meanwhile: then the copies lack what they have changed, and only a copier that knows so may
    /// resume the copy; otherwise they have a checksum, which earlier hosts did not keep. In a
    /// cluster also of the tables that are copied, which are more there.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!(
            "{} {} to {}",
            self.lens.direction, self.from, self.to
        ));
        hash.update(if self.is_online {
            " with a record of changed units"
        } else {
            " with a checksum of the originals"
        });
        for step in self.lens.steps() {
            hash.update(format!("\n{} {}", step.manifest().version, step.digest()));
        }
        if self.server.is_in_cluster {
            for plan in self.copied_plans() {
                hash.update(format!("\n{}", plan.table.name));
            }
        }
        to_hex(&hash.finalize())
    }

    /// The arguments of its steps, drawn once for each migration and then stored.
    pub(super) async fn draw_arguments(
        &self,
        tx: &mut Transaction,
        now_ns: i64,
    ) -> Result<Arguments, MigrateError> {
        let versions = self.lens.steps().map(|step| step.manifest().version);
        arguments::arguments(tx, versions, now_ns).await
    }

    /// The arguments of its steps as they were drawn; those of a step that has not run on this
    /// database have the nil namespace. Reads only.
    pub(super) async fn stored_arguments(
        &self,
        tx: &mut Transaction,
        now_ns: i64,
    ) -> Result<Arguments, MigrateError> {
        let versions = self.lens.steps().map(|step| step.manifest().version);
        let versions: Vec<_> = versions.collect();
        let mut arguments = arguments::known_arguments(tx, &versions).await?;
        for version in versions {
            arguments.entry(version).or_insert(RunArguments {
                started_at_ns: now_ns,
                namespace: Uuid::nil(),
            });
        }
        Ok(arguments)
    }
}

/// A migration that is recorded in the database as under way: its plan, and what it runs with.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) arguments: Arguments,
    /// The fence's token when it began or was resumed.
    pub(super) token: i64,
    /// Whether an earlier run has begun the copies.
    pub(super) is_resumed: bool,
}

impl std::ops::Deref for Job {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl Job {
    /// The record of how far the migration is.
    pub(super) fn underway(&self, phase: Phase) -> Underway {
        Underway {
            from: self.from,
            to: self.to,
            going_down: self.to < self.from && !phase.has_arrived(),
            fingerprint: self.fingerprint(),
            token: self.token,
            phase,
        }
    }

    /// Records how far the migration is, and the tables that it makes beside the real ones.
    pub(super) async fn write_phase(
        &self,
        tx: &mut Transaction,
        phase: Phase,
    ) -> Result<(), MigrateError> {
        state::write_underway(tx, &self.underway(phase)).await?;
        state::write_side_tables(tx, &self.side_tables()).await
    }

    /// Names the unit that cannot be transformed.
    pub(super) fn at_fault(&self, fault: RowsError, unit: String) -> MigrateError {
        match fault {
            RowsError::Lens(source) if !source.is_of_module() => {
                MigrateError::Unit { unit, source }
            }
            RowsError::Sealed {
                table,
                column,
                source,
            } => MigrateError::Record {
                unit,
                table,
                column,
                source,
            },
            RowsError::Unstorable(source) => MigrateError::Unstorable { unit, source },
            fault => fault.into(),
        }
    }
}

/// By group, the columns that are read of each of its tables.
fn wanted(lens: &Lens, plans: &[TablePlan]) -> Vec<WantedColumns> {
    let needed = |table: &String| {
        (
            table.clone(),
            lens.needed.get(table).cloned().unwrap_or_default(),
        )
    };
    let mut wanted: Vec<WantedColumns> = lens
        .groups
        .iter()
        .map(|group| group.sources.iter().map(needed).collect())
        .collect();
    for plan in plans
        .iter()
        .filter(|plan| plan.is_copied() && !plan.by_range())
    {
        for (table, column) in plan.unread_columns() {
            wanted[plan.group]
                .entry(table.clone())
                .or_default()
                .insert(column.clone());
        }
    }
    wanted
}
