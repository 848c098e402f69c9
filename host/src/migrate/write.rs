//! Writing rows at the far end. What nobody opened goes from table to table inside the database;
//! what the lens computed comes along as a list of values and meets its row there.

use std::collections::BTreeMap;

use sea_query::{
    Alias, CaseStatement, Expr, ExprTrait, IntoColumnRef, JoinType, Query, SelectStatement, SqliteQueryBuilder,
    ValueTuple,
};
use sea_query_sqlx::SqlxBinder;
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use super::MigrateError;
use super::key::Key;
use super::plan::TablePlan;
use super::read::{unit_key, within};
use crate::layout::columns::{ColumnData, NEW_ROW};
use crate::layout::dialect::literal;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Table;
use crate::layout::values::{Encoding, Value};
use crate::lens::Provenance;

/// SQLite takes at most this many values in one statement.
const MOST_VALUES: usize = 32_766;
const MOST_ROWS: usize = 128;

/// Rows ready to be written: values sealed, sources by their row ids.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub rows: usize,
    /// In the order of the plan's sources.
    pub origins: Vec<Vec<Option<i64>>>,
    /// In the order of the plan's computed columns.
    pub computed: Vec<(Encoding, ColumnData)>,
}

fn sql(plan: &TablePlan) -> impl FnOnce(sqlx::Error) -> MigrateError {
    let what = format!("copied rows of {}", plan.table.name);
    move |source| MigrateError::Sql { what, source }
}

fn column_names(plan: &TablePlan) -> Vec<Alias> {
    plan.columns.iter().map(|(column, _)| Alias::new(&column.name)).collect()
}

/// Copies the rows of a range of units without taking one out of the database.
pub(super) async fn copy_range(
    tx: &mut Transaction<'static, Sqlite>,
    plan: &TablePlan,
    source: &Table,
    to: DataVersion,
    after: Option<&Key>,
    last: &Key,
) -> Result<u64, MigrateError> {
    let mut select = Query::select();
    for (_, provenance) in &plan.columns {
        select.expr(match provenance {
            Provenance::Raw { column, .. } => Expr::col(Alias::new(column)),
            Provenance::Fill(value) => literal(value.as_ref()),
            Provenance::Computed => unreachable!("a table with computed columns is not copied by range"),
        });
    }
    select.from(Alias::new(&source.name));
    let key = unit_key(source);
    within(&mut select, &key, after, Some(last));
    for name in &key {
        select.order_by(Alias::new(name), sea_query::Order::Asc);
    }
    let mut insert = Query::insert();
    insert.into_table(Alias::new(plan.staged(to))).columns(column_names(plan)).select_from(select).expect("as many");
    let (statement, values) = insert.build_sqlx(SqliteQueryBuilder);
    let done = sqlx::query_with(AssertSqlSafe(statement), values).execute(&mut **tx).await.map_err(sql(plan))?;
    Ok(done.rows_affected())
}

/// Writes rows whose computed columns are given.
pub(super) async fn write_rows(
    tx: &mut Transaction<'static, Sqlite>,
    plan: &TablePlan,
    to: DataVersion,
    rows: &Rows,
) -> Result<(), MigrateError> {
    let width = rows.origins.len() + rows.computed.len();
    let most = (MOST_VALUES / width.max(1)).clamp(1, MOST_ROWS);
    let mut statements = BTreeMap::new();
    let mut from = 0;
    while from < rows.rows {
        // Powers of two, so that few different statements ever have to be prepared.
        let count = 1_usize << (rows.rows - from).min(most).ilog2();
        let until = from + count;
        let text = statements.entry(count).or_insert_with(|| statement(plan, to, width, count)).clone();
        let mut query = sqlx::query(AssertSqlSafe(text));
        for row in from..until {
            for origins in &rows.origins {
                query = query.bind(origins[row]);
            }
            for (encoding, data) in &rows.computed {
                query = match data.get(*encoding, row) {
                    Value::Null => query.bind(None::<i64>),
                    Value::Boolean(value) => query.bind(i64::from(value)),
                    Value::Integer(value) => query.bind(value),
                    Value::Text(bytes) => match std::str::from_utf8(bytes) {
                        Ok(text) => query.bind(text),
                        Err(_) => query.bind(bytes),
                    },
                };
            }
        }
        query.execute(&mut **tx).await.map_err(sql(plan))?;
        from = until;
    }
    Ok(())
}

/// `INSERT … SELECT … FROM (VALUES …) AS given LEFT JOIN source …`: the left side leads, so each row
/// costs one look by row id.
fn statement(plan: &TablePlan, to: DataVersion, width: usize, rows: usize) -> String {
    let given = |at: usize| (Alias::new("given"), Alias::new(format!("column{}", at + 1)));
    let source = |at: usize| Alias::new(format!("source{at}"));
    let mut computed = plan.sources.len()..;
    let mut select = SelectStatement::new();
    for (column, provenance) in &plan.columns {
        select.expr(match provenance {
            Provenance::Raw { table, column: name } => {
                let at = plan.sources.iter().position(|source| source == table).expect("a source of the table");
                let kept = Expr::col((source(at), Alias::new(name)));
                if plan.digests_all {
                    let new = Expr::col(given(at)).is_null();
                    CaseStatement::new().case(new, literal(column.default.as_ref())).finally(kept).into()
                } else {
                    kept
                }
            }
            Provenance::Fill(value) => literal(value.as_ref()),
            Provenance::Computed => {
                let value = Expr::col(given(computed.next().expect("without end")).into_column_ref());
                // Text that is not UTF-8 travels as bytes and has to rest as text all the same.
                if column.kind.is_text() { value.cast_as(Alias::new("TEXT")) } else { value }
            }
        });
    }
    let placeholders = std::iter::repeat_n(ValueTuple::Many(vec![0.into(); width]), rows);
    select.from_values(placeholders, Alias::new("given"));
    for (at, table) in plan.sources.iter().enumerate() {
        let same_row =
            Expr::cust_with_exprs("? = ?", [Expr::col((source(at), Alias::new("rowid"))), Expr::col(given(at))]);
        select.join_as(JoinType::LeftJoin, Alias::new(table), source(at), same_row);
    }
    let mut insert = Query::insert();
    insert.into_table(Alias::new(plan.staged(to))).columns(column_names(plan)).select_from(select).expect("as many");
    insert.build(SqliteQueryBuilder).0
}

/// The row ids that rows continue.
pub(super) fn row_ids(origins: &[u32], ids: &[i64]) -> Vec<Option<i64>> {
    origins.iter().map(|&origin| (origin != NEW_ROW).then(|| ids[origin as usize])).collect()
}
