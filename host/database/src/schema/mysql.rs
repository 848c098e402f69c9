//! MariaDB and MySQL: definitions come from the information schema, for the current database only.
//! Index names are local to their table, and every DDL statement implicitly commits the transaction
//! that it runs in.

use bbs_lens::layout::schema::{ColumnType, Index};

use super::{ColumnOptions, PhysicalColumn, PhysicalTable, add_to_index, quoted};
use crate::{SqlError, Transaction, sql};

pub(super) const TABLES: &str = "SELECT 1, CAST(table_name AS CHAR) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name IN (?) AND table_type = 'BASE TABLE'";

pub(super) const NAMES: &str = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY table_name";

const COLUMNS: &str = "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR), is_nullable = 'YES', \
     CAST(column_default AS CHAR), CAST(extra AS CHAR), VERSION() LIKE '%MariaDB%', \
     CASE WHEN collation_name <> (SELECT table_collation FROM information_schema.tables t \
     WHERE t.table_schema = DATABASE() AND t.table_name = columns.table_name) \
     THEN CAST(collation_name AS CHAR) END, CAST(column_comment AS CHAR) \
     FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position";

/// Spells out a prefix, an expression or another order, so that it equals no column name; so does
/// each column of an index that the server does not use. The comments have what MariaDB alone, and
/// MySQL from version 8.0 on, know.
const INDEXES: &str = "SELECT CAST(index_name AS CHAR), CASE WHEN column_name IS NULL THEN 'an expression' \
     WHEN index_type <> 'BTREE' OR collation = 'D' \
     /*M! OR `ignored` = 'YES' */ /*!80000 OR is_visible = 'NO' */ THEN CONCAT(column_name, ' ', index_type, ' ', collation) \
     WHEN sub_part IS NULL THEN CAST(column_name AS CHAR) \
     ELSE CONCAT(column_name, '(', sub_part, ')') END, non_unique = 0 \
     FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? \
     ORDER BY index_name, seq_in_index";

const BOOLEAN: &str = "BOOLEAN";
/// Among what the server says of a column, and in its definition.
pub(super) const INVISIBLE: &str = "INVISIBLE";
/// Length in characters from which MySQL always stores two length bytes, whatever the character
/// set: up to 255 bytes it stores one, and the change from one to two rewrites the table.
const TWO_BYTE_LENGTH: u32 = 256;

pub(super) fn type_name(kind: ColumnType) -> String {
    match kind {
        ColumnType::Boolean => BOOLEAN.to_owned(),
        ColumnType::Integer => "INT".to_owned(),
        ColumnType::BigInteger => "BIGINT".to_owned(),
        ColumnType::Varchar(length) => format!("VARCHAR({length})"),
        ColumnType::Text => "TEXT".to_owned(),
        ColumnType::MediumText => "MEDIUMTEXT".to_owned(),
        ColumnType::LongText => "LONGTEXT".to_owned(),
    }
}

/// Whether the change needs no rewrite of rows. A change between text types of different size does.
pub(super) fn widens(from: ColumnType, to: ColumnType) -> bool {
    match (from, to) {
        (ColumnType::Varchar(from), ColumnType::Varchar(to)) => {
            from <= to && (from >= TWO_BYTE_LENGTH) == (to >= TWO_BYTE_LENGTH)
        }
        (from, to) => from == to,
    }
}

/// The statement of a change that the server refuses if it takes time for each row.
pub fn at_once(alter_table: &str) -> String {
    format!("{alter_table}, ALGORITHM=INSTANT")
}

/// One statement that adds indexes, for which InnoDB reads the rows once; `None` without an index.
pub(super) fn add_indexes<'a>(
    table: &str,
    indexes: impl Iterator<Item = &'a Index>,
) -> Option<String> {
    let additions: Vec<_> = indexes
        .map(|index| {
            let columns: Vec<_> = index.columns.iter().map(|name| identifier(name)).collect();
            format!(
                "ADD INDEX {} ({})",
                identifier(&index.name),
                columns.join(", ")
            )
        })
        .collect();
    (!additions.is_empty())
        .then(|| format!("ALTER TABLE {} {}", identifier(table), additions.join(", ")))
}

/// Renames all tables in one statement, which is atomic.
pub fn rename_tables(pairs: &[(String, String)]) -> String {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(from, to)| format!("{} TO {}", identifier(from), identifier(to)))
        .collect();
    format!("RENAME TABLE {}", pairs.join(", "))
}

pub(super) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text as a literal, in which a backslash is an escape character.
pub(super) fn text_literal(text: &str) -> String {
    quoted(&text.replace('\\', r"\\"))
}

pub(super) async fn read(
    tx: &mut Transaction,
    table: &str,
) -> Result<Option<PhysicalTable>, SqlError> {
    let mut columns = Vec::new();
    for row in tx.fetch(sql(COLUMNS).bind(table)).await? {
        let kind = canonical_type(row.text_or_empty(1)?);
        let mariadb = row.flag(5)? == Some(true);
        let default = row.text(3)?.and_then(|default| {
            if mariadb {
                mariadb_default(default)
            } else {
                mysql_default(
                    &kind,
                    default,
                    row.text(4).ok().flatten().unwrap_or_default(),
                )
            }
        });
        let extra = row.text_or_empty(4)?.to_uppercase();
        let comment = row.text(7)?.filter(|comment| !comment.is_empty());
        let options = ColumnOptions {
            collation: row.text(6)?.map(str::to_owned),
            comment: comment.map(str::to_owned),
            is_invisible: extra.split_whitespace().any(|word| word == INVISIBLE),
            ..ColumnOptions::default()
        };
        let special = special(&extra, options.collation.is_some());
        let name = row.owned_text(0)?;
        columns.push(PhysicalColumn {
            name,
            kind,
            nullable: row.flag(2)? == Some(true),
            default,
            options,
            special,
        });
    }
    if columns.is_empty() {
        return Ok(None);
    }
    let mut primary_key = Vec::new();
    let mut indexes = Vec::new();
    for row in tx.fetch(sql(INDEXES).bind(table)).await? {
        let name = row.text_or_empty(0)?;
        let column = row.text_or_empty(1)?;
        if name == "PRIMARY" {
            primary_key.push(column.to_owned());
        } else {
            add_to_index(&mut indexes, name, column, row.flag(2)? == Some(true));
        }
    }
    indexes.sort();
    Ok(Some(PhysicalTable {
        columns,
        primary_key,
        indexes,
    }))
}

/// A property beyond type and default: the column is computed, changes by itself, is invisible, or
/// has a collation of its own.
fn special(extra: &str, has_collation: bool) -> Option<String> {
    let extra = extra.replace("DEFAULT_GENERATED", "");
    let words: Vec<_> = extra
        .split_whitespace()
        .chain(has_collation.then_some("COLLATE"))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Removes the display width, which does not affect the range; except `TINYINT(1)`, which is a
/// boolean.
fn canonical_type(printed: &str) -> String {
    let upper = printed.to_uppercase();
    if upper == "TINYINT(1)" {
        return BOOLEAN.to_owned();
    }
    for integer in ["INT", "BIGINT"] {
        if upper
            .strip_prefix(integer)
            .is_some_and(|width| width.starts_with('(') && width.ends_with(')'))
        {
            return integer.to_owned();
        }
    }
    upper
}

/// MariaDB prints an expression: text in quotes, and `NULL` for no default.
fn mariadb_default(printed: &str) -> Option<String> {
    match printed
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    {
        _ if printed == "NULL" => None,
        Some(text) => Some(quoted(&unescaped(text))),
        None => Some(printed.to_owned()),
    }
}

/// MySQL prints the bare value, or an expression if the default is one: `_utf8mb4\'text\'`, whose
/// text is escaped as a literal of the expression, and the whole once more.
fn mysql_default(kind: &str, printed: &str, extra: &str) -> Option<String> {
    let is_text = kind.starts_with("VARCHAR") || kind.ends_with("TEXT");
    if extra.contains("DEFAULT_GENERATED") {
        return Some(
            text_of_expression(printed).map_or_else(|| printed.to_owned(), |text| quoted(&text)),
        );
    }
    Some(if is_text {
        quoted(printed)
    } else {
        printed.to_owned()
    })
}

/// The text of an expression that is a literal.
fn text_of_expression(printed: &str) -> Option<String> {
    let expression = unescaped(printed);
    let (charset, rest) = expression.split_once('\'')?;
    let text = rest
        .strip_suffix('\'')
        .filter(|_| charset.starts_with('_'))?;
    Some(as_written(unescaped(text)))
}

/// Undoes the encoding of MySQL, which takes the UTF-8 of an expression for Latin-1 and encodes it
/// again when it prints it.
fn as_written(printed: String) -> String {
    let bytes: Option<Vec<u8>> = printed
        .chars()
        .map(|character| u8::try_from(character).ok())
        .collect();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or(printed)
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            '\'' => {
                plain.push('\'');
                characters.next_if_eq(&'\'');
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_of_all_versions_are_normalised() {
        assert_eq!(canonical_type("int(11)"), "INT");
        assert_eq!(canonical_type("int"), "INT");
        assert_eq!(canonical_type("bigint(20)"), "BIGINT");
        assert_eq!(canonical_type("tinyint(1)"), "BOOLEAN");
        assert_eq!(canonical_type("tinyint(4)"), "TINYINT(4)");
        assert_eq!(canonical_type("int(10) unsigned"), "INT(10) UNSIGNED");
        assert_eq!(canonical_type("varchar(255)"), "VARCHAR(255)");
        assert_eq!(canonical_type("mediumtext"), "MEDIUMTEXT");
    }

    #[test]
    fn defaults_of_mariadb_and_mysql_are_normalised() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(mariadb_default("NULL"), None);
        assert_eq!(mariadb_default("''"), some("''"));
        assert_eq!(mariadb_default(r"'it\'s'"), some("'it''s'"));
        assert_eq!(mariadb_default("'it''s'"), some("'it''s'"));
        assert_eq!(mariadb_default(r"'a\\b'"), some(r"'a\b'"));
        assert_eq!(mariadb_default("-3"), some("-3"));
        assert_eq!(mysql_default("VARCHAR(255)", "", ""), some("''"));
        assert_eq!(mysql_default("VARCHAR(255)", "it's", ""), some("'it''s'"));
        assert_eq!(mysql_default("INT", "0", ""), some("0"));
        assert_eq!(
            mysql_default("LONGTEXT", r"_utf8mb4\'x\'", "DEFAULT_GENERATED"),
            some("'x'")
        );
        assert_eq!(
            mysql_default("INT", "(1 + 1)", "DEFAULT_GENERATED"),
            some("(1 + 1)")
        );
        let expression = |printed| mysql_default("LONGTEXT", printed, "DEFAULT_GENERATED");
        assert_eq!(expression(r"_utf8mb4\'\'"), some("''"));
        assert_eq!(
            expression(r"_utf8mb4\'it\\\'s a \\\'note\\\'\'"),
            some("'it''s a ''note'''")
        );
        assert_eq!(expression(r"_utf8mb4\'a\\\\b\'"), some(r"'a\b'"));
        assert_eq!(
            expression("_utf8mb4\\'gr\u{c3}\u{b6}\u{c3}\u{9f}e\\'"),
            some("'größe'")
        );
        assert_eq!(
            expression(r"_utf8mb4\'größe\'"),
            some("'größe'"),
            "if it is printed as it was written"
        );
        assert_eq!(expression("uuid()"), some("uuid()"));
    }

    #[test]
    fn rename_of_many_tables_is_one_statement() {
        let pairs = [("apps", "apps__1"), ("apps__2", "apps")]
            .map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(
            rename_tables(&pairs),
            "RENAME TABLE `apps` TO `apps__1`, `apps__2` TO `apps`"
        );
    }
}
