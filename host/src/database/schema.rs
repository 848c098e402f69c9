//! How a layout is spelled in each database, and what the database says back. Owns every difference between a
//! portable layout and its tables: types, defaults, keys, indexes. Decides nothing about when a table is made.
//!
//! A database is often shared, so nothing here looks outside the schema (PostgreSQL) or the database (MySQL) that the
//! connection is in.

mod difference;
mod mysql;
mod names;
mod postgres;
mod sqlite;

use sea_query::{
    Alias, ColumnDef, Expr, Index as IndexQuery, MysqlQueryBuilder, PostgresQueryBuilder, SchemaStatementBuilder,
    SqliteQueryBuilder, Table as TableQuery,
};

use super::{Dialect, SqlError, Transaction, sql};
use crate::layout::schema::{Column, ColumnType, Index, Literal, Table};

pub use difference::differences;
pub use mysql::rename_tables;
pub use names::{before_filling, index_ahead, set_aside, take_place, waiting};

#[derive(Debug, thiserror::Error)]
#[error("cannot read the schema of table {table:?}")]
pub struct ReadBackError {
    table: String,
    source: SqlError,
}

/// A table as the database describes it, in words that do not depend on how it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalTable {
    pub columns: Vec<PhysicalColumn>,
    pub primary_key: Vec<String>,
    /// By name.
    pub indexes: Vec<PhysicalIndex>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalColumn {
    pub name: String,
    pub kind: String,
    pub nullable: bool,
    /// As SQLite would write it: a number, or text in single quotes.
    pub default: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalIndex {
    pub name: String,
    /// Names; what is more than a name (a prefix, an expression) is written out, and so equals no column of a layout.
    pub columns: Vec<String>,
    pub unique: bool,
}

/// What one definition of a column is to another, in one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnChange {
    /// The same.
    None,
    /// The database gives the column more room where it is, without rewriting rows: [`alter_column`].
    Widening,
    /// Rows have to be rewritten, or may not fit.
    Other,
}

fn written(dialect: Dialect, statement: &impl SchemaStatementBuilder) -> String {
    match dialect {
        Dialect::Sqlite => statement.to_string(SqliteQueryBuilder),
        Dialect::Postgres => statement.to_string(PostgresQueryBuilder),
        Dialect::Mysql => statement.to_string(MysqlQueryBuilder),
    }
}

fn type_name(dialect: Dialect, kind: ColumnType) -> String {
    match dialect {
        Dialect::Sqlite => sqlite::type_name(kind).to_owned(),
        Dialect::Postgres => postgres::type_name(kind),
        Dialect::Mysql => mysql::type_name(kind),
    }
}

/// A literal as an expression, written out: it comes from a manifest, never from a row.
pub fn literal(dialect: Dialect, kind: ColumnType, value: Option<&Literal>) -> Expr {
    Expr::cust(match (value, dialect) {
        (Some(value), _) => spelled(dialect, value),
        // PostgreSQL takes what has no type for text.
        (None, Dialect::Postgres) => format!("CAST(NULL AS {})", postgres::type_name(kind)),
        (None, Dialect::Sqlite | Dialect::Mysql) => "NULL".to_owned(),
    })
}

fn spelled(dialect: Dialect, literal: &Literal) -> String {
    match (literal, dialect) {
        (Literal::Boolean(value), Dialect::Postgres) => value.to_string().to_uppercase(),
        // A backslash begins an escape in MySQL's text.
        (Literal::Text(value), Dialect::Mysql) => canonical(&Literal::Text(value.replace('\\', r"\\"))),
        _ => canonical(literal),
    }
}

/// Booleans are the numbers that SQLite and MySQL keep them as.
fn canonical(literal: &Literal) -> String {
    match literal {
        Literal::Boolean(value) => i32::from(*value).to_string(),
        Literal::Integer(value) => value.to_string(),
        Literal::Text(value) => quoted(value),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn definition(dialect: Dialect, column: &Column) -> ColumnDef {
    let mut definition = ColumnDef::new(Alias::new(&column.name));
    definition.custom(Alias::new(type_name(dialect, column.kind)));
    if !column.nullable {
        definition.not_null();
    }
    if let Some(default) = &column.default {
        let default = spelled(dialect, default);
        // MySQL lets long text have a default only as an expression; everywhere else a plain literal is read back best.
        let long_text = column.kind.is_text() && !matches!(column.kind, ColumnType::Varchar(_));
        let expression = dialect == Dialect::Mysql && long_text;
        definition.extra(if expression { format!("DEFAULT ({default})") } else { format!("DEFAULT {default}") });
    }
    definition
}

/// `CREATE TABLE` under a name of the caller's choice, without the indexes.
pub fn create_table(dialect: Dialect, table: &Table, name: &str) -> String {
    written(dialect, &creation(dialect, table, name))
}

/// The same for a table of the host's own, which may be there already.
pub fn ensure_table(dialect: Dialect, table: &Table) -> String {
    written(dialect, creation(dialect, table, &table.name).if_not_exists())
}

fn creation(dialect: Dialect, table: &Table, name: &str) -> sea_query::TableCreateStatement {
    let mut query = TableQuery::create();
    query.table(Alias::new(name));
    for column in &table.columns {
        query.col(definition(dialect, column));
    }
    let mut key = IndexQuery::create();
    if dialect == Dialect::Postgres {
        key.name(names::key_name(name));
    }
    for column in &table.primary_key {
        key.col(Alias::new(column));
    }
    query.primary_key(&mut key);
    if dialect == Dialect::Mysql {
        query.engine("InnoDB").extra("ROW_FORMAT=DYNAMIC");
    }
    query
}

pub fn drop_table(dialect: Dialect, name: &str) -> String {
    written(dialect, TableQuery::drop().table(Alias::new(name)).if_exists())
}

pub fn rename_table(dialect: Dialect, from: &str, to: &str) -> String {
    written(dialect, TableQuery::rename().table(Alias::new(from), Alias::new(to)))
}

pub fn add_column(dialect: Dialect, table: &str, column: &Column) -> String {
    written(dialect, TableQuery::alter().table(Alias::new(table)).add_column(definition(dialect, column)))
}

/// Gives a column its new definition, where [`column_change`] says that this is a widening.
pub fn alter_column(dialect: Dialect, table: &str, column: &Column) -> String {
    match dialect {
        Dialect::Postgres => postgres::alter_column(table, column),
        Dialect::Sqlite | Dialect::Mysql => {
            written(dialect, TableQuery::alter().table(Alias::new(table)).modify_column(definition(dialect, column)))
        }
    }
}

pub fn create_index(dialect: Dialect, table: &str, index: &Index) -> String {
    let mut query = IndexQuery::create();
    query.name(&index.name).table(Alias::new(table));
    for column in &index.columns {
        query.col(Alias::new(column));
    }
    written(dialect, &query)
}

/// Fails on MySQL, and there alone, where there is no such index.
pub fn drop_index(dialect: Dialect, table: &str, index: &str) -> String {
    let mut query = IndexQuery::drop();
    query.name(index);
    match dialect {
        Dialect::Mysql => query.table(Alias::new(table)),
        Dialect::Sqlite | Dialect::Postgres => query.if_exists(),
    };
    written(dialect, &query)
}

pub fn column_change(dialect: Dialect, from: &Column, to: &Column) -> ColumnChange {
    if physical(dialect, from) == physical(dialect, to) {
        return ColumnChange::None;
    }
    let tightens = from.nullable && !to.nullable;
    let widens = match dialect {
        // It cannot change a column at all, and has nothing to widen.
        Dialect::Sqlite => false,
        Dialect::Postgres => postgres::widens(from.kind, to.kind),
        Dialect::Mysql => mysql::widens(from.kind, to.kind) && from.nullable == to.nullable,
    };
    if from.name == to.name && widens && !tightens { ColumnChange::Widening } else { ColumnChange::Other }
}

/// Whether two definitions of a column are one and the same to a database.
pub fn same_column(dialect: Dialect, one: &Column, other: &Column) -> bool {
    column_change(dialect, one, other) == ColumnChange::None
}

fn physical(dialect: Dialect, column: &Column) -> PhysicalColumn {
    PhysicalColumn {
        name: column.name.clone(),
        kind: type_name(dialect, column.kind),
        nullable: column.nullable,
        default: column.default.as_ref().map(canonical),
    }
}

/// What a layout's table looks like to the database.
pub fn expected(dialect: Dialect, table: &Table) -> PhysicalTable {
    let index =
        |index: &Index| PhysicalIndex { name: index.name.clone(), columns: index.columns.clone(), unique: false };
    let mut indexes: Vec<_> = table.indexes.iter().map(index).collect();
    indexes.sort();
    let mut columns: Vec<_> = table.columns.iter().map(|column| physical(dialect, column)).collect();
    // No database that keeps its word lets a key be NULL, whatever a layout says.
    columns.iter_mut().filter(|column| table.primary_key.contains(&column.name)).for_each(|key| key.nullable = false);
    PhysicalTable { columns, primary_key: table.primary_key.clone(), indexes }
}

/// Whether there is a table of that name.
pub async fn exists(tx: &mut Transaction, table: &str) -> Result<bool, SqlError> {
    let statement = match tx.dialect() {
        Dialect::Sqlite => sqlite::EXISTS,
        Dialect::Postgres => postgres::EXISTS,
        Dialect::Mysql => mysql::EXISTS,
    };
    Ok(tx.fetch_optional(sql(statement).bind(table)).await?.is_some())
}

/// What the database has under a name, or nothing.
pub async fn read_back(tx: &mut Transaction, table: &str) -> Result<Option<PhysicalTable>, ReadBackError> {
    let found = match tx.dialect() {
        Dialect::Sqlite => sqlite::read(tx, table).await,
        Dialect::Postgres => postgres::read(tx, table).await,
        Dialect::Mysql => mysql::read(tx, table).await,
    };
    found.map_err(|source| ReadBackError { table: table.to_owned(), source })
}

/// Gathers rows of (index, column), which come in order, into indexes.
fn add_to_index(indexes: &mut Vec<PhysicalIndex>, name: &str, column: &str, unique: bool) {
    match indexes.last_mut().filter(|index| index.name == name) {
        Some(index) => index.columns.push(column.to_owned()),
        None => indexes.push(PhysicalIndex { name: name.to_owned(), columns: vec![column.to_owned()], unique }),
    }
}

#[cfg(test)]
mod tests;
