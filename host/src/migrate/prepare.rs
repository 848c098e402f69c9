//! The first steps of a migration: recording its target, creating the tables that rows are copied into, and discarding
//! a copy that cannot be trusted. Each is durable and safe to repeat.

use super::plan::Strategy;
use super::state::{self, Phase, Underway};
use super::{Context, MigrateError, Work, fault, fresh, layout_history, quarantine, residue, same_schema};
use crate::database::schema;
use crate::database::{SqlError, Transaction};
use crate::layout::schema::Table;
use crate::lock::fence::Fence;

fn failed(what: &'static str) -> impl FnOnce(SqlError) -> MigrateError {
    move |source| MigrateError::Sql { what: what.to_owned(), source }
}

/// Records the target. A copy that was begun is resumed only if the same modules made it and no other host has held the
/// lock since, which might have written to the originals.
pub(super) async fn begin(
    context: &Context,
    fence: &Fence,
    work: &mut Work,
    going_down: bool,
) -> Result<bool, MigrateError> {
    context.progress.enter("begin", work.describe(), None);
    work.token = fence.token();
    let mut tx = fence.begin().await?;
    let found = state::underway(&mut tx).await?;
    let resumed = found.as_ref().is_some_and(|found| {
        found.phase == Phase::Copying
            && found.fingerprint == work.fingerprint()
            && (found.token == work.token || found.token + 1 == work.token)
    });
    if let Some(found) = found.filter(|_| !resumed) {
        // Recorded before the first of its tables is dropped: what is left of them must not be resumed.
        state::write_underway(&mut tx, &Underway { phase: Phase::Begun, ..found }).await?;
    }
    tx.commit().await.map_err(failed("bbs_migration"))?;
    if !resumed {
        state::drop_leftovers(context, fence).await?;
    }
    let mut tx = fence.begin().await?;
    if !resumed && work.from == 0 {
        fresh::forget(&mut tx).await?;
    }
    for step in work.lens.steps() {
        let version = step.manifest().version;
        let arguments = state::run_arguments(&mut tx, version, context.now_ns).await?;
        work.arguments.insert(version, arguments);
    }
    if !resumed {
        state::forget_underway(&mut tx).await?;
        quarantine::forget_pending(&mut tx).await?;
        residue::remove(&mut tx, work.lens.direction, work.versions()).await?;
    }
    let phase = if resumed { Phase::Copying } else { Phase::Begun };
    write_phase(&mut tx, work, going_down, phase).await?;
    state::write_version(&mut tx, work.from, work.to).await?;
    fault::point(fault::BEFORE_BEGIN);
    tx.commit().await.map_err(failed("the row `version` of configurations"))?;
    fault::point(fault::AFTER_BEGIN);
    Ok(resumed)
}

pub(super) async fn write_phase(
    tx: &mut Transaction,
    work: &Work,
    going_down: bool,
    phase: Phase,
) -> Result<(), MigrateError> {
    let underway = Underway {
        from: work.from,
        to: work.to,
        going_down,
        fingerprint: work.fingerprint(),
        token: work.token,
        phase,
    };
    state::write_underway(tx, &underway).await?;
    state::write_side_tables(tx, &work.side_tables()).await
}

/// Creates the tables that rows are copied into, once the originals are what their version says.
pub(super) async fn prepare(
    context: &Context,
    fence: &Fence,
    work: &Work,
    going_down: bool,
) -> Result<(), MigrateError> {
    context.progress.enter("prepare", work.describe(), None);
    let mut reader = context.database.read().await?;
    let dialect = reader.dialect();
    for (name, table) in &work.lens.source.tables {
        let found = schema::read_back(&mut reader, name).await?;
        let table = work.with_what_is_added(table, found.as_ref());
        same_schema(dialect, name, found, &table)?;
    }
    let mut statements = Vec::new();
    let is_fresh = work.from == 0;
    if is_fresh {
        let versions = context.migrations.iter().map(|migration| migration.manifest().version);
        statements = fresh::clear(&mut reader, &layout_history(&context.migrations)?, versions).await?;
    }
    for plan in &work.plans {
        match plan.strategy {
            Strategy::Copy => {
                let staged = plan.staged(work.to);
                statements.extend(make_way(&mut reader, &staged).await?);
                statements.push(schema::create_table(dialect, &plan.table, &staged));
                statements.extend(schema::before_filling(dialect, &plan.table, &staged));
            }
            Strategy::Create if !is_fresh => statements.extend(make_way(&mut reader, &plan.table.name).await?),
            Strategy::Create | Strategy::Untouched | Strategy::InPlace => {}
        }
    }
    drop(reader);
    fence.change_schema(&statements).await?;
    let mut tx = fence.begin().await?;
    for plan in work.plans.iter().filter(|plan| plan.strategy == Strategy::Copy) {
        let staged = plan.staged(work.to);
        let found = schema::read_back(&mut tx, &staged).await?;
        same_schema(dialect, &staged, found, &Table { indexes: Vec::new(), ..plan.table.clone() })?;
    }
    write_phase(&mut tx, work, going_down, Phase::Copying).await?;
    fault::point(fault::BEFORE_PREPARE);
    tx.commit().await.map_err(failed("the new tables"))?;
    fault::point(fault::AFTER_PREPARE);
    Ok(())
}

/// An empty table of the same name is dropped; one with rows is an error.
async fn make_way(tx: &mut Transaction, table: &str) -> Result<Option<String>, MigrateError> {
    if !state::exists(tx, table).await? {
        return Ok(None);
    }
    if state::count(tx, table).await? > 0 {
        return Err(MigrateError::TableInTheWay { table: table.to_owned() });
    }
    Ok(Some(schema::drop_table(tx.dialect(), table)))
}

/// Discards a copy that cannot be trusted.
pub(super) async fn start_over(
    context: &Context,
    fence: &Fence,
    work: &Work,
    going_down: bool,
) -> Result<(), MigrateError> {
    context.progress.enter("start-over", work.describe(), None);
    let mut tx = fence.begin().await?;
    state::forget_underway(&mut tx).await?;
    quarantine::forget_pending(&mut tx).await?;
    residue::remove(&mut tx, work.lens.direction, work.versions()).await?;
    write_phase(&mut tx, work, going_down, Phase::Begun).await?;
    tx.commit().await.map_err(failed("bbs_migration"))?;
    state::drop_leftovers(context, fence).await
}
