//! How each database spells a layout, and what it says back. Owns every difference between a portable
//! layout and these databases; decides nothing about when a table is made.
//!
//! SQLite knows affinities, not lengths: all text types are `TEXT` and all integers `BIGINT`, so that a widening is
//! nothing at all here.

use sea_query::{
    Alias, ColumnDef, Expr, Index as IndexQuery, MysqlQueryBuilder, PostgresQueryBuilder, SchemaStatementBuilder,
    SqliteQueryBuilder, Table as TableQuery,
};

use super::{Dialect, Row, SqlError, Transaction, sql};
use crate::layout::schema::{Column, ColumnType, Index, Literal, Table};
use crate::layout::values::Encoding;

#[derive(Debug, thiserror::Error)]
#[error("cannot read the schema of table {table:?}")]
pub struct ReadBackError {
    table: String,
    source: SqlError,
}

fn type_name(kind: ColumnType) -> &'static str {
    match Encoding::from(kind) {
        Encoding::Boolean => "BOOLEAN",
        Encoding::Integer => "BIGINT",
        Encoding::Text => "TEXT",
    }
}

fn text(dialect: Dialect, statement: &impl SchemaStatementBuilder) -> String {
    match dialect {
        Dialect::Sqlite => statement.to_string(SqliteQueryBuilder),
        Dialect::Postgres => statement.to_string(PostgresQueryBuilder),
        Dialect::Mysql => statement.to_string(MysqlQueryBuilder),
    }
}

/// A literal as an expression, written out: it comes from a manifest, never from a row.
pub fn literal(_dialect: Dialect, _kind: ColumnType, value: Option<&Literal>) -> Expr {
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

fn definition(dialect: Dialect, column: &Column) -> ColumnDef {
    let mut definition = ColumnDef::new(Alias::new(&column.name));
    definition.custom(Alias::new(type_name(column.kind)));
    if !column.nullable {
        definition.not_null();
    }
    if column.default.is_some() {
        definition.default(literal(dialect, column.kind, column.default.as_ref()));
    }
    definition
}

/// `CREATE TABLE` under a name of the caller's choice, without the indexes.
pub fn create_table(dialect: Dialect, table: &Table, name: &str) -> String {
    let mut query = TableQuery::create();
    query.table(Alias::new(name));
    for column in &table.columns {
        query.col(definition(dialect, column));
    }
    let mut key = IndexQuery::create();
    for column in &table.primary_key {
        key.col(Alias::new(column));
    }
    query.primary_key(&mut key);
    text(dialect, &query)
}

pub fn drop_table(dialect: Dialect, name: &str) -> String {
    text(dialect, &TableQuery::drop().table(Alias::new(name)).if_exists().take())
}

pub fn rename_table(dialect: Dialect, from: &str, to: &str) -> String {
    text(dialect, &TableQuery::rename().table(Alias::new(from), Alias::new(to)).take())
}

pub fn add_column(dialect: Dialect, table: &str, column: &Column) -> String {
    text(dialect, &TableQuery::alter().table(Alias::new(table)).add_column(definition(dialect, column)).take())
}

pub fn create_index(dialect: Dialect, table: &str, index: &Index) -> String {
    let mut query = IndexQuery::create();
    query.name(&index.name).table(Alias::new(table));
    for column in &index.columns {
        query.col(Alias::new(column));
    }
    text(dialect, &query)
}

pub fn drop_index(dialect: Dialect, table: &str, index: &str) -> String {
    let mut query = IndexQuery::drop();
    query.name(index);
    match dialect {
        // An index belongs to its table.
        Dialect::Mysql => query.table(Alias::new(table)),
        Dialect::Sqlite | Dialect::Postgres => query.if_exists(),
    };
    text(dialect, &query)
}

/// Whether two definitions of a column are one and the same to the database.
pub fn same_column(_dialect: Dialect, one: &Column, other: &Column) -> bool {
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

/// Makes the indexes that a table will have once it takes its name, where that can be done ahead. PostgreSQL has one
/// space of names for all indexes, so there they wait under another.
pub fn index_ahead(dialect: Dialect, table: &Table, staged: &str, missing: &[Index]) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Mysql => missing.iter().map(|index| create_index(dialect, staged, index)).collect(),
        Dialect::Postgres => {
            let waiting = |index: &Index| Index { name: waiting(&index.name, table, staged), ..index.clone() };
            missing.iter().map(|index| create_index(dialect, staged, &waiting(index))).collect()
        }
    }
}

/// The name of an index of `staged`, which is `table` under another name.
pub fn waiting(index: &str, table: &Table, staged: &str) -> String {
    format!("{index}{}", staged.strip_prefix(&table.name).unwrap_or(staged))
}

/// Gives a table, with its indexes, another name. Not for MySQL, which renames all tables at once.
pub fn set_aside(dialect: Dialect, table: &Table, aside: &str) -> Vec<String> {
    let mut statements: Vec<_> = match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            table.indexes.iter().map(|index| drop_index(dialect, &table.name, &index.name)).collect()
        }
        Dialect::Postgres => {
            let names = table.indexes.iter().map(|index| index.name.clone()).chain([primary_key_name(&table.name)]);
            names.map(|name| rename_index(&name, &waiting(&name, table, aside))).collect()
        }
    };
    statements.push(rename_table(dialect, &table.name, aside));
    statements
}

/// Gives a table that waited under another name its own, with its indexes. Not for MySQL either.
pub fn take_place(dialect: Dialect, table: &Table, staged: &str) -> Vec<String> {
    let mut statements = vec![rename_table(dialect, staged, &table.name)];
    match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            statements.extend(table.indexes.iter().map(|index| create_index(dialect, &table.name, index)));
        }
        Dialect::Postgres => {
            let names = table.indexes.iter().map(|index| index.name.as_str());
            statements.extend(names.map(|name| rename_index(&waiting(name, table, staged), name)));
            statements.push(rename_index(&primary_key_name(staged), &primary_key_name(&table.name)));
        }
    }
    statements
}

/// As PostgreSQL calls it by itself; Diego's own migrations know it by that name.
fn primary_key_name(table: &str) -> String {
    format!("{table}_pkey")
}

fn rename_index(from: &str, to: &str) -> String {
    format!("ALTER INDEX IF EXISTS \"{from}\" RENAME TO \"{to}\"")
}

/// All or none of the names change.
pub fn rename_tables(pairs: &[(String, String)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(from, to)| format!("`{from}` TO `{to}`")).collect();
    format!("RENAME TABLE {}", pairs.join(", "))
}

/// Whether there is a table of that name among those that this host sees: the database is often shared.
pub async fn exists(tx: &mut Transaction, table: &str) -> Result<bool, SqlError> {
    let list = match tx.dialect() {
        Dialect::Sqlite => "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
        Dialect::Postgres => "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?",
        Dialect::Mysql => "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
    };
    Ok(tx.fetch_optional(sql(list).bind(table)).await?.is_some())
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
pub fn expected(_dialect: Dialect, table: &Table) -> PhysicalTable {
    let mut indexes: Vec<_> = table.indexes.iter().map(|index| (index.name.clone(), index.columns.clone())).collect();
    indexes.sort();
    PhysicalTable {
        columns: table.columns.iter().map(physical).collect(),
        primary_key: table.primary_key.clone(),
        indexes,
    }
}

/// What the database has under a name, or nothing.
pub async fn read_back(tx: &mut Transaction, table: &str) -> Result<Option<PhysicalTable>, ReadBackError> {
    read(tx, table).await.map_err(|source| ReadBackError { table: table.to_owned(), source })
}

async fn read(tx: &mut Transaction, table: &str) -> Result<Option<PhysicalTable>, SqlError> {
    let info = sql("SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid");
    let rows = tx.fetch(info.bind(table)).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let string = |row: &Row, at: usize| Ok::<_, SqlError>(row.text(at)?.unwrap_or_default().to_owned());
    let mut columns = Vec::with_capacity(rows.len());
    let mut key = Vec::new();
    for row in &rows {
        let name = string(row, 0)?;
        let place = row.integer(4)?.unwrap_or_default();
        if place > 0 {
            key.push((place, name.clone()));
        }
        let kind = affinity(string(row, 1)?);
        // SQLite alone lets a key be NULL; no host ever writes one.
        let required = row.flag(2)?.unwrap_or_default() || place > 0;
        let default = row.text(3)?.map(|default| as_written(&kind, default.to_owned()));
        columns.push(PhysicalColumn { name, kind, nullable: !required, default });
    }
    key.sort();
    let list =
        sql("SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info \
         WHERE list.origin = 'c' ORDER BY list.name, info.seqno");
    let mut indexes: Vec<(String, Vec<String>)> = Vec::new();
    for row in &tx.fetch(list.bind(table)).await? {
        let (index, column) = (string(row, 0)?, string(row, 1)?);
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
