//! MariaDB and MySQL: views, privileges and publications of changes name a table, so they follow
//! whatever has its name. What hangs on the table itself is in the information schema.

use super::{AttachedObject, ColumnOrigin, Relation, TableOptions};
use crate::schema::mysql::{identifier, read, text_literal};
use crate::{SqlError, Transaction, sql};

const RELATION: &str = "SELECT CAST(table_type AS CHAR), CAST(engine AS CHAR), CAST(create_options AS CHAR) \
     FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";

const TRIGGERS: &str = "SELECT CAST(trigger_name AS CHAR) FROM information_schema.triggers \
     WHERE event_object_schema = DATABASE() AND event_object_table = ? ORDER BY trigger_name";

/// Unique keys are indexes, which are compared with those of the layout. On MariaDB, which alone
/// runs the text of the comment, a CHECK may be a part of its column's definition.
const CONSTRAINTS: &str = "SELECT CAST(t.constraint_type AS CHAR), CAST(t.constraint_name AS CHAR), \
     FALSE /*M! OR EXISTS (SELECT 1 FROM information_schema.check_constraints c \
     WHERE c.constraint_schema = DATABASE() AND c.table_name = t.table_name \
     AND c.constraint_name = t.constraint_name AND c.level = 'Column') */ \
     FROM information_schema.table_constraints t WHERE t.table_schema = DATABASE() AND t.table_name = ? \
     AND t.constraint_type NOT IN ('PRIMARY KEY', 'UNIQUE') ORDER BY t.constraint_name";

/// The definition of a column on MariaDB, but for its CHECK.
const COLUMN_WITHOUT_CHECK: &str = "SELECT CONCAT_WS(' ', column_type, CONCAT('COLLATE ', collation_name), \
     IF(is_nullable = 'YES', 'NULL', 'NOT NULL'), CONCAT('DEFAULT ', column_default), NULLIF(extra, ''), \
     IF(column_comment = '', NULL, CONCAT('COMMENT ', QUOTE(column_comment)))) \
     FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?";

const REFERENCES: &str = "SELECT DISTINCT CAST(constraint_name AS CHAR), CAST(table_schema AS CHAR), \
     CAST(table_name AS CHAR) FROM information_schema.key_column_usage \
     WHERE referenced_table_schema = DATABASE() AND referenced_table_name = ? \
     AND NOT (table_schema = DATABASE() AND table_name = referenced_table_name)";

const OPTIONS: &str = "SELECT CAST(create_options AS CHAR), CAST(table_collation AS CHAR), CAST(table_comment AS CHAR) \
     FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";

const COLLATION: &str = "SELECT CAST(table_collation AS CHAR) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = ? AND table_collation IS NOT NULL";

const COLUMN_COLLATIONS: &str = "SELECT CAST(column_name AS CHAR), CAST(collation_name AS CHAR) \
     FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND collation_name IS NOT NULL";

/// The row format of a table whose owner chose none. Its rows may be longer than the formats before
/// it can index.
pub(super) const ROW_FORMAT: &str = "ROW_FORMAT=DYNAMIC";
const ENGINE: &str = "InnoDB";
/// Among the options of a table, the mark that it is partitioned.
const PARTITIONED: &str = "partitioned";

pub(super) async fn relation(
    tx: &mut Transaction,
    name: &str,
) -> Result<Option<Relation>, SqlError> {
    let Some(row) = tx.fetch_optional(sql(RELATION).bind(name)).await? else {
        return Ok(None);
    };
    let kind = row.owned_text(0)?;
    let engine = row.owned_text(1)?;
    let options = row.owned_text(2)?;
    let remedy = |change: &str| Some(format!("ALTER TABLE {} {change}", identifier(name)));
    let other = |kind: &str, remedy| Relation {
        kind: kind.to_owned(),
        is_plain_table: false,
        remedy,
    };
    Ok(Some(match kind.as_str() {
        "BASE TABLE" if engine != ENGINE => {
            let kind = format!("a table of engine {engine}, not {ENGINE}");
            other(&kind, remedy(&format!("ENGINE={ENGINE}")))
        }
        "BASE TABLE" if options.split(' ').any(|option| option == PARTITIONED) => {
            other("a partitioned table", remedy("REMOVE PARTITIONING"))
        }
        "BASE TABLE" => Relation {
            kind: "a table".to_owned(),
            is_plain_table: true,
            remedy: None,
        },
        "SYSTEM VERSIONED" => other("a system-versioned table", remedy("DROP SYSTEM VERSIONING")),
        kind => other(&format!("a {}", kind.to_lowercase()), None),
    }))
}

pub(super) async fn attached(
    tx: &mut Transaction,
    table: &str,
) -> Result<Vec<AttachedObject>, SqlError> {
    let mut objects = Vec::new();
    for row in tx.fetch(sql(TRIGGERS).bind(table)).await? {
        let name = row.owned_text(0)?;
        objects.push(AttachedObject::new(
            format!("trigger {name}"),
            format!("DROP TRIGGER {}", identifier(&name)),
        ));
    }
    for row in tx.fetch(sql(CONSTRAINTS).bind(table)).await? {
        let kind = row.owned_text(0)?;
        let name = row.owned_text(1)?;
        if row.flag(2)? == Some(true) {
            objects.push(check_of_column(tx, table, &name).await?);
            continue;
        }
        // MySQL 5.7 removes a foreign key in no other way.
        let removed = if kind == "FOREIGN KEY" {
            "FOREIGN KEY"
        } else {
            "CONSTRAINT"
        };
        let removal = format!(
            "ALTER TABLE {} DROP {removed} {}",
            identifier(table),
            identifier(&name)
        );
        objects.push(AttachedObject::new(
            format!("{} constraint {name}", kind.to_lowercase()),
            removal,
        ));
    }
    for row in tx.fetch(sql(REFERENCES).bind(table)).await? {
        let name = row.owned_text(0)?;
        let referrer = row.owned_text(2)?;
        let removal = format!(
            "ALTER TABLE {}.{} DROP FOREIGN KEY {}",
            identifier(row.text_or_empty(1)?),
            identifier(&referrer),
            identifier(&name)
        );
        objects.push(AttachedObject::new(
            format!("foreign key {name} of table {referrer}"),
            removal,
        ));
    }
    Ok(objects)
}

/// A CHECK that is a part of the definition of a column: it ends with any other definition. It has
/// the name of the column.
async fn check_of_column(
    tx: &mut Transaction,
    table: &str,
    column: &str,
) -> Result<AttachedObject, SqlError> {
    let definition = sql(COLUMN_WITHOUT_CHECK).bind(table).bind(column);
    let definition = tx.fetch_one(definition).await?.owned_text(0)?;
    let removal = format!(
        "ALTER TABLE {} MODIFY COLUMN {} {definition}",
        identifier(table),
        identifier(column)
    );
    Ok(AttachedObject {
        blocks_widening: true,
        ..AttachedObject::new(format!("check constraint of column {column}"), removal)
    })
}

/// The default collation of a table's texts; `None` if there is no such table.
pub(super) async fn collation(
    tx: &mut Transaction,
    table: &str,
) -> Result<Option<String>, SqlError> {
    let row = tx.fetch_optional(sql(COLLATION).bind(table)).await?;
    row.map(|row| row.owned_text(0)).transpose()
}

/// Gives columns the collations of their origins, where these are not that of their table.
pub(super) async fn collate(
    tx: &mut Transaction,
    options: &mut TableOptions,
    of_table: &str,
    origins: &[ColumnOrigin<'_>],
) -> Result<(), SqlError> {
    super::collate(tx, options, COLUMN_COLLATIONS, of_table, origins).await
}

pub(super) async fn options(
    tx: &mut Transaction,
    table: &str,
    origins: &[ColumnOrigin<'_>],
) -> Result<TableOptions, SqlError> {
    let Some(row) = tx.fetch_optional(sql(OPTIONS).bind(table)).await? else {
        return Ok(TableOptions::default());
    };
    let options = row.owned_text(0)?;
    let collation = row.owned_text(1)?;
    let comment = row.owned_text(2)?;
    let row_format = if options.to_lowercase().contains("row_format") {
        ""
    } else {
        ROW_FORMAT
    };
    let mut of_table = format!("{options} {row_format} COLLATE={collation}");
    if !comment.is_empty() {
        of_table += &format!(" COMMENT={}", text_literal(&comment));
    }
    let found = read(tx, table).await?;
    let columns = found.into_iter().flat_map(|found| found.columns);
    let mut options = TableOptions {
        of_table,
        of_columns: columns
            .map(|column| (column.name, column.options))
            .collect(),
        ..TableOptions::default()
    };
    // Those of their origins, which may have other names.
    for column in options.of_columns.values_mut() {
        column.collation = None;
    }
    collate(tx, &mut options, &collation, origins).await?;
    Ok(options)
}
