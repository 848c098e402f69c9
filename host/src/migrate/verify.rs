//! Whether the copies are what the lens put out, read back from the database before they take the place of the
//! originals: nothing missing, nothing more, nothing changed.

use std::sync::Arc;

use sea_query::{Alias, BinOper, Expr, ExprTrait, JoinType, Query, SqliteQueryBuilder};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::copy::written;
use super::plan::{Strategy, TablePlan};
use super::read::value;
use super::transform::{Checksum, checksum_of_stored};
use super::{Context, MigrateError, Work, state};
use crate::layout::columns::ColumnData;
use crate::layout::values::ColumnBuilder;
use crate::lens::Provenance;

/// Rows that are opened and digested at a time.
const ROWS: i64 = 1000;

pub(super) async fn verify(context: &Context, work: &Arc<Work>) -> Result<(), MigrateError> {
    let (mut one, mut other) = (context.database.read().await?, context.database.read().await?);
    let mut total = 0;
    for plan in copies(work) {
        total += written(&mut one, plan).await?.rows;
    }
    context.progress.enter("verify", work.describe(), Some(total));
    for plan in copies(work) {
        counts_agree(&mut one, work, plan).await?;
        // Two passes over different columns, side by side.
        tokio::try_join!(unopened_agree(&mut one, work, plan), digests_agree(context, &mut other, work, plan))?;
    }
    Ok(())
}

fn copies(work: &Work) -> impl Iterator<Item = &TablePlan> {
    work.plans.iter().filter(|plan| plan.strategy == Strategy::Copy)
}

fn failed(plan: &TablePlan, problem: String) -> MigrateError {
    MigrateError::Verify { table: plan.table.name.clone(), problem }
}

fn sql(plan: &TablePlan) -> impl FnOnce(sqlx::Error) -> MigrateError {
    let what = format!("the copy of {}", plan.table.name);
    move |source| MigrateError::Sql { what, source }
}

/// The rows that were written are there, and no others; where rows keep their number, it is that of the source.
async fn counts_agree(connection: &mut SqliteConnection, work: &Work, plan: &TablePlan) -> Result<(), MigrateError> {
    let stored = state::count(connection, &plan.staged(work.to)).await?;
    let written = written(connection, plan).await?.rows;
    if stored.unsigned_abs() != written {
        return Err(failed(plan, format!("{written} rows were written, {stored} are there")));
    }
    if let [source] = plan.sources.as_slice()
        && !work.lens.tables[&plan.table.name].reshaped
    {
        let source = state::count(connection, source).await?;
        if source != stored {
            return Err(failed(plan, format!("the original has {source} rows, the copy {stored}")));
        }
    }
    Ok(())
}

/// What travelled unopened is, byte for byte, what the source has under the same key.
async fn unopened_agree(connection: &mut SqliteConnection, work: &Work, plan: &TablePlan) -> Result<(), MigrateError> {
    let Some(source) = plan.sources.first().filter(|_| !plan.digests_all) else { return Ok(()) };
    let (copy, original) = (Alias::new("copy"), Alias::new("original"));
    let raw: Vec<_> = plan
        .columns
        .iter()
        .filter_map(|(column, provenance)| match provenance {
            Provenance::Raw { column: name, .. } => Some((
                column,
                Expr::col((copy.clone(), Alias::new(&column.name))),
                Expr::col((original.clone(), Alias::new(name))),
            )),
            Provenance::Computed | Provenance::Fill(_) => None,
        })
        .collect();
    let is_key = |name: &String| plan.table.primary_key.contains(name);
    let same_key = raw.iter().filter(|(column, ..)| is_key(&column.name));
    let same_key =
        same_key.map(|(_, copy, original)| copy.clone().eq(original.clone())).reduce(|one, other| one.and(other));
    let lost = Expr::col((original.clone(), Alias::new("rowid"))).is_null();
    let differs = raw
        .iter()
        .filter(|(column, ..)| !is_key(&column.name))
        .map(|(_, copy, original)| copy.clone().binary(BinOper::IsNot, original.clone()))
        .fold(lost, |one, other| one.or(other));
    let mut query = Query::select();
    query
        .expr(Expr::cust("COUNT(*)"))
        .from_as(Alias::new(plan.staged(work.to)), copy)
        .join_as(JoinType::LeftJoin, Alias::new(source), original, same_key.expect("a table has a key"))
        .and_where(differs);
    let statement = query.to_string(SqliteQueryBuilder);
    let row = sqlx::query(AssertSqlSafe(statement)).fetch_one(connection).await.map_err(sql(plan))?;
    match row.get::<i64, _>(0) {
        0 => Ok(()),
        rows => Err(failed(plan, format!("{rows} rows are not what the original has"))),
    }
}

/// What the lens gave is what the copy holds, opened again.
async fn digests_agree(
    context: &Context,
    connection: &mut SqliteConnection,
    work: &Arc<Work>,
    plan: &TablePlan,
) -> Result<(), MigrateError> {
    let wanted = written(connection, plan).await?;
    if !plan.digests_all && plan.computed().next().is_none() {
        context.progress.advance(wanted.rows);
        return Ok(());
    }
    let name = plan.table.name.clone();
    let mut sum = Checksum::default();
    let mut after = 0;
    let mut busy: Option<tokio::task::JoinHandle<Result<Checksum, MigrateError>>> = None;
    loop {
        let (last, rows, columns) = stored(connection, work, plan, after).await?;
        if let Some(busy) = busy.take() {
            sum.add(busy.await.map_err(|_| MigrateError::Interrupted)??);
        }
        if rows == 0 {
            break;
        }
        after = last;
        let (work, name) = (Arc::clone(work), name.clone());
        busy = Some(tokio::task::spawn_blocking(move || {
            let plan = work.copied(&name).expect("the table is copied");
            checksum_of_stored(&work.keyring, plan, rows, &columns)
                .map_err(|fault| failed(plan, format!("a value that was just written does not open: {fault}")))
        }));
        context.progress.advance(rows as u64);
    }
    if sum == wanted.checksum {
        Ok(())
    } else {
        Err(failed(plan, "its digest is not that of what the modules gave".to_owned()))
    }
}

/// Some rows of the copy in the order in which they were written: the digested columns, as they rest.
async fn stored(
    connection: &mut SqliteConnection,
    work: &Work,
    plan: &TablePlan,
    after: i64,
) -> Result<(i64, usize, Vec<ColumnData>), MigrateError> {
    let columns = plan.digested();
    let mut query = Query::select();
    query
        .expr(Expr::cust("rowid"))
        .exprs(columns.iter().map(|(column, _)| Expr::col(Alias::new(&column.name))))
        .from(Alias::new(plan.staged(work.to)))
        .and_where(Expr::cust("rowid").gt(Expr::cust("?")))
        .order_by_expr(Expr::cust("rowid"), sea_query::Order::Asc);
    let statement = query.to_string(SqliteQueryBuilder) + " LIMIT ?";
    let rows =
        sqlx::query(AssertSqlSafe(statement)).bind(after).bind(ROWS).fetch_all(connection).await.map_err(sql(plan))?;
    let mut builders: Vec<_> = columns.iter().map(|(column, _)| ColumnBuilder::new(column.kind.into())).collect();
    for row in &rows {
        for (at, ((column, _), builder)) in columns.iter().zip(&mut builders).enumerate() {
            builder.push(value(row, at + 1, column.kind.into()).map_err(sql(plan))?);
        }
    }
    let last = rows.last().map(|row| row.try_get(0)).transpose().map_err(sql(plan))?.unwrap_or(after);
    Ok((last, rows.len(), builders.into_iter().map(ColumnBuilder::finish).collect()))
}
