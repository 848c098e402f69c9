//! The mapping between layouts and physical tables: renders DDL for each database, and reads a
//! table's definition back. Owns every difference between a portable layout and its tables: types,
//! defaults, keys, indexes. When a table is created or changed is decided by the callers.
//!
//! A database is often shared, so every query is restricted to the current schema (PostgreSQL) or
//! database (MySQL).

mod attached;
mod difference;
mod mysql;
mod names;
mod portable;
mod postgres;
mod sqlite;

use std::collections::{BTreeMap, BTreeSet};

use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Table};
use sea_query::{
    Alias, ColumnDef, Expr, Index as IndexQuery, IndexCreateStatement, MysqlQueryBuilder,
    PostgresQueryBuilder, SchemaStatementBuilder, SqliteQueryBuilder, Table as TableQuery,
    TableAlterStatement, Value,
};

use super::{Dialect, ServerKind, Sql, SqlError, Transaction, of_few_lengths, sql};

pub use attached::{
    AttachedObject, ColumnOrigin, Relation, Replacement, TableOptions, attached, belongings,
    missing_rights, options, options_beside, relations,
};
pub use difference::{differences, serves};
pub use mysql::{at_once, rename_tables};
pub use names::{
    before_filling, holders_of_index_names, index_ahead, is_same_name, name_of_key, set_aside,
    take_place, waiting,
};

/// The definition of a table could not be read from the database.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the schema of table {table:?}")]
pub struct ReadBackError {
    table: String,
    source: SqlError,
}

impl ReadBackError {
    /// The error of the database.
    pub fn database_error(&self) -> &SqlError {
        &self.source
    }
}

/// A table as the database describes it, normalised so that equivalent declarations compare equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhysicalTable {
    /// In the order of the definition.
    pub columns: Vec<PhysicalColumn>,
    /// Names of the key's columns, in order.
    pub primary_key: Vec<String>,
    /// Sorted by name.
    pub indexes: Vec<PhysicalIndex>,
}

impl PhysicalTable {
    /// Whether there is a column of this name.
    pub fn has_column(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// The options of a column; those by default if there is no such column.
    pub fn options_of(&self, column: &str) -> ColumnOptions {
        let found = self.columns.iter().find(|known| known.name == column);
        found.map_or_else(ColumnOptions::default, |column| column.options.clone())
    }

    /// Whether there is an index of this name, whatever its columns are.
    pub fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| index.name == name)
    }

    /// Whether there is an index of this name and definition.
    pub fn has_same_index(&self, index: &Index) -> bool {
        self.indexes.contains(&physical_index(index))
    }
}

/// A column as the database describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalColumn {
    /// As declared.
    pub name: String,
    /// The normalised type name of the dialect.
    pub kind: String,
    /// Whether it accepts NULL.
    pub nullable: bool,
    /// In SQLite's notation: a number, or text in single quotes.
    pub default: Option<String>,
    /// The properties that no layout states.
    pub options: ColumnOptions,
    /// A property beyond those, such as `GENERATED`, which no column of a layout has.
    pub special: Option<String>,
}

impl PhysicalColumn {
    /// Whether PostgreSQL computes it from other columns.
    pub fn is_generated(&self) -> bool {
        self.special.as_deref() == Some("GENERATED")
    }
}

/// The properties of a column that no layout states: its owner chose them, and they stay when its
/// definition changes, or its table is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnOptions {
    /// The collation of its texts, as SQL, if it is not the one by default: that of the table on
    /// MariaDB and MySQL, that of the type on PostgreSQL.
    pub collation: Option<String>,
    /// Its comment, where that is a part of the definition: on MariaDB and MySQL.
    pub comment: Option<String>,
    /// Whether `SELECT *` leaves it out. MariaDB and MySQL only.
    pub is_invisible: bool,
    /// The actions of `ALTER COLUMN` that restore how its values are stored, which a new type
    /// resets. PostgreSQL only.
    pub storage: Vec<String>,
}

impl ColumnOptions {
    /// The type of a column with these options.
    fn collated(&self, kind: String) -> String {
        match &self.collation {
            Some(collation) => format!("{kind} COLLATE {collation}"),
            None => kind,
        }
    }
}

/// An index as the database describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalIndex {
    /// As declared.
    pub name: String,
    /// Column names. A part that is more than a name (a prefix, an expression) is spelled out, so
    /// that it equals no column.
    pub columns: Vec<String>,
    /// Whether it rejects equal entries.
    pub unique: bool,
}

/// How two definitions of a column differ in one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnChange {
    /// They are the same.
    None,
    /// The new definition accepts more values, and [`alter_column`] applies it without rewriting
    /// rows.
    Widening,
    /// Rows have to be rewritten, or their values may not fit.
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

/// Returns a literal as an SQL expression. It is rendered into the statement: it comes from a
/// manifest, never from a row.
pub fn literal(dialect: Dialect, kind: ColumnType, value: Option<&Literal>) -> Expr {
    Expr::cust(match (value, dialect) {
        (Some(value), _) => spelled(dialect, value),
        // PostgreSQL assumes type text for an untyped NULL.
        (None, Dialect::Postgres) => format!("CAST(NULL AS {})", postgres::type_name(kind)),
        (None, Dialect::Sqlite | Dialect::Mysql) => "NULL".to_owned(),
    })
}

fn spelled(dialect: Dialect, literal: &Literal) -> String {
    match (literal, dialect) {
        (Literal::Boolean(value), Dialect::Postgres) => value.to_string().to_uppercase(),
        (Literal::Text(value), Dialect::Mysql) => mysql::text_literal(value),
        _ => canonical(literal),
    }
}

/// Booleans as numbers, as SQLite and MySQL store them.
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
    definition_with(dialect, column, &ColumnOptions::default())
}

/// The definition of a column, but for the storage of its values.
fn definition_with(dialect: Dialect, column: &Column, options: &ColumnOptions) -> ColumnDef {
    let mut definition = ColumnDef::new(Alias::new(&column.name));
    let kind = options.collated(type_name(dialect, column.kind));
    definition.custom(Alias::new(kind));
    if !column.nullable {
        definition.not_null();
    }
    let default = column.default.as_ref().map(|default| {
        let default = spelled(dialect, default);
        // MySQL accepts a default of a long text column only as an expression; elsewhere a plain
        // literal reads back unchanged.
        let expression = dialect == Dialect::Mysql && is_long_text(column.kind);
        if expression {
            format!("DEFAULT ({default})")
        } else {
            format!("DEFAULT {default}")
        }
    });
    // MariaDB requires a default of an invisible column that is not NULL.
    let may_be_invisible = column.nullable || column.default.is_some();
    let invisible = (options.is_invisible && may_be_invisible).then(|| mysql::INVISIBLE.to_owned());
    let comment = options.comment.as_deref();
    let comment = comment.map(|comment| format!("COMMENT {}", mysql::text_literal(comment)));
    let extra: Vec<_> = [default, invisible, comment]
        .into_iter()
        .flatten()
        .collect();
    if !extra.is_empty() {
        definition.extra(extra.join(" "));
    }
    definition
}

/// `CREATE TABLE` under the given name, without the indexes.
pub fn create_table(dialect: Dialect, table: &Table, name: &str) -> String {
    written(
        dialect,
        &creation(dialect, table, name, &TableOptions::new(dialect)),
    )
}

/// `CREATE TABLE` for a table that takes the place of another one, whose options it gets.
pub fn create_table_like(
    dialect: Dialect,
    table: &Table,
    name: &str,
    options: &TableOptions,
) -> Vec<String> {
    let created = written(dialect, &creation(dialect, table, name, options));
    [created]
        .into_iter()
        .chain(options.once_created.iter().cloned())
        .collect()
}

/// `CREATE TABLE IF NOT EXISTS`, for tables of the host's own.
pub fn ensure_table(dialect: Dialect, table: &Table) -> String {
    written(
        dialect,
        creation(dialect, table, &table.name, &TableOptions::new(dialect)).if_not_exists(),
    )
}

fn creation(
    dialect: Dialect,
    table: &Table,
    name: &str,
    options: &TableOptions,
) -> sea_query::TableCreateStatement {
    let mut query = TableQuery::create();
    query.table(Alias::new(name));
    let by_default = ColumnOptions::default();
    for column in &table.columns {
        let options = options.of_columns.get(&column.name);
        let options = options.unwrap_or(&by_default);
        query.col(definition_with(dialect, column, options));
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
        query.engine("InnoDB").extra(options.of_table.clone());
    }
    query
}

/// `DROP TABLE IF EXISTS`.
pub fn drop_table(dialect: Dialect, name: &str) -> String {
    written(
        dialect,
        TableQuery::drop().table(Alias::new(name)).if_exists(),
    )
}

/// `ALTER TABLE … RENAME TO`.
pub fn rename_table(dialect: Dialect, from: &str, to: &str) -> String {
    written(
        dialect,
        TableQuery::rename().table(Alias::new(from), Alias::new(to)),
    )
}

/// The statement after which no other session changes the definitions of tables until the
/// transaction ends. None on SQLite, which has one writer, nor on MySQL, where the transaction ends
/// with the first change of the schema.
pub fn lock_definitions<'a>(
    dialect: Dialect,
    tables: impl IntoIterator<Item = &'a String>,
) -> Option<String> {
    let tables = tables.into_iter().map(|table| postgres::identifier(table));
    let tables: Vec<_> = tables.collect();
    (dialect == Dialect::Postgres && !tables.is_empty())
        .then(|| format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", ")))
}

/// `ALTER TABLE … DROP COLUMN`.
pub fn drop_column(dialect: Dialect, table: &str, column: &str) -> String {
    written(dialect, alteration(table).drop_column(Alias::new(column)))
}

/// `ALTER TABLE … DROP COLUMN` for each of these columns, in one statement on MariaDB and MySQL.
pub fn drop_columns<'a>(
    dialect: Dialect,
    table: &str,
    columns: impl IntoIterator<Item = &'a Column>,
) -> Vec<String> {
    alterations(dialect, table, columns, |query, column| {
        query.drop_column(Alias::new(&column.name));
    })
}

fn alteration(table: &str) -> TableAlterStatement {
    TableQuery::alter().table(Alias::new(table)).to_owned()
}

/// The statements of changes of the same kind. On MariaDB and MySQL one makes all of them: there
/// each may rewrite the table, or takes one of the few versions that its rows may have.
fn alterations<'a>(
    dialect: Dialect,
    table: &str,
    columns: impl IntoIterator<Item = &'a Column>,
    change: impl Fn(&mut TableAlterStatement, &Column),
) -> Vec<String> {
    let columns: Vec<_> = columns.into_iter().collect();
    let of_statement = match dialect {
        Dialect::Mysql => columns.len().max(1),
        Dialect::Sqlite | Dialect::Postgres => 1,
    };
    let statements = columns.chunks(of_statement).map(|columns| {
        let mut query = alteration(table);
        for column in columns {
            change(&mut query, column);
        }
        written(dialect, &query)
    });
    statements.collect()
}

/// `ALTER TABLE … ADD COLUMN`.
pub fn add_column(dialect: Dialect, table: &str, column: &Column) -> String {
    let definition = definition(dialect, column);
    written(dialect, alteration(table).add_column(definition))
}

/// `ALTER TABLE … ADD COLUMN` for each of these columns, in one statement on MariaDB and MySQL.
pub fn add_columns<'a>(
    dialect: Dialect,
    table: &str,
    columns: impl IntoIterator<Item = &'a Column>,
) -> Vec<String> {
    alterations(dialect, table, columns, |query, column| {
        query.add_column(definition(dialect, column));
    })
}

/// Whether the server rewrites a table to add these columns, while its rows cannot be changed:
/// MySQL does if the default of one is an expression.
pub fn rewrites_to_add<'a>(
    server: ServerKind,
    columns: impl IntoIterator<Item = &'a Column>,
) -> bool {
    server.dialect == Dialect::Mysql
        && !server.is_mariadb
        && columns
            .into_iter()
            .any(|column| column.default.is_some() && is_long_text(column.kind))
}

fn is_long_text(kind: ColumnType) -> bool {
    kind.is_text() && !matches!(kind, ColumnType::Varchar(_))
}

/// Gives a column its new definition. `options` are those that it has: the statement states them,
/// since the server resets them otherwise. Only valid where [`column_change`] returns
/// [`ColumnChange::Widening`].
pub fn alter_column(
    dialect: Dialect,
    table: &str,
    column: &Column,
    options: &ColumnOptions,
) -> String {
    match dialect {
        Dialect::Postgres => postgres::alter_column(table, column, options),
        Dialect::Sqlite | Dialect::Mysql => {
            let definition = definition_with(dialect, column, options);
            written(dialect, alteration(table).modify_column(definition))
        }
    }
}

/// Whether an index of a table has an entry for every row that its columns can hold. MySQL and
/// MariaDB refuse to create an index for which that is not so; PostgreSQL refuses the rows.
pub fn holds_all_rows(dialect: Dialect, table: &Table, index: &Index) -> bool {
    match dialect {
        Dialect::Postgres => postgres::holds_all_rows(table, index),
        Dialect::Sqlite | Dialect::Mysql => true,
    }
}

/// `CREATE INDEX`, not unique.
pub fn create_index(dialect: Dialect, table: &str, index: &Index) -> String {
    written(dialect, &index_on(table, index))
}

/// The statements that create indexes of a table, none of them unique: one for each, or on MariaDB
/// and MySQL one for all, for which these read the rows once.
pub fn create_indexes<'a>(
    dialect: Dialect,
    table: &str,
    indexes: impl IntoIterator<Item = &'a Index>,
) -> Vec<String> {
    let indexes = indexes.into_iter();
    match dialect {
        Dialect::Mysql => mysql::add_indexes(table, indexes).into_iter().collect(),
        Dialect::Sqlite | Dialect::Postgres => indexes
            .map(|index| create_index(dialect, table, index))
            .collect(),
    }
}

/// `CREATE INDEX IF NOT EXISTS` on SQLite.
fn create_missing_index(table: &str, index: &Index) -> String {
    index_on(table, index)
        .if_not_exists()
        .to_string(SqliteQueryBuilder)
}

fn index_on(table: &str, index: &Index) -> IndexCreateStatement {
    let mut query = IndexQuery::create();
    query.name(&index.name).table(Alias::new(table));
    for column in &index.columns {
        query.col(Alias::new(column));
    }
    query
}

/// `DROP INDEX`. Fails if the index does not exist on MySQL only, which has no `IF EXISTS` here.
pub fn drop_index(dialect: Dialect, table: &str, index: &str) -> String {
    let mut query = IndexQuery::drop();
    query.name(index);
    match dialect {
        Dialect::Mysql => query.table(Alias::new(table)),
        Dialect::Sqlite | Dialect::Postgres => query.if_exists(),
    };
    written(dialect, &query)
}

/// Compares two definitions of a column as the database sees them.
pub fn column_change(dialect: Dialect, from: &Column, to: &Column) -> ColumnChange {
    if physical(dialect, from) == physical(dialect, to) {
        return ColumnChange::None;
    }
    let tightens = from.nullable && !to.nullable;
    let widens = match dialect {
        // SQLite cannot alter a column, and its types have no sizes to widen.
        Dialect::Sqlite => false,
        Dialect::Postgres => postgres::widens(from.kind, to.kind),
        Dialect::Mysql => mysql::widens(from.kind, to.kind) && from.nullable == to.nullable,
    };
    if from.name == to.name && widens && !tightens {
        ColumnChange::Widening
    } else {
        ColumnChange::Other
    }
}

/// Whether two definitions of a column are the same to the database.
pub fn same_column(dialect: Dialect, one: &Column, other: &Column) -> bool {
    column_change(dialect, one, other) == ColumnChange::None
}

fn physical(dialect: Dialect, column: &Column) -> PhysicalColumn {
    PhysicalColumn {
        name: column.name.clone(),
        kind: type_name(dialect, column.kind),
        nullable: column.nullable,
        default: column.default.as_ref().map(canonical),
        options: ColumnOptions::default(),
        special: None,
    }
}

fn physical_index(index: &Index) -> PhysicalIndex {
    PhysicalIndex {
        name: index.name.clone(),
        columns: index.columns.clone(),
        unique: false,
    }
}

/// The physical table that a layout's table should have.
pub fn expected(dialect: Dialect, table: &Table) -> PhysicalTable {
    let mut indexes: Vec<_> = table.indexes.iter().map(physical_index).collect();
    indexes.sort();
    let mut columns: Vec<_> = table
        .columns
        .iter()
        .map(|column| physical(dialect, column))
        .collect();
    // Every database forces key columns to be NOT NULL (SQLite excepted), whatever the layout says.
    columns
        .iter_mut()
        .filter(|column| table.primary_key.contains(&column.name))
        .for_each(|key| key.nullable = false);
    PhysicalTable {
        columns,
        primary_key: table.primary_key.clone(),
        indexes,
    }
}

/// Whether a table of that name exists in the current schema.
///
/// # Errors
/// If the query fails.
pub async fn exists(tx: &mut Transaction, table: &str) -> Result<bool, SqlError> {
    Ok(!existing(tx, &[table]).await?.is_empty())
}

/// The names among `tables` that are names of tables in the current schema, with one query.
///
/// # Errors
/// If the query fails.
pub async fn existing<'a>(
    tx: &mut Transaction,
    tables: &[&'a str],
) -> Result<BTreeSet<&'a str>, SqlError> {
    // `IN ()` is a syntax error.
    if tables.is_empty() {
        return Ok(BTreeSet::new());
    }
    let statement = match tx.dialect() {
        Dialect::Sqlite => sqlite::TABLES,
        Dialect::Postgres => postgres::TABLES,
        Dialect::Mysql => mysql::TABLES,
    };
    let mut existing = BTreeSet::new();
    for row in tx.fetch(of_list(statement, "?", tables)).await? {
        let found = row.text_or_empty(1)?;
        // SQLite, and MySQL on some systems, find a table by its name in letters of any case.
        let named = tables.iter().copied();
        existing.extend(named.filter(|table| table.eq_ignore_ascii_case(found)));
    }
    Ok(existing)
}

/// The names of all tables in the current schema, in order, but for SQLite's own.
///
/// # Errors
/// If the query fails.
pub async fn table_names(tx: &mut Transaction) -> Result<Vec<String>, SqlError> {
    let statement = match tx.dialect() {
        Dialect::Sqlite => sqlite::NAMES,
        Dialect::Postgres => postgres::NAMES,
        Dialect::Mysql => mysql::NAMES,
    };
    tx.fetch_as(sql(statement), |row| row.owned_text(0)).await
}

/// Reads the definition of a table; `None` if it does not exist.
///
/// # Errors
/// If a query fails; the error names the table.
pub async fn read_back(
    tx: &mut Transaction,
    table: &str,
) -> Result<Option<PhysicalTable>, ReadBackError> {
    Ok(read_back_all(tx, &[table]).await?.remove(table))
}

/// Reads the definitions of those of some tables that exist.
///
/// # Errors
/// If a query fails; the error names the tables.
pub async fn read_back_all(
    tx: &mut Transaction,
    tables: &[&str],
) -> Result<BTreeMap<String, PhysicalTable>, ReadBackError> {
    let found = match tx.dialect() {
        Dialect::Postgres => postgres::read(tx, tables).await,
        Dialect::Sqlite | Dialect::Mysql => read_each(tx, tables).await,
    };
    found.map_err(|source| ReadBackError {
        table: tables.join(", "),
        source,
    })
}

async fn read_each(
    tx: &mut Transaction,
    tables: &[&str],
) -> Result<BTreeMap<String, PhysicalTable>, SqlError> {
    let mut all = BTreeMap::new();
    for table in tables {
        let found = if tx.dialect() == Dialect::Sqlite {
            sqlite::read(tx, table).await?
        } else {
            mysql::read(tx, table).await?
        };
        if let Some(found) = found {
            all.insert((*table).to_owned(), found);
        }
    }
    Ok(all)
}

/// A query with these values in its one list.
fn of_list<T: Clone + Into<Value>>(query: &str, placeholder: &str, values: &[T]) -> Sql {
    let values = of_few_lengths(values.to_vec());
    let list = format!("({})", vec![placeholder; values.len()].join(", "));
    values
        .into_iter()
        .fold(sql(query.replace("(?)", &list)), Sql::bind)
}

/// Groups rows of (index, column), which arrive ordered by index, into indexes.
fn add_to_index(indexes: &mut Vec<PhysicalIndex>, name: &str, column: &str, unique: bool) {
    match indexes.last_mut().filter(|index| index.name == name) {
        Some(index) => index.columns.push(column.to_owned()),
        None => indexes.push(PhysicalIndex {
            name: name.to_owned(),
            columns: vec![column.to_owned()],
            unique,
        }),
    }
}

#[cfg(test)]
mod tests;
