//! PostgreSQL: definitions come from the system catalog, since the information schema does not
//! describe indexes; only those of the current schema. All long text types are `TEXT`.

use std::collections::BTreeMap;

use bbs_lens::layout::schema::{Column, ColumnType, Index, Table};

use super::{ColumnOptions, PhysicalColumn, PhysicalTable, add_to_index, of_list, quoted, spelled};
use crate::{Dialect, SqlError, Transaction};

/// The object ids and names of those of some tables that exist.
pub(super) const TABLES: &str = "SELECT oid::bigint, relname::text FROM pg_catalog.pg_class WHERE relname IN (?) AND relnamespace = \
     (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema()) AND relkind IN ('r', 'p')";

pub(super) const NAMES: &str = "SELECT relname::text FROM pg_catalog.pg_class WHERE relnamespace = \
     (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema()) AND relkind IN ('r', 'p') ORDER BY relname";

/// `to_jsonb` has the compression of a column only on servers that know one: from version 14 on.
const COLUMNS: &str = "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, \
     pg_catalog.pg_get_expr(d.adbin, d.adrelid), CASE WHEN a.attgenerated <> '' THEN 'GENERATED' \
     WHEN a.attidentity <> '' THEN 'IDENTITY' \
     WHEN a.attcollation <> y.typcollation THEN 'COLLATE' \
     WHEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%' THEN 'SERIAL' END, \
     a.attrelid::bigint, \
     CASE WHEN a.attcollation <> y.typcollation THEN (SELECT format('%I.%I', n.nspname, l.collname) \
     FROM pg_catalog.pg_collation l JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace \
     WHERE l.oid = a.attcollation) END, \
     CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage \
     WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END, \
     CASE to_jsonb(a) ->> 'attcompression' \
     WHEN 'p' THEN 'SET COMPRESSION pglz' WHEN 'l' THEN 'SET COMPRESSION lz4' END \
     FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid \
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     WHERE a.attrelid IN (?) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";

/// Marks an index that is invalid or more than a list of columns in place of its columns, so that
/// it equals none of a layout; so does one that does not sort texts by the collations of its
/// columns. The index of a unique or exclusion constraint belongs to that.
const INDEXES: &str = "SELECT c.relname::text, CASE WHEN NOT i.indisvalid THEN 'invalid' \
     WHEN i.indpred IS NOT NULL THEN 'of some rows' WHEN i.indoption[k.n - 1] <> 0 OR i.indnatts > i.indnkeyatts \
     OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod \
     WHERE o.oid = i.indclass[k.n - 1] AND o.opcdefault AND m.amname = 'btree') \
     OR EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid \
     AND a.attnum = i.indkey[k.n - 1] AND a.attcollation <> i.indcollation[k.n - 1]) \
     THEN pg_catalog.pg_get_indexdef(i.indexrelid) \
     ELSE pg_catalog.pg_get_indexdef(i.indexrelid, k.n, false) END, i.indisunique, i.indisprimary, \
     i.indrelid::bigint \
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
     CROSS JOIN LATERAL generate_series(1, i.indnkeyatts::int) AS k(n) \
     WHERE i.indrelid IN (?) AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint x \
     WHERE x.conindid = i.indexrelid AND x.contype IN ('u', 'x')) ORDER BY i.indrelid, c.relname, k.n";

const OID: &str = "CAST(? AS bigint)::oid";

const BOOLEAN: &str = "BOOLEAN";
const TEXT: &str = "TEXT";
const VARCHAR: &str = "VARCHAR";

pub(super) fn type_name(kind: ColumnType) -> String {
    match kind {
        ColumnType::Boolean => BOOLEAN.to_owned(),
        ColumnType::Integer => "INTEGER".to_owned(),
        ColumnType::BigInteger => "BIGINT".to_owned(),
        ColumnType::Varchar(length) => format!("{VARCHAR}({length})"),
        ColumnType::Text | ColumnType::MediumText | ColumnType::LongText => TEXT.to_owned(),
    }
}

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The size of the largest entry of an index, in bytes: a third of a page without its header.
const LARGEST_ENTRY: u64 = 2_704;
/// The header of an entry, with a mark for each column that is NULL.
const ENTRY_HEADER: u64 = 16;
/// The most bytes of a value beside its text: the header of a text, and the space that aligns it.
const VALUE_OVERHEAD: u64 = 12;
/// The most bytes of a character.
const CHARACTER: u64 = 4;

/// Whether every row fits into an index, however little its texts can be compressed.
pub(super) fn holds_all_rows(table: &Table, index: &Index) -> bool {
    let values: Option<u64> = index
        .columns
        .iter()
        .map(|name| match table.find_column(name)?.kind {
            ColumnType::Boolean | ColumnType::Integer | ColumnType::BigInteger => {
                Some(VALUE_OVERHEAD)
            }
            ColumnType::Varchar(characters) => {
                Some(u64::from(characters) * CHARACTER + VALUE_OVERHEAD)
            }
            ColumnType::Text | ColumnType::MediumText | ColumnType::LongText => None,
        })
        .sum();
    values.is_some_and(|values| values + ENTRY_HEADER <= LARGEST_ENTRY)
}

/// Whether only the catalog changes. Changing a 32-bit column to 64 bits rewrites every row.
pub(super) fn widens(from: ColumnType, to: ColumnType) -> bool {
    match (from, to) {
        (ColumnType::Varchar(from), ColumnType::Varchar(to)) => from <= to,
        (
            ColumnType::Varchar(_),
            ColumnType::Text | ColumnType::MediumText | ColumnType::LongText,
        ) => true,
        (from, to) => type_name(from) == type_name(to),
    }
}

pub(super) fn alter_column(table: &str, column: &Column, options: &ColumnOptions) -> String {
    let name = identifier(&column.name);
    let nullable = if column.nullable {
        "DROP NOT NULL"
    } else {
        "SET NOT NULL"
    };
    let default = match &column.default {
        Some(default) => format!("SET DEFAULT {}", spelled(Dialect::Postgres, default)),
        None => "DROP DEFAULT".to_owned(),
    };
    let kind = options.collated(type_name(column.kind));
    let actions: Vec<_> = [format!("TYPE {kind}"), nullable.to_owned(), default]
        .iter()
        .chain(&options.storage)
        .map(|action| format!("ALTER COLUMN {name} {action}"))
        .collect();
    format!("ALTER TABLE {} {}", identifier(table), actions.join(", "))
}

/// In three queries, however many tables there are: clients may wait for them.
pub(super) async fn read(
    tx: &mut Transaction,
    tables: &[&str],
) -> Result<BTreeMap<String, PhysicalTable>, SqlError> {
    // An empty list is no SQL.
    if tables.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut names = BTreeMap::new();
    for row in tx.fetch(of_list(TABLES, "?", tables)).await? {
        let name = row.owned_text(1)?;
        names.insert(row.integer_or_zero(0)?, name);
    }
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let oids: Vec<i64> = names.keys().copied().collect();
    let mut found: BTreeMap<i64, PhysicalTable> = BTreeMap::new();
    for row in tx.fetch(of_list(COLUMNS, OID, &oids)).await? {
        let kind = canonical_type(row.text_or_empty(1)?);
        let default = row
            .text(3)?
            .and_then(|default| canonical_default(&kind, default));
        let name = row.owned_text(0)?;
        let special = row.text(4)?.map(str::to_owned);
        let storage = [row.text(7)?, row.text(8)?].into_iter().flatten();
        let options = ColumnOptions {
            collation: row.text(6)?.map(str::to_owned),
            storage: storage.map(str::to_owned).collect(),
            ..ColumnOptions::default()
        };
        let table = found.entry(row.integer_or_zero(5)?);
        table.or_default().columns.push(PhysicalColumn {
            name,
            kind,
            nullable: row.flag(2)? != Some(true),
            default,
            options,
            special,
        });
    }
    for row in tx.fetch(of_list(INDEXES, OID, &oids)).await? {
        let column = unquoted(row.text_or_empty(1)?);
        let table = found.entry(row.integer_or_zero(4)?);
        let table = table.or_default();
        if row.flag(3)? == Some(true) {
            table.primary_key.push(column);
        } else {
            add_to_index(
                &mut table.indexes,
                row.text_or_empty(0)?,
                &column,
                row.flag(2)? == Some(true),
            );
        }
    }
    let tables = names
        .into_iter()
        .map(|(oid, name)| (name, found.remove(&oid).unwrap_or_default()));
    Ok(tables.collect())
}

/// The catalog quotes identifiers that are not plain names.
fn unquoted(column: &str) -> String {
    match column
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        Some(name) => name.replace("\"\"", "\""),
        None => column.to_owned(),
    }
}

fn canonical_type(formatted: &str) -> String {
    match formatted.strip_prefix("character varying") {
        Some(length) => format!("{VARCHAR}{length}"),
        None => formatted.to_uppercase(),
    }
}

/// Removes the cast that PostgreSQL appends to a literal, and the quotes around a number.
fn canonical_default(kind: &str, default: &str) -> Option<String> {
    // A serial column, as in Diego's health check. Inserts may still provide the value.
    if default.starts_with("nextval(") {
        return None;
    }
    let bare = match default.strip_prefix('\'') {
        Some(rest) => {
            let end = rest
                .rfind("'::")
                .or_else(|| rest.rfind('\''))
                .unwrap_or(rest.len());
            let text = rest[..end].replace("''", "'");
            return Some(if kind == TEXT || kind.starts_with(VARCHAR) {
                quoted(&text)
            } else {
                text
            });
        }
        None => default.split("::").next().unwrap_or_default(),
    };
    match bare {
        "NULL" => None,
        "true" if kind == BOOLEAN => Some("1".to_owned()),
        "false" if kind == BOOLEAN => Some("0".to_owned()),
        other => Some(
            other
                .trim_start_matches('(')
                .trim_end_matches(')')
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_defaults_are_normalised() {
        let default = |kind: &str, printed| canonical_default(kind, printed);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            default("VARCHAR(1024)", "''::character varying"),
            some("''")
        );
        assert_eq!(default("TEXT", "'it''s'::text"), some("'it''s'"));
        assert_eq!(default("TEXT", "'a''::b'::text"), some("'a''::b'"));
        assert_eq!(default("INTEGER", "'-3'::integer"), some("-3"));
        assert_eq!(default("INTEGER", "0"), some("0"));
        assert_eq!(
            default("BIGINT", "(- 7)"),
            some("- 7"),
            "an expression equals no literal"
        );
        assert_eq!(default("BOOLEAN", "false"), some("0"));
        assert_eq!(default("BOOLEAN", "true"), some("1"));
        assert_eq!(default("VARCHAR(9)", "NULL::character varying"), None);
        assert_eq!(
            default("INTEGER", "nextval('bbs_health_check_id_seq'::regclass)"),
            None
        );
    }

    #[test]
    fn names_and_types_are_normalised_to_the_layouts_form() {
        assert_eq!(unquoted("\"order\""), "order");
        assert_eq!(unquoted("domain"), "domain");
        assert_eq!(unquoted("lower((domain)::text)"), "lower((domain)::text)");
        assert_eq!(canonical_type("character varying(255)"), "VARCHAR(255)");
        assert_eq!(
            canonical_type("timestamp without time zone"),
            "TIMESTAMP WITHOUT TIME ZONE"
        );
    }
}
