//! Bulk insert into one table: statements of many rows, which PostgreSQL receives as one array for
//! each column. Owns the encoding; the rows arrive complete and sealed.

use std::collections::BTreeMap;

use sea_query::{Alias, Expr, ExprTrait, Func, InsertStatement, SelectStatement};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo};
use sqlx::query::Query as SqlxQuery;
use sqlx::{Arguments, AssertSqlSafe, Database as Sqlx, Encode, Postgres, Type};

use bbs_lens::TableRows;
use bbs_lens::layout::columns::ColumnData;
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::layout::values::{Encoding, Value};

use super::errors::RowTooLarge;
use super::statement::IntoStatement;
use super::transaction::{Inner, within};
use super::{Dialect, SqlError, Transaction};

/// Bound parameters per statement: SQLite's limit, and that of MySQL's protocol.
pub const MOST_VALUES_SQLITE: usize = 32_766;
const MOST_VALUES_MYSQL: usize = 65_535;
const MOST_ROWS: usize = 256;
/// Bytes of the arrays of one statement, of which the driver makes two copies.
const ARRAY_BYTES: usize = 512 << 10;

/// The rows of a table, with the columns in its order.
struct Rows<'a> {
    count: usize,
    columns: Vec<(&'a Column, &'a ColumnData)>,
}

impl Rows<'_> {
    fn value(&self, row: usize, column: usize) -> Value<'_> {
        let (column, data) = self.columns[column];
        data.get(column.kind.into(), row)
    }
}

/// Inserts whole rows into the table with that name in the database, each column sealed as the
/// table stores it. On failure the caller rolls its transaction back.
///
/// # Errors
/// If a statement fails, or a value does not fit its column.
pub async fn insert(
    tx: &mut Transaction,
    name: &str,
    table: &Table,
    rows: &TableRows,
) -> Result<(), SqlError> {
    let columns = table.columns.iter();
    let rows = Rows {
        count: rows.count(),
        columns: columns
            .map(|column| (column, &*rows.columns[&column.name].data))
            .collect(),
    };
    debug_assert!(
        rows.columns
            .iter()
            .all(|(column, data)| !column.kind.is_text() || data.offsets.len() == rows.count + 1),
        "each column holds `count` values"
    );
    // Counts as one query, however many statements it takes.
    let query = tx.query();
    query.end(by_statements(tx, name, &rows).await)
}

async fn by_statements(tx: &mut Transaction, table: &str, rows: &Rows<'_>) -> Result<(), SqlError> {
    let dialect = tx.dialect();
    let mut texts: BTreeMap<(usize, bool), String> = BTreeMap::new();
    let mut from = 0;
    while from < rows.count {
        let count = next_rows(rows, from, dialect, tx.limits.rows);
        let until = from + count;
        if count == 1 {
            accepted(rows, from, tx.limits.packet)?;
        }
        let as_bytes = dialect == Dialect::Sqlite && !is_utf8(rows, from..until);
        let text = texts
            .entry((count, as_bytes))
            .or_insert_with(|| statement(table, rows, count, as_bytes, dialect));
        let text = AssertSqlSafe(text.clone());
        let limit = tx.inner.limit();
        let inserting = async {
            match &mut tx.inner {
                Inner::Sqlite(tx) => bound(sqlx::query(text), rows, from..until)
                    .execute(&mut **tx)
                    .await
                    .map(drop),
                Inner::Grouped(tx) => bound(sqlx::query(text), rows, from..until)
                    .execute(&mut **tx)
                    .await
                    .map(drop),
                Inner::Postgres(session) => {
                    let (connection, reading) = session.statement()?;
                    let inserted = bound_as_arrays(sqlx::query(text), rows, from..until)
                        .execute(connection)
                        .await;
                    reading.ended(inserted).map(drop)
                }
                Inner::Mysql(session) => {
                    let (connection, reading) = session.statement()?;
                    let inserted = bound(sqlx::query(text), rows, from..until)
                        .execute(connection)
                        .await;
                    reading.ended(inserted).map(drop)
                }
            }
        };
        let inserted = within(limit, inserting).await;
        match inserted {
            Some(inserted) => inserted?,
            None => return Err(tx.inner.overdue().await),
        }
        from = until;
    }
    Ok(())
}

/// The number of rows that the next statement has.
fn next_rows(rows: &Rows<'_>, from: usize, dialect: Dialect, most_bytes: usize) -> usize {
    let bytes = (from..rows.count).map(|row| row_bytes(rows, row));
    let most = |values| values / rows.columns.len().max(1);
    let count = match dialect {
        // The statement is the same for any number of rows.
        Dialect::Postgres => rows_within(bytes, most_bytes.min(ARRAY_BYTES)),
        Dialect::Sqlite => rows_of_statement(bytes, most(MOST_VALUES_SQLITE), most_bytes),
        Dialect::Mysql => rows_of_statement(bytes, most(MOST_VALUES_MYSQL), most_bytes),
    };
    debug_assert!(
        count > 0 && from + count <= rows.count,
        "statements are bounded and go forward"
    );
    count
}

/// The number of the next rows, of these sizes, that one statement has: at least one, and at most
/// what these bounds allow. A power of two, since the number is part of the statement's text: so few
/// different statements have to be prepared.
pub fn rows_of_statement(
    bytes: impl Iterator<Item = usize>,
    most: usize,
    most_bytes: usize,
) -> usize {
    1 << rows_within(bytes.take(most.clamp(1, MOST_ROWS)), most_bytes).ilog2()
}

/// The number of the next rows, of these sizes, that have at most so many bytes together: at least
/// one.
fn rows_within(bytes: impl Iterator<Item = usize>, most_bytes: usize) -> usize {
    let sums = bytes.scan(0_usize, |sum, bytes| {
        *sum = sum.saturating_add(bytes);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= most_bytes).count().max(1)
}

/// The values of a row, in bytes.
fn row_bytes(rows: &Rows<'_>, row: usize) -> usize {
    let bytes = (0..rows.columns.len()).map(|column| match rows.value(row, column) {
        Value::Text(text) => text.len(),
        Value::Null | Value::Boolean(_) | Value::Integer(_) => 8,
    });
    bytes.sum()
}

/// Most bytes of a value in a statement besides its own: its type, and the length of a text.
const VALUE_OVERHEAD: usize = 16;
/// Most bytes of a statement besides its values.
const STATEMENT_OVERHEAD: usize = 64;

/// Refuses a row that the server does not accept in one statement: the session would end without a
/// reason.
fn accepted(rows: &Rows<'_>, row: usize, packet: usize) -> Result<(), SqlError> {
    let bytes = row_bytes(rows, row) + VALUE_OVERHEAD * rows.columns.len() + STATEMENT_OVERHEAD;
    if bytes < packet {
        return Ok(());
    }
    Err(SqlError::Encode(Box::new(RowTooLarge { bytes, packet })))
}

fn is_utf8(rows: &Rows<'_>, range: std::ops::Range<usize>) -> bool {
    let mut texts = rows
        .columns
        .iter()
        .filter(|(column, _)| column.kind.is_text());
    texts.all(|(_, data)| {
        let start = data.offsets[range.start] as usize;
        let end = data.offsets[range.end] as usize;
        // Validates all values in one pass; only then checks that no character spans two values.
        std::str::from_utf8(&data.values[start..end]).is_ok_and(|text| {
            range
                .clone()
                .all(|row| text.is_char_boundary(data.offsets[row] as usize - start))
        })
    })
}

fn statement(
    table: &str,
    rows: &Rows<'_>,
    count: usize,
    as_bytes: bool,
    dialect: Dialect,
) -> String {
    // Only its place in the text matters.
    let placeholder = || Expr::val(0);
    let mut insert = InsertStatement::default();
    insert.into_table(Alias::new(table)).columns(
        rows.columns
            .iter()
            .map(|(column, _)| Alias::new(&column.name)),
    );
    if dialect == Dialect::Postgres {
        // The server takes the next elements of all arrays at once, for one row after the other.
        let elements = |_| Func::cust("UNNEST").arg(placeholder());
        let mut unnested = SelectStatement::new();
        unnested.exprs(rows.columns.iter().map(elements));
        insert
            .select_from(unnested)
            .expect("as many arrays as columns");
    } else {
        for _ in 0..count {
            insert.values_panic(rows.columns.iter().map(|(column, _)| {
                // SQLite stores blobs as blobs; text that is not UTF-8 has to be stored with type
                // TEXT all the same.
                if as_bytes && column.kind.is_text() {
                    placeholder().cast_as(Alias::new("TEXT"))
                } else {
                    placeholder()
                }
            }));
        }
    }
    (&insert).into_statement(dialect).text
}

fn bound<'q, DB>(
    mut query: SqlxQuery<'q, DB, <DB as Sqlx>::Arguments>,
    rows: &'q Rows<'_>,
    range: std::ops::Range<usize>,
) -> SqlxQuery<'q, DB, <DB as Sqlx>::Arguments>
where
    DB: Sqlx,
    <DB as Sqlx>::Arguments: Arguments<Database = DB>,
    bool: Encode<'q, DB> + Type<DB>,
    i64: Encode<'q, DB> + Type<DB>,
    &'q str: Encode<'q, DB> + Type<DB>,
    &'q [u8]: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
{
    for row in range {
        for column in 0..rows.columns.len() {
            query = match rows.value(row, column) {
                Value::Null => query.bind(None::<i64>),
                Value::Boolean(value) => query.bind(value),
                Value::Integer(value) => query.bind(value),
                Value::Text(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) => query.bind(text),
                    Err(_) => query.bind(bytes),
                },
            };
        }
    }
    query
}

/// Binds each column as one array.
fn bound_as_arrays<'q>(
    mut query: SqlxQuery<'q, Postgres, PgArguments>,
    rows: &'q Rows<'_>,
    range: std::ops::Range<usize>,
) -> SqlxQuery<'q, Postgres, PgArguments> {
    for (at, (column, _)) in rows.columns.iter().enumerate() {
        let values = range.clone().map(|row| rows.value(row, at));
        query = match column.kind.into() {
            Encoding::Boolean => query.bind(values.map(boolean).collect::<Vec<_>>()),
            Encoding::Integer => query.bind(values.map(integer).collect::<Vec<_>>()),
            Encoding::Text => query.bind(values.map(text).collect::<Vec<_>>()),
        };
    }
    query
}

fn boolean(value: Value<'_>) -> Option<bool> {
    match value {
        Value::Boolean(value) => Some(value),
        Value::Null | Value::Integer(_) | Value::Text(_) => None,
    }
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Integer(value) => Some(value),
        Value::Null | Value::Boolean(_) | Value::Text(_) => None,
    }
}

fn text(value: Value<'_>) -> Option<PgText<'_>> {
    match value {
        Value::Text(bytes) => Some(PgText(bytes)),
        Value::Null | Value::Boolean(_) | Value::Integer(_) => None,
    }
}

/// A text of PostgreSQL, whose encoding its server checks: one of `SQL_ASCII` stores any bytes.
struct PgText<'a>(&'a [u8]);

impl Type<Postgres> for PgText<'_> {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for PgText<'_> {
    fn array_type_info() -> PgTypeInfo {
        <&str as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for PgText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0);
        Ok(IsNull::No)
    }
}
