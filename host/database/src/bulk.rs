//! Bulk insert into one table, by each database's fastest means: `COPY` on PostgreSQL, multi-row
//! `INSERT` statements on the others. Owns the encoding; the rows arrive complete and sealed.

use std::collections::BTreeMap;

use sea_query::{Alias, Expr, ExprTrait, InsertStatement};
use sqlx::query::Query as SqlxQuery;
use sqlx::{Arguments, AssertSqlSafe, Database as Sqlx, Encode, PgConnection, Type};

use bbs_lens::TableRows;
use bbs_lens::layout::columns::ColumnData;
use bbs_lens::layout::schema::{Column, ColumnType, Table};
use bbs_lens::layout::values::Value;
use tokio::sync::mpsc;

use super::errors::RowTooLarge;
use super::statement::IntoStatement;
use super::transaction::{Inner, within};
use super::{Dialect, SqlError, Transaction};

/// Bound parameters per statement: SQLite's limit, and that of MySQL's protocol.
pub const MOST_VALUES_SQLITE: usize = 32_766;
const MOST_VALUES_MYSQL: usize = 65_535;
const MOST_ROWS: usize = 256;
/// Bytes of a `COPY` that are encoded before they are sent.
const PIECE_BYTES: usize = 256 << 10;

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
    query.end(match tx.dialect() {
        Dialect::Postgres => copy(tx, name, &rows).await,
        Dialect::Sqlite => by_statements(tx, name, &rows, MOST_VALUES_SQLITE).await,
        Dialect::Mysql => by_statements(tx, name, &rows, MOST_VALUES_MYSQL).await,
    })
}

async fn copy(tx: &mut Transaction, table: &str, rows: &Rows<'_>) -> Result<(), SqlError> {
    let names: Vec<_> = rows
        .columns
        .iter()
        .map(|(column, _)| quoted(&column.name))
        .collect();
    let statement = format!(
        "COPY {} ({}) FROM STDIN (FORMAT binary)",
        quoted(table),
        names.join(", ")
    );
    let Inner::Postgres(mut lent) = std::mem::replace(&mut tx.inner, Inner::Lent) else {
        unreachable!("only PostgreSQL copies")
    };
    let (pieces, encoded) = mpsc::channel(1);
    // In a task of its own, which completes even if the caller is cancelled: on a connection whose
    // `COPY` was abandoned halfway, the next statement would receive the end of the `COPY` as its
    // answer.
    let sending = tokio::spawn(async move {
        let (connection, busy) = lent.statement();
        let copied = send(connection, &statement, encoded)
            .await
            .inspect(|()| busy.end());
        (lent, copied)
    });
    let encoded = encode_rows(rows, &pieces).await;
    drop(pieces);
    let (back, copied) = sending.await.map_err(|_| SqlError::WorkerCrashed)?;
    tx.inner = Inner::Postgres(back);
    encoded.and(copied)
}

/// Encodes and sends pieces in turn, so that the server works on one piece while the next is
/// encoded.
async fn encode_rows(rows: &Rows<'_>, pieces: &mpsc::Sender<Piece>) -> Result<(), SqlError> {
    // Signature, no flags, no header extension.
    let mut buffer = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let width =
        i16::try_from(rows.columns.len()).map_err(|fault| SqlError::Encode(fault.into()))?;
    for row in 0..rows.count {
        buffer.extend_from_slice(&width.to_be_bytes());
        for (at, (column, _)) in rows.columns.iter().enumerate() {
            encode(&mut buffer, column.kind, rows.value(row, at))?;
        }
        if buffer.len() >= PIECE_BYTES {
            let piece = std::mem::replace(
                &mut buffer,
                Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4),
            );
            // If the receiver is gone, the sending task has failed and returns the error itself.
            let _ = pieces.send(Piece::Rows(piece)).await;
        }
    }
    buffer.extend_from_slice(&(-1_i16).to_be_bytes());
    let _ = pieces.send(Piece::Last(buffer)).await;
    Ok(())
}

enum Piece {
    Rows(Vec<u8>),
    Last(Vec<u8>),
}

async fn send(
    connection: &mut PgConnection,
    statement: &str,
    mut encoded: mpsc::Receiver<Piece>,
) -> Result<(), SqlError> {
    let mut sink = connection.copy_in_raw(statement).await?;
    while let Some(piece) = encoded.recv().await {
        match piece {
            Piece::Rows(rows) => sink.send(rows).await.map(drop)?,
            Piece::Last(rows) => {
                sink.send(rows).await?;
                return sink.finish().await.map(drop);
            }
        }
    }
    sink.abort("the rows could not be encoded").await
}

/// Encodes one field of `COPY`'s binary format: its length, then its bytes in the column type's
/// format.
fn encode(buffer: &mut Vec<u8>, kind: ColumnType, value: Value<'_>) -> Result<(), SqlError> {
    match value {
        Value::Null => buffer.extend_from_slice(&(-1_i32).to_be_bytes()),
        Value::Boolean(value) => buffer.extend_from_slice(&[0, 0, 0, 1, u8::from(value)]),
        Value::Integer(number) if kind == ColumnType::Integer => {
            let number = i32::try_from(number).map_err(|fault| SqlError::Encode(fault.into()))?;
            buffer.extend_from_slice(&4_i32.to_be_bytes());
            buffer.extend_from_slice(&number.to_be_bytes());
        }
        Value::Integer(number) => {
            buffer.extend_from_slice(&8_i32.to_be_bytes());
            buffer.extend_from_slice(&number.to_be_bytes());
        }
        Value::Text(bytes) => {
            let length =
                i32::try_from(bytes.len()).map_err(|fault| SqlError::Encode(fault.into()))?;
            buffer.extend_from_slice(&length.to_be_bytes());
            buffer.extend_from_slice(bytes);
        }
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn by_statements(
    tx: &mut Transaction,
    table: &str,
    rows: &Rows<'_>,
    most_values: usize,
) -> Result<(), SqlError> {
    let most = most_values / rows.columns.len().max(1);
    let mut texts: BTreeMap<(usize, bool), String> = BTreeMap::new();
    let mut from = 0;
    while from < rows.count {
        let bytes = (from..rows.count).map(|row| row_bytes(rows, row));
        let count = rows_of_statement(bytes, most, tx.limits.rows);
        let until = from + count;
        debug_assert!(
            until > from && count <= most,
            "statements are bounded and go forward"
        );
        if count == 1 {
            accepted(rows, from, tx.limits.packet)?;
        }
        let as_bytes = !is_utf8(rows, from..until);
        let dialect = tx.dialect();
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
                Inner::Mysql(session) => {
                    let (connection, busy) = session.statement();
                    let inserted = bound(sqlx::query(text), rows, from..until)
                        .execute(connection)
                        .await;
                    inserted.map(|_| busy.end())
                }
                Inner::Postgres(_) | Inner::Lent => unreachable!("PostgreSQL copies"),
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

/// The number of the next rows, of these sizes, that one statement has: at least one, and at most
/// what these bounds allow. A power of two, since the number is part of the statement's text: so few
/// different statements have to be prepared.
pub fn rows_of_statement(
    bytes: impl Iterator<Item = usize>,
    most: usize,
    most_bytes: usize,
) -> usize {
    let sums = bytes.scan(0_usize, |sum, bytes| {
        *sum = sum.saturating_add(bytes);
        Some(*sum)
    });
    let fitting = sums
        .take(most.clamp(1, MOST_ROWS))
        .take_while(|sum| *sum <= most_bytes)
        .count();
    1 << fitting.max(1).ilog2()
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
    let mut insert = InsertStatement::default();
    insert.into_table(Alias::new(table)).columns(
        rows.columns
            .iter()
            .map(|(column, _)| Alias::new(&column.name)),
    );
    for _ in 0..count {
        insert.values_panic(rows.columns.iter().map(|(column, _)| {
            let placeholder = Expr::val(0);
            // SQLite stores blobs as blobs; text that is not UTF-8 has to be stored with type TEXT
            // all the same.
            let as_text = as_bytes && dialect == Dialect::Sqlite && column.kind.is_text();
            if as_text {
                placeholder.cast_as(Alias::new("TEXT"))
            } else {
                placeholder
            }
        }));
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
