//! A database that Diego's BBS wrote at version 1722634733, and the responses that its newest
//! release gave on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bbs::testing::database::{Database, Dialect, Sql, sql};
use bbs::testing::modules::catalog::Catalog;
use bbs_encryption::Keyring;
use bbs_lens::transform::Transform;
use serde_json::{Map, Value};

use super::database::{Kind, TestDatabase, execute, texts};
use super::templates;

pub const VERSION: u64 = 1_722_634_733;
/// The oldest version that rows can be migrated down to: with plain routes, without presences, and
/// with metric tags in `run_info` only. The migration up from it rewrites every row.
pub const OLDEST: u64 = 1_471_030_898;
/// The version before `split_metric_tags`, which decrypts, splits and re-encrypts every desired
/// LRP.
pub const UNSPLIT_TAGS: u64 = 1_698_182_853;
/// The newest of Diego's versions.
pub const DIEGOS_NEWEST: u64 = 1_772_581_987;
pub const TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];

fn folder() -> PathBuf {
    super::workspace().join("tests/fixtures/diego-db-1722634733")
}

/// The rows of one table exactly as stored, by column name, in primary key order.
pub fn rows(table: &str) -> Vec<Map<String, Value>> {
    let path = folder().join("rows").join(format!("{table}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("each line is one JSON object"))
        .collect()
}

/// The keyring with the one key that all records are encrypted with.
pub fn keyring() -> Keyring {
    Keyring::new([("key-2024", "correct horse battery staple")], "key-2024")
        .expect("a valid keyring")
}

/// The request body that Diego's client sent for a call such as `desired_lrps_list.r3`, and the
/// response body.
pub fn expected(call: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |kind: &str| {
        let path = folder().join("expected").join(format!("{call}.{kind}.pb"));
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    (read("request"), read("response"))
}

/// The default catalog's migrations.
pub fn migrations() -> Vec<Arc<dyn Transform>> {
    migrations_in(&super::modules::modules())
}

/// The migrations of one of the modules directories of [`super::modules`]. They are loaded once: a
/// call of a migration has no effect on another one.
pub fn migrations_in(folder: &Path) -> Vec<Arc<dyn Transform>> {
    static LOADED: Mutex<BTreeMap<PathBuf, Vec<Arc<dyn Transform>>>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().expect("the catalogs of the tests load");
    loaded
        .entry(folder.to_owned())
        .or_insert_with(|| load(folder))
        .clone()
}

fn load(folder: &Path) -> Vec<Arc<dyn Transform>> {
    let catalog = Catalog::load(folder, &super::modules::sandbox());
    let catalog = catalog.unwrap_or_else(|error| panic!("{}", super::modules::chain(&error)));
    catalog
        .migrations()
        .iter()
        .map(|module| Arc::clone(module) as Arc<dyn Transform>)
        .collect()
}

/// The tables of the layout at [`VERSION`] as Diego creates them, in MySQL's dialect.
const TABLES_SQL: &str = "
    CREATE TABLE configurations (id VARCHAR(255) PRIMARY KEY, value VARCHAR(255));
    CREATE TABLE domains (domain VARCHAR(255) PRIMARY KEY, expire_time BIGINT DEFAULT 0);
    CREATE INDEX domains_expire_time_idx ON domains (expire_time);
    CREATE TABLE desired_lrps (
        process_guid VARCHAR(255) PRIMARY KEY, domain VARCHAR(255) NOT NULL, log_guid VARCHAR(255) NOT NULL,
        annotation LONGTEXT, instances INT NOT NULL, memory_mb INT NOT NULL, disk_mb INT NOT NULL,
        rootfs VARCHAR(1024) NOT NULL DEFAULT '', routes LONGTEXT NOT NULL, volume_placement LONGTEXT NOT NULL,
        modification_tag_epoch VARCHAR(255) NOT NULL, modification_tag_index INT, run_info LONGTEXT NOT NULL,
        placement_tags TEXT, max_pids INTEGER DEFAULT 0, metric_tags MEDIUMTEXT);
    CREATE INDEX desired_lrps_domain_idx ON desired_lrps (domain);
    CREATE TABLE actual_lrps (
        process_guid VARCHAR(255), instance_index INT, evacuating BOOL NOT NULL DEFAULT false,
        domain VARCHAR(255) NOT NULL, state VARCHAR(255) NOT NULL, instance_guid VARCHAR(255) NOT NULL DEFAULT '',
        cell_id VARCHAR(255) NOT NULL DEFAULT '', placement_error VARCHAR(1024) NOT NULL DEFAULT '',
        since BIGINT DEFAULT 0, net_info LONGTEXT NOT NULL, modification_tag_epoch VARCHAR(255) NOT NULL,
        modification_tag_index INT, crash_count INT NOT NULL DEFAULT 0,
        crash_reason VARCHAR(1024) NOT NULL DEFAULT '', expire_time BIGINT DEFAULT 0,
        presence INT NOT NULL DEFAULT 0, internal_routes MEDIUMTEXT, metric_tags MEDIUMTEXT, routable BOOL DEFAULT false,
        availability_zone VARCHAR(255) NOT NULL DEFAULT '',
        PRIMARY KEY (process_guid, instance_index, presence));
    CREATE INDEX actual_lrps_domain_idx ON actual_lrps (domain);
    CREATE INDEX actual_lrps_cell_id_idx ON actual_lrps (cell_id);
    CREATE INDEX actual_lrps_since_idx ON actual_lrps (since);
    CREATE INDEX actual_lrps_state_idx ON actual_lrps (state);
    CREATE INDEX actual_lrps_expire_time_idx ON actual_lrps (expire_time);
    CREATE TABLE tasks (
        guid VARCHAR(255) PRIMARY KEY, domain VARCHAR(255) NOT NULL, updated_at BIGINT DEFAULT 0,
        created_at BIGINT DEFAULT 0, first_completed_at BIGINT DEFAULT 0, state INT,
        cell_id VARCHAR(255) NOT NULL DEFAULT '', result LONGTEXT, failed BOOL DEFAULT false,
        failure_reason VARCHAR(1024) NOT NULL DEFAULT '', task_definition LONGTEXT NOT NULL,
        rejection_count INTEGER NOT NULL DEFAULT 0, rejection_reason VARCHAR(1024) NOT NULL DEFAULT '');
    CREATE INDEX tasks_domain_idx ON tasks (domain);
    CREATE INDEX tasks_state_idx ON tasks (state);
    CREATE INDEX tasks_cell_id_idx ON tasks (cell_id);
    CREATE INDEX tasks_updated_at_idx ON tasks (updated_at);
    CREATE INDEX tasks_created_at_idx ON tasks (created_at);
    CREATE INDEX tasks_first_completed_at_idx ON tasks (first_completed_at)";

/// Diego rewrites its statements for PostgreSQL, where its migration of `rootfs` also drops the
/// default. SQLite accepts both dialects' types.
fn tables_sql(dialect: Dialect) -> Vec<String> {
    let statements = TABLES_SQL.split(';').map(str::trim);
    match dialect {
        Dialect::Sqlite => statements.map(str::to_owned).collect(),
        Dialect::Postgres => statements
            .map(|statement| {
                with_types_of(dialect, statement).replace(
                    "rootfs VARCHAR(1024) NOT NULL DEFAULT ''",
                    "rootfs VARCHAR(1024) NOT NULL",
                )
            })
            .collect(),
        Dialect::Mysql => with_indexes_inside(statements),
    }
}

/// A statement with MySQL's types of texts, with those of a dialect.
pub fn with_types_of(dialect: Dialect, statement: &str) -> String {
    match dialect {
        Dialect::Postgres => statement
            .replace("MEDIUMTEXT", "TEXT")
            .replace("LONGTEXT", "TEXT"),
        Dialect::Sqlite | Dialect::Mysql => statement.to_owned(),
    }
}

/// The statements that create tables, each with the indexes whose statements follow it. MySQL and
/// MariaDB take as long for an index as for a table.
fn with_indexes_inside<'a>(statements: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut tables: Vec<String> = Vec::new();
    for statement in statements {
        let Some(index) = statement.strip_prefix("CREATE INDEX ") else {
            tables.push(statement.to_owned());
            continue;
        };
        let last = tables.pop().expect("a table precedes its indexes");
        let (name, place) = index.split_once(" ON ").expect("an index is on a table");
        let (table, columns) = place.split_once(' ').expect("an index has columns");
        assert!(
            last.starts_with(&format!("CREATE TABLE {table} (")),
            "{statement} follows {last}"
        );
        let definitions = last.strip_suffix(')').expect("a table ends with it");
        tables.push(format!("{definitions}, INDEX {name} {columns})"));
    }
    tables
}

/// Rows per statement, far below every database's limit on bound values.
const ROWS_AT_ONCE: usize = 50;

/// Writes the fixture's tables and rows into an empty database.
pub async fn write_to(database: &TestDatabase) {
    write_share_to(database, 1).await;
}

/// The share of [`write_small_to`]: one unit in so many.
const SMALL: u32 = 4;

/// Writes a quarter of the fixture, for tests in which the number of its records has no effect.
pub async fn write_small_to(database: &TestDatabase) {
    write_share_to(database, SMALL).await;
}

/// The rows of a table that [`write_small_to`] writes, in primary key order.
pub fn small_rows(table: &str) -> Vec<Map<String, Value>> {
    share(table, SMALL)
}

/// Writes the fixture's tables, one unit in `nth` with all its rows, and the rows that belong to no
/// unit.
pub async fn write_share_to(database: &TestDatabase, nth: u32) {
    if database.kind == Kind::Sqlite && !database.path().exists() {
        let name = format!("fixture, one unit in {nth}");
        templates::write_file(database.path(), &name, move |empty| {
            Box::pin(async move { write_share(&empty, nth).await })
        });
        return;
    }
    let opened = database.open().await;
    write_share(&opened, nth).await;
    opened.close().await;
}

async fn write_share(database: &Database, nth: u32) {
    write_tables_to(database).await;
    write_rows_to(database, nth).await;
}

/// Writes the rows of [`write_share_to`] into the fixture's tables.
pub async fn write_rows_to(database: &Database, nth: u32) {
    let mut tx = database.write().await.expect("a transaction");
    for table in TABLES.into_iter().chain(["configurations"]) {
        for rows in share(table, nth).chunks(ROWS_AT_ONCE) {
            tx.execute(insert(table, rows))
                .await
                .expect("the rows of the fixture fit their table");
        }
    }
    tx.commit().await.expect("the rows are written");
}

/// The rows of a table that belong to one unit in `nth`; all rows of a table without units.
fn share(table: &str, nth: u32) -> Vec<Map<String, Value>> {
    let mut rows = rows(table);
    let key = match table {
        "actual_lrps" | "desired_lrps" => "process_guid",
        "tasks" => "guid",
        _ => return rows,
    };
    let number = |guid: &str| guid.bytes().map(u32::from).sum::<u32>();
    rows.retain(|row| number(row[key].as_str().expect("a guid is text")).is_multiple_of(nth));
    rows
}

/// Creates the fixture's tables in an empty database, without rows.
pub async fn write_tables_to(database: &Database) {
    write_wider_tables_to(database, &[]).await;
}

/// [`write_tables_to`] with further columns of some tables, which come first: SQLite has none after
/// a primary key of several columns.
pub async fn write_wider_tables_to(database: &Database, added: &[(&str, &str)]) {
    let mut tx = database.write().await.expect("a transaction");
    for mut statement in tables_sql(database.dialect()) {
        for (table, columns) in added {
            let begin = format!("CREATE TABLE {table} (");
            statement = statement.replacen(&begin, &format!("{begin}{columns}, "), 1);
        }
        tx.execute(sql(statement))
            .await
            .expect("the tables of the fixture's version");
    }
    tx.commit().await.expect("the tables are made");
}

/// Copies the rows of a table under random process guids, until it has `rows`. `columns` are those
/// besides the process guid.
pub async fn multiply(database: &Database, table: &str, columns: &[&str], rows: u64) {
    let guid = match database.dialect() {
        Dialect::Sqlite => "lower(hex(randomblob(16)))",
        Dialect::Postgres => "md5(random()::text || clock_timestamp()::text || process_guid)",
        Dialect::Mysql => "LEFT(SHA2(CONCAT(RAND(), UUID(), process_guid), 256), 32)",
    };
    let columns = columns.join(", ");
    let mut filled = texts(database, &format!("SELECT process_guid FROM {table}"))
        .await
        .len() as u64;
    while filled < rows {
        let more = filled.min(rows - filled);
        execute(
            database,
            &format!(
                "INSERT INTO {table} (process_guid, {columns}) SELECT {guid}, {columns} FROM {table} LIMIT {more}"
            ),
        )
        .await;
        filled += more;
    }
}

fn insert(table: &str, rows: &[Map<String, Value>]) -> Sql {
    let names: Vec<_> = rows[0].keys().map(String::as_str).collect();
    let row = format!("({})", vec!["?"; names.len()].join(", "));
    let placeholders = vec![row; rows.len()].join(", ");
    let mut statement = sql(format!(
        "INSERT INTO {table} ({}) VALUES {placeholders}",
        names.join(", ")
    ));
    for row in rows {
        for name in &names {
            statement = match &row[*name] {
                Value::Null => statement.bind(None::<String>),
                Value::Bool(value) => statement.bind(*value),
                Value::Number(number) => {
                    statement.bind(number.as_i64().expect("the fixture's numbers are integers"))
                }
                Value::String(text) => statement.bind(text.clone()),
                Value::Array(_) | Value::Object(_) => {
                    panic!("{table} has a value that no column type holds")
                }
            };
        }
    }
    statement
}
