//! Reading units: which come next, by their keys alone, and their rows as columns, sealed as they rest and bounded by
//! bytes. Owns the statements; opens nothing.
//!
//! Keys come in the order of the database, which is not that of their bytes where it has a collation. So nothing here
//! compares two keys but the database: it also says in which order the keys of several tables come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::TryStreamExt;
use sea_query::{Alias, Expr, ExprTrait, Func, Order, Query, SelectStatement, UnionType};

use super::key::Key;
use super::{MigrateError, Tuning};
use crate::database::{Dialect, SqlError, Transaction};
use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};

/// The columns by which the rows of a table are told into units.
pub(super) fn unit_key(table: &Table) -> Vec<String> {
    table.partition_key.as_ref().map_or_else(|| table.primary_key.clone(), |key| vec![key.clone()])
}

fn encodings(table: &Table, key: &[String]) -> Vec<Encoding> {
    key.iter().map(|name| table.column(name).expect("a key is of columns of the table").kind.into()).collect()
}

/// The unit keys of one batch, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    pub units: Vec<Key>,
    pub rows: u64,
}

/// How much of a batch may be in memory, and what is there of each of its units, over all tables.
#[derive(Debug)]
pub(super) struct Room<'a> {
    tuning: &'a Tuning,
    bytes: Vec<u64>,
}

impl<'a> Room<'a> {
    pub(super) fn new(tuning: &'a Tuning, units: usize) -> Self {
        Self { tuning, bytes: vec![0; units] }
    }

    /// What the first of the units take.
    pub(super) fn bytes(&self, units: usize) -> u64 {
        self.bytes[..units].iter().sum()
    }

    fn take(&mut self, units: &[Key], place: usize, bytes: u64) -> Result<(), MigrateError> {
        self.bytes[place] += bytes;
        let (bytes, limit) = (self.bytes[place], self.tuning.unit_bytes);
        if bytes > limit {
            return Err(MigrateError::UnitTooLarge { unit: units[place].name(), bytes, limit });
        }
        Ok(())
    }
}

/// One table's rows of a batch as they rest.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    pub unit_offsets: Vec<u32>,
    pub columns: BTreeMap<String, Arc<ColumnData>>,
}

impl Loaded {
    pub(super) fn rows(&self) -> usize {
        self.unit_offsets.last().map_or(0, |&rows| rows as usize)
    }

    /// Only these units, in this order.
    pub(super) fn only(&self, table: &Table, units: &[usize]) -> Self {
        let mut unit_offsets = vec![0];
        let mut rows = Vec::new();
        for &unit in units {
            rows.extend(self.unit_offsets[unit]..self.unit_offsets[unit + 1]);
            unit_offsets.push(u32::try_from(rows.len()).expect("batches are bounded"));
        }
        let pick = |(name, data): (&String, &Arc<ColumnData>)| {
            let kind = table.column(name).expect("a column of the table").kind;
            (name.clone(), Arc::new(data.pick(kind.into(), &rows, Value::Null)))
        };
        Self { unit_offsets, columns: self.columns.iter().map(pick).collect() }
    }

    /// Less than was asked for, if there was no room for more.
    pub(super) fn units(&self) -> usize {
        self.unit_offsets.len() - 1
    }

    /// Leaves out what comes after that many units.
    pub(super) fn truncate(&mut self, table: &Table, units: usize) {
        if units < self.units() {
            self.unit_offsets.truncate(units + 1);
            let rows = self.rows();
            for (name, data) in &mut self.columns {
                let kind = table.column(name).expect("what was loaded are columns of the table").kind;
                *data = Arc::new(data.slice(kind.into(), 0..rows));
            }
        }
    }
}

fn failed(table: &str) -> impl FnOnce(SqlError) -> MigrateError {
    let what = format!("rows of {table}");
    move |source| MigrateError::Sql { what, source }
}

fn columns(names: &[String]) -> Expr {
    match names {
        [name] => Expr::col(Alias::new(name)),
        names => Expr::tuple(names.iter().map(|name| Expr::col(Alias::new(name)))),
    }
}

fn values(key: &Key) -> Expr {
    let mut values = key.values();
    match values.len() {
        1 => Expr::value(values.remove(0)),
        _ => Expr::tuple(values.into_iter().map(Expr::value)),
    }
}

/// `key > after AND key <= last`, as far as either is given.
pub(super) fn within(query: &mut SelectStatement, key: &[String], after: Option<&Key>, last: Option<&Key>) {
    if let Some(after) = after {
        query.and_where(columns(key).gt(values(after)));
    }
    if let Some(last) = last {
        query.and_where(columns(key).lte(values(last)));
    }
}

/// The next units over all tables, at most `most` of them. Only keys are looked at: for anything else the database
/// would have to go to the rows, which lie anywhere.
pub(super) async fn bounds(
    tx: &mut Transaction,
    tables: &[&Table],
    after: Option<&Key>,
    most: u64,
) -> Result<Bounds, MigrateError> {
    let [first, ..] = tables else { return Ok(Bounds::default()) };
    let key = unit_key(first);
    let encodings = encodings(first, &key);
    let query = keys(tables, after, most, tx.dialect());
    let mut bounds = Bounds::default();
    let mut rows = tx.stream(&query);
    while let Some(row) = rows.try_next().await.map_err(failed(&first.name))? {
        let rows = row.integer(key.len()).map_err(failed(&first.name))?.unwrap_or_default();
        bounds.rows += rows.unsigned_abs();
        bounds.units.push(Key::read(&row, &encodings).map_err(failed(&first.name))?);
    }
    Ok(bounds)
}

/// The first units of some tables with how many rows they have, in the order of units.
fn keys(tables: &[&Table], after: Option<&Key>, most: u64, dialect: Dialect) -> SelectStatement {
    const KEY: &str = "key";
    if let [table] = tables {
        return keys_of(table, after, most, dialect);
    }
    let key = unit_key(tables[0]);
    let name = |at: usize| Alias::new(format!("{KEY}{at}"));
    let mut all = tables.iter().enumerate().map(|(place, table)| {
        // A limit inside of a union has to be wrapped for SQLite.
        let inner = keys_of(table, after, most, dialect);
        Query::select().expr(Expr::cust("*")).from_subquery(inner, Alias::new(format!("units{place}"))).take()
    });
    let mut union = all.next().expect("one table at least");
    for one in all {
        union.union(UnionType::All, one);
    }
    let sum = |of: &str| Expr::expr(Func::sum(Expr::col(Alias::new(of)))).cast_as(Alias::new(dialect.integer_cast()));
    let mut query = Query::select();
    for at in 0..key.len() {
        query.column(name(at)).group_by_col(name(at)).order_by(name(at), Order::Asc);
    }
    query.expr(sum("unit_rows")).from_subquery(union, Alias::new("units")).limit(most).take()
}

fn keys_of(table: &Table, after: Option<&Key>, most: u64, dialect: Dialect) -> SelectStatement {
    let key = unit_key(table);
    let mut query = Query::select();
    for (at, name) in key.iter().enumerate() {
        query.expr_as(Expr::col(Alias::new(name)), Alias::new(format!("key{at}")));
        query.order_by(Alias::new(name), Order::Asc);
    }
    let rows = if key == table.primary_key {
        // A unit is a row: nothing to group, so the walk along the key can stop at the limit for sure.
        Expr::cust("1")
    } else {
        for name in &key {
            query.group_by_col(Alias::new(name));
        }
        Expr::cust("COUNT(*)")
    };
    query.expr_as(rows.cast_as(Alias::new(dialect.integer_cast())), Alias::new("unit_rows"));
    query.from(Alias::new(&table.name)).limit(most);
    within(&mut query, &key, after, None);
    query
}

/// Whether a row is of a unit.
pub(super) fn is_unit(table: &Table, key: &Key) -> Expr {
    columns(&unit_key(table)).eq(values(key))
}

/// All columns of the rows of one unit, in the order of the primary key.
pub(super) async fn load_unit(tx: &mut Transaction, table: &Table, unit: &Key) -> Result<Loaded, MigrateError> {
    let mut query = Query::select();
    query.columns(table.columns.iter().map(|column| Alias::new(&column.name))).from(Alias::new(&table.name));
    query.and_where(is_unit(table, unit));
    for name in &table.primary_key {
        query.order_by(Alias::new(name), Order::Asc);
    }
    let mut builders: Vec<_> = table.columns.iter().map(|column| ColumnBuilder::new(column.kind.into())).collect();
    let mut count = 0;
    let mut rows = tx.stream(&query);
    while let Some(row) = rows.try_next().await.map_err(failed(&table.name))? {
        count += 1;
        for (at, (column, builder)) in table.columns.iter().zip(&mut builders).enumerate() {
            builder.push(row.value(at, column.kind.into()).map_err(failed(&table.name))?);
        }
    }
    let finished = builders.into_iter().map(|builder| Arc::new(builder.finish()));
    let columns = table.columns.iter().map(|column| column.name.clone()).zip(finished).collect();
    Ok(Loaded { unit_offsets: vec![0, count], columns })
}

/// Which units are read, in the order of the database.
#[derive(Debug, Clone, Copy)]
pub(super) enum Selection<'a> {
    /// Those after a key and up to the last of these. Where others write, too, there may be more between them, which
    /// are theirs; otherwise there are none.
    Range { after: Option<&'a Key>, units: &'a [Key], is_shared: bool },
    /// These, and no others.
    Listed(&'a [Key]),
}

impl<'a> Selection<'a> {
    fn units(self) -> &'a [Key] {
        match self {
            Self::Range { units, .. } | Self::Listed(units) => units,
        }
    }
}

/// Rows with one of these keys.
pub(super) fn listed(key: &[String], units: &[Key]) -> Expr {
    columns(key).is_in(units.iter().map(values))
}

/// The units that a table has between a key and another.
pub(super) async fn keys_between(
    tx: &mut Transaction,
    table: &Table,
    name: &str,
    after: Option<&Key>,
    last: Option<&Key>,
) -> Result<Vec<Key>, MigrateError> {
    let key = unit_key(table);
    let encodings = encodings(table, &key);
    let mut query = Query::select();
    query.distinct().exprs(key.iter().map(|name| Expr::col(Alias::new(name)))).from(Alias::new(name));
    within(&mut query, &key, after, last);
    let rows = tx.fetch(&query).await.map_err(failed(name))?;
    rows.iter().map(|row| Key::read(row, &encodings)).collect::<Result<_, _>>().map_err(failed(name))
}

fn rows_of(table: &Table, key: &[String], wanted: &[&Column], selection: Selection<'_>) -> SelectStatement {
    let mut query = Query::select();
    query
        .exprs(key.iter().map(|name| Expr::col(Alias::new(name))))
        .exprs(wanted.iter().map(|column| Expr::col(Alias::new(&column.name))))
        .from(Alias::new(&table.name));
    match selection {
        Selection::Range { after, units, .. } => within(&mut query, key, after, units.last()),
        Selection::Listed(units) => {
            query.and_where(listed(key, units));
        }
    }
    for name in key.iter().chain(table.primary_key.iter().filter(|name| !key.contains(name))) {
        query.order_by(Alias::new(name), Order::Asc);
    }
    query
}

/// The rows of units, in the order of units and then of the primary key: of all, or of the first, at least one, for
/// which there is room.
pub(super) async fn load(
    tx: &mut Transaction,
    table: &Table,
    needed: &BTreeSet<String>,
    selection: Selection<'_>,
    room: &mut Room<'_>,
) -> Result<Loaded, MigrateError> {
    let (key, units) = (unit_key(table), selection.units());
    let encodings = encodings(table, &key);
    let wanted: Vec<_> = table.columns.iter().filter(|column| needed.contains(&column.name)).collect();
    let query = rows_of(table, &key, &wanted, selection);
    let places: HashMap<&Key, usize> = units.iter().enumerate().map(|(place, unit)| (unit, place)).collect();
    let mut builders: Vec<_> = wanted.iter().map(|column| ColumnBuilder::new(column.kind.into())).collect();
    let mut unit_offsets = vec![0_u32];
    let (mut count, mut sum, mut complete) = (0, 0, units.len());
    let mut rows = tx.stream(&query);
    while let Some(row) = rows.try_next().await.map_err(failed(&table.name))? {
        let unit = Key::read(&row, &encodings).map_err(failed(&table.name))?;
        // A unit without rows in this table is passed over; one that was not asked for came since.
        let place = match (places.get(&unit), selection) {
            (Some(&place), _) if place + 1 >= unit_offsets.len() => place,
            (None, Selection::Range { is_shared: true, .. }) => continue,
            _ => return Err(MigrateError::WrittenMeanwhile { table: table.name.clone() }),
        };
        if place > 0 && place + 1 > unit_offsets.len() && sum > room.tuning.batch_bytes {
            complete = place;
            break;
        }
        unit_offsets.resize(place + 1, count);
        count += 1;
        let mut bytes = 0;
        for (at, (column, builder)) in wanted.iter().zip(&mut builders).enumerate() {
            let value = row.value(key.len() + at, column.kind.into()).map_err(failed(&table.name))?;
            bytes += bytes_of(value);
            builder.push(value);
        }
        sum += bytes;
        room.take(units, place, bytes)?;
    }
    unit_offsets.resize(complete + 1, count);
    let finished = builders.into_iter().map(|builder| Arc::new(builder.finish()));
    let columns = wanted.iter().map(|column| column.name.clone()).zip(finished).collect();
    Ok(Loaded { unit_offsets, columns })
}

fn bytes_of(value: Value<'_>) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Null | Value::Boolean(_) | Value::Integer(_) => 8,
    }
}
