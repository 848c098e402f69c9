//! SQLite: column types are affinities without lengths. All text types are `TEXT` and all integers
//! `BIGINT`, so widening is never needed.

use bbs_lens::layout::schema::ColumnType;
use bbs_lens::layout::values::Encoding;

use super::{ColumnOptions, PhysicalColumn, PhysicalTable, add_to_index};
use crate::{SqlError, Transaction, sql};

pub(super) const TABLES: &str =
    "SELECT rowid, name FROM sqlite_master WHERE type = 'table' AND name COLLATE NOCASE IN (?)";

pub(super) const NAMES: &str = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' \
     ORDER BY name";

const BOOLEAN: &str = "BOOLEAN";
const INTEGER: &str = "BIGINT";
const TEXT: &str = "TEXT";

pub(super) fn type_name(kind: ColumnType) -> &'static str {
    match Encoding::from(kind) {
        Encoding::Boolean => BOOLEAN,
        Encoding::Integer => INTEGER,
        Encoding::Text => TEXT,
    }
}

pub(super) async fn read(
    tx: &mut Transaction,
    table: &str,
) -> Result<Option<PhysicalTable>, SqlError> {
    let columns = "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid";
    let rows = tx.fetch(sql(columns).bind(table)).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut columns = Vec::with_capacity(rows.len());
    let mut key = Vec::new();
    for row in &rows {
        let name = row.owned_text(0)?;
        let place = row.integer_or_zero(4)?;
        if place > 0 {
            key.push((place, name.clone()));
        }
        let kind = affinity(row.text_or_empty(1)?);
        // Only SQLite allows NULL in a key; no host writes one.
        let required = row.flag(2)? == Some(true) || place > 0;
        let default = row
            .text(3)?
            .and_then(|default| canonical_default(&kind, default));
        let is_computed = row.integer_or_zero(5)? != 0;
        let special = is_computed.then(|| "GENERATED".to_owned());
        columns.push(PhysicalColumn {
            name,
            kind,
            nullable: !required,
            default,
            options: ColumnOptions::default(),
            special,
        });
    }
    key.sort();
    let indexes = "SELECT list.name, CASE WHEN info.name IS NULL THEN 'an expression' \
                   WHEN list.partial THEN info.name || ' of some rows' WHEN info.\"desc\" THEN info.name || ' DESC' \
                   WHEN info.coll <> 'BINARY' THEN info.name || ' ' || info.coll ELSE info.name END, list.\"unique\" \
                   FROM pragma_index_list(?) AS list, pragma_index_xinfo(list.name) AS info \
                   WHERE list.origin = 'c' AND info.key ORDER BY list.name, info.seqno";
    let rows = tx.fetch(sql(indexes).bind(table)).await?;
    let mut indexes = Vec::new();
    for row in &rows {
        let column = row.text_or_empty(1)?;
        add_to_index(
            &mut indexes,
            row.text_or_empty(0)?,
            column,
            row.flag(2)? == Some(true),
        );
    }
    let primary_key = key.into_iter().map(|(_, name)| name).collect();
    Ok(Some(PhysicalTable {
        columns,
        primary_key,
        indexes,
    }))
}

/// Returns one name for all declared types that SQLite treats alike.
fn affinity(declared: &str) -> String {
    let upper = declared.to_uppercase();
    let is = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    if is(&["INT"]) {
        INTEGER.to_owned()
    } else if is(&["BOOL"]) {
        BOOLEAN.to_owned()
    } else if is(&["CHAR", "CLOB", "TEXT"]) {
        TEXT.to_owned()
    } else {
        declared.to_owned()
    }
}

fn canonical_default(kind: &str, default: &str) -> Option<String> {
    match default.to_lowercase().as_str() {
        "null" => None,
        "false" if kind == BOOLEAN => Some("0".to_owned()),
        "true" if kind == BOOLEAN => Some("1".to_owned()),
        _ => Some(default.to_owned()),
    }
}
