//! How SQLite spells a layout, and what it says back. Owns every difference between a portable
//! layout and this database; decides nothing about when a table is made.
//!
//! SQLite knows affinities, not lengths: all text types are `TEXT` and all integers `BIGINT`, so that a widening is
//! nothing at all here.

use sea_query::{Alias, ColumnDef, Expr, Index as IndexQuery, SqliteQueryBuilder, Table as TableQuery};
use sqlx::{Row, SqliteConnection};

use super::schema::{Column, ColumnType, Index, Literal, Table};
use super::values::Encoding;

#[derive(Debug, thiserror::Error)]
#[error("cannot read the schema of table {table:?}")]
pub struct ReadBackError {
    table: String,
    source: sqlx::Error,
}

fn type_name(kind: ColumnType) -> &'static str {
    match Encoding::from(kind) {
        Encoding::Boolean => "BOOLEAN",
        Encoding::Integer => "BIGINT",
        Encoding::Text => "TEXT",
    }
}

/// A literal as an expression, written out: it comes from a manifest, never from a row.
pub fn literal(value: Option<&Literal>) -> Expr {
    Expr::cust(value.map_or_else(|| "NULL".to_owned(), spelled))
}

/// Booleans are the numbers that SQLite keeps them as.
fn spelled(literal: &Literal) -> String {
    match literal {
        Literal::Boolean(value) => i32::from(*value).to_string(),
        Literal::Integer(value) => value.to_string(),
        Literal::Text(value) => format!("'{}'", value.replace('\'', "''")),
    }
}

fn definition(column: &Column) -> ColumnDef {
    let mut definition = ColumnDef::new(Alias::new(&column.name));
    definition.custom(Alias::new(type_name(column.kind)));
    if !column.nullable {
        definition.not_null();
    }
    if column.default.is_some() {
        definition.default(literal(column.default.as_ref()));
    }
    definition
}

/// `CREATE TABLE` under a name of the caller's choice, without the indexes.
pub fn create_table(table: &Table, name: &str) -> String {
    let mut query = TableQuery::create();
    query.table(Alias::new(name));
    for column in &table.columns {
        query.col(definition(column));
    }
    let mut key = IndexQuery::create();
    for column in &table.primary_key {
        key.col(Alias::new(column));
    }
    query.primary_key(&mut key);
    query.to_string(SqliteQueryBuilder)
}

pub fn drop_table(name: &str) -> String {
    TableQuery::drop().table(Alias::new(name)).if_exists().to_string(SqliteQueryBuilder)
}

pub fn rename_table(from: &str, to: &str) -> String {
    TableQuery::rename().table(Alias::new(from), Alias::new(to)).to_string(SqliteQueryBuilder)
}

pub fn add_column(table: &str, column: &Column) -> String {
    TableQuery::alter().table(Alias::new(table)).add_column(definition(column)).to_string(SqliteQueryBuilder)
}

pub fn create_index(table: &str, index: &Index) -> String {
    let mut query = IndexQuery::create();
    query.name(&index.name).table(Alias::new(table));
    for column in &index.columns {
        query.col(Alias::new(column));
    }
    query.to_string(SqliteQueryBuilder)
}

pub fn drop_index(index: &str) -> String {
    IndexQuery::drop().name(index).if_exists().to_string(SqliteQueryBuilder)
}

/// Whether two definitions of a column are one and the same to SQLite.
pub fn same_column(one: &Column, other: &Column) -> bool {
    physical(one) == physical(other)
}

fn physical(column: &Column) -> PhysicalColumn {
    PhysicalColumn {
        name: column.name.clone(),
        kind: type_name(column.kind).to_owned(),
        nullable: column.nullable,
        default: column.default.as_ref().map(spelled),
    }
}

/// A table as the database describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalTable {
    pub columns: Vec<PhysicalColumn>,
    pub primary_key: Vec<String>,
    /// Name and columns, by name.
    pub indexes: Vec<(String, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalColumn {
    pub name: String,
    pub kind: String,
    pub nullable: bool,
    pub default: Option<String>,
}

/// What a layout's table looks like to the database.
pub fn expected(table: &Table) -> PhysicalTable {
    let mut indexes: Vec<_> = table.indexes.iter().map(|index| (index.name.clone(), index.columns.clone())).collect();
    indexes.sort();
    PhysicalTable {
        columns: table.columns.iter().map(physical).collect(),
        primary_key: table.primary_key.clone(),
        indexes,
    }
}

/// What the database has under a name, or nothing.
pub async fn read_back(connection: &mut SqliteConnection, table: &str) -> Result<Option<PhysicalTable>, ReadBackError> {
    read(connection, table).await.map_err(|source| ReadBackError { table: table.to_owned(), source })
}

async fn read(connection: &mut SqliteConnection, table: &str) -> Result<Option<PhysicalTable>, sqlx::Error> {
    let rows = sqlx::query("SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid")
        .bind(table)
        .fetch_all(&mut *connection)
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut columns = Vec::with_capacity(rows.len());
    let mut key = Vec::new();
    for row in &rows {
        let name: String = row.get(0);
        let place: i64 = row.get(4);
        if place > 0 {
            key.push((place, name.clone()));
        }
        let kind = affinity(row.get(1));
        // SQLite alone lets a key be NULL; no host ever writes one.
        let required = row.get::<bool, _>(2) || place > 0;
        let default = row.get::<Option<String>, _>(3).map(|default| as_written(&kind, default));
        columns.push(PhysicalColumn { name, kind, nullable: !required, default });
    }
    key.sort();
    let listed = sqlx::query(
        "SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info \
         WHERE list.origin = 'c' ORDER BY list.name, info.seqno",
    )
    .bind(table)
    .fetch_all(connection)
    .await?;
    let mut indexes: Vec<(String, Vec<String>)> = Vec::new();
    for row in &listed {
        let (index, column): (String, String) = (row.get(0), row.get(1));
        match indexes.last_mut().filter(|(name, _)| *name == index) {
            Some((_, columns)) => columns.push(column),
            None => indexes.push((index, vec![column])),
        }
    }
    let primary_key = key.into_iter().map(|(_, name)| name).collect();
    Ok(Some(PhysicalTable { columns, primary_key, indexes }))
}

/// What keeps a table of the database from being the one of the layout, for an operator. Empty: nothing.
/// The order of columns means nothing, since every statement names them.
pub fn differences(found: &PhysicalTable, wanted: &PhysicalTable) -> Vec<String> {
    let mut differences = Vec::new();
    for column in &wanted.columns {
        match found.columns.iter().find(|known| known.name == column.name) {
            None => differences.push(format!("column {} is missing", column.name)),
            Some(known) if known != column => differences.push(format!(
                "column {} is {} {}, not {} {}",
                column.name,
                known.kind,
                describe(known),
                column.kind,
                describe(column)
            )),
            Some(_) => {}
        }
    }
    for column in found.columns.iter().filter(|known| wanted.columns.iter().all(|column| column.name != known.name)) {
        differences.push(format!("column {} is not in the layout", column.name));
    }
    if found.primary_key != wanted.primary_key {
        differences.push(format!(
            "the primary key is ({}), not ({})",
            found.primary_key.join(", "),
            wanted.primary_key.join(", ")
        ));
    }
    for (name, columns) in wanted.indexes.iter().filter(|index| !found.indexes.contains(index)) {
        differences.push(format!("index {name} on ({}) is missing or different", columns.join(", ")));
    }
    for (name, _) in found.indexes.iter().filter(|(name, _)| wanted.indexes.iter().all(|(known, _)| known != name)) {
        differences.push(format!("index {name} is not in the layout"));
    }
    differences
}

fn describe(column: &PhysicalColumn) -> String {
    let nullable = if column.nullable { "NULL" } else { "NOT NULL" };
    column.default.as_ref().map_or_else(|| nullable.to_owned(), |default| format!("{nullable} DEFAULT {default}"))
}

/// One name for all that SQLite treats alike, whatever a table was declared with.
fn affinity(declared: String) -> String {
    let upper = declared.to_uppercase();
    if upper.contains("INT") {
        return type_name(ColumnType::BigInteger).to_owned();
    }
    if upper.contains("BOOL") {
        return type_name(ColumnType::Boolean).to_owned();
    }
    if ["CHAR", "CLOB", "TEXT"].iter().any(|text| upper.contains(text)) {
        return type_name(ColumnType::Text).to_owned();
    }
    declared
}

fn as_written(kind: &str, default: String) -> String {
    match default.to_lowercase().as_str() {
        "false" if kind == type_name(ColumnType::Boolean) => "0".to_owned(),
        "true" if kind == type_name(ColumnType::Boolean) => "1".to_owned(),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
