//! Direct access: rows of a database at the native layout, without transformation. Owns the SQL of
//! filters, ranges and changes.

use bbs_database::{Dialect, Row, SqlError, Transaction};
use bbs_encryption::Keyring;
use bbs_units::{
    KeyColumn, RowLock, UnitKey, UnitPage, UnitSource, operand, residue, select_units, text_length,
    within,
};
use futures_util::TryStreamExt;
use sea_query::{
    Cond, DeleteStatement, Expr, ExprTrait, Func, OnConflict, Order, Query, SelectStatement,
};

use super::column_values::{ColumnValue, ColumnValues, Conflict};
use super::filter::Filter;
use super::page::{Key, Listed, PageEnd, Range};
use super::record::{Projection, SelectedRow};
use super::{EntityTable, Session, Store, StoreError, failed};

/// The rows of a unit for which a list reads enough at once.
const ROWS_OF_UNIT: u64 = 20;

/// The readable records of a range.
pub(super) async fn list<T>(
    Session { store, tx }: &mut Session,
    projection: &Projection<T>,
    filter: &Filter,
    range: &Range,
) -> Result<Listed<T>, StoreError> {
    let (rows, last) = match range.most {
        Some(units) => page(tx, projection, filter, range, units).await?,
        None => {
            let what = "list records";
            let rows = scan(tx, projection, filter, range, RowLock::None, what).await?;
            (rows, range.through.clone())
        }
    };
    let records = store.readable(rows.iter().map(|row| record(row, projection, store)))?;
    Ok(Listed { records, last })
}

/// All matching records, including errors for the unreadable ones.
pub(super) async fn records<T>(
    Session { store, tx }: &mut Session,
    projection: &Projection<T>,
    filter: &Filter,
    what: &'static str,
) -> Result<Vec<Result<T, StoreError>>, StoreError> {
    let all = Range::default();
    let rows = scan(tx, projection, filter, &all, RowLock::None, what).await?;
    Ok(rows
        .iter()
        .map(|row| record(row, projection, store))
        .collect())
}

/// The record of a unit. Under a lock, no other transaction changes it until this one ends.
pub(super) async fn get<T>(
    Session { store, tx }: &mut Session,
    projection: &Projection<T>,
    key: &[u8],
    lock: RowLock,
) -> Result<Option<T>, StoreError> {
    let filter = Filter::everything().equals(projection.table.key, key);
    let what = match lock {
        RowLock::None => "get a record",
        RowLock::Exclusive => "get a record to change it",
    };
    let rows = scan(tx, projection, &filter, &Range::default(), lock, what).await?;
    rows.first()
        .map(|row| record(row, projection, store))
        .transpose()
}

/// Notes a record that cannot be read.
fn record<T>(row: &Row, projection: &Projection<T>, store: &Store) -> Result<T, StoreError> {
    let read = projection.record(&SelectedRow::new(row, projection.columns), store.keyring());
    if let Err(StoreError::Unreadable { table, key, .. }) = &read {
        store.note_unreadable(table, key);
    }
    read
}

/// The rows of a table in a range of keys, in key order.
async fn scan<T>(
    tx: &mut Transaction,
    projection: &Projection<T>,
    filter: &Filter,
    range: &Range,
    lock: RowLock,
    what: &'static str,
) -> Result<Vec<Row>, StoreError> {
    let dialect = tx.dialect();
    let mut select = select(projection, filter, range, dialect);
    if lock == RowLock::Exclusive {
        select.lock_exclusive();
    }
    let mut rows = tx.fetch(&select).await.map_err(failed(what))?;
    if !filter.is_complete_in_sql(dialect) {
        // Without patterns that the database has compared, of which each takes long.
        let rest = filter.but_in_sql(projection.table.key, dialect);
        rows.retain(|row| rest.holds(&SelectedRow::new(row, projection.columns)));
    }
    Ok(rows)
}

fn select<T>(
    projection: &Projection<T>,
    filter: &Filter,
    range: &Range,
    dialect: Dialect,
) -> SelectStatement {
    let table = projection.table;
    Query::select()
        .columns(projection.columns.iter().copied())
        .from(table.name)
        .cond_where(filter.to_sql(dialect))
        .cond_where(in_range(table.key, range, dialect))
        .order_by_expr(order(table, filter, dialect), Order::Asc)
        .to_owned()
}

/// The key by which rows are ordered. Sessions of PostgreSQL avoid sorting, and an order by the
/// column itself would have them read all rows by the key's index where another index finds the few
/// that match.
fn order(table: EntityTable, filter: &Filter, dialect: Dialect) -> Expr {
    let key = Expr::col(table.key);
    if dialect == Dialect::Postgres && filter.names_a_text_of(table.selective) {
        Expr::cust_with_expr("$1 || ''", key)
    } else {
        key
    }
}

/// Condition: the key is in a range.
fn in_range(key: &str, range: &Range, dialect: Dialect) -> Cond {
    let [after, last] = bounds(range, dialect);
    within(
        &[KeyColumn::text(key)],
        after.as_ref(),
        last.as_ref(),
        dialect,
    )
}

/// The bounds of a range. One that the database can hold no key of is left out: clients name the
/// key after which a page begins.
fn bounds(range: &Range, dialect: Dialect) -> [Option<UnitKey>; 2] {
    [&range.after, &range.through].map(|key| {
        let key = key.as_ref().filter(|key| operand(key, dialect).is_some());
        key.cloned().map(UnitKey::text)
    })
}

/// The keys of the next units of a range, at most `most`, each with the size of its text in bytes.
pub(super) async fn next_keys(
    tx: &mut Transaction,
    sources: &[UnitSource<'_>],
    range: &Range,
    most: u32,
    what: &'static str,
) -> Result<Vec<(Key, u64)>, StoreError> {
    let dialect = tx.dialect();
    let [after, last] = bounds(range, dialect);
    let page = UnitPage {
        after: after.as_ref(),
        last: last.as_ref(),
        most: most.into(),
        is_measured: true,
    };
    let select = select_units(sources, page, dialect);
    let keys = tx.fetch_as(&select, |row| {
        let key = row.bytes(0)?.unwrap_or_default().to_vec();
        Ok((key, row.unsigned(1)?))
    });
    keys.await.map_err(failed(what))
}

/// The rows of the first page of a range, and its last key, or that of the range if none of its
/// rows follow. The rows are streamed in key order and counted; if they do not determine the end of
/// the page, another query does.
async fn page<T>(
    tx: &mut Transaction,
    projection: &Projection<T>,
    filter: &Filter,
    range: &Range,
    units: u32,
) -> Result<RowsAndEnd, StoreError> {
    const WHAT: &str = "list the records of a page";
    let table = projection.table;
    let dialect = tx.dialect();
    if filter.is_complete_in_sql(dialect) {
        // One row more than units: the last row belongs to a unit beyond the page, unless some
        // units have several rows. Those of a later list may where those of the first have one.
        let has_several = table.primary_key != [table.key];
        let is_later = range.has_earlier_list || range.through.is_some();
        let rows_of_unit = if has_several && is_later {
            ROWS_OF_UNIT
        } else {
            1
        };
        let limit = u64::from(units) * rows_of_unit + 1;
        let select = select(projection, filter, range, dialect)
            .limit(limit)
            .to_owned();
        let columns = projection.columns;
        let position = |column| columns.iter().position(|selected| *selected == column);
        let key = position(table.key).expect("the key is selected");
        let heavy: Vec<_> = table
            .heavy
            .iter()
            .filter_map(|column| position(*column))
            .collect();
        let end = PageEnd::new(units);
        let mut found = PageRows {
            dialect,
            key,
            rows: Vec::new(),
            last_begins_at: 0,
            end,
            over: None,
        };
        let mut rows = tx.stream(&select);
        while let Some(row) = rows.try_next().await.map_err(failed(WHAT))? {
            if found.take(row, &heavy).map_err(failed(WHAT))? {
                break;
            }
        }
        drop(rows);
        if let Some((rows, last)) = found.page(limit).map_err(failed(WHAT))? {
            return Ok((rows, last.or_else(|| range.through.clone())));
        }
    }
    let range = Range {
        through: page_end(tx, table, filter, range, units).await?,
        ..range.clone()
    };
    let rows = scan(tx, projection, filter, &range, RowLock::None, WHAT).await?;
    Ok((rows, range.through))
}

/// The rows of a page read so far.
struct PageRows {
    dialect: Dialect,
    /// The position of the key among the columns.
    key: usize,
    rows: Vec<Row>,
    /// The index of the first row of the last unit.
    last_begins_at: usize,
    end: PageEnd,
    /// Whether a row beyond the page was read, and if so, whether it is certain to belong to
    /// another unit.
    over: Option<bool>,
}

/// The rows of a page, and its last key; none if no rows follow.
type RowsAndEnd = (Vec<Row>, Option<Key>);

impl PageRows {
    /// Adds a row, given the positions of the heavy columns. Returns true if it is beyond the page.
    fn take(&mut self, row: Row, heavy: &[usize]) -> Result<bool, SqlError> {
        let key = row.bytes(self.key)?;
        let last = self
            .rows
            .last()
            .map(|last| last.bytes(self.key))
            .transpose()?;
        if last != Some(key) {
            if self.end.is_reached() {
                self.over = Some(last.is_none_or(|last| surely_differ(last, key, self.dialect)));
                return Ok(true);
            }
            self.last_begins_at = self.rows.len();
            self.end.begin_unit();
        }
        for column in heavy {
            self.end
                .add(row.bytes(*column)?.map_or(0, |text| text.len() as u64));
        }
        self.rows.push(row);
        Ok(false)
    }

    /// The page; none if the rows read do not determine its end.
    fn page(mut self, limit: u64) -> Result<Option<RowsAndEnd>, SqlError> {
        let at = self.key;
        let key = |row: &Row| Ok::<_, SqlError>(row.bytes(at)?.unwrap_or_default().to_vec());
        match self.over {
            None if (self.rows.len() as u64) < limit => return Ok(Some((self.rows, None))),
            // The last unit may have more rows, and nothing may follow it. The units before it are
            // complete.
            None => {
                let Some(row) = self.rows.get(self.last_begins_at) else {
                    return Ok(None);
                };
                let beyond = key(row)?;
                self.rows.truncate(self.last_begins_at);
                let Some(last) = self.rows.last().map(key).transpose()? else {
                    return Ok(None);
                };
                let ends = surely_differ(Some(&last), Some(&beyond), self.dialect);
                return Ok(ends.then_some((self.rows, Some(last))));
            }
            Some(false) => return Ok(None),
            Some(true) => {}
        }
        let last = self.rows.last().map(key).transpose()?;
        Ok(Some((self.rows, last)))
    }
}

/// Whether two keys with different bytes are certain to be different for the database. A collation
/// of MySQL may treat characters as equal; ASCII letters (apart from case), digits, `-` and `_` are
/// always different.
fn surely_differ(one: Option<&[u8]>, other: Option<&[u8]>, dialect: Dialect) -> bool {
    let is_plain = |key: &[u8]| {
        key.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    match (dialect, one, other) {
        (Dialect::Sqlite | Dialect::Postgres, ..) => true,
        (Dialect::Mysql, Some(one), Some(other)) => {
            is_plain(one) && is_plain(other) && !one.eq_ignore_ascii_case(other)
        }
        (Dialect::Mysql, ..) => false,
    }
}

/// The last key of the first page of a range; that of the range if no units of it follow.
pub(super) async fn page_end(
    tx: &mut Transaction,
    table: EntityTable,
    filter: &Filter,
    range: &Range,
    units: u32,
) -> Result<Option<Key>, StoreError> {
    let end = PageEnd::new(units);
    let source = UnitSource {
        name: table.name,
        key: vec![KeyColumn::text(table.key)],
        has_single_rows: table.primary_key == [table.key],
        texts: table.heavy.to_vec(),
        condition: filter.to_sql(tx.dialect()),
    };
    let most = end.most_read();
    let found = next_keys(tx, &[source], range, most, "find the end of a page").await?;
    Ok(end.find(found).or_else(|| range.through.clone()))
}

/// Inserts rows with the same columns. `stamp` is a column that each of them gets besides, with its
/// value.
pub(super) async fn insert(
    Session { store, tx }: &mut Session,
    table: EntityTable,
    stamp: Option<(&'static str, i64)>,
    rows: Vec<ColumnValues>,
    conflict: Conflict,
) -> Result<(), StoreError> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let names = first
        .iter()
        .map(|(column, _)| *column)
        .chain(stamp.map(|(column, _)| column));
    let mut insert = Query::insert();
    insert.into_table(table.name).columns(names);
    for values in rows {
        let values = values
            .into_iter()
            .map(|(_, value)| operand_of(value, store.keyring()));
        insert.values_panic(values.chain(stamp.map(|(_, version)| Expr::val(version))));
    }
    match conflict {
        Conflict::Fails => {}
        Conflict::Updates(column) => {
            let keys = table.primary_key.iter().copied();
            insert.on_conflict(OnConflict::columns(keys).update_column(column).to_owned());
        }
    }
    tx.execute(&insert)
        .await
        .map_err(failed("insert records"))
        .map(drop)
}

/// Updates the matching rows and returns their number.
pub(super) async fn update(
    Session { store, tx }: &mut Session,
    table: EntityTable,
    filter: &Filter,
    values: ColumnValues,
) -> Result<u64, StoreError> {
    let mut update = Query::update();
    update
        .table(table.name)
        .cond_where(filter.to_sql(tx.dialect()));
    for (column, value) in values {
        update.value(column, operand_of(value, store.keyring()));
    }
    tx.execute(&update).await.map_err(failed("update a record"))
}

/// Deletes the matching rows of a unit and returns their number. The unit's residue stays.
pub(super) async fn delete(
    tx: &mut Transaction,
    table: EntityTable,
    key: &[u8],
    filter: Filter,
) -> Result<u64, StoreError> {
    let filter = filter.equals(table.key, key);
    tx.execute(&deletion(table, &filter, tx.dialect()))
        .await
        .map_err(failed("delete records"))
}

/// Deletes the only record of a unit and its residue, and returns the record.
pub(super) async fn take<T>(
    Session { store, tx }: &mut Session,
    projection: &Projection<T>,
    residue_places: Option<&residue::Places>,
    key: &[u8],
) -> Result<Option<Result<T, StoreError>>, StoreError> {
    const WHAT: &str = "delete a record";
    let table = projection.table;
    let dialect = tx.dialect();
    let filter = Filter::everything().equals(table.key, key);
    let mut delete = deletion(table, &filter, dialect);
    let rows = if dialect == Dialect::Mysql {
        // MySQL, unlike MariaDB, has no `RETURNING`.
        let all = Range::default();
        let rows = scan(tx, projection, &filter, &all, RowLock::Exclusive, WHAT).await?;
        if !rows.is_empty() {
            tx.execute(&delete).await.map_err(failed(WHAT))?;
        }
        rows
    } else {
        let columns = projection.columns.iter().copied();
        delete.returning(Query::returning().columns(columns));
        tx.fetch(&delete).await.map_err(failed(WHAT))?
    };
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let taken = record(row, projection, store);
    delete_residue(tx, residue_places, key).await?;
    Ok(Some(taken))
}

/// The bytes of text in these columns of all rows of a unit.
pub(super) async fn unit_bytes(
    tx: &mut Transaction,
    table: EntityTable,
    key: &[u8],
    columns: &[&'static str],
) -> Result<u64, StoreError> {
    const WHAT: &str = "measure the records of a guid";
    let dialect = tx.dialect();
    let size = text_length(columns.iter().copied()).unwrap_or(Expr::val(0));
    let select = Query::select()
        .expr(
            Expr::from(Func::coalesce([Func::sum(size).into(), Expr::val(0)]))
                .cast_as(dialect.integer_cast()),
        )
        .from(table.name)
        .cond_where(Filter::everything().equals(table.key, key).to_sql(dialect))
        .to_owned();
    let bytes = tx.fetch_number(&select).await.map_err(failed(WHAT))?;
    Ok(bytes.unsigned_abs())
}

fn deletion(table: EntityTable, filter: &Filter, dialect: Dialect) -> DeleteStatement {
    Query::delete()
        .from_table(table.name)
        .cond_where(filter.to_sql(dialect))
        .to_owned()
}

/// Deletes the residue of a unit whose rows are deleted.
pub(super) async fn delete_residue(
    tx: &mut Transaction,
    places: Option<&residue::Places>,
    key: &[u8],
) -> Result<(), StoreError> {
    let Some(places) = places else { return Ok(()) };
    let result = residue::forget(tx, places, &UnitKey::text(key.to_vec()).name()).await;
    result.map_err(|source| StoreError::Units {
        what: "delete the residue of a record",
        source: Box::new(source),
    })
}

fn operand_of(value: ColumnValue, keyring: &Keyring) -> Expr {
    match value {
        ColumnValue::Number(number) => Expr::val(number),
        ColumnValue::Flag(flag) => Expr::val(flag),
        ColumnValue::Text(text) => Expr::val(text),
        ColumnValue::Sealed(sealing, plain) => {
            let text = keyring.seal(sealing, &plain);
            Expr::val(String::from_utf8(text).expect("a sealed column is ASCII"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_collation_may_treat_as_equal_are_not_surely_different() {
        let differ = |one: &str, other: &str| {
            [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql]
                .map(|dialect| surely_differ(Some(one.as_bytes()), Some(other.as_bytes()), dialect))
        };
        for (one, other) in [("a", "b"), ("a-1", "a_1"), ("A", "b"), ("", "a")] {
            assert_eq!(differ(one, other), [true; 3], "{one:?} {other:?}");
        }
        for (one, other) in [
            ("a", "A"),
            ("a", "a "),
            ("e", "\u{e9}"),
            ("a.", "a,"),
            ("a", "a\u{0}"),
        ] {
            assert_eq!(differ(one, other), [true, true, false], "{one:?} {other:?}");
        }
        assert!(!surely_differ(None, Some(b"a"), Dialect::Mysql));
    }
}
