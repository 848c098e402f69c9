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
use super::{MigrateError, Tuning, state};
use crate::database::{Dialect, Row, SqlError, Transaction};
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
    /// What the text of their rows takes, where that was asked for.
    pub bytes: u64,
}

/// What is asked about units besides their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Rows,
    /// Also how long their text is, of as many as take no more than so many bytes, or of one. For that the database has to
    /// look at the rows.
    Bytes {
        most: u64,
    },
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
    /// No row of a table, for so many units.
    pub(super) fn of_none(table: &Table, needed: &BTreeSet<String>, units: usize) -> Self {
        Rows::new(table, needed).finish(units)
    }

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

/// The next units over all tables, at most `most` of them. Without a measure in bytes only keys are looked at: for anything
/// else the database would have to go to the rows, which lie anywhere.
pub(super) async fn bounds(
    tx: &mut Transaction,
    tables: &[&Table],
    after: Option<&Key>,
    most: u64,
    measure: Measure,
) -> Result<Bounds, MigrateError> {
    let [first, ..] = tables else { return Ok(Bounds::default()) };
    let key = unit_key(first);
    let encodings = encodings(first, &key);
    let query = keys(tables, after, most, measure, tx.dialect());
    let mut bounds = Bounds::default();
    let mut rows = tx.stream(&query);
    while let Some(row) = rows.try_next().await.map_err(failed(&first.name))? {
        let number = |at: usize| row.integer(at).map(|number| number.unwrap_or_default().unsigned_abs());
        if let Measure::Bytes { most } = measure {
            let bytes = number(key.len() + 1).map_err(failed(&first.name))?;
            if !bounds.units.is_empty() && bounds.bytes.saturating_add(bytes) > most {
                break;
            }
            bounds.bytes += bytes;
        }
        bounds.rows += number(key.len()).map_err(failed(&first.name))?;
        bounds.units.push(Key::read(&row, &encodings).map_err(failed(&first.name))?);
    }
    Ok(bounds)
}

const UNIT_ROWS: &str = "unit_rows";
const UNIT_BYTES: &str = "unit_bytes";

/// The first units of some tables with how many rows they have, in the order of units.
fn keys(tables: &[&Table], after: Option<&Key>, most: u64, measure: Measure, dialect: Dialect) -> SelectStatement {
    const KEY: &str = "key";
    if let [table] = tables {
        return keys_of(table, after, most, measure, dialect);
    }
    let key = unit_key(tables[0]);
    let name = |at: usize| Alias::new(format!("{KEY}{at}"));
    let mut all = tables.iter().enumerate().map(|(place, table)| {
        // A limit inside of a union has to be wrapped for SQLite.
        let inner = keys_of(table, after, most, measure, dialect);
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
    query.expr(sum(UNIT_ROWS));
    if measure != Measure::Rows {
        query.expr(sum(UNIT_BYTES));
    }
    query.from_subquery(union, Alias::new("units")).limit(most).take()
}

fn keys_of(table: &Table, after: Option<&Key>, most: u64, measure: Measure, dialect: Dialect) -> SelectStatement {
    let key = unit_key(table);
    let mut query = Query::select();
    for (at, name) in key.iter().enumerate() {
        query.expr_as(Expr::col(Alias::new(name)), Alias::new(format!("key{at}")));
        query.order_by(Alias::new(name), Order::Asc);
    }
    let texts = table.columns.iter().filter(|column| column.kind.is_text()).map(|column| column.name.as_str());
    let bytes = state::text_length(texts).unwrap_or(Expr::val(0));
    let (rows, bytes) = if key == table.primary_key {
        // A unit is a row: nothing to group, so the walk along the key can stop at the limit for sure.
        (Expr::cust("1"), bytes)
    } else {
        for name in &key {
            query.group_by_col(Alias::new(name));
        }
        (Expr::cust("COUNT(*)"), Expr::expr(Func::sum(bytes)))
    };
    query.expr_as(rows.cast_as(Alias::new(dialect.integer_cast())), Alias::new(UNIT_ROWS));
    if measure != Measure::Rows {
        query.expr_as(bytes.cast_as(Alias::new(dialect.integer_cast())), Alias::new(UNIT_BYTES));
    }
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

/// The units between a key and the last of `units`, in the order of the database. Where others write, too, there may be
/// more between them, which are theirs; otherwise there are none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range<'a> {
    pub after: Option<&'a Key>,
    pub units: &'a [Key],
    pub is_shared: bool,
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

/// Those of some units that have rows in a table.
pub(super) async fn keys_among(tx: &mut Transaction, table: &Table, units: &[Key]) -> Result<Vec<Key>, MigrateError> {
    let key = unit_key(table);
    let encodings = encodings(table, &key);
    let mut query = Query::select();
    query.distinct().exprs(key.iter().map(|name| Expr::col(Alias::new(name)))).from(Alias::new(&table.name));
    query.and_where(listed(&key, units));
    let rows = tx.fetch(&query).await.map_err(failed(&table.name))?;
    rows.iter().map(|row| Key::read(row, &encodings)).collect::<Result<_, _>>().map_err(failed(&table.name))
}

fn rows_of(table: &Table, key: &[String], wanted: &[&Column]) -> SelectStatement {
    let mut query = Query::select();
    query
        .exprs(key.iter().map(|name| Expr::col(Alias::new(name))))
        .exprs(wanted.iter().map(|column| Expr::col(Alias::new(&column.name))))
        .from(Alias::new(&table.name));
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
    range: Range<'_>,
    room: &mut Room<'_>,
) -> Result<Loaded, MigrateError> {
    let key = unit_key(table);
    let places = Places::new(range.units, tx.dialect());
    let mut rows = Rows::new(table, needed);
    let mut query = rows_of(table, &key, &rows.wanted);
    within(&mut query, &key, range.after, range.units.last());
    let mut complete = range.units.len();
    let mut stream = tx.stream(&query);
    while let Some(row) = stream.try_next().await.map_err(failed(&table.name))? {
        let unit = rows.key(&row)?;
        // A unit without rows in this table is passed over; one that was not asked for came since.
        let place = match places.of(&unit) {
            Some(place) if place + 1 >= rows.unit_offsets.len() => place,
            None if range.is_shared => continue,
            _ => return Err(MigrateError::WrittenMeanwhile { table: table.name.clone() }),
        };
        if place > 0 && place + 1 > rows.unit_offsets.len() && rows.bytes > room.tuning.batch_bytes {
            complete = place;
            break;
        }
        let bytes = rows.push(&row, place)?;
        room.take(range.units, place, bytes)?;
    }
    Ok(rows.finish(complete))
}

/// The rows that the database finds under one key, and the key that they have there.
pub(super) async fn load_one(
    tx: &mut Transaction,
    table: &Table,
    needed: &BTreeSet<String>,
    unit: &Key,
    room: &mut Room<'_>,
) -> Result<(Loaded, Option<Key>), MigrateError> {
    let mut rows = Rows::new(table, needed);
    let mut query = rows_of(table, &unit_key(table), &rows.wanted);
    query.and_where(is_unit(table, unit));
    let mut stored_under = None;
    let mut stream = tx.stream(&query);
    while let Some(row) = stream.try_next().await.map_err(failed(&table.name))? {
        if stored_under.is_none() {
            stored_under = Some(rows.key(&row)?);
        }
        let bytes = rows.push(&row, 0)?;
        room.take(std::slice::from_ref(unit), 0, bytes)?;
    }
    Ok((rows.finish(1), stored_under))
}

/// Which of some units a key belongs to.
pub(super) struct Places<'a> {
    exactly: HashMap<&'a Key, usize>,
    /// Where keys are compared by a collation, rows of one unit may spell its key in upper or lower case. If the database
    /// distinguishes the two, each is a unit of its own and found exactly.
    in_any_case: HashMap<Key, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn new(units: &'a [Key], dialect: Dialect) -> Self {
        let exactly = units.iter().enumerate().map(|(place, unit)| (unit, place)).collect();
        let in_any_case = match dialect {
            Dialect::Mysql => units.iter().enumerate().map(|(place, unit)| (unit.in_lower_case(), place)).collect(),
            Dialect::Sqlite | Dialect::Postgres => HashMap::new(),
        };
        Self { exactly, in_any_case }
    }

    pub(super) fn of(&self, unit: &Key) -> Option<usize> {
        match self.exactly.get(unit) {
            None if !self.in_any_case.is_empty() => self.in_any_case.get(&unit.in_lower_case()).copied(),
            found => found.copied(),
        }
    }
}

/// Rows of one table on their way into columns.
struct Rows<'a> {
    table: &'a Table,
    encodings: Vec<Encoding>,
    wanted: Vec<&'a Column>,
    builders: Vec<ColumnBuilder>,
    unit_offsets: Vec<u32>,
    count: u32,
    bytes: u64,
}

impl<'a> Rows<'a> {
    fn new(table: &'a Table, needed: &BTreeSet<String>) -> Self {
        let wanted: Vec<_> = table.columns.iter().filter(|column| needed.contains(&column.name)).collect();
        let builders = wanted.iter().map(|column| ColumnBuilder::new(column.kind.into())).collect();
        let encodings = encodings(table, &unit_key(table));
        Self { table, encodings, wanted, builders, unit_offsets: vec![0], count: 0, bytes: 0 }
    }

    fn key(&self, row: &Row) -> Result<Key, MigrateError> {
        Key::read(row, &self.encodings).map_err(failed(&self.table.name))
    }

    /// Takes a row of the unit at this place, which is that of the row before or comes after it. Gives its bytes.
    fn push(&mut self, row: &Row, place: usize) -> Result<u64, MigrateError> {
        self.unit_offsets.resize(place + 1, self.count);
        self.count += 1;
        let mut bytes = 0;
        for (at, (column, builder)) in self.wanted.iter().zip(&mut self.builders).enumerate() {
            let value = row.value(self.encodings.len() + at, column.kind.into()).map_err(failed(&self.table.name))?;
            bytes += bytes_of(value);
            builder.push(value);
        }
        self.bytes += bytes;
        Ok(bytes)
    }

    fn finish(mut self, units: usize) -> Loaded {
        self.unit_offsets.resize(units + 1, self.count);
        let finished = self.builders.into_iter().map(|builder| Arc::new(builder.finish()));
        let columns = self.wanted.iter().map(|column| column.name.clone()).zip(finished).collect();
        Loaded { unit_offsets: self.unit_offsets, columns }
    }
}

fn bytes_of(value: Value<'_>) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Null | Value::Boolean(_) | Value::Integer(_) => 8,
    }
}
