//! Objects that hang on a table and are no part of its layout: those that a table which takes its
//! place can be given, as statements, and those that stand in the way. Owns the queries of each
//! server's catalog; whether a table is replaced is the caller's.

mod mysql;
mod postgres;
mod sqlite;

use std::collections::{BTreeMap, BTreeSet};

use bbs_lens::layout::schema::Table;

use super::{ColumnOptions, of_list};
use crate::{Dialect, SqlError, Transaction, sql};

/// The use of a name where a table is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// As in `a view`.
    pub kind: String,
    /// Whether it is a table that rows can be copied from and into, in transactions.
    pub is_plain_table: bool,
    /// A statement that makes it one, if a single one can.
    pub remedy: Option<String>,
}

/// An object that would be lost with a table, or keeps it from being dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedObject {
    /// Kind and name.
    pub description: String,
    /// The statement that removes it.
    pub removal: String,
    /// The columns whose types it keeps from being changed.
    pub keeps_types_of: Vec<String>,
    /// Whether it is a part of its table: it does not keep that from being dropped, and is missed
    /// only in one that takes its place.
    pub ends_with_table: bool,
}

impl AttachedObject {
    /// An object that does not concern the types of columns, and that is missed without its table.
    pub fn new(description: String, removal: String) -> Self {
        Self {
            description,
            removal,
            keeps_types_of: Vec::new(),
            ends_with_table: false,
        }
    }
}

/// The options with which a table is created in the place of another, so that it is stored as that
/// one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The end of a `CREATE TABLE` statement.
    pub(super) of_table: String,
    /// The options of columns, by name.
    pub(super) of_columns: BTreeMap<String, ColumnOptions>,
    /// Statements for the table while it is empty.
    pub(super) once_created: Vec<String>,
}

impl TableOptions {
    /// The options of a table that takes no other's place.
    pub fn new(dialect: Dialect) -> Self {
        let of_table = if dialect == Dialect::Mysql {
            mysql::ROW_FORMAT.to_owned()
        } else {
            String::new()
        };
        Self {
            of_table,
            ..Self::default()
        }
    }
}

/// The uses of names in the current schema or database, with one query. A free name is absent.
///
/// # Errors
/// If the query fails.
pub async fn relations<'a>(
    tx: &mut Transaction,
    names: &[&'a str],
) -> Result<BTreeMap<&'a str, Relation>, SqlError> {
    // `IN ()` is a syntax error.
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let dialect = tx.dialect();
    let statement = match dialect {
        Dialect::Sqlite => sqlite::RELATIONS,
        Dialect::Postgres => postgres::RELATIONS,
        Dialect::Mysql => mysql::RELATIONS,
    };
    let mut relations = BTreeMap::new();
    for row in tx.fetch(of_list(statement, "?", names)).await? {
        let found = row.text_or_empty(0)?;
        // SQLite, and MySQL on some systems, find a table by its name in letters of any case.
        for name in names.iter().filter(|name| name.eq_ignore_ascii_case(found)) {
            let relation = match dialect {
                Dialect::Sqlite => sqlite::relation(&row)?,
                Dialect::Postgres => postgres::relation(&row)?,
                Dialect::Mysql => mysql::relation(&row, name)?,
            };
            if dialect == Dialect::Mysql && found == *name {
                relations.insert(*name, relation);
            } else {
                // On SQLite a later trigger may have the name of a table.
                relations.entry(*name).or_insert(relation);
            }
        }
    }
    Ok(relations)
}

/// The objects that hang on a table and that nothing carries over to one that takes its place.
///
/// # Errors
/// If a query fails.
pub async fn attached(tx: &mut Transaction, table: &str) -> Result<Vec<AttachedObject>, SqlError> {
    match tx.dialect() {
        Dialect::Sqlite => sqlite::attached(tx, table).await,
        Dialect::Postgres => postgres::attached(tx, table).await,
        Dialect::Mysql => mysql::attached(tx, table).await,
    }
}

/// A column of text of a table that is created, and the column that its values come from or are
/// compared with, whose collation it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOrigin<'a> {
    pub column: &'a str,
    pub of_table: &'a str,
    pub of_column: &'a str,
}

/// The options of a table, for `staged`, which is created to replace it.
///
/// # Errors
/// If a query fails.
pub async fn options(
    tx: &mut Transaction,
    table: &str,
    staged: &str,
    origins: &[ColumnOrigin<'_>],
) -> Result<TableOptions, SqlError> {
    match tx.dialect() {
        Dialect::Sqlite => Ok(TableOptions::default()),
        Dialect::Postgres => postgres::options(tx, table, staged, origins).await,
        Dialect::Mysql => mysql::options(tx, table, origins).await,
    }
}

/// The options of a table that takes no other's place. Its texts are compared with those of the
/// first of some tables that exists. On MariaDB and MySQL it gets the collation of that one: that
/// of the database itself may be another one, since it was changed after they were made.
///
/// # Errors
/// If a query fails.
pub async fn options_beside(
    tx: &mut Transaction,
    tables: &[&str],
    origins: &[ColumnOrigin<'_>],
) -> Result<TableOptions, SqlError> {
    let mut options = TableOptions::new(tx.dialect());
    match tx.dialect() {
        Dialect::Sqlite => {}
        Dialect::Postgres => postgres::collate(tx, &mut options, origins).await?,
        Dialect::Mysql => {
            for table in tables {
                if let Some(collation) = mysql::collation(tx, table).await? {
                    options.of_table += &format!(" COLLATE={collation}");
                    mysql::collate(tx, &mut options, &collation, origins).await?;
                    break;
                }
            }
        }
    }
    Ok(options)
}

/// Gives columns the collations of their origins, but for the one that they have by default.
/// `query` finds those of a table.
async fn collate(
    tx: &mut Transaction,
    options: &mut TableOptions,
    query: &'static str,
    by_default: &str,
    origins: &[ColumnOrigin<'_>],
) -> Result<(), SqlError> {
    let tables: BTreeSet<&str> = origins.iter().map(|origin| origin.of_table).collect();
    for table in tables {
        let found = tx.fetch_as(sql(query).bind(table), |row| {
            Ok((row.owned_text(0)?, row.owned_text(1)?))
        });
        let mut found: BTreeMap<String, String> = found.await?;
        found.retain(|_, collation| *collation != by_default);
        for origin in origins.iter().filter(|origin| origin.of_table == table) {
            if let Some(collation) = found.get(origin.of_column) {
                let column = options.of_columns.entry(origin.column.to_owned());
                column.or_default().collation = Some(collation.clone());
            }
        }
    }
    Ok(())
}

/// A table that will replace another one.
#[derive(Debug)]
pub struct Replacement<'a> {
    /// The name of the other one.
    pub replaced: &'a str,
    pub table: &'a Table,
    /// The name that the table has until then.
    pub staged: String,
}

/// The statements that give each table, once it has its name, what belongs to the one that it
/// replaces: owner, privileges, comments, publications. Elsewhere than on PostgreSQL these belong
/// to the name of a table.
///
/// # Errors
/// If a query fails.
pub async fn belongings(
    tx: &mut Transaction,
    replacements: &[Replacement<'_>],
) -> Result<Vec<String>, SqlError> {
    match tx.dialect() {
        Dialect::Postgres if !replacements.is_empty() => {
            postgres::belongings(tx, replacements).await
        }
        Dialect::Sqlite | Dialect::Mysql | Dialect::Postgres => Ok(Vec::new()),
    }
}

/// Why this user cannot replace a table, as far as the catalog says so; empty if nothing speaks
/// against it.
///
/// # Errors
/// If a query fails.
pub async fn missing_rights(tx: &mut Transaction, table: &str) -> Result<Vec<String>, SqlError> {
    match tx.dialect() {
        Dialect::Sqlite | Dialect::Mysql => Ok(Vec::new()),
        Dialect::Postgres => postgres::missing_rights(tx, table).await,
    }
}
