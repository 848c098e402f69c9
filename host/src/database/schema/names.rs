//! The names of a table that stands beside the one it will replace, or was replaced: its own, its key's and its indexes'.
//!
//! SQLite and PostgreSQL have one space of names for all indexes, PostgreSQL keeps the key's constraint there too, and
//! on MySQL indexes belong to their table.

use super::postgres::identifier;
use super::{create_index, drop_index, rename_table};
use crate::database::Dialect;
use crate::layout::schema::{Index, Sealing, Table};

/// PostgreSQL cuts off what is longer, in silence.
const LONGEST_NAME: usize = 63;
const KEY_SUFFIX: &str = "_pkey";

/// Makes the indexes that a table will have once it takes its name, where that can be done ahead: on PostgreSQL under
/// names that wait.
pub fn index_ahead(dialect: Dialect, table: &Table, staged: &str, missing: &[Index]) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Mysql => missing.iter().map(|index| create_index(dialect, staged, index)).collect(),
        Dialect::Postgres => {
            let waiting = |index: &Index| Index { name: waiting(&index.name, table, staged), ..index.clone() };
            missing.iter().map(|index| create_index(dialect, staged, &waiting(index))).collect()
        }
    }
}

/// The name of an index of `staged`, which is `table` under another name.
pub fn waiting(index: &str, table: &Table, staged: &str) -> String {
    let suffix = staged.strip_prefix(&table.name).unwrap_or(staged);
    let whole = format!("{index}{suffix}");
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    // Two long names that begin alike must not become one.
    let sum = index.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let suffix = format!("_{sum:08x}{suffix}");
    format!("{}{suffix}", clipped(index, LONGEST_NAME.saturating_sub(suffix.len())))
}

/// Gives a table, with its indexes, another name. Not for MySQL, which renames all tables at once.
///
/// On PostgreSQL the table comes first: an autovacuum holds a lock on the table while it waits for the rows of its indexes in
/// the catalog, so a transaction that has renamed an index and then wants the table is in a deadlock with it.
pub fn set_aside(dialect: Dialect, table: &Table, aside: &str) -> Vec<String> {
    let renamed = rename_table(dialect, &table.name, aside);
    let indexes = table.indexes.iter();
    match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            let dropped = indexes.map(|index| drop_index(dialect, &table.name, &index.name));
            dropped.chain([renamed]).collect()
        }
        Dialect::Postgres => {
            let indexes = indexes.map(|index| rename_index(&index.name, &waiting(&index.name, table, aside)));
            let key = rename_index(&key_name(&table.name), &key_name(aside));
            [renamed].into_iter().chain(indexes).chain([key]).collect()
        }
    }
}

/// Gives a table that waited under another name its own, with its indexes. Not for MySQL either.
pub fn take_place(dialect: Dialect, table: &Table, staged: &str) -> Vec<String> {
    let mut statements = vec![rename_table(dialect, staged, &table.name)];
    match dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            statements.extend(table.indexes.iter().map(|index| create_index(dialect, &table.name, index)));
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

/// Before a table that waits under another name is filled: PostgreSQL is not to try and compress what is sealed, which
/// cannot be compressed. [`take_place`] makes the table like any other again.
pub fn before_filling(dialect: Dialect, table: &Table, staged: &str) -> Option<String> {
    if dialect == Dialect::Postgres { sealed_storage(table, staged, "EXTERNAL") } else { None }
}

fn sealed_storage(table: &Table, name: &str, storage: &str) -> Option<String> {
    let sealed = table.columns.iter().filter(|column| column.sealing != Sealing::Plain);
    let changes: Vec<_> =
        sealed.map(|column| format!("ALTER COLUMN {} SET STORAGE {storage}", identifier(&column.name))).collect();
    (!changes.is_empty()).then(|| format!("ALTER TABLE {} {}", identifier(name), changes.join(", ")))
}

/// The constraint of the key as PostgreSQL calls it by itself; Diego's own migrations know it by that name.
pub(super) fn key_name(table: &str) -> String {
    format!("{}{KEY_SUFFIX}", clipped(table, LONGEST_NAME - KEY_SUFFIX.len()))
}

/// What somebody named otherwise keeps its name.
fn rename_index(from: &str, to: &str) -> String {
    format!("ALTER INDEX IF EXISTS {} RENAME TO {}", identifier(from), identifier(to))
}

/// Layouts have only ASCII in names.
fn clipped(name: &str, length: usize) -> &str {
    name.get(..length).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apps() -> Table {
        Table {
            name: "apps".into(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            indexes: vec![Index { name: "apps_idx".into(), columns: vec!["domain".into()] }],
            partition_key: None,
        }
    }

    #[test]
    fn postgresql_renames_a_table_first_and_its_indexes_and_key_with_it() {
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
        assert_eq!(ahead, [r#"CREATE INDEX "apps_idx__2" ON "apps__2" ("domain")"#]);
    }

    #[test]
    fn on_sqlite_indexes_wait_for_the_name_and_on_mysql_for_nothing() {
        let dropped = set_aside(Dialect::Sqlite, &apps(), "apps__1");
        assert_eq!(dropped, [r#"DROP INDEX IF EXISTS "apps_idx""#, r#"ALTER TABLE "apps" RENAME TO "apps__1""#]);
        let created = take_place(Dialect::Sqlite, &apps(), "apps__2");
        assert_eq!(created[1], r#"CREATE INDEX "apps_idx" ON "apps" ("domain")"#);
        assert!(index_ahead(Dialect::Sqlite, &apps(), "apps__2", &apps().indexes).is_empty());
        let ahead = index_ahead(Dialect::Mysql, &apps(), "apps__2", &apps().indexes);
        assert_eq!(ahead, ["CREATE INDEX `apps_idx` ON `apps__2` (`domain`)"]);
    }

    #[test]
    fn long_names_stay_apart_and_fit() {
        let (one, other) = (format!("{}_a", "x".repeat(60)), format!("{}_b", "x".repeat(60)));
        let names = [one, other].map(|name| waiting(&name, &apps(), "apps__1234567890"));
        assert!(names.iter().all(|name| name.len() == LONGEST_NAME && name.ends_with("__1234567890")), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert_eq!(key_name(&"t".repeat(63)), format!("{}_pkey", "t".repeat(58)), "as PostgreSQL cuts it");
    }
}
