//! Whether every row of a database can be migrated, as far as a narrow column of each table shows.
//! Reads only.

use std::collections::BTreeSet;

use bbs_database::{Dialect, StatementResult, Transaction, is_denied, schema};
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Column, Layout, Table};
use bbs_lens::layout::values::Encoding;
use bbs_units::{RECORD_VERSION, key_columns};
use sea_query::{Alias, Expr, ExprTrait, Func, Query};

use crate::migrate::state::{existing, exists};
use crate::migrate::{MigrateError, Work};

/// The most characters of a key in a message.
const VALUE_CHARACTERS: i64 = 100;

/// Checks that this user may read every row of the tables at a version: PostgreSQL refuses a
/// statement that a policy would hide rows from.
pub(super) async fn check_readable(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    at: DataVersion,
) -> Result<(), MigrateError> {
    let Some(layout) = layouts.at(at) else {
        return Ok(());
    };
    let tables: Vec<_> = layout.tables.keys().map(String::as_str).collect();
    for table in existing(tx, &tables).await? {
        let mut query = Query::select();
        query.expr(Expr::val(1)).from(Alias::new(table)).limit(1);
        if let Err(source) = tx.fetch(&query).await {
            let table = table.to_owned();
            return Err(if is_denied(&source) {
                MigrateError::Unreadable { table, source }
            } else {
                MigrateError::Sql {
                    what: table,
                    source,
                }
            });
        }
    }
    Ok(())
}

/// Checks that every record went through migrations that the catalog knows, and that the database
/// has been through. A record of any other version was written with another catalog, or before the
/// database's version was set back by other means than a migration, and nothing is known of its
/// layout. One pass over a narrow column of each table.
pub(super) async fn check_record_versions(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    at: DataVersion,
) -> Result<(), MigrateError> {
    let Some(layout) = layouts.at(at) else {
        return Ok(());
    };
    let stamped: Vec<_> = stamped_tables(layout).collect();
    for table in existing(tx, &stamped).await? {
        if !has_column(tx, table).await? {
            continue;
        }
        let found = record_versions(tx, table).await?;
        let (known, unknown): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|version| layouts.at(*version).is_some());
        if !unknown.is_empty() {
            return Err(MigrateError::UnknownRecordVersions {
                table: table.to_owned(),
                versions: unknown,
            });
        }
        let above: Vec<_> = known.into_iter().filter(|version| *version > at).collect();
        if !above.is_empty() {
            return Err(MigrateError::RecordVersionsAbove {
                table: table.to_owned(),
                versions: above,
                at,
            });
        }
    }
    Ok(())
}

/// Checks that the keys by which units of these groups are read have the type of their column: a
/// column of SQLite holds values of any type. One pass over the keys.
pub(crate) async fn check_keys(
    tx: &mut Transaction,
    work: &Work,
    groups: impl Iterator<Item = usize>,
) -> Result<(), MigrateError> {
    if tx.dialect() != Dialect::Sqlite {
        return Ok(());
    }
    for table in groups.flat_map(|group| work.sources(group)) {
        if !exists(tx, &table.name).await? {
            continue;
        }
        for name in key_columns(table) {
            check_key(tx, table, &name).await?;
        }
    }
    Ok(())
}

async fn check_key(tx: &mut Transaction, table: &Table, name: &str) -> Result<(), MigrateError> {
    let column = table
        .find_column(name)
        .expect("a key is of columns of the table");
    let usual = match Encoding::from(column.kind) {
        Encoding::Boolean | Encoding::Integer => "INTEGER",
        Encoding::Text => "TEXT",
    };
    let class = || Func::cust("typeof").arg(Expr::col(Alias::new(name)));
    let value = Func::cust("quote").arg(Expr::col(Alias::new(name)));
    let mut query = Query::select();
    query.expr(class()).expr(Func::cust("substr").args([
        value.into(),
        Expr::val(1),
        Expr::val(VALUE_CHARACTERS),
    ]));
    query
        .from(Alias::new(&table.name))
        .and_where(Expr::expr(class()).ne(usual.to_lowercase()))
        .limit(1);
    let Some(row) = tx.fetch_optional(&query).await.about(&table.name)? else {
        return Ok(());
    };
    let text = |at: usize| {
        let bytes = row.bytes(at).about(&table.name)?.unwrap_or_default();
        Ok::<_, MigrateError>(String::from_utf8_lossy(bytes).replace(char::is_control, "?"))
    };
    let class = text(0)?;
    let value = text(1)?;
    Err(MigrateError::KeyClass {
        table: table.name.clone(),
        column: name.to_owned(),
        value,
        class,
        usual,
    })
}

fn stamped_tables(layout: &Layout) -> impl Iterator<Item = &str> {
    let is_stamped = |table: &&Table| table.columns.iter().any(Column::is_record_version);
    layout
        .tables
        .values()
        .filter(is_stamped)
        .map(|table| table.name.as_str())
}

/// Between a durable version and the renaming of its tables, the column may be absent.
async fn has_column(tx: &mut Transaction, table: &str) -> Result<bool, MigrateError> {
    let found = schema::read_back(tx, table).await?;
    Ok(found.is_some_and(|found| found.has_column(RECORD_VERSION)))
}

/// The record versions of a table, without records that no row function has transformed.
async fn record_versions(
    tx: &mut Transaction,
    table: &str,
) -> Result<BTreeSet<DataVersion>, MigrateError> {
    let mut query = Query::select();
    query
        .distinct()
        .expr(Expr::col(Alias::new(RECORD_VERSION)))
        .from(Alias::new(table));
    let versions: Vec<Option<i64>> = tx
        .fetch_as(&query, |row| row.integer(0))
        .await
        .about(format_args!("{RECORD_VERSION} of {table}"))?;
    let versions = versions.into_iter().flatten();
    Ok(versions.map(i64::unsigned_abs).collect())
}
