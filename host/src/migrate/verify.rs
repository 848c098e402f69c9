//! Verifies, before the copies replace the originals, that they are what the lens returned, read
//! back from the database: nothing missing, nothing more, nothing changed.

use std::sync::Arc;

use bbs_database::{Dialect, Row, SqlError, StatementResult, Transaction};
use bbs_lens::{Provenance, TableBuilder};
use bbs_units::TableRows;
use bbs_work::progress::Counted;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use sea_query::{Alias, Expr, ExprTrait, JoinType, Query, SelectStatement};

use super::checksum::{Checksum, written};
use super::plan::{Strategy, TablePlan};
use super::{Context, Job, MigrateError, quarantine, state};

/// The rows that are opened and digested at a time: so many, or so many bytes of text and the row
/// that reaches them.
const ROWS: u32 = 1000;
const BYTES: usize = 4 << 20;

pub(super) async fn verify(context: &Context, job: &Arc<Job>) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let mut total = 0;
    for plan in copies(job) {
        total += written(&mut reader, plan).await?.rows;
    }
    drop(reader);
    context
        .progress
        .enter("verify", job.describe(), Some(Counted::Rows.total(total)));
    for plan in copies(job) {
        if job.dual_writes.is_some() {
            // One snapshot of the database, since clients write meanwhile.
            let tx = &mut context.database.read().await?;
            counts_agree(tx, job, plan).await?;
            unopened_agree(tx, job, plan).await?;
            digests_agree(context, tx, job, plan).await?;
            continue;
        }
        // A transaction each, begun when it is needed: servers end one that is idle.
        counts_agree(&mut context.database.read().await?, job, plan).await?;
        // Two passes over different columns, concurrently, both to their end.
        let unopened =
            async { unopened_agree(&mut context.database.read().await?, job, plan).await };
        let opened =
            async { digests_agree(context, &mut context.database.read().await?, job, plan).await };
        let (unopened, opened) = tokio::join!(unopened, opened);
        unopened.and(opened)?;
    }
    Ok(())
}

fn copies(job: &Job) -> impl Iterator<Item = &TablePlan> {
    job.plans
        .iter()
        .filter(|plan| plan.strategy == Strategy::Copy)
}

fn mismatch(plan: &TablePlan, problem: String) -> MigrateError {
    MigrateError::Verify {
        table: plan.table.name.clone(),
        problem,
    }
}

/// Checks that the rows that were written are there and no others; where the lens keeps the number
/// of rows, that it is that of the source.
async fn counts_agree(
    tx: &mut Transaction,
    job: &Job,
    plan: &TablePlan,
) -> Result<(), MigrateError> {
    let stored = state::count(tx, &plan.staged(job.to)).await?;
    let written = written(tx, plan).await?.rows;
    if stored.unsigned_abs() != written {
        return Err(mismatch(
            plan,
            format!("{written} rows were written, {stored} are there"),
        ));
    }
    if let [source] = plan.sources.as_slice()
        && !job.lens.tables[&plan.table.name].reshaped
    {
        let left_out = quarantine::pending_rows(tx, source).await?;
        let source = state::count(tx, source).await?.unsigned_abs();
        if source != stored.unsigned_abs() + left_out {
            let problem = format!(
                "the original has {source} rows, the copy {stored}, the quarantine {left_out}"
            );
            return Err(mismatch(plan, problem));
        }
    }
    Ok(())
}

/// Checks that columns which no step has read are, byte for byte, those of the source under the
/// same key.
async fn unopened_agree(
    tx: &mut Transaction,
    job: &Job,
    plan: &TablePlan,
) -> Result<(), MigrateError> {
    let Some(source) = plan.sources.first().filter(|_| !plan.digests_all) else {
        return Ok(());
    };
    let query = rows_that_differ(tx.dialect(), plan, source, &plan.staged(job.to));
    let row = tx
        .fetch_one(&query)
        .await
        .about(format_args!("the copy of {}", plan.table.name))?;
    match row
        .integer(0)
        .about(format_args!("the copy of {}", plan.table.name))?
        .unwrap_or_default()
    {
        0 => Ok(()),
        rows => Err(mismatch(
            plan,
            format!("{rows} rows are not what the original has"),
        )),
    }
}

/// Counts the rows of the copy `staged` that have no original in `source`, or other values in the
/// columns that are copied unopened.
fn rows_that_differ(
    dialect: Dialect,
    plan: &TablePlan,
    source: &str,
    staged: &str,
) -> SelectStatement {
    let copy = Alias::new("copy");
    let original = Alias::new("original");
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
    let same_key = same_key.map(|(_, copy, original)| copy.clone().eq(original.clone()));
    // The original may have another key, and rows of units that were left out with the same values
    // in the columns of this one.
    let unit = bbs_units::key_columns(&plan.table);
    let same_unit = raw
        .iter()
        .filter(|(column, ..)| unit.contains(&column.name) && !is_key(&column.name));
    let same_unit = same_unit.flat_map(|(_, copy, original)| {
        [
            copy.clone().eq(original.clone()),
            differ(dialect, copy.clone(), original.clone()).not(),
        ]
    });
    let same_key = same_key
        .chain(same_unit)
        .reduce(|one, other| one.and(other));
    let key = raw
        .iter()
        .find(|(column, ..)| is_key(&column.name))
        .map(|(.., original)| original.clone());
    let lost = key.expect("a table has a key").is_null();
    let differs = raw
        .iter()
        .filter(|(column, ..)| !is_key(&column.name))
        .map(|(_, copy, original)| differ(dialect, copy.clone(), original.clone()))
        .fold(lost, |one, other| one.or(other));
    let mut query = Query::select();
    query
        .expr(Expr::cust("COUNT(*)"))
        .from_as(Alias::new(staged), copy)
        .join_as(
            JoinType::LeftJoin,
            Alias::new(source),
            original,
            same_key.expect("a table has a key"),
        )
        .and_where(differs);
    query
}

/// Whether two values differ, NULL being equal to NULL. Text is compared by its bytes.
fn differ(dialect: Dialect, one: Expr, other: Expr) -> Expr {
    match dialect {
        Dialect::Sqlite => Expr::cust_with_exprs("? IS NOT ?", [one, other]),
        Dialect::Postgres => Expr::cust_with_exprs("$1 IS DISTINCT FROM $2", [one, other]),
        Dialect::Mysql => Expr::cust_with_exprs("NOT (BINARY ? <=> BINARY ?)", [one, other]),
    }
}

/// Checks that the copy contains what the lens returned, opened again.
async fn digests_agree(
    context: &Context,
    tx: &mut Transaction,
    job: &Arc<Job>,
    plan: &TablePlan,
) -> Result<(), MigrateError> {
    let wanted = written(tx, plan).await?;
    if !plan.digests_all && plan.computed().next().is_none() {
        context.progress.advance(wanted.rows);
        return Ok(());
    }
    let name = plan.table.name.clone();
    let columns = plan.digested();
    let mut query = Query::select();
    query
        .exprs(
            columns
                .iter()
                .map(|(column, _)| Expr::col(Alias::new(&column.name))),
        )
        .from(Alias::new(plan.staged(job.to)));
    let mut sum = Checksum::default();
    let mut busy: Option<tokio::task::JoinHandle<Result<Checksum, MigrateError>>> = None;
    let mut rows = tx.stream(&query);
    loop {
        let some = some_rows(&mut rows, plan).await?;
        if let Some(busy) = busy.take() {
            sum.add(busy.await.map_err(|_| MigrateError::Interrupted)??);
        }
        let count = some.count();
        if count == 0 {
            break;
        }
        let job = Arc::clone(job);
        let name = name.clone();
        busy = Some(tokio::task::spawn_blocking(move || {
            let plan = job.copied(&name).expect("the table is copied");
            Checksum::of_copied(plan, some, &job.keyring)
        }));
        context.progress.advance(count as u64);
    }
    if sum == wanted.checksum {
        Ok(())
    } else {
        Err(mismatch(
            plan,
            "its digest is not that of what the modules gave".to_owned(),
        ))
    }
}

/// The next rows of the copy, in any order: the columns of the checksum, as they are stored.
async fn some_rows(
    rows: &mut BoxStream<'_, Result<Row, SqlError>>,
    plan: &TablePlan,
) -> Result<TableRows, MigrateError> {
    let columns = plan.digested();
    let mut builder = TableBuilder::new(columns.iter().map(|(column, _)| column));
    let mut count = 0;
    let mut bytes = 0;
    while count < ROWS
        && bytes < BYTES
        && let Some(row) = rows
            .try_next()
            .await
            .about(format_args!("the copy of {}", plan.table.name))?
    {
        for (at, (column, _)) in columns.iter().enumerate() {
            let value = row
                .value(at, column.kind.into())
                .about(format_args!("the copy of {}", plan.table.name))?;
            bytes += value.text_bytes();
            builder.push(at, value);
        }
        count += 1;
    }
    Ok(builder.finish(vec![0, count]))
}
