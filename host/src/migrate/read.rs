//! Reading units: where a batch ends, bounded by bytes, and its rows as columns, sealed as they
//! rest. Owns the statements; opens nothing.

use std::collections::{BTreeMap, BTreeSet};

use sea_query::{Alias, Expr, ExprTrait, Func, Order, Query, SelectStatement, SqliteQueryBuilder};
use sea_query_sqlx::SqlxBinder;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, Row, ValueRef};

use super::key::Key;
use super::{MigrateError, Tuning};
use crate::layout::columns::ColumnData;
use crate::layout::schema::Table;
use crate::layout::values::{ColumnBuilder, Encoding, Value};

/// The columns by which the rows of a table are told into units.
pub(super) fn unit_key(table: &Table) -> Vec<String> {
    table.partition_key.as_ref().map_or_else(|| table.primary_key.clone(), |key| vec![key.clone()])
}

/// The unit keys of one batch, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    pub units: Vec<Key>,
    pub rows: u64,
}

/// One table's rows of a batch as they rest.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    pub unit_offsets: Vec<u32>,
    pub row_ids: Vec<i64>,
    pub columns: BTreeMap<String, ColumnData>,
}

fn sql(table: &str) -> impl FnOnce(sqlx::Error) -> MigrateError {
    let what = format!("rows of {table}");
    move |source| MigrateError::Sql { what, source }
}

fn columns(names: &[String]) -> Expr {
    Expr::tuple(names.iter().map(|name| Expr::col(Alias::new(name))))
}

/// `key > after AND key <= last`, as far as either is given.
pub(super) fn within(query: &mut SelectStatement, key: &[String], after: Option<&Key>, last: Option<&Key>) {
    if let Some(after) = after {
        query.and_where(columns(key).gt(Expr::tuple(after.values().into_iter().map(Expr::value))));
    }
    if let Some(last) = last {
        query.and_where(columns(key).lte(Expr::tuple(last.values().into_iter().map(Expr::value))));
    }
}

/// The next units over all tables, at most `most` of them and at most the batch's bytes (but one at least).
pub(super) async fn bounds(
    readers: &SqlitePool,
    tables: &[&Table],
    after: Option<&Key>,
    most: u64,
    tuning: &Tuning,
) -> Result<Bounds, MigrateError> {
    let mut sizes: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for table in tables {
        for (key, rows, bytes) in sizes_of(readers, table, after, most).await? {
            let size = sizes.entry(key).or_default();
            size.0 += rows;
            size.1 += bytes;
        }
    }
    let mut bounds = Bounds::default();
    let mut sum = 0;
    for (key, (rows, bytes)) in sizes.into_iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
        if bytes > tuning.unit_bytes {
            return Err(MigrateError::UnitTooLarge { unit: key.name(), bytes, limit: tuning.unit_bytes });
        }
        sum += bytes;
        if sum > tuning.batch_bytes && !bounds.units.is_empty() {
            break;
        }
        bounds.rows += rows;
        bounds.units.push(key);
    }
    Ok(bounds)
}

/// The first units of one table with their rows and bytes. Lengths come from row headers: no long value is read.
async fn sizes_of(
    readers: &SqlitePool,
    table: &Table,
    after: Option<&Key>,
    most: u64,
) -> Result<Vec<(Key, u64, u64)>, MigrateError> {
    let key = unit_key(table);
    let length = |column: &str| {
        let length = Func::cust(Alias::new("octet_length")).arg(Expr::col(Alias::new(column)));
        Expr::expr(Func::coalesce([Expr::expr(length), Expr::val(0)]))
    };
    let texts = table.columns.iter().filter(|column| column.kind.is_text());
    let bytes = texts.map(|column| length(&column.name)).reduce(|sum, length| sum.add(length)).unwrap_or(Expr::val(0));
    let mut query = Query::select();
    query
        .exprs(key.iter().map(|name| Expr::col(Alias::new(name))))
        .expr(Expr::cust("COUNT(*)"))
        .expr(Func::sum(bytes))
        .from(Alias::new(&table.name))
        .limit(most);
    within(&mut query, &key, after, None);
    for name in &key {
        query.group_by_col(Alias::new(name)).order_by(Alias::new(name), Order::Asc);
    }
    let (statement, values) = query.build_sqlx(SqliteQueryBuilder);
    let rows = sqlx::query_with(AssertSqlSafe(statement), values).fetch_all(readers).await.map_err(sql(&table.name))?;
    let read = |row: &SqliteRow| -> Result<_, sqlx::Error> {
        let (rows, bytes): (i64, i64) = (row.try_get(key.len())?, row.try_get(key.len() + 1)?);
        Ok((Key::read(row, key.len())?, rows.unsigned_abs(), bytes.unsigned_abs()))
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql(&table.name))
}

/// The rows of these units, in the order of units and then of the primary key.
pub(super) async fn load(
    readers: &SqlitePool,
    table: &Table,
    needed: &BTreeSet<String>,
    after: Option<&Key>,
    units: &[Key],
) -> Result<Loaded, MigrateError> {
    let key = unit_key(table);
    let wanted: Vec<_> = table.columns.iter().filter(|column| needed.contains(&column.name)).collect();
    let mut query = Query::select();
    query
        .exprs(key.iter().map(|name| Expr::col(Alias::new(name))))
        .expr(Expr::cust("rowid"))
        .exprs(wanted.iter().map(|column| Expr::col(Alias::new(&column.name))))
        .from(Alias::new(&table.name));
    within(&mut query, &key, after, units.last());
    for name in key.iter().chain(table.primary_key.iter().filter(|name| !key.contains(name))) {
        query.order_by(Alias::new(name), Order::Asc);
    }
    let (statement, values) = query.build_sqlx(SqliteQueryBuilder);
    let rows = sqlx::query_with(AssertSqlSafe(statement), values).fetch_all(readers).await.map_err(sql(&table.name))?;

    let mut builders: Vec<_> = wanted.iter().map(|column| ColumnBuilder::new(column.kind.into())).collect();
    let mut loaded = Loaded { unit_offsets: vec![0], ..Loaded::default() };
    let mut unit = 0;
    for row in &rows {
        let key_of_row = Key::read(row, key.len()).map_err(sql(&table.name))?;
        // A unit without rows in this table is passed over; one that bounds did not list came since, and
        // belongs to the next start's copy of a database that others write to.
        while units.get(unit).is_some_and(|unit| *unit < key_of_row) {
            loaded.unit_offsets.push(rows_so_far(&loaded));
            unit += 1;
        }
        if units.get(unit) != Some(&key_of_row) {
            return Err(MigrateError::WrittenMeanwhile { table: table.name.clone() });
        }
        loaded.row_ids.push(row.try_get(key.len()).map_err(sql(&table.name))?);
        for (at, (column, builder)) in wanted.iter().zip(&mut builders).enumerate() {
            let value = value(row, key.len() + 1 + at, column.kind.into()).map_err(sql(&table.name))?;
            builder.push(value);
        }
    }
    while loaded.unit_offsets.len() <= units.len() {
        loaded.unit_offsets.push(rows_so_far(&loaded));
    }
    let finished = builders.into_iter().map(ColumnBuilder::finish);
    loaded.columns = wanted.iter().map(|column| column.name.clone()).zip(finished).collect();
    Ok(loaded)
}

fn rows_so_far(loaded: &Loaded) -> u32 {
    u32::try_from(loaded.row_ids.len()).expect("batches are bounded")
}

/// One value of a row, as bytes for text whatever they are.
pub(super) fn value(row: &SqliteRow, at: usize, encoding: Encoding) -> Result<Value<'_>, sqlx::Error> {
    if row.try_get_raw(at)?.is_null() {
        return Ok(Value::Null);
    }
    Ok(match encoding {
        Encoding::Boolean => Value::Boolean(row.try_get_unchecked::<i64, _>(at)? != 0),
        Encoding::Integer => Value::Integer(row.try_get_unchecked(at)?),
        Encoding::Text => Value::Text(row.try_get_unchecked(at)?),
    })
}
