//! From the copies to the real names, and afterwards the end of what they replaced. Tables, version and history
//! change in one transaction, and the schema is read back before it commits.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, Transaction};

use super::plan::{Strategy, replaced};
use super::state::{self, Phase, Ran, Underway};
use super::{Context, MigrateError, Work, fault, residue};
use crate::layout::dialect;
use crate::lock::fence::Fence;

fn sql(what: &str) -> impl FnOnce(sqlx::Error) -> MigrateError {
    let what = what.to_owned();
    move |source| MigrateError::Sql { what, source }
}

async fn execute(connection: &mut SqliteConnection, statement: String, table: &str) -> Result<(), MigrateError> {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await.map_err(sql(table))?;
    Ok(())
}

/// Makes the far end real.
pub(super) async fn cut_over(context: &Context, fence: &Fence, work: &Arc<Work>) -> Result<(), MigrateError> {
    context.progress.enter("cut-over", work.describe(), None);
    let mut tx = fence.begin().await?;
    for table in replaced(&work.lens, &work.plans) {
        for index in &work.lens.near.tables[&table].indexes {
            execute(&mut tx, dialect::drop_index(&index.name), &table).await?;
        }
        let aside = format!("{table}__{}", work.from);
        execute(&mut tx, dialect::rename_table(&table, &aside), &table).await?;
    }
    fault::point(fault::WITHIN_CUT_OVER);
    for plan in &work.plans {
        let name = &plan.table.name;
        match plan.strategy {
            Strategy::Untouched => continue,
            Strategy::InPlace => change_in_place(&mut tx, work, plan).await?,
            Strategy::Create => {
                execute(&mut tx, dialect::create_table(&plan.table, name), name).await?;
                create_indexes(&mut tx, plan).await?;
            }
            Strategy::Copy => {
                execute(&mut tx, dialect::rename_table(&plan.staged(work.to), name), name).await?;
                create_indexes(&mut tx, plan).await?;
            }
        }
        let found = dialect::read_back(&mut tx, name).await?;
        super::same_schema(name, found, &plan.table)?;
    }
    record(context, &mut tx, work).await?;
    fault::point(fault::BEFORE_CUT_OVER_COMMIT);
    tx.commit().await.map_err(sql("the cut-over"))?;
    fault::point(fault::AFTER_CUT_OVER);
    Ok(())
}

async fn create_indexes(connection: &mut SqliteConnection, plan: &super::plan::TablePlan) -> Result<(), MigrateError> {
    for index in &plan.table.indexes {
        execute(connection, dialect::create_index(&plan.table.name, index), &plan.table.name).await?;
    }
    Ok(())
}

async fn change_in_place(
    connection: &mut SqliteConnection,
    work: &Work,
    plan: &super::plan::TablePlan,
) -> Result<(), MigrateError> {
    let name = &plan.table.name;
    let (columns, new, old) = plan.additions(work.lens.near.tables.get(name));
    for index in &old {
        execute(connection, dialect::drop_index(&index.name), name).await?;
    }
    for column in &columns {
        execute(connection, dialect::add_column(name, column), name).await?;
    }
    for index in &new {
        execute(connection, dialect::create_index(name, index), name).await?;
    }
    Ok(())
}

/// The version, the history, and what the way back had left: all of it true only now.
async fn record(context: &Context, tx: &mut Transaction<'static, Sqlite>, work: &Work) -> Result<(), MigrateError> {
    for step in work.lens.steps() {
        let manifest = step.manifest();
        let ran = Ran {
            version: manifest.version,
            direction: work.lens.direction,
            name: &manifest.name,
            digest: step.digest(),
            at_ns: context.now_ns,
            arguments: &work.arguments[&manifest.version],
        };
        state::write_history(tx, &ran).await?;
    }
    residue::remove(tx, residue::opposite(work.lens.direction), work.versions()).await?;
    state::write_version(tx, work.to, work.to).await?;
    state::forget_underway(tx).await?;
    let underway = Underway {
        from: work.from,
        to: work.to,
        // It has arrived; whoever comes next may clean up.
        going_down: false,
        fingerprint: work.fingerprint(),
        token: work.token,
        phase: Phase::CleaningUp,
    };
    state::write_underway(tx, &underway).await
}

/// Removes what a finished migration replaced. Safe to repeat, and only ever run once the version is durable.
pub(super) async fn clean_up(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    context.progress.enter("clean-up", "tables that were replaced", None);
    let mut tx = fence.begin().await?;
    let leftovers = state::leftovers(&mut tx, &super::line(&context.migrations)?).await?;
    drop(tx);
    for table in leftovers {
        let mut tx = fence.begin().await?;
        execute(&mut tx, dialect::drop_table(&table), &table).await?;
        tx.commit().await.map_err(sql(&table))?;
        fault::point(fault::BETWEEN_CLEAN_UPS);
    }
    let mut tx = fence.begin().await?;
    state::forget_underway(&mut tx).await?;
    fault::point(fault::BEFORE_CLEAN_UP_COMMIT);
    tx.commit().await.map_err(sql("bbs_migration"))?;
    fault::point(fault::AFTER_CLEAN_UP);
    Ok(())
}
