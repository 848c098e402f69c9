//! From quarantine back into the tables: at the version that the database has now, through the lens, in one fenced
//! transaction a unit. A unit that still does not go stays where it is.

use std::sync::Arc;

use sea_query::{Alias, Expr, Query};
use serde::Serialize;

use super::unit::{Closed, WholeUnit};
use super::{Entry, Kept, entries, failed, group_of, kept, remove};
use crate::database::{bulk, is_unique_violation};
use crate::layout::columns::{ColumnData, NEW_ROW};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Sealing};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::transform::Transform;
use crate::lens::{AppliedTable, LensError, Provenance};
use crate::lock::fence::Fence;
use crate::migrate::plan::TablePlan;
use crate::migrate::read::is_unit;
use crate::migrate::state::{self, Phase, current_of};
use crate::migrate::transform::sealed;
use crate::migrate::{Context, MigrateError, Work, line, residue, versions};

/// What became of a unit that was to go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is in its tables again.
    Returned,
    /// The lens still does not take it.
    Refused { reason: String },
    /// There is a unit of the same key by now, which stays.
    InTheWay { table: String },
}

/// Puts back what went into quarantine on a way that has been taken back since. What does not go is told and stays.
pub(crate) async fn give_back(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let current = current_of(&state::found(&mut reader).await?);
    let waiting = entries(&mut reader).await?;
    drop(reader);
    for entry in waiting.iter().filter(|entry| !entry.pending && belongs(entry, current)) {
        match put_back(context, fence, entry, current).await? {
            Fate::Returned => tracing::info!(unit = entry.unit, "a unit is back from quarantine"),
            Fate::Refused { reason } => {
                tracing::warn!(
                    unit = entry.unit,
                    reason,
                    "a unit stays in quarantine: it cannot be read at this version"
                );
            }
            Fate::InTheWay { table } => {
                tracing::warn!(unit = entry.unit, table, "a unit stays in quarantine: there is a newer one of its key");
            }
        }
    }
    Ok(())
}

/// Whether the step that it failed at is not between it and the database.
fn belongs(entry: &Entry, current: DataVersion) -> bool {
    match entry.direction {
        Direction::Up => current < entry.version,
        Direction::Down => current >= entry.version,
    }
}

/// Tries units again: those of these names, or all. `instead` takes the place of the migration of its version.
pub async fn retry(
    context: &Context,
    fence: &Fence,
    units: &[String],
    instead: Option<Arc<dyn Transform>>,
) -> Result<Vec<(Entry, Fate)>, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = state::found(&mut reader).await?;
    let underway = state::underway(&mut reader).await?.is_some();
    let waiting = entries(&mut reader).await?;
    drop(reader);
    if underway {
        return Err(MigrateError::QuarantineUnderway);
    }
    if let Some(unit) = units.iter().find(|unit| waiting.iter().all(|entry| entry.unit != **unit)) {
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
    for entry in waiting.into_iter().filter(|entry| units.is_empty() || units.contains(&entry.unit)) {
        let fate = put_back(context, fence, &entry, current_of(&found)).await?;
        fates.push((entry, fate));
    }
    Ok(fates)
}

fn with(context: &Context, instead: Arc<dyn Transform>) -> Result<Context, MigrateError> {
    let version = instead.manifest().version;
    let mut migrations = context.migrations.clone();
    let known = migrations.iter_mut().find(|known| known.manifest().version == version);
    let known = known.ok_or(MigrateError::UnknownTarget { version })?;
    if known.manifest().changes != instead.manifest().changes {
        return Err(MigrateError::OtherChanges { version });
    }
    *known = instead;
    Ok(Context {
        database: context.database.clone(),
        migrations,
        keyring: Arc::clone(&context.keyring),
        progress: context.progress.clone(),
        pace: context.pace.clone(),
        now_ns: context.now_ns,
        replays: context.replays.clone(),
        tuning: context.tuning.clone(),
    })
}

/// An entry that nothing can be done about stays, and keeps no host from serving the others.
async fn put_back(context: &Context, fence: &Fence, entry: &Entry, current: DataVersion) -> Result<Fate, MigrateError> {
    match try_put_back(context, fence, entry, current).await {
        Err(fault @ (MigrateError::DamagedQuarantine { .. } | MigrateError::UnknownVersion { .. })) => {
            Ok(Fate::Refused { reason: fault.to_string() })
        }
        done => done,
    }
}

async fn try_put_back(
    context: &Context,
    fence: &Fence,
    entry: &Entry,
    current: DataVersion,
) -> Result<Fate, MigrateError> {
    let line = line(&context.migrations)?;
    if line.at(entry.from).is_none() {
        return Err(MigrateError::UnknownVersion { version: entry.from });
    }
    let versions = versions(entry.from, current);
    let direction = if current >= entry.from { Direction::Up } else { Direction::Down };
    let mut tx = fence.begin().await?;
    let underway = state::underway(&mut tx).await?;
    let settled = underway.is_none_or(|underway| underway.phase == Phase::CleaningUp);
    if !settled || current_of(&state::found(&mut tx).await?) != current {
        return Err(MigrateError::QuarantineUnderway);
    }
    let restorable = residue::present(&mut tx, direction.opposite(), versions.clone()).await?;
    let mut work = Work::new(context, &line, entry.from, current, restorable);
    for step in work.lens.steps() {
        let version = step.manifest().version;
        let arguments = state::run_arguments(&mut tx, version, context.now_ns).await?;
        work.arguments.insert(version, arguments);
    }
    let Kept { key, sealed, .. } = kept(&mut tx, entry).await?;
    let damaged = || MigrateError::DamagedQuarantine { unit: entry.unit.clone() };
    let bytes = match context.keyring.open(Sealing::Sealed, &sealed) {
        Ok(bytes) => bytes,
        Err(fault) => return Ok(Fate::Refused { reason: fault.to_string() }),
    };
    let unit = WholeUnit::decode(&bytes, &work.lens.near, &context.keyring).ok_or_else(damaged)?;
    if let Some((table, column)) = unit.unreadable(|table, column| needs(&work, table, column)) {
        return Ok(Fate::Refused { reason: format!("`{column}` of `{table}` does not open") });
    }
    let group = group_of(&work, entry).ok_or_else(damaged)?;
    let names = [entry.unit.clone()];
    let left = residue::load(&mut tx, &context.keyring, direction.opposite(), versions.clone(), &names).await?;
    let mut applied = match work.lens.apply(group, &unit.source, &left, &work.arguments) {
        Ok(applied) => applied,
        Err(LensError::Unit { reason, .. }) => return Ok(Fate::Refused { reason }),
        Err(fault) => return Ok(Fate::Refused { reason: fault.to_string() }),
    };
    for plan in work.plans.iter().filter(|plan| plan.group == group) {
        let mut query = Query::select();
        query.expr(Expr::cust("1")).from(Alias::new(&plan.table.name)).and_where(is_unit(&plan.table, &key)).limit(1);
        if tx.fetch_optional(&query).await.map_err(failed)?.is_some() {
            return Ok(Fate::InTheWay { table: plan.table.name.clone() });
        }
        let table = applied.tables.get_mut(&plan.table.name).expect("the lens gave what it said");
        let (count, columns) = rows(&work, plan, &unit, table);
        let columns = plan.columns.iter().zip(&columns).map(|((column, _), data)| (column, data)).collect();
        match bulk::insert(&mut tx, &plan.table.name, &bulk::Rows { count, columns }).await {
            Err(fault) if is_unique_violation(&fault) => {
                return Ok(Fate::InTheWay { table: plan.table.name.clone() });
            }
            done => done.map_err(failed)?,
        }
    }
    let kept = residue::seal(&context.keyring, applied.kept, &names);
    residue::store(&mut tx, direction, &kept).await?;
    residue::remove_unit(&mut tx, direction.opposite(), versions, &entry.unit).await?;
    remove(&mut tx, entry).await?;
    tx.commit().await.map_err(failed)?;
    Ok(Fate::Returned)
}

fn needs(work: &Work, table: &str, column: &str) -> bool {
    work.lens.needed.get(table).is_some_and(|needed| needed.contains(column))
}

/// The rows of one table of the far end, as they are to rest.
fn rows(work: &Work, plan: &TablePlan, unit: &WholeUnit, table: &mut AppliedTable) -> (usize, Vec<ColumnData>) {
    let count = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
    let columns = plan.columns.iter().map(|(column, provenance)| match provenance {
        Provenance::Computed => {
            let data = table.computed.remove(&column.name).expect("the lens gave what it said");
            sealed(&work.keyring, column, data)
        }
        Provenance::Fill(value) => ColumnData::repeat(column.kind.into(), Value::of(value.as_ref()), count),
        Provenance::Raw { table: source, column: name } => {
            let at = plan.sources.iter().position(|known| known == source).expect("a source of the table");
            travelled(work, column, (source, name), unit, &table.origins[at])
        }
    });
    (count, columns.collect())
}

/// What nobody opened on the way is sealed anew, or rests as it did where it does not open.
fn travelled(
    work: &Work,
    column: &Column,
    (table, name): (&str, &str),
    unit: &WholeUnit,
    origins: &[u32],
) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let data = &unit.source.tables[table].columns[name];
    let closed: &Closed = &unit.closed;
    let mut builder = ColumnBuilder::new(encoding);
    for &origin in origins {
        if origin == NEW_ROW {
            builder.push(Value::of(column.default.as_ref()));
            continue;
        }
        let value = data.get(encoding, origin as usize);
        match value {
            Value::Text(plain)
                if column.sealing != Sealing::Plain
                    && !closed.contains(&(table.to_owned(), name.to_owned(), origin as usize)) =>
            {
                builder.push(Value::Text(&work.keyring.seal(column.sealing, plain)));
            }
            value => builder.push(value),
        }
    }
    builder.finish()
}
