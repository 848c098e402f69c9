//! Gives the copies the names of the tables that they replace, and removes the replaced tables.
//!
//! Where changes of the schema are transactional, tables, version and history change in one
//! transaction, and the schema is read back before it commits. MySQL commits each such change by
//! itself: there the version is written first, with a mark that the tables still have their old
//! names, and then one statement changes all names. Units in quarantine leave the tables that were
//! not copied after the version is durable as well, since they may be many. A start that finds the
//! mark of either completes the cut-over before anything else.
//!
//! The replaced tables are examined a last time once no other session can change them: under a
//! lock, or on MySQL after the names have changed. An addition that would be lost with them ends the
//! cut-over, and has the names changed back.

mod names;
mod undo;

use std::collections::BTreeMap;

use backon::BackoffBuilder;
use bbs_database::{Dialect, SqlError, StatementResult, Transaction, schema, sql};
use bbs_lens::layout::schema::{Index, Layout, Table};
use bbs_work::pauses;
use bbs_work::progress::{CLEAN_UP, Wait};

use self::names::{change_names, change_names_back};
pub(super) use self::undo::{BegunBy, undo_ahead};
use super::copy::unindexable;
use super::lock_waits::patiently;
use super::look::examine::{self, TableNames};
use super::plan::{Strategy, TablePlan, replaced, side_table};
use super::state::{self, Phase, Underway, changed_units, history_pair, residue, runs};
use super::{
    Context, HistoryPair, Job, MigrateError, RunState, Work, fault, quarantine, statements,
    undo_abandoned,
};
use crate::lock::fence::{Fence, FenceError};

/// Builds the indexes of the copies that they do not have yet before the names change, where that
/// can be done ahead.
pub(super) async fn build_indexes(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    for plan in job
        .copied_plans()
        .filter(|plan| !plan.table.indexes.is_empty())
    {
        context
            .progress
            .enter("index", plan.table.name.clone(), None);
        let mut pauses = pauses::of_locks(context.tuning.lock_timeout).build();
        while let Err(fault) = build_missing_indexes(context, fence, job, plan).await {
            if unindexable::leave_out(context, fence, job, plan, &fault).await? > 0 {
                continue;
            }
            // PostgreSQL indexes a row that is gone as long as a transaction of any client may see
            // it.
            let Some(pause) = pauses
                .next()
                .filter(|_| unindexable::is_of_rows(context, &fault))
            else {
                return Err(fault);
            };
            let _waiting = context.progress.wait(Wait::Lock);
            tokio::time::sleep(pause).await;
        }
    }
    fault::point(fault::AFTER_INDEXES);
    Ok(())
}

/// Builds the indexes that a copy does not have. Each attempt lists them: the lock that the one
/// before did not get may be that of an earlier host's statement, which runs to its end.
async fn build_missing_indexes(
    context: &Context,
    fence: &Fence,
    job: &Job,
    plan: &TablePlan,
) -> Result<(), MigrateError> {
    let staged = plan.staged(job.to);
    patiently(context, || async {
        let missing = missing_indexes(context, plan, &staged).await?;
        for statement in schema::index_ahead(job.dialect, &plan.table, &staged, &missing) {
            fence.build_indexes(&[statement], missing.len()).await?;
        }
        Ok(())
    })
    .await
}

/// The indexes that a copy does not have, under their own names or temporary ones.
async fn missing_indexes(
    context: &Context,
    plan: &TablePlan,
    staged: &str,
) -> Result<Vec<Index>, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = schema::read_back(&mut reader, staged).await?;
    let mut missing = plan.table.indexes.clone();
    if let Some(found) = found {
        missing.retain(|index| {
            let waiting = schema::waiting(&index.name, &plan.table, staged);
            !found.has_index(&index.name) && !found.has_index(&waiting)
        });
    }
    Ok(missing)
}

/// Makes the target real. Transient if another client holds a lock; then nothing has changed.
pub(super) async fn cut_over(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    context.progress.enter("cut-over", job.describe(), None);
    match context.database.dialect() {
        Dialect::Sqlite | Dialect::Postgres => {
            let phase = cut_over_in_transaction(context, fence, job).await?;
            if phase.awaits_completion() {
                // What follows must not do the above again.
                patiently(context, || complete_cut_over(context, fence)).await?;
            }
            Ok(())
        }
        Dialect::Mysql => cut_over_by_renaming(context, fence, job).await,
    }
}

/// Where schema changes are transactional: replaces the tables, writes the version and verifies the
/// schema, all in one transaction. Returns the next phase.
async fn cut_over_in_transaction(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<Phase, MigrateError> {
    let mut tx = fence.begin_change().await?;
    let dialect = tx.dialect();
    let replaced = replaced(&job.lens, &job.plans);
    // From here on nothing is added to them that would be lost.
    let lock = schema::lock_definitions(dialect, &replaced);
    execute_all(&mut tx, "the replaced tables", lock.into_iter().collect()).await?;
    let lost = examine::examine_replaced(context, &mut tx, job, TableNames::Own).await?;
    MigrateError::refuse(lost)?;
    // While the replaced tables have their names.
    let copies: Vec<_> = job
        .plans
        .iter()
        .filter_map(|plan| plan.replacement(&job.lens, job.to))
        .collect();
    let belongings = schema::belongings(&mut tx, &copies).await;
    let belongings = belongings.about("what belongs to the replaced tables")?;
    let mut changes = BTreeMap::new();
    for plan in &job.plans {
        if plan.strategy == Strategy::Create {
            let statements = creation_statements(&mut tx, job, plan).await?;
            changes.insert(plan.table.name.as_str(), statements);
        }
    }
    for name in replaced {
        let table = &job.lens.source.tables[&name];
        execute_all(
            &mut tx,
            &name,
            schema::set_aside(dialect, table, &side_table(&name, job.from)),
        )
        .await?;
    }
    fault::point(fault::WITHIN_CUT_OVER);
    changes.extend(drop_indexes(&mut tx, job).await?);
    for plan in &job.plans {
        let name = &plan.table.name;
        let statements = match plan.strategy {
            Strategy::Untouched => continue,
            Strategy::InPlace | Strategy::Create => {
                changes.remove(name.as_str()).unwrap_or_default()
            }
            Strategy::Copy => schema::take_place(dialect, &plan.table, &plan.staged(job.to)),
        };
        execute_all(&mut tx, name, statements).await?;
    }
    let plans = job.plans.iter();
    let changed: Vec<_> = plans
        .filter(|plan| plan.strategy != Strategy::Untouched)
        .collect();
    let names: Vec<_> = changed.iter().map(|plan| &*plan.table.name).collect();
    let mut found = schema::read_back_all(&mut tx, &names).await?;
    for plan in changed {
        let found = found.remove(&plan.table.name);
        super::same_schema(dialect, &plan.table.name, found, &plan.table)?;
    }
    execute_all(&mut tx, "what belongs to the replaced tables", belongings).await?;
    let phase = record_arrival(context, &mut tx, job, Phase::CleaningUp).await?;
    fault::point(fault::BEFORE_CUT_OVER_COMMIT);
    tx.commit().await.about("the cut-over")?;
    fault::point(fault::AFTER_CUT_OVER);
    Ok(phase)
}

/// Drops the indexes that tables lose which are changed in place, before any other is created: an
/// index of another table may get the name. Returns the statements of their other changes.
async fn drop_indexes<'a>(
    tx: &mut Transaction,
    job: &'a Job,
) -> Result<BTreeMap<&'a str, Vec<String>>, MigrateError> {
    let mut additions = BTreeMap::new();
    let plans = job.plans.iter();
    for plan in plans.filter(|plan| plan.strategy == Strategy::InPlace) {
        let name = &plan.table.name;
        if let Some(found) = schema::read_back(tx, name).await? {
            let drops = statements::index_drops(job.dialect, &job.lens, plan, &found);
            execute_all(tx, name, drops).await?;
            let statements = statements::additions(job.server, &job.lens, plan, &found);
            additions.insert(name.as_str(), statements);
        }
    }
    Ok(additions)
}

/// Executes statements in one round trip: clients wait for each answer of the database.
async fn execute_all(
    tx: &mut Transaction,
    table: &str,
    statements: Vec<String>,
) -> Result<(), MigrateError> {
    if !statements.is_empty() {
        tx.execute(sql(statements.join(";\n"))).await.about(table)?;
    }
    Ok(())
}

/// Where each change of the schema commits by itself: makes the additive changes, which do not
/// disturb older hosts.
pub(super) async fn change_ahead(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    if context.database.dialect() != Dialect::Mysql {
        return Ok(());
    }
    for plan in changed_ahead(&job.plans) {
        let name = &plan.table.name;
        let (_, new_indexes, _) = plan.additions(job.lens.source.tables.get(name));
        // Each attempt reads what is there: the one before may have made some of the changes.
        let changed = patiently(context, || async {
            let statements = additive_changes(context, job, plan).await?;
            Ok(fence.build_indexes(&statements, new_indexes.len()).await?)
        });
        changed
            .await
            .map_err(|fault| fault.of_change_in_place(name))?;
        check_schema(context, plan).await?;
    }
    fault::point(fault::WITHIN_CUT_OVER);
    Ok(())
}

/// The plans of the tables that [`change_ahead`] changes.
fn changed_ahead(plans: &[TablePlan]) -> impl Iterator<Item = &TablePlan> {
    plans
        .iter()
        .filter(|plan| matches!(plan.strategy, Strategy::InPlace | Strategy::Create))
}

/// The statements of the additive changes of a table that are not made yet.
async fn additive_changes(
    context: &Context,
    job: &Job,
    plan: &TablePlan,
) -> Result<Vec<String>, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = schema::read_back(&mut reader, &plan.table.name).await?;
    Ok(match (&plan.strategy, found) {
        (Strategy::InPlace, Some(found)) => {
            statements::in_place(job.server, &job.lens, plan, &found)
        }
        (Strategy::Create, Some(found)) => statements::missing_indexes(job.dialect, plan, &found),
        (Strategy::Create, None) => creation_statements(&mut reader, job, plan).await?,
        (Strategy::InPlace, None) | (Strategy::Untouched | Strategy::Copy, _) => Vec::new(),
    })
}

/// On MySQL: records the version first, then changes all names in one statement.
async fn cut_over_by_renaming(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    let mut tx = fence.begin().await?;
    let history = state::last_of_history(&mut tx).await?;
    let phase = record_arrival(context, &mut tx, job, Phase::Renaming).await?;
    fault::point(fault::BEFORE_CUT_OVER_COMMIT);
    tx.commit().await.about("the cut-over")?;
    fault::point(fault::AFTER_CUT_OVER);
    let underway = job.underway(phase);
    let source = &job.lens.source;
    let target = &job.lens.target;
    let renamed = match change_names(context, fence, source, target, &underway).await {
        // Without an answer the server may have changed the names, or do so yet: then the next
        // start completes it. A transient error is an answer.
        Err(
            fault @ MigrateError::Fence(FenceError::Schema {
                source: SqlError::Database(_),
                ..
            }),
        ) if fault.is_transient() || !fault.is_outage() => {
            patiently(context, || revert_version(fence, job, history)).await?;
            return Err(fault);
        }
        renamed => renamed?,
    };
    // What follows must not do the above again. The names have waited for every change of a
    // replaced table that was under way, and a later one is that of the new table.
    let examined = patiently(context, || async {
        let mut reader = context.database.read().await?;
        examine::examine_replaced(context, &mut reader, job, TableNames::SetAside).await
    });
    let lost = examined.await?;
    if !lost.is_empty() {
        change_names_back(context, fence, source, target, &underway, &renamed).await?;
        patiently(context, || revert_version(fence, job, history)).await?;
        // With the names that the tables have again.
        examine::examine_again(context, job).await?;
        return MigrateError::refuse(lost);
    }
    let tables = tables_not_copied(source, target, |table| job.copied(table).is_some());
    patiently(context, || end_cut_over(context, fence, &underway, &tables)).await
}

/// Takes the version back that was recorded for a renaming: no table has another name, since the
/// server has refused it, or since it was taken back.
async fn revert_version(fence: &Fence, job: &Job, history: i64) -> Result<(), MigrateError> {
    let mut tx = fence.begin().await?;
    state::forget_history_after(&mut tx, history).await?;
    runs::reopen_last(&mut tx).await?;
    state::record_migrations(&mut tx, &job.ran).await?;
    state::write_version(&mut tx, job.from, job.to).await?;
    job.write_phase(&mut tx, Phase::Copying).await?;
    Ok(tx.commit().await.about("the cut-over")?)
}

/// Reads the schema back after the names have changed, where that is not part of the transaction:
/// clients wait for the names only.
pub(super) async fn check_names(context: &Context, job: &Job) -> Result<(), MigrateError> {
    if context.database.dialect() == Dialect::Mysql {
        for plan in job.copied_plans() {
            check_schema(context, plan).await?;
        }
    }
    Ok(())
}

async fn check_schema(context: &Context, plan: &TablePlan) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let name = &plan.table.name;
    let found = schema::read_back(&mut reader, name).await?;
    let dialect = context.database.dialect();
    let table = found
        .as_ref()
        .map(|found| found.widened(dialect, &plan.table));
    super::same_schema(dialect, name, found, table.as_ref().unwrap_or(&plan.table))
}

/// Completes a migration whose version is durable, before anything else begins. Returns the phase
/// in which it found one.
pub(super) async fn end_arrived(
    context: &Context,
    fence: &Fence,
) -> Result<Option<Phase>, MigrateError> {
    let mut reader = context.database.read().await?;
    let phase = state::phase(&mut reader).await?;
    drop(reader);
    patiently(context, || complete_cut_over(context, fence)).await?;
    if phase.is_some_and(Phase::has_arrived) {
        clean_up_or_postpone(context, fence).await?;
    }
    Ok(phase)
}

/// Removes what a finished migration replaced, once its version is durable, or what an abandoned
/// one left. Safe to repeat. Clients wait for it, so what another session has locked is left to a
/// later attempt after a moment, as is what the server refuses to remove: something was made that
/// depends on it. It hinders no client, and a host that serves removes it. The copies of an
/// unfinished migration are not resumed meanwhile, since its phase is [`Phase::Begun`], and the next
/// migration that begins drops them.
pub(super) async fn clean_up_or_postpone(
    context: &Context,
    fence: &Fence,
) -> Result<(), MigrateError> {
    let context = context.with_short_lock_waits();
    let removed = async {
        remove_leftover_rows(&context, fence).await?;
        // Last: another session may keep tables from being dropped, and another migration may begin
        // meanwhile.
        remove_leftover_tables(&context, fence).await
    };
    match removed.await {
        Err(
            fault @ (MigrateError::Locked { .. } | MigrateError::Fence(FenceError::Schema { .. })),
        ) => {
            log_postponed(&fault);
            Ok(())
        }
        removed => removed,
    }
}

/// Removes what a migration left that is given up, once what it had changed ahead is undone. A table
/// that the server refuses to drop is left to a later attempt.
///
/// # Errors
/// [`MigrateError::Locked`] if a table stays locked: the caller reports the removal. Another host has
/// raised the fence, or the database fails.
pub(super) async fn remove_undone(
    context: &Context,
    fence: &Fence,
    given_up: &Underway,
) -> Result<(), MigrateError> {
    remove_leftover_rows(context, fence).await?;
    match drop_leftover_tables(context, fence, Some(given_up)).await {
        Err(fault @ MigrateError::Fence(FenceError::Schema { .. })) => {
            log_postponed(&fault);
            Ok(())
        }
        dropped => dropped,
    }
}

fn log_postponed(fault: &MigrateError) {
    tracing::error!(
        name: "clean-up.postponed",
        error = fault as &dyn std::error::Error,
        "tables that no migration needs any more are not removed; end what uses them, and remove the objects that depend on \
         them. A host that serves tries again"
    );
}

/// Completes the cut-over of a migration whose version is durable: changes the names that it has
/// not changed yet, and removes the units in quarantine from the tables that were not copied.
/// Clients are not served meanwhile: they may not read these units, nor write new ones with the
/// same keys. Transient if another client holds a lock.
async fn complete_cut_over(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let underway = state::underway(&mut reader).await?;
    let Some(underway) = underway.filter(|found| found.phase.awaits_completion()) else {
        return Ok(());
    };
    let histories = HistoryPair::since_last(context, &mut reader, underway.from).await?;
    let (Some(source), Some(target)) = (
        histories.ran.at(underway.from),
        histories.catalog.at(underway.to),
    ) else {
        return Err(MigrateError::UnknownVersion {
            version: underway.from,
        });
    };
    let side_tables = state::side_tables(&mut reader).await?;
    drop(reader);
    // Elsewhere the names have changed with the version.
    if context.database.dialect() == Dialect::Mysql {
        change_names(context, fence, source, target, &underway).await?;
    }
    let tables = tables_not_copied(source, target, |table| {
        side_tables.contains(&side_table(table, underway.to))
    });
    end_cut_over(context, fence, &underway, &tables).await
}

/// The tables of the source that stay and were not copied, as the target has them.
fn tables_not_copied<'a>(
    source: &Layout,
    target: &'a Layout,
    was_copied: impl Fn(&str) -> bool,
) -> Vec<&'a Table> {
    let tables = target.tables.values();
    tables
        .filter(|table| source.tables.contains_key(&table.name) && !was_copied(&table.name))
        .collect()
}

/// The end of a cut-over whose tables have their names: removes the units in quarantine from the
/// tables that were not copied.
async fn end_cut_over(
    context: &Context,
    fence: &Fence,
    underway: &Underway,
    tables: &[&Table],
) -> Result<(), MigrateError> {
    if underway.phase == Phase::Settling {
        // A conflict with another transaction does not end the host that clients wait for.
        patiently(context, || quarantine::settle(fence, tables)).await?;
    }
    let mut tx = fence.begin().await?;
    state::write_phase(&mut tx, underway.clone(), Phase::CleaningUp).await?;
    Ok(tx.commit().await.about("bbs_migration")?)
}

/// The statements that create a table without rows, beside those that the migration begins with:
/// as long as these have their names.
async fn creation_statements(
    tx: &mut Transaction,
    work: &Work,
    plan: &TablePlan,
) -> Result<Vec<String>, MigrateError> {
    let name = &plan.table.name;
    let options = plan.options(tx, &work.lens, name).await.about(name)?;
    Ok(statements::table_and_indexes(work.dialect, plan, &options))
}

/// Writes the version and the history, which are true from now on, and the phase that follows,
/// which is another one if units are in quarantine. Returns it.
async fn record_arrival(
    context: &Context,
    tx: &mut Transaction,
    job: &Job,
    phase: Phase,
) -> Result<Phase, MigrateError> {
    state::write_history(tx, &job.lens, &job.arguments, context.now_ns).await?;
    let catalog = history_pair::catalog_migrations(context);
    let recorded = state::recorded_migrations(tx).await?.up_to(job.to);
    state::record_migrations(tx, &catalog.up_to(job.to).union(&recorded)).await?;
    let phase = if quarantine::has_pending(tx).await? {
        Phase::Settling
    } else {
        phase
    };
    state::write_version(tx, job.to, job.to).await?;
    runs::end(tx, context, job.from, job.to, RunState::Completed).await?;
    // The version is durable; the next start may clean up.
    state::write_underway(tx, &job.underway(phase)).await?;
    Ok(phase)
}

/// The beginning of a clean-up: puts units in quarantine back that a finished migration has made
/// whole, and removes the rows that nothing needs any more.
pub(super) async fn remove_leftover_rows(
    context: &Context,
    fence: &Fence,
) -> Result<(), MigrateError> {
    context
        .progress
        .enter(CLEAN_UP, "what is not needed any more", None);
    // A migration that is abandoned has reversed none; and while it is recorded, no unit can be put
    // back.
    let phase = state::phase(&mut context.database.read().await?).await?;
    if phase.is_some_and(Phase::has_arrived) {
        quarantine::give_back(context, fence).await?;
    }
    // That which was given back.
    residue::remove_useless(context, fence).await?;
    quarantine::forget_pending(fence).await?;
    changed_units::forget_all(fence).await
}

/// The end of a clean-up, after its rows: undoes what an abandoned migration has changed ahead,
/// drops the tables and forgets the migration.
pub(super) async fn remove_leftover_tables(
    context: &Context,
    fence: &Fence,
) -> Result<(), MigrateError> {
    let found = state::underway(&mut context.database.read().await?).await?;
    let unfinished = found.filter(|found| !found.phase.has_arrived());
    if let Some(unfinished) = &unfinished {
        undo_abandoned(context, fence, unfinished).await?;
    }
    drop_leftover_tables(context, fence, unfinished.as_ref()).await
}

/// Drops the tables that no migration needs any more, and forgets the last one, which may be an
/// `unfinished` one.
async fn drop_leftover_tables(
    context: &Context,
    fence: &Fence,
    unfinished: Option<&Underway>,
) -> Result<(), MigrateError> {
    // What an earlier migration replaced may be locked for long, and hinders nothing.
    let between = unfinished.map(|found| [found.from, found.to]);
    state::drop_leftovers(context, fence, between).await?;
    let mut tx = fence.begin().await?;
    state::forget_underway(&mut tx).await?;
    fault::point(fault::BEFORE_CLEAN_UP_COMMIT);
    tx.commit().await.about("bbs_migration")?;
    fault::point(fault::AFTER_CLEAN_UP);
    Ok(())
}
