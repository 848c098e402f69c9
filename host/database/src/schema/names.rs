//! The names of staged and retired tables, of their primary keys and indexes, and the holders of
//! names that a migration needs.
//!
//! SQLite and PostgreSQL have one namespace for all tables and indexes, which on PostgreSQL
//! includes the constraint of the primary key; on MySQL index names are local to their table.

use std::collections::BTreeMap;

use bbs_lens::layout::schema::{Index, Sealing, Table};

use super::postgres::identifier;
use super::{
    create_index, create_indexes, create_missing_index, drop_index, of_list, quoted, rename_table,
};
use crate::{Dialect, SqlError, Transaction};

const HOLDERS_ON_SQLITE: &str = "SELECT lower(name), tbl_name FROM sqlite_master WHERE lower(name) IN (?) AND type <> 'trigger'";
const HOLDERS_ON_POSTGRES: &str = "SELECT c.relname::text, coalesce(t.relname, c.relname)::text FROM pg_catalog.pg_class c \
     LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_catalog.pg_class t ON t.oid = i.indrelid \
     WHERE c.relname IN (?) AND c.relnamespace = \
     (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())";

/// PostgreSQL silently truncates longer names.
const LONGEST_NAME: usize = 63;
const KEY_SUFFIX: &str = "_pkey";

/// Whether a server takes two names of columns, or of indexes, for the same.
pub fn is_same_name(dialect: Dialect, one: &str, other: &str) -> bool {
    match dialect {
        Dialect::Postgres => one == other,
        Dialect::Sqlite | Dialect::Mysql => one.eq_ignore_ascii_case(other),
    }
}

/// By name of a layout's index, the table whose index has that name, or the relation that has it.
/// None where an index of any table can be given each name.
///
/// # Errors
/// If the query fails.
pub async fn holders_of_index_names(
    tx: &mut Transaction,
    names: &[String],
) -> Result<BTreeMap<String, String>, SqlError> {
    let select = match tx.dialect() {
        _ if names.is_empty() => return Ok(BTreeMap::new()),
        Dialect::Sqlite => HOLDERS_ON_SQLITE,
        Dialect::Postgres => HOLDERS_ON_POSTGRES,
        Dialect::Mysql => return Ok(BTreeMap::new()),
    };
    let rows = tx.fetch(of_list(select, "?", names)).await?;
    rows.iter()
        .map(|row| Ok((row.owned_text(0)?, row.owned_text(1)?)))
        .collect()
}

/// Creates the indexes of a staged table before the cut-over: on SQLite and PostgreSQL under
/// temporary names.
pub fn index_ahead(
    dialect: Dialect,
    table: &Table,
    staged: &str,
    missing: &[Index],
) -> Vec<String> {
    match dialect {
        Dialect::Mysql => create_indexes(dialect, staged, missing),
        Dialect::Sqlite | Dialect::Postgres => {
            let waiting: Vec<_> = missing
                .iter()
                .map(|index| waiting_index(index, table, staged))
                .collect();
            create_indexes(dialect, staged, &waiting)
        }
    }
}

/// An index under its temporary name.
fn waiting_index(index: &Index, table: &Table, staged: &str) -> Index {
    Index {
        name: waiting(&index.name, table, staged),
        ..index.clone()
    }
}

/// The temporary name of an index while `table` is stored under the name `staged`.
pub fn waiting(index: &str, table: &Table, staged: &str) -> String {
    let suffix = staged.strip_prefix(&table.name).unwrap_or(staged);
    let whole = format!("{index}{suffix}");
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    // Two long names with the same prefix have to stay different after truncation.
    let sum = index.bytes().fold(0x811c_9dc5_u32, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let suffix = format!("_{sum:08x}{suffix}");
    format!(
        "{}{suffix}",
        clipped(index, LONGEST_NAME.saturating_sub(suffix.len()))
    )
}

/// Renames a table and its indexes to a retired name. Not for MySQL, which renames all tables in
/// one statement.
///
/// On PostgreSQL the table is renamed first: autovacuum holds a lock on the table while it waits
/// for the catalog rows of its indexes, so a transaction that renamed an index first and then locks
/// the table would deadlock with it.
pub fn set_aside(dialect: Dialect, table: &Table, aside: &str) -> Vec<String> {
    let mut statements = vec![rename_table(dialect, &table.name, aside)];
    let indexes = table.indexes.iter();
    match dialect {
        Dialect::Mysql => {}
        Dialect::Sqlite => {
            for index in indexes {
                let waiting = waiting_index(index, table, aside);
                statements.extend(rename_index_of_sqlite(aside, index, &waiting));
                statements.push(drop_index(dialect, aside, &index.name));
            }
        }
        Dialect::Postgres => {
            statements.extend(
                indexes.map(|index| rename_index(&index.name, &waiting(&index.name, table, aside))),
            );
            statements.push(rename_index(&key_name(&table.name), &key_name(aside)));
        }
    }
    statements
}

/// Renames a staged table and its indexes to their final names. Not for MySQL, which renames all
/// tables in one statement.
pub fn take_place(dialect: Dialect, table: &Table, staged: &str) -> Vec<String> {
    let mut statements = vec![rename_table(dialect, staged, &table.name)];
    let indexes = table.indexes.iter();
    match dialect {
        Dialect::Mysql => {}
        Dialect::Sqlite => {
            for index in indexes {
                let waiting = waiting_index(index, table, staged);
                statements.extend(rename_index_of_sqlite(&table.name, &waiting, index));
                statements.push(create_missing_index(&table.name, index));
            }
        }
        Dialect::Postgres => {
            let names = indexes.map(|index| index.name.as_str());
            statements.extend(names.map(|name| rename_index(&waiting(name, table, staged), name)));
            statements.push(rename_index(&key_name(staged), &key_name(&table.name)));
            statements.extend(sealed_storage(table, &table.name, "EXTENDED"));
        }
    }
    statements
}

/// Renames an index of a table that was renamed in the same transaction. SQLite has no statement
/// for that; its `ALTER TABLE` writes to `sqlite_schema`, and this does the same. `RESET` has this
/// connection read the schema again; others do because the table was renamed.
///
/// An index that was declared in another way keeps its name, since its text would not fit its
/// content; so does one whose new name is taken.
fn rename_index_of_sqlite(table: &str, from: &Index, to: &Index) -> [String; 3] {
    let definition = |index| quoted(&create_index(Dialect::Sqlite, table, index));
    let rename = format!(
        "UPDATE sqlite_schema SET name = {new_name}, sql = {new} \
         WHERE type = 'index' AND name = {old_name} AND sql = {old} AND NOT EXISTS \
         (SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = {new_name})",
        new_name = quoted(&to.name),
        new = definition(to),
        old_name = quoted(&from.name),
        old = definition(from),
    );
    [
        "PRAGMA writable_schema = ON".into(),
        rename,
        "PRAGMA writable_schema = RESET".into(),
    ]
}

/// Prepares a staged table for the copy: disables PostgreSQL's compression of sealed columns, since
/// ciphertext does not compress. [`take_place`] restores the default.
pub fn before_filling(dialect: Dialect, table: &Table, staged: &str) -> Option<String> {
    if dialect == Dialect::Postgres {
        sealed_storage(table, staged, "EXTERNAL")
    } else {
        None
    }
}

fn sealed_storage(table: &Table, name: &str, storage: &str) -> Option<String> {
    let sealed = table
        .columns
        .iter()
        .filter(|column| column.sealing != Sealing::Plain);
    let changes: Vec<_> = sealed
        .map(|column| {
            format!(
                "ALTER COLUMN {} SET STORAGE {storage}",
                identifier(&column.name)
            )
        })
        .collect();
    (!changes.is_empty())
        .then(|| format!("ALTER TABLE {} {}", identifier(name), changes.join(", ")))
}

/// The name of the primary key of a table, where it is one of those of the whole schema.
pub fn name_of_key(dialect: Dialect, table: &str) -> Option<String> {
    (dialect == Dialect::Postgres).then(|| key_name(table))
}

/// The name that PostgreSQL gives to a primary key's constraint by default; Diego's own migrations
/// refer to it.
pub(super) fn key_name(table: &str) -> String {
    format!(
        "{}{KEY_SUFFIX}",
        clipped(table, LONGEST_NAME - KEY_SUFFIX.len())
    )
}

/// `IF EXISTS`: an index that an operator renamed keeps its name.
fn rename_index(from: &str, to: &str) -> String {
    format!(
        "ALTER INDEX IF EXISTS {} RENAME TO {}",
        identifier(from),
        identifier(to)
    )
}

/// Cuts a name to a length in bytes. Names of layouts are ASCII.
fn clipped(name: &str, length: usize) -> &str {
    name.get(..length).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apps() -> Table {
        Table::new("apps").index("apps_idx", ["domain"])
    }

    #[test]
    fn postgresql_renames_the_table_before_its_indexes_and_key() {
        assert_eq!(
            set_aside(Dialect::Postgres, &apps(), "apps__1"),
            [
                r#"ALTER TABLE "apps" RENAME TO "apps__1""#,
                r#"ALTER INDEX IF EXISTS "apps_idx" RENAME TO "apps_idx__1""#,
                r#"ALTER INDEX IF EXISTS "apps_pkey" RENAME TO "apps__1_pkey""#,
            ]
        );
        assert_eq!(
            take_place(Dialect::Postgres, &apps(), "apps__2"),
            [
                r#"ALTER TABLE "apps__2" RENAME TO "apps""#,
                r#"ALTER INDEX IF EXISTS "apps_idx__2" RENAME TO "apps_idx""#,
                r#"ALTER INDEX IF EXISTS "apps__2_pkey" RENAME TO "apps_pkey""#,
            ]
        );
        let ahead = index_ahead(Dialect::Postgres, &apps(), "apps__2", &apps().indexes);
        assert_eq!(
            ahead,
            [r#"CREATE INDEX "apps_idx__2" ON "apps__2" ("domain")"#]
        );
    }

    #[test]
    fn sqlite_changes_its_schema_only_for_tables_with_indexes() {
        let retired = set_aside(Dialect::Sqlite, &apps(), "apps__1");
        assert_eq!(retired[0], r#"ALTER TABLE "apps" RENAME TO "apps__1""#);
        assert_eq!(retired[1], "PRAGMA writable_schema = ON");
        assert!(
            retired[2].starts_with(
                r#"UPDATE sqlite_schema SET name = 'apps_idx__1', sql = 'CREATE INDEX "apps_idx__1" ON "apps__1" ("domain")' WHERE"#
            ),
            "{}",
            retired[2]
        );
        assert_eq!(
            retired[3..],
            [
                "PRAGMA writable_schema = RESET",
                r#"DROP INDEX IF EXISTS "apps_idx""#,
            ]
        );
        let unindexed = take_place(Dialect::Sqlite, &Table::new("apps"), "apps__2");
        assert_eq!(unindexed, [r#"ALTER TABLE "apps__2" RENAME TO "apps""#]);
    }

    #[test]
    fn mysql_creates_all_indexes_ahead_in_one_statement_under_their_names() {
        let apps = apps().index("apps_zone_idx", ["zone", "domain"]);
        let ahead = |missing: &[Index]| index_ahead(Dialect::Mysql, &apps, "apps__2", missing);
        assert_eq!(
            ahead(&apps.indexes),
            ["ALTER TABLE `apps__2` ADD INDEX `apps_idx` (`domain`), \
                 ADD INDEX `apps_zone_idx` (`zone`, `domain`)"]
        );
        assert_eq!(
            ahead(&apps.indexes[1..]),
            ["ALTER TABLE `apps__2` ADD INDEX `apps_zone_idx` (`zone`, `domain`)"],
            "an earlier start has created the other one"
        );
        assert_eq!(ahead(&[]), [""; 0]);
    }

    #[test]
    fn long_names_are_truncated_and_stay_unique() {
        let one = format!("{}_a", "x".repeat(60));
        let other = format!("{}_b", "x".repeat(60));
        let names = [one, other].map(|name| waiting(&name, &apps(), "apps__1234567890"));
        assert!(
            names
                .iter()
                .all(|name| name.len() == LONGEST_NAME && name.ends_with("__1234567890")),
            "{names:?}"
        );
        assert_ne!(names[0], names[1]);
        assert_eq!(
            key_name(&"t".repeat(63)),
            format!("{}_pkey", "t".repeat(58)),
            "as PostgreSQL cuts it"
        );
    }
}
