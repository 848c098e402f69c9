//! Verifies, before the copies replace the originals, that they are what the lens returned, read
//! back from the database: nothing missing, nothing more, nothing changed. While clients write, the
//! units that they have just changed are not compared with the originals.

use std::sync::Arc;

use bbs_database::{Dialect, Row, SqlError, StatementResult, Transaction};
use bbs_lens::layout::schema::Table;
use bbs_lens::{Provenance, TableBuilder};
use bbs_units::{TableRows, UnitKey};
use bbs_work::blocking;
use bbs_work::pauses;
use bbs_work::progress::Counted;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use sea_query::{Alias, Expr, ExprTrait, JoinType, Query, SelectStatement};
use tokio::time::Instant;

use super::catch_up::{self, Meanwhile};
use super::checksum::{self, Checksum, written};
use super::partial_run;
use crate::lock::fence::Fence;
use crate::migrate::plan::TablePlan;
use crate::migrate::state::{self, changed_units};
use crate::migrate::{Context, Job, MigrateError, copy, quarantine};

/// The rows that are opened and digested at a time: so many, or so many bytes of text and the row
/// that reaches them.
const ROWS: u32 = 1000;
const BYTES: usize = 4 << 20;

/// The first comparison leaves out fewer units than this. The bound doubles after each catch-up, since
/// clients may change units as fast as they are copied again.
const LEFT_OUT: u64 = 1000;
/// The bound of every comparison. Each unit is a value of a statement, which has at most 32,766 of
/// them on SQLite.
const MOST_LEFT_OUT: u64 = 16_000;

pub(crate) async fn verify(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
) -> Result<(), MigrateError> {
    if job.is_resumed && !job.is_online {
        verify_originals(context, job).await?;
    }
    let mut reader = context.database.read().await?;
    let mut total = 0;
    for plan in job.copied_plans() {
        total += written(&mut reader, plan).await?.rows;
    }
    drop(reader);
    context
        .progress
        .enter("verify", job.describe(), Some(Counted::Rows.total(total)));
    for plan in job.copied_plans() {
        // A transaction each, begun when it is needed: servers end one that is idle.
        let (mut tx, changed) = snapshot(context, fence, job, plan).await?;
        counts_agree(&mut tx, job, plan, &changed).await?;
        drop(tx);
        // Two passes over different columns, concurrently unless clients are served meanwhile, both
        // to their end.
        let unopened = async {
            let (mut tx, changed) = snapshot(context, fence, job, plan).await?;
            unopened_agree(&mut tx, job, plan, &changed).await
        };
        let opened =
            async { digests_agree(context, &mut context.database.read().await?, job, plan).await };
        if job.is_online {
            unopened.await?;
            opened.await?;
        } else {
            let (unopened, opened) = tokio::join!(unopened, opened);
            unopened.and(opened)?;
        }
    }
    Ok(())
}

/// A snapshot of the database, and the units of a table that clients have changed and that are not
/// copied again in it.
async fn snapshot(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    plan: &TablePlan,
) -> Result<(Transaction, Vec<UnitKey>), MigrateError> {
    let mut bound = LEFT_OUT;
    loop {
        let mut tx = context.database.read().await?;
        if !job.is_online {
            return Ok((tx, Vec::new()));
        }
        let changed = changed_units::next(&mut tx, None, bound).await?;
        if (changed.len() as u64) < bound {
            let of_group = changed.into_iter().filter(|unit| unit.group == plan.group);
            return Ok((tx, of_group.map(|unit| unit.key).collect()));
        }
        drop(tx);
        catch_up::catch_up(context, fence, job, Meanwhile::Call).await?;
        bound = (2 * bound).clamp(LEFT_OUT, MOST_LEFT_OUT);
    }
}

/// Checks, after an interruption, that the originals are what was copied: another program may have
/// written to them meanwhile, such as Diego's BBS, which knows nothing of the copies. Rows that the
/// database copies by itself are compared with their copies in any case.
async fn verify_originals(context: &Context, job: &Arc<Job>) -> Result<(), MigrateError> {
    let units = partial_run::counted(context, job).await?.total;
    let phase = Some(Counted::Units.total(units));
    context.progress.enter("verify", job.describe(), phase);
    for group in 0..job.lens.groups.len() {
        let originals = &job.lens.groups[group].sources;
        if originals.is_empty() || !job.visits_units(group) {
            continue;
        }
        let now = copy::checksum_of_originals(context, job, group).await?;
        if checksum::originals(&mut context.database.read().await?, group).await? != now {
            return Err(MigrateError::Verify {
                table: originals.join(", "),
                problem: "another program has written to the original since a part was copied"
                    .to_owned(),
            });
        }
    }
    Ok(())
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
    changed: &[UnitKey],
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
        let left_out = quarantine::pending_rows(tx, source, changed).await?;
        let (original, copied) = if changed.is_empty() {
            let original = state::count(tx, source).await?;
            (original.unsigned_abs(), stored.unsigned_abs())
        } else {
            let table = &job.lens.source.tables[source];
            (
                count_of_others(tx, table, source, changed).await?,
                count_of_others(tx, &plan.table, &plan.staged(job.to), changed).await?,
            )
        };
        if original != copied + left_out {
            let problem = format!(
                "the original has {original} rows, the copy {copied}, the quarantine {left_out}"
            );
            return Err(mismatch(plan, problem));
        }
    }
    Ok(())
}

/// The number of a table's rows of units that are not among these.
async fn count_of_others(
    tx: &mut Transaction,
    table: &Table,
    name: &str,
    units: &[UnitKey],
) -> Result<u64, MigrateError> {
    let query = Query::select()
        .expr(Expr::cust("COUNT(*)"))
        .from(Alias::new(name))
        .and_where(bbs_units::is_one_of(table, units, tx.dialect()).not())
        .take();
    let count = tx.fetch_number(&query).await.about("the number of rows")?;
    Ok(count.unsigned_abs())
}

/// Checks that columns which no step has read are, byte for byte, those of the source under the
/// same key.
async fn unopened_agree(
    tx: &mut Transaction,
    job: &Job,
    plan: &TablePlan,
    changed: &[UnitKey],
) -> Result<(), MigrateError> {
    let Some(source) = plan.sources.first().filter(|_| !plan.digests_all) else {
        return Ok(());
    };
    let query = rows_that_differ(tx.dialect(), plan, source, &plan.staged(job.to), changed);
    let differing = tx
        .fetch_number(&query)
        .await
        .about(format_args!("the copy of {}", plan.table.name))?;
    match differing {
        0 => Ok(()),
        rows => Err(mismatch(
            plan,
            format!("{rows} rows are not what the original has"),
        )),
    }
}

/// Counts the rows of the copy `staged` that have no original in `source`, or other values in the
/// columns that are copied unopened, but for those of `changed` units.
fn rows_that_differ(
    dialect: Dialect,
    plan: &TablePlan,
    source: &str,
    staged: &str,
    changed: &[UnitKey],
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
    query.expr(Expr::cust("COUNT(*)"));
    if changed.is_empty() {
        query.from_as(Alias::new(staged), copy);
    } else {
        query.from_subquery(rows_of_others(dialect, plan, staged, changed), copy);
    }
    query
        .join_as(
            JoinType::LeftJoin,
            Alias::new(source),
            original,
            same_key.expect("a table has a key"),
        )
        .and_where(differs);
    query
}

/// The rows of the copy `staged` of units that are not among these.
fn rows_of_others(
    dialect: Dialect,
    plan: &TablePlan,
    staged: &str,
    units: &[UnitKey],
) -> SelectStatement {
    let columns = plan.columns.iter();
    Query::select()
        .columns(columns.map(|(column, _)| Alias::new(&column.name)))
        .from(Alias::new(staged))
        .and_where(bbs_units::is_one_of(&plan.table, units, dialect).not())
        .take()
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
    let columns = plan.digested();
    // A table that takes the name of another one and has no rows has no such columns.
    if columns.is_empty() || !plan.digests_all && plan.computed().next().is_none() {
        context.progress.advance(wanted.rows);
        return Ok(());
    }
    let name = plan.table.name.clone();
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
        let began = Instant::now();
        let some = some_rows(&mut rows, plan).await?;
        if let Some(busy) = busy.take() {
            sum.add(busy.await.map_err(|_| MigrateError::Interrupted)??);
        }
        let count = some.count();
        if count == 0 {
            break;
        }
        let digested_job = Arc::clone(job);
        let name = name.clone();
        busy = Some(blocking::spawn(job.is_online, move || {
            let plan = digested_job.copied(&name).expect("the table is copied");
            Checksum::of_copied(plan, some, &digested_job.keyring)
        }));
        context.progress.advance(count as u64);
        if job.is_online {
            pauses::rest_after(began.elapsed()).await;
        }
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
