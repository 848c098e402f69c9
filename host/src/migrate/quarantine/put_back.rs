//! Puts units from quarantine back into the tables: through the lens to the present version of the
//! database. Each unit is written in one fenced transaction. A unit that still cannot be transformed
//! stays where it is.

use std::sync::Arc;

use bbs_database::{Transaction, bulk, is_unique_violation};
use bbs_encryption::Keyring;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::transform::Transform;
use bbs_lens::{Arguments, Residue, ResidueEntry, TableGroup};
use bbs_units::{RowLock, RowsError, Transformed, UnitBatch, UnitKey, residue};
use bbs_work::causes::with_causes;
use bbs_work::pauses;
use sea_query::Cond;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::settled::{SettledTransaction, WriteMode, require_settled};
use super::{FOREIGN, QuarantineEntry, damaged, entries, kept, reason_of_unit, remove};
use crate::lock::fence::Fence;
use crate::migrate::look::layout_read_in;
use crate::migrate::plan::TablePlan;
use crate::migrate::state::history_pair::HistoryPair;
use crate::migrate::state::{current_of, found};
use crate::migrate::{Context, MigrateError, Work};

/// The result for a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is in its tables again.
    Returned,
    /// The lens still cannot transform it, or the tables cannot hold it.
    Refused { reason: String },
    /// The tables have a unit of the same key, which stays.
    InTheWay { table: String },
}

/// Puts back units of a migration that has been reversed since. Logs those that stay.
pub(crate) async fn give_back(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let current = current_of(&found::read(&mut reader).await?);
    let waiting = entries(&mut reader).await?;
    drop(reader);
    let is_back = |entry: &&QuarantineEntry| {
        !entry.pending
            && entry.table != FOREIGN
            && !entry.is_of_a_serving_host()
            && belongs(entry, current)
    };
    for entry in waiting.iter().filter(is_back) {
        match put_back(context, fence, entry, current, WriteMode::Real).await? {
            Fate::Returned => {
                tracing::info!(unit = entry.unit, "a unit is restored from quarantine")
            }
            Fate::Refused { reason } => {
                tracing::warn!(
                    unit = entry.unit,
                    reason,
                    "a unit remains in quarantine: it cannot be transformed to this version"
                );
            }
            Fate::InTheWay { table } => {
                tracing::warn!(
                    unit = entry.unit,
                    table,
                    "a unit remains in quarantine: a table has a newer unit with its key"
                );
            }
        }
    }
    Ok(())
}

/// Whether the step that failed does not lie between the unit and the database.
fn belongs(entry: &QuarantineEntry, current: DataVersion) -> bool {
    match Direction::between(entry.from, entry.to) {
        Direction::Up => current < entry.version,
        Direction::Down => current >= entry.version,
    }
}

/// Retries the units with these names, or all. `instead` replaces the migration of its version. A
/// dry run changes nothing.
///
/// # Errors
/// A migration is under way, the catalog lacks a module that ran or has another in its place,
/// records are sealed under another key than the active one, a named unit is not in quarantine,
/// `instead` does not fit the catalog, another host has raised the fence, or the database fails. A
/// unit that is refused again is in the result.
pub async fn retry(
    context: &Context,
    fence: &Fence,
    units: &[String],
    instead: Option<Arc<dyn Transform>>,
    mode: WriteMode,
) -> Result<Vec<(QuarantineEntry, Fate)>, MigrateError> {
    let mut reader = context.database.read().await?;
    let current = current_of(&found::read(&mut reader).await?);
    require_settled(&mut reader).await?;
    layout_read_in(context, &mut reader, current).await?;
    let waiting = entries(&mut reader).await?;
    drop(reader);
    if let Some(unit) = units
        .iter()
        .find(|unit| waiting.iter().all(|entry| entry.unit != **unit))
    {
        return Err(MigrateError::NotInQuarantine { unit: unit.clone() });
    }
    let corrected;
    let context = match instead {
        None => context,
        Some(instead) => {
            corrected = with(context, instead)?;
            &corrected
        }
    };
    let mut fates = Vec::new();
    for entry in waiting
        .into_iter()
        .filter(|entry| units.is_empty() || units.contains(&entry.unit))
    {
        let fate = put_back(context, fence, &entry, current, mode).await?;
        fates.push((entry, fate));
    }
    Ok(fates)
}

/// A context in which `instead` is the migration of its version.
///
/// # Errors
/// The catalog has no migration of the version, or one with other changes of the layout.
pub(in crate::migrate) fn with(
    context: &Context,
    instead: Arc<dyn Transform>,
) -> Result<Context, MigrateError> {
    let version = instead.manifest().version;
    let mut migrations = context.migrations.clone();
    let known = migrations
        .iter_mut()
        .find(|known| known.manifest().version == version);
    let known = known.ok_or(MigrateError::UnknownTarget { version })?;
    if known.manifest().changes != instead.manifest().changes {
        return Err(MigrateError::OtherChanges { version });
    }
    *known = instead;
    Ok(Context {
        migrations,
        // The columns that it reads and writes are checked against the layouts.
        known_layouts: None,
        ..context.clone()
    })
}

/// An entry that cannot be put back stays, and does not keep the host from serving.
async fn put_back(
    context: &Context,
    fence: &Fence,
    entry: &QuarantineEntry,
    current: DataVersion,
    mode: WriteMode,
) -> Result<Fate, MigrateError> {
    if entry.table == FOREIGN {
        return Ok(Fate::Refused {
            reason: entry.reason.clone(),
        });
    }
    let attempt = || try_put_back(context, fence, entry, current, mode);
    let done = pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await;
    match done {
        Err(fault) if is_of_entry(&fault) => Ok(Fate::Refused {
            reason: with_causes(&fault).to_string(),
        }),
        done => done,
    }
}

/// Whether the entry is at fault, or its way to the present version, and not the database.
fn is_of_entry(fault: &MigrateError) -> bool {
    !fault.ends_the_session()
        && !matches!(
            fault,
            MigrateError::Sql { .. }
                | MigrateError::Database(_)
                | MigrateError::Fence(_)
                | MigrateError::ReadBack(_)
                | MigrateError::QuarantineUnderway { .. }
                | MigrateError::VersionChanged
                | MigrateError::OtherActiveKey { .. }
        )
}

/// The unit of an entry as it was read, on its way back.
struct UnitToReturn {
    work: Work,
    arguments: Arguments,
    groups: Vec<usize>,
    /// The parts of the entry's content.
    sealed: Vec<Vec<u8>>,
    rows: UnitBatch,
    residue: Vec<ResidueEntry>,
}

impl UnitToReturn {
    /// The unit at the version of the database.
    ///
    /// # Errors
    /// The reason for which it cannot be transformed.
    fn transformed(&self) -> Result<Transformed, String> {
        let residue = Residue::from(self.residue.clone());
        let passage = self.work.passage(&self.groups, &self.arguments);
        let transformed = passage.all(&self.rows, &residue);
        transformed.map_err(|(_, fault)| reason_of_unit(&fault))
    }
}

/// A module may take longer than a transaction may be idle, and other writers wait for a fenced
/// one: it is called between two transactions, away from the threads that serve. What was read is
/// read again if it has changed meanwhile.
async fn try_put_back(
    context: &Context,
    fence: &Fence,
    entry: &QuarantineEntry,
    current: DataVersion,
    mode: WriteMode,
) -> Result<Fate, MigrateError> {
    loop {
        let unit = match read_unit(context, fence, entry, current, mode).await? {
            Ok(unit) => Arc::new(unit),
            Err(reason) => return Ok(Fate::Refused { reason }),
        };
        let read = Arc::clone(&unit);
        let transformed = match spawn_blocking(move || read.transformed()).await? {
            Ok(transformed) => transformed,
            Err(reason) => return Ok(Fate::Refused { reason }),
        };
        if let Some(fate) = write_unit(context, fence, entry, &unit, transformed, mode).await? {
            return Ok(fate);
        }
    }
}

/// Reads the unit of an entry, or returns the reason for which it stays there. Draws the arguments
/// of its steps.
async fn read_unit(
    context: &Context,
    fence: &Fence,
    entry: &QuarantineEntry,
    current: DataVersion,
    mode: WriteMode,
) -> Result<Result<UnitToReturn, String>, MigrateError> {
    let mut reader = context.database.read().await?;
    let histories = HistoryPair::since(context, &mut reader, entry.from, entry.at_ns).await?;
    drop(reader);
    if histories.ran.at(entry.from).is_none() {
        return Err(MigrateError::UnknownVersion {
            version: entry.from,
        });
    }
    let way = histories.way(entry.from, current);
    let mut settled = SettledTransaction::begin_to_seal(context, fence).await?;
    if settled.current != current {
        return Err(MigrateError::VersionChanged);
    }
    let tx = &mut settled.tx;
    let work = Work::restoring(context, tx, way).await?;
    let arguments = work.draw_arguments(tx, context.now_ns).await?;
    let content = kept(tx, entry, RowLock::None).await?;
    let rows = match content.rows(entry, &work.lens.source, &context.keyring) {
        Err(MigrateError::Record { source, .. }) => return Ok(Err(source.to_string())),
        rows => rows?,
    };
    let groups = groups_of(&work, &rows, entry)?;
    if entry.is_of_a_serving_host()
        && let Some(reason) =
            still_sealed(&work, &rows, &context.keyring).or_else(|| part_of_a_unit(&work, &groups))
    {
        return Ok(Err(reason));
    }
    let names = rows.names();
    let residue = residue::load(tx, &context.keyring, &work.lens.returning, &names).await?;
    settled.end(mode).await?;
    Ok(Ok(UnitToReturn {
        work,
        arguments,
        groups,
        sealed: content.sealed,
        rows,
        residue,
    }))
}

/// Writes a unit to its tables and removes its entry. None if the entry or the residue has changed
/// since it was read.
async fn write_unit(
    context: &Context,
    fence: &Fence,
    entry: &QuarantineEntry,
    unit: &UnitToReturn,
    transformed: Transformed,
    mode: WriteMode,
) -> Result<Option<Fate>, MigrateError> {
    let UnitToReturn { work, groups, .. } = unit;
    let mut settled = SettledTransaction::begin_to_seal(context, fence).await?;
    if settled.current != work.to {
        return Err(MigrateError::VersionChanged);
    }
    let tx = &mut settled.tx;
    let content = kept(tx, entry, RowLock::Exclusive).await?;
    // The name of an entry of a single row has more than that of the unit.
    let names = unit.rows.names();
    let residue = residue::load(tx, &context.keyring, &work.lens.returning, &names).await?;
    // They are read in no particular order.
    let is_same_residue = residue.len() == unit.residue.len()
        && residue.iter().all(|left| unit.residue.contains(left));
    if content.sealed != unit.sealed || !is_same_residue {
        return Ok(None);
    }
    let plans = work
        .plans
        .iter()
        .filter(|plan| groups.contains(&plan.group));
    // A single row returns beside the other rows of its unit.
    let absent: &[UnitKey] = if entry.is_of_a_serving_host() {
        &[]
    } else {
        &unit.rows.units
    };
    let occupied = insert_unit(tx, &context.keyring, plans, absent, transformed.batch).await?;
    if let Some(table) = occupied {
        return Ok(Some(Fate::InTheWay { table }));
    }
    remove_returned(tx, work, groups, &names).await?;
    let residue = residue::seal(&context.keyring, transformed.residue, &names);
    residue::store(tx, &residue).await?;
    remove(tx, entry).await?;
    settled.end(mode).await?;
    Ok(Some(Fate::Returned))
}

/// Removes the residue that was given back to a unit of these groups. One of another group may have
/// the same name.
async fn remove_returned(
    tx: &mut Transaction,
    work: &Work,
    groups: &[usize],
    names: &[String],
) -> Result<(), MigrateError> {
    let groups = groups.iter().map(|group| &work.lens.groups[*group]);
    let of_groups: Vec<_> = groups.flat_map(|group| &group.keeps).collect();
    if !of_groups.is_empty() {
        let returned = residue::left_by(&work.lens.returning);
        let of_groups = residue::at_any_of(of_groups);
        residue::remove(tx, names, Cond::all().add(returned).add(of_groups)).await?;
    }
    Ok(())
}

/// The reason for which a record that a serving host moved here cannot be read still; none if all
/// its columns open.
fn still_sealed(work: &Work, unit: &UnitBatch, keyring: &Keyring) -> Option<String> {
    let tables = work.lens.source.tables.values();
    let columns = bbs_units::whole(tables.filter(|table| unit.tables.contains_key(&table.name)));
    match unit.clone().open(&columns, keyring).into_values().next() {
        Some(RowsError::Sealed { table, column, .. }) => {
            Some(format!("`{column}` of `{table}` still does not open"))
        }
        _ => None,
    }
}

/// The reason for which a record that a serving host moved here cannot be taken to another version:
/// modules transform whole units, and save what they lose of them. None if it is a whole unit, or no
/// migration on the way reads or saves rows of its group.
fn part_of_a_unit(work: &Work, groups: &[usize]) -> Option<String> {
    let has_single_rows = |group: &usize| {
        let sources = work.sources(*group);
        matches!(&*sources, [table] if bbs_units::key_columns(table) == table.primary_key)
    };
    let may_return = groups
        .iter()
        .all(|group| !work.lens.groups[*group].visits_units || has_single_rows(group));
    (!may_return).then(|| {
        let from = work.from;
        format!(
            "it is one part of a unit at version {from}, and a later migration reads that unit as a whole; \
             take the database back to {from} with the migrations that had run then, and retry"
        )
    })
}

/// Inserts the rows of a unit into the tables of these plans. Returns the table in which a row with
/// a key of the unit, or with one of the keys `absent`, is in the way; the transaction is not
/// committed then.
async fn insert_unit(
    tx: &mut Transaction,
    keyring: &Keyring,
    plans: impl Iterator<Item = &TablePlan>,
    absent: &[UnitKey],
    mut batch: UnitBatch,
) -> Result<Option<String>, MigrateError> {
    for plan in plans {
        let table = &plan.table;
        let name = &plan.table.name;
        let rows = batch
            .tables
            .remove(name)
            .expect("the lens returns every table of the group");
        // A later migration may join tables of which the unit left one: the others still have its
        // rows.
        if rows.count() == 0 {
            continue;
        }
        let columns = bbs_units::unit_key(table);
        let absent: Vec<_> = absent
            .iter()
            .filter_map(|key| key.fitted(&columns))
            .collect();
        if !absent.is_empty()
            && !bbs_units::units_among(tx, table, name, &absent)
                .await?
                .is_empty()
        {
            return Ok(Some(name.clone()));
        }
        match bulk::insert(tx, name, table, &plan.stored(rows, keyring)).await {
            Err(fault) if is_unique_violation(&fault) => return Ok(Some(name.clone())),
            done => done.map_err(plan.failed())?,
        }
    }
    Ok(None)
}

/// The groups of the unit's tables. Those that the failed migration joined may be separate in this
/// lens. Of a unit that has residue alone, the group to which the lens gives it back, if it does.
///
/// # Errors
/// The lens has none of the tables.
pub(in crate::migrate) fn groups_of(
    work: &Work,
    unit: &UnitBatch,
    entry: &QuarantineEntry,
) -> Result<Vec<usize>, MigrateError> {
    let is_residue_only = unit.tables.is_empty();
    let is_of_unit = |(_, group): &(usize, &TableGroup)| {
        let mut sources = group.sources.iter();
        let mut restored = group.restored.iter();
        sources.any(|table| unit.tables.contains_key(table))
            || is_residue_only && restored.any(|left| left.table == entry.table)
    };
    let groups: Vec<_> = work
        .lens
        .groups
        .iter()
        .enumerate()
        .filter(is_of_unit)
        .map(|(at, _)| at)
        .collect();
    if groups.is_empty() && !is_residue_only {
        return Err(damaged(&entry.unit));
    }
    Ok(groups)
}
