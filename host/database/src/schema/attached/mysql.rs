//! MariaDB and MySQL: views, privileges and publications of changes name a table, so they follow
//! whatever has its name. What hangs on the table itself is in the information schema, but for some
//! options, which its definition has.

use super::{AttachedObject, ColumnOrigin, Relation, TableOptions};
use crate::schema::mysql::{identifier, read, text_literal};
use crate::{Row, SqlError, Transaction, sql};

pub(super) const RELATIONS: &str = "SELECT CAST(table_name AS CHAR), CAST(table_type AS CHAR), CAST(engine AS CHAR), \
     CAST(create_options AS CHAR) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name IN (?)";

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

/// The columns with a histogram, which MySQL alone has, from version 8.0 on. Names are cast, since
/// those of the two tables have different collations.
const HISTOGRAMS: &str = "SELECT CAST(c.column_name AS CHAR) FROM information_schema.columns c \
     WHERE c.table_schema = DATABASE() AND c.table_name = ? AND (FALSE \
     /*!80000 OR EXISTS (SELECT 1 FROM information_schema.column_statistics s \
     WHERE s.schema_name = DATABASE() AND CAST(s.table_name AS CHAR) = CAST(c.table_name AS CHAR) \
     AND CAST(s.column_name AS CHAR) = CAST(c.column_name AS CHAR)) */) ORDER BY c.ordinal_position";

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

pub(super) fn relation(row: &Row, name: &str) -> Result<Relation, SqlError> {
    let kind = row.owned_text(1)?;
    let engine = row.owned_text(2)?;
    let options = row.owned_text(3)?;
    let remedy = |change: &str| Some(format!("ALTER TABLE {} {change}", identifier(name)));
    let other = |kind: &str, remedy| Relation {
        kind: kind.to_owned(),
        is_plain_table: false,
        remedy,
    };
    Ok(match kind.as_str() {
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
    })
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
    objects.extend(histograms(tx, table).await?);
    // The name may be free.
    if collation(tx, table).await?.is_some() && has_directory(&shown_options(tx, table).await?) {
        objects.push(AttachedObject {
            ends_with_table: true,
            ..AttachedObject::new(
                "data directory".to_owned(),
                "put a copy that `CREATE TABLE ... LIKE` begins in its place".to_owned(),
            )
        });
    }
    Ok(objects)
}

async fn histograms(tx: &mut Transaction, table: &str) -> Result<Vec<AttachedObject>, SqlError> {
    let histograms = tx.fetch_as(sql(HISTOGRAMS).bind(table), |row| {
        let column = row.owned_text(0)?;
        let removal = format!(
            "ANALYZE TABLE {} DROP HISTOGRAM ON {}",
            identifier(table),
            identifier(&column)
        );
        let description = format!("histogram of column {column}");
        Ok(AttachedObject {
            // It ends with any other definition of its column.
            keeps_types_of: vec![column],
            ends_with_table: true,
            ..AttachedObject::new(description, removal)
        })
    });
    histograms.await
}

/// The options of a table as its definition has them, without a line break.
async fn shown_options(tx: &mut Transaction, table: &str) -> Result<String, SqlError> {
    let show = format!("SHOW CREATE TABLE {}", identifier(table));
    let row = tx.fetch_one(sql(show)).await?;
    let options = row.text_or_empty(1)?.rsplit_once("\n)");
    Ok(options.map_or_else(String::new, |(_, options)| options.to_owned()))
}

/// Whether options have a directory, outside of their texts. A quotation mark in a text is doubled.
fn has_directory(options: &str) -> bool {
    let mut outside = options.split('\'').step_by(2);
    outside.any(|words| words.contains(" DIRECTORY="))
}

/// Options that are comments for other servers, and that the information schema of MySQL does not
/// have: the tablespace, and the size by which its file grows. They are in front of any text.
fn commented(options: &str) -> String {
    let before_texts = options.split('\'').next().unwrap_or_default();
    let comments = before_texts.split("/*!").skip(1);
    comments
        .filter_map(|comment| comment.split_once("*/"))
        .map(|(comment, _)| format!(" /*!{comment}*/"))
        .collect()
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
        keeps_types_of: vec![column.to_owned()],
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
    let commented = commented(&shown_options(tx, table).await?);
    let mut of_table = format!("{options}{commented} {row_format} COLLATE={collation}");
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

#[cfg(test)]
mod tests {
    use super::*;

    const IN_TABLESPACE: &str = " /*!50100 TABLESPACE `op_space` */ ENGINE=InnoDB \
                                 /*!80023 AUTOEXTEND_SIZE=4194304 */ DEFAULT CHARSET=utf8mb4";
    const IN_DIRECTORY: &str = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 \
                                COMMENT='the owner''s' DATA DIRECTORY='/mnt/op/'";
    const DESCRIBED: &str = " ENGINE=InnoDB COMMENT='its DATA DIRECTORY=''/mnt'', \
                             /*!50100 TABLESPACE `none` */'";

    #[test]
    fn options_in_comments_are_those_before_any_text() {
        assert_eq!(
            commented(IN_TABLESPACE),
            " /*!50100 TABLESPACE `op_space` */ /*!80023 AUTOEXTEND_SIZE=4194304 */"
        );
        assert_eq!([IN_DIRECTORY, DESCRIBED].map(commented), ["", ""]);
    }

    #[test]
    fn directory_in_a_comment_of_the_owner_is_none() {
        assert!(has_directory(IN_DIRECTORY));
        assert_eq!([IN_TABLESPACE, DESCRIBED].map(has_directory), [false; 2]);
    }
}
