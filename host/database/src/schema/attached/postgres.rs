//! PostgreSQL: what depends on a table is in `pg_depend`, whatever its kind, so that a kind that a
//! newer server brings is found as well. The queries are in files of their own.

use super::{AttachedObject, ColumnOrigin, Relation, Replacement, TableOptions};
use crate::schema::names::key_name;
use crate::{Row, SqlError, Transaction, sql};

pub(super) const RELATIONS: &str = include_str!("postgres/relations.sql");
const ATTACHED: &str = include_str!("postgres/attached.sql");
const OPTIONS: &str = include_str!("postgres/options.sql");
const COLUMN_COLLATIONS: &str = include_str!("postgres/column_collations.sql");
const BELONGINGS: &str = include_str!("postgres/belongings.sql");
const MISSING_RIGHTS: &str = include_str!("postgres/missing_rights.sql");

pub(super) fn relation(row: &Row) -> Result<Relation, SqlError> {
    let kind = row.owned_text(1)?;
    Ok(Relation {
        is_plain_table: kind == "a table",
        kind,
        remedy: None,
    })
}

pub(super) async fn attached(
    tx: &mut Transaction,
    table: &str,
) -> Result<Vec<AttachedObject>, SqlError> {
    let objects = tx.fetch_as(sql(ATTACHED).bind(table), |row| {
        Ok(AttachedObject {
            description: row.owned_text(0)?,
            removal: row.owned_text(1)?,
            keeps_types_of: row.text_or_empty(2)?.lines().map(str::to_owned).collect(),
            ends_with_table: row.flag(3)? == Some(true),
        })
    });
    objects.await
}

pub(super) async fn options(
    tx: &mut Transaction,
    table: &str,
    staged: &str,
    origins: &[ColumnOrigin<'_>],
) -> Result<TableOptions, SqlError> {
    let statements = sql(OPTIONS).bind(table).bind(staged);
    let mut options = TableOptions {
        once_created: tx.fetch_as(statements, |row| row.owned_text(0)).await?,
        ..TableOptions::default()
    };
    collate(tx, &mut options, origins).await?;
    Ok(options)
}

/// Gives columns the collations of their origins, where these are not those of their types.
pub(super) async fn collate(
    tx: &mut Transaction,
    options: &mut TableOptions,
    origins: &[ColumnOrigin<'_>],
) -> Result<(), SqlError> {
    super::collate(tx, options, COLUMN_COLLATIONS, "", origins).await
}

pub(super) async fn belongings(
    tx: &mut Transaction,
    replacements: &[Replacement<'_>],
) -> Result<Vec<String>, SqlError> {
    let pairs: Vec<_> = (0..replacements.len())
        .map(|number| format!("({number}, ?, ?, ?)"))
        .collect();
    let pairs = pairs.join(", ");
    let mut query = sql(format!(
        "WITH pairs (number, replaced, staged, name) AS (VALUES {pairs}), {BELONGINGS}"
    ));
    for replacement in replacements {
        query = query
            .bind(replacement.replaced)
            .bind(replacement.staged.as_str())
            .bind(replacement.table.name.as_str());
    }
    let mut statements = Vec::new();
    for row in tx.fetch(query).await? {
        let number = row.integer_or_zero(2)?;
        let table = replacements[usize::try_from(number).unwrap_or_default()].table;
        if row.text(1)?.is_none_or(|index| {
            index == key_name(&table.name) || table.indexes.iter().any(|known| known.name == index)
        }) {
            statements.push(row.owned_text(0)?);
        }
    }
    Ok(statements)
}

pub(super) async fn missing_rights(
    tx: &mut Transaction,
    table: &str,
) -> Result<Vec<String>, SqlError> {
    let rights = sql(MISSING_RIGHTS).bind(table);
    tx.fetch_as(rights, |row| row.owned_text(0)).await
}
