//! Writing rows at the far end: a range of units from table to table inside the database where nothing is
//! computed, whole rows otherwise.

use std::sync::Arc;

use sea_query::{Alias, Expr, ExprTrait, Order, Query};

use super::MigrateError;
use super::key::Key;
use super::plan::TablePlan;
use super::read::{is_unit, unit_key, within};
use crate::database::{SqlError, Transaction, bulk, schema};
use crate::layout::columns::ColumnData;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Table;
use crate::lens::Provenance;

/// Whole rows ready to be written, sealed: a column for each of the plan's, in its order.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub count: usize,
    pub columns: Vec<Arc<ColumnData>>,
}

fn failed(plan: &TablePlan) -> impl FnOnce(SqlError) -> MigrateError {
    let what = format!("copied rows of {}", plan.table.name);
    move |source| MigrateError::Sql { what, source }
}

/// Copies the rows of a range of units, but for some of them, without taking one out of the database.
pub(super) async fn copy_range(
    tx: &mut Transaction,
    plan: &TablePlan,
    source: &Table,
    (after, last): (Option<&Key>, &Key),
    but_for: impl Iterator<Item = &Key>,
    to: DataVersion,
) -> Result<u64, MigrateError> {
    let mut select = Query::select();
    for (column, provenance) in &plan.columns {
        select.expr(match provenance {
            Provenance::Raw { column, .. } => Expr::col(Alias::new(column)),
            Provenance::Fill(value) => schema::literal(tx.dialect(), column.kind, value.as_ref()),
            Provenance::Computed => unreachable!("a table with computed columns is not copied by range"),
        });
    }
    select.from(Alias::new(&source.name));
    let key = unit_key(source);
    within(&mut select, &key, after, Some(last));
    for unit in but_for {
        select.and_where(is_unit(source, unit).not());
    }
    for name in &key {
        select.order_by(Alias::new(name), Order::Asc);
    }
    let names = plan.columns.iter().map(|(column, _)| Alias::new(&column.name));
    let mut insert = Query::insert();
    insert.into_table(Alias::new(plan.staged(to))).columns(names).select_from(select).expect("as many");
    tx.execute(&insert).await.map_err(failed(plan))
}

/// Writes rows that are given whole.
pub(super) async fn write_rows(
    tx: &mut Transaction,
    plan: &TablePlan,
    to: DataVersion,
    rows: &Rows,
) -> Result<(), MigrateError> {
    let columns = plan.columns.iter().zip(&rows.columns).map(|((column, _), data)| (column, &**data)).collect();
    bulk::insert(tx, &plan.staged(to), &bulk::Rows { count: rows.count, columns }).await.map_err(failed(plan))
}
