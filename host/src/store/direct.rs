//! Rows in the database at the layout that the handlers speak: filters, ranges and changes as statements. Owns the SQL
//! of the direct way; nothing here is transformed.

use sea_query::{Alias, Cond, Expr, ExprTrait, Func, OnConflict, Order, Query, SelectStatement};

use super::cells::{Cell, Cells};
use super::filter::Filter;
use super::reader::{Key, PageEnd, Range};
use super::writer::Conflict;
use super::{StoreError, Table, failed};
use crate::database::{Dialect, Row, Transaction};
use crate::record::Keyring;
use crate::units::operand;

/// The rows of a table in a range of keys, in the order of keys.
pub(super) async fn scan(
    tx: &mut Transaction,
    table: Table,
    columns: &[&'static str],
    filter: &Filter,
    range: &Range,
    what: &'static str,
) -> Result<Vec<Row>, StoreError> {
    rows(tx, &select(table, columns, filter, range, tx.dialect()), filter, what).await
}

/// The same, none of which anybody else changes before this transaction ends.
pub(super) async fn scan_to_change(
    tx: &mut Transaction,
    table: Table,
    columns: &[&'static str],
    filter: &Filter,
    what: &'static str,
) -> Result<Vec<Row>, StoreError> {
    let mut select = select(table, columns, filter, &Range::default(), tx.dialect());
    select.lock_exclusive();
    rows(tx, &select, filter, what).await
}

fn select(table: Table, columns: &[&'static str], filter: &Filter, range: &Range, dialect: Dialect) -> SelectStatement {
    Query::select()
        .columns(columns.iter().map(|column| Alias::new(*column)))
        .from(Alias::new(table.name))
        .cond_where(filter.said(dialect))
        .cond_where(within(table.key, range, dialect))
        .order_by(Alias::new(table.key), Order::Asc)
        .to_owned()
}

async fn rows(
    tx: &mut Transaction,
    select: &SelectStatement,
    filter: &Filter,
    what: &'static str,
) -> Result<Vec<Row>, StoreError> {
    let said_whole = filter.is_said_whole(tx.dialect());
    let mut rows = tx.fetch(select).await.map_err(failed(what))?;
    if !said_whole {
        rows.retain(|row| filter.holds(row));
    }
    Ok(rows)
}

pub(super) fn within(key: &str, range: &Range, dialect: Dialect) -> Cond {
    let key = || Expr::col(Alias::new(key));
    let bound = |at: &Option<Key>| at.as_ref().and_then(|at| operand(at, dialect));
    let after = bound(&range.after).map(|after| key().gt(after));
    let through = bound(&range.through).map(|through| key().lte(through));
    Cond::all().add_option(after).add_option(through)
}

/// Where a page ends that begins after a key.
pub(super) async fn page_end(
    tx: &mut Transaction,
    table: Table,
    filter: &Filter,
    after: Option<&Key>,
    units: u32,
) -> Result<Option<Key>, StoreError> {
    const WHAT: &str = "find the end of a page";
    let dialect = tx.dialect();
    let beyond = Range { after: after.cloned(), through: None };
    let sizes = table.heavy.iter().map(|column| bytes_of(Expr::col(Alias::new(*column))));
    let size = sizes.reduce(|sum, size| sum.add(size)).unwrap_or(Expr::val(0));
    let select = Query::select()
        .column(Alias::new(table.key))
        .expr(Expr::from(Func::sum(size)).cast_as(Alias::new(dialect.integer_cast())))
        .from(Alias::new(table.name))
        .cond_where(filter.said(dialect))
        .cond_where(within(table.key, &beyond, dialect))
        .group_by_col(Alias::new(table.key))
        .order_by(Alias::new(table.key), Order::Asc)
        .limit(units.into())
        .to_owned();
    let mut end = PageEnd::new(units);
    for row in tx.fetch(&select).await.map_err(failed(WHAT))? {
        let key = row.bytes(0).map_err(failed(WHAT))?.unwrap_or_default();
        let size = row.integer(1).map_err(failed(WHAT))?.unwrap_or(0);
        if end.reached_by(size.unsigned_abs()) {
            return Ok(Some(key.to_vec()));
        }
    }
    Ok(None)
}

/// How long a text is at rest, without reading it where the database knows.
pub(super) fn bytes_of(column: Expr) -> Expr {
    let length = Func::cust(Alias::new("octet_length")).arg(column);
    Func::coalesce([Expr::from(length), Expr::val(0)]).into()
}

pub(super) async fn insert(
    tx: &mut Transaction,
    keyring: &Keyring,
    (table, stamp): (Table, Option<(&'static str, i64)>),
    rows: Vec<Cells>,
    conflict: Conflict,
    what: &'static str,
) -> Result<(), StoreError> {
    let Some(first) = rows.first() else { return Ok(()) };
    let names = first.iter().map(|(column, _)| *column).chain(stamp.map(|(column, _)| column));
    let mut insert = Query::insert();
    insert.into_table(Alias::new(table.name)).columns(names.map(Alias::new));
    for cells in rows {
        let values = cells.into_iter().map(|(_, cell)| value(cell, keyring));
        insert.values_panic(values.chain(stamp.map(|(_, version)| Expr::val(version))));
    }
    match conflict {
        Conflict::Fails => {}
        Conflict::Takes(column) => {
            let keys = table.primary_key.iter().map(|column| Alias::new(*column));
            insert.on_conflict(OnConflict::columns(keys).update_column(Alias::new(column)).to_owned());
        }
    }
    tx.execute(&insert).await.map_err(failed(what)).map(drop)
}

/// How many rows were meant.
pub(super) async fn update(
    tx: &mut Transaction,
    keyring: &Keyring,
    table: Table,
    filter: &Filter,
    cells: Cells,
    what: &'static str,
) -> Result<u64, StoreError> {
    let mut update = Query::update();
    update.table(Alias::new(table.name)).cond_where(filter.said(tx.dialect()));
    for (column, cell) in cells {
        update.value(Alias::new(column), value(cell, keyring));
    }
    tx.execute(&update).await.map_err(failed(what))
}

/// How many rows were meant.
pub(super) async fn delete(
    tx: &mut Transaction,
    table: Table,
    filter: &Filter,
    what: &'static str,
) -> Result<u64, StoreError> {
    let delete = Query::delete().from_table(Alias::new(table.name)).cond_where(filter.said(tx.dialect())).to_owned();
    tx.execute(&delete).await.map_err(failed(what))
}

fn value(cell: Cell, keyring: &Keyring) -> Expr {
    match cell {
        Cell::Number(number) => Expr::val(number),
        Cell::Flag(flag) => Expr::val(flag),
        Cell::Text(text) => Expr::val(text),
        Cell::Sealed(sealing, plain) => {
            let text = keyring.seal(sealing, &plain);
            Expr::val(String::from_utf8(text).expect("a sealed column is ASCII"))
        }
    }
}
