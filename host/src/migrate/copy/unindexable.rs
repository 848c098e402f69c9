//! Rows of a copy that an index does not hold: PostgreSQL limits an entry to about 2,700 bytes
//! after compression, and finds one that is larger only when it builds the index over all rows,
//! without naming the row. Owns the search for their units.

use bbs_database::{Dialect, StatementResult, is_refused_row, schema, sql};
use bbs_lens::layout::schema::Index;
use bbs_units::{UnitKey, text_length};
use sea_query::{Alias, Expr, ExprTrait, Query};

use super::copied_units;
use super::transform::TransformedBatch;
use crate::lock::fence::Fence;
use crate::migrate::plan::TablePlan;
use crate::migrate::quarantine::RefusedUnit;
use crate::migrate::trial::TRIAL;
use crate::migrate::{Context, Job, MigrateError, OnUnreadable, start_over};

/// The length of the indexed texts of a row, in bytes, up to which an entry always fits.
const ALWAYS_FITS: i64 = 2_000;

/// Whether an index could not be built because of the rows of a copy.
pub(crate) fn is_of_rows(context: &Context, fault: &MigrateError) -> bool {
    fault.is_refused_row() && context.database.dialect() == Dialect::Postgres
}

/// Leaves out the units of the rows for which an index of a copy could not be built. Returns their
/// number; zero as well if the index could not be built for another reason.
///
/// # Errors
/// The first unit, if the operator did not choose quarantine; then a migration that no client
/// writes to starts over, because its copies are complete up to this unit. Too many units, or the
/// database fails.
pub(crate) async fn leave_out(
    context: &Context,
    fence: &Fence,
    job: &Job,
    plan: &TablePlan,
    fault: &MigrateError,
) -> Result<usize, MigrateError> {
    if !is_of_rows(context, fault) {
        return Ok(0);
    }
    // On the heap, since it is rare and the futures of all callers would contain it.
    let refused = Box::pin(find(fence, job, plan)).await?;
    let count = refused.len();
    for unit in refused {
        match job.on_unreadable {
            OnUnreadable::Quarantine => {
                Box::pin(copied_units::leave_out(
                    context, fence, job, plan.group, unit,
                ))
                .await?;
            }
            OnUnreadable::Stop => {
                if !job.is_online {
                    Box::pin(start_over(context, fence, job)).await?;
                }
                return Err(unit.stop(plan.group));
            }
        }
    }
    Ok(count)
}

/// Finds the units by writing each one that is in question into a table with the same indexes, in a
/// transaction that is rolled back.
async fn find(
    fence: &Fence,
    job: &Job,
    plan: &TablePlan,
) -> Result<Vec<RefusedUnit>, MigrateError> {
    let staged = plan.staged(job.to);
    let what = format!("the indexes of {}", plan.table.name);
    let mut tx = fence.begin_change().await?;
    let like =
        format!("CREATE TABLE {TRIAL} (LIKE \"{staged}\" INCLUDING STORAGE INCLUDING COMPRESSION)");
    tx.execute(sql(like)).await.about(&what)?;
    for (number, index) in plan.table.indexes.iter().enumerate() {
        let index = Index {
            name: format!("{TRIAL}_{number}"),
            columns: index.columns.clone(),
        };
        tx.execute(sql(schema::create_index(Dialect::Postgres, TRIAL, &index)))
            .await
            .about(&what)?;
    }
    let mut refused = Vec::new();
    for key in units_in_question(&mut tx, plan, &staged).await? {
        tx.execute(sql("SAVEPOINT bbs_unit")).await.about(&what)?;
        let mut select = Query::select();
        select.exprs(
            plan.table
                .columns
                .iter()
                .map(|column| Expr::col(Alias::new(&column.name))),
        );
        select
            .from(Alias::new(&staged))
            .and_where(bbs_units::is_unit(&plan.table, &key, Dialect::Postgres));
        let mut insert = Query::insert();
        insert.into_table(Alias::new(TRIAL)).columns(
            plan.table
                .columns
                .iter()
                .map(|column| Alias::new(&column.name)),
        );
        insert.select_from(select).expect("as many columns");
        match tx.execute(&insert).await {
            Err(source) if is_refused_row(&source) => {
                refused.push(TransformedBatch::default().refused_unit(
                    job,
                    &key,
                    &plan.table.name,
                    &source,
                ));
            }
            written => written.map(drop).about(&what)?,
        }
        tx.execute(sql("ROLLBACK TO SAVEPOINT bbs_unit"))
            .await
            .about(&what)?;
    }
    Ok(refused)
}

/// The units that have a row with so much indexed text that an entry may not fit.
async fn units_in_question(
    tx: &mut bbs_database::Transaction,
    plan: &TablePlan,
    staged: &str,
) -> Result<Vec<UnitKey>, MigrateError> {
    let is_text = |name: &&String| {
        plan.table
            .find_column(name)
            .is_some_and(|column| column.kind.is_text())
    };
    let lengths = plan.table.indexes.iter().filter_map(|index| {
        let texts = index.columns.iter().filter(is_text);
        text_length(texts.map(String::as_str)).map(|length| length.gt(ALWAYS_FITS))
    });
    match lengths.reduce(|one, other| one.or(other)) {
        Some(is_long) => Ok(bbs_units::units_where(tx, &plan.table, staged, is_long).await?),
        None => Ok(Vec::new()),
    }
}
