//! The names of staged and retired tables: of the table itself, its primary key and its indexes.
//!
//! SQLite and PostgreSQL have one namespace for all indexes, which on PostgreSQL includes the
//! constraint of the primary key; on MySQL index names are local to their table.

use bbs_lens::layout::schema::{Index, Sealing, Table};

use super::postgres::identifier;
use super::{create_index, drop_index, rename_table};
use crate::Dialect;

/// PostgreSQL silently truncates longer names.
const LONGEST_NAME: usize = 63;
const KEY_SUFFIX: &str = "_pkey";

/// Creates the indexes of a staged table before the cut-over where the database allows it: on
/// PostgreSQL under temporary names.
pub fn index_ahead(
    dialect: Dialect,
    table: &Table,
    staged: &str,
    missing: &[Index],
) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Mysql => missing
            .iter()
            .map(|index| create_index(dialect, staged, index))
            .collect(),
        Dialect::Postgres => {
            let waiting = |index: &Index| Index {
                name: waiting(&index.name, table, staged),
                ..index.clone()
            };
            missing
                .iter()
                .map(|index| create_index(dialect, staged, &waiting(index)))
                .collect()
        }
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
    let renamed = rename_table(dialect, &table.name, aside);
    let indexes = table.indexes.iter();
    match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            let dropped = indexes.map(|index| drop_index(dialect, &table.name, &index.name));
            dropped.chain([renamed]).collect()
        }
        Dialect::Postgres => {
            let indexes =
                indexes.map(|index| rename_index(&index.name, &waiting(&index.name, table, aside)));
            let key = rename_index(&key_name(&table.name), &key_name(aside));
            [renamed].into_iter().chain(indexes).chain([key]).collect()
        }
    }
}

/// Renames a staged table and its indexes to their final names. Not for MySQL, which renames all
/// tables in one statement.
pub fn take_place(dialect: Dialect, table: &Table, staged: &str) -> Vec<String> {
    let mut statements = vec![rename_table(dialect, staged, &table.name)];
    match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            statements.extend(
                table
                    .indexes
                    .iter()
                    .map(|index| create_index(dialect, &table.name, index)),
            );
        }
        Dialect::Postgres => {
            let names = table.indexes.iter().map(|index| index.name.as_str());
            statements.extend(names.map(|name| rename_index(&waiting(name, table, staged), name)));
            statements.push(rename_index(&key_name(staged), &key_name(&table.name)));
            statements.extend(sealed_storage(table, &table.name, "EXTENDED"));
        }
    }
    statements
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
    fn sqlite_creates_indexes_after_the_rename_and_mysql_before() {
        let dropped = set_aside(Dialect::Sqlite, &apps(), "apps__1");
        assert_eq!(
            dropped,
            [
                r#"DROP INDEX IF EXISTS "apps_idx""#,
                r#"ALTER TABLE "apps" RENAME TO "apps__1""#
            ]
        );
        let created = take_place(Dialect::Sqlite, &apps(), "apps__2");
        assert_eq!(
            created[1],
            r#"CREATE INDEX "apps_idx" ON "apps" ("domain")"#
        );
        assert!(index_ahead(Dialect::Sqlite, &apps(), "apps__2", &apps().indexes).is_empty());
        let ahead = index_ahead(Dialect::Mysql, &apps(), "apps__2", &apps().indexes);
        assert_eq!(ahead, ["CREATE INDEX `apps_idx` ON `apps__2` (`domain`)"]);
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
