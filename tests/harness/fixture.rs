//! The database that Diego's own BBS wrote at 1722634733, and the answers its newest one gave.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs::layout::database::Database;
use bbs::layout::dialect;
use bbs::lens::transform::Transform;
use bbs::modules::catalog::Catalog;
use bbs::record::Keyring;
use serde_json::{Map, Value};
use sqlx::AssertSqlSafe;

pub const VERSION: u64 = 1_722_634_733;
pub const TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];

fn folder() -> PathBuf {
    super::workspace().join("tests/fixtures/diego-db-1722634733")
}

/// The rows of one table, columns under their SQL names, exactly as stored, in primary key order.
pub fn rows(table: &str) -> Vec<Map<String, Value>> {
    let path = folder().join("rows").join(format!("{table}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is one JSON object")).collect()
}

/// The one key that every record is sealed with.
pub fn keyring() -> Keyring {
    Keyring::new([("key-2024", "correct horse battery staple")], "key-2024").expect("a valid keyring")
}

/// The body that Diego's client sent, and the answer it got. `call` is such as `desired_lrps_list.r3`.
pub fn expected(call: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |kind: &str| {
        let path = folder().join("expected").join(format!("{call}.{kind}.pb"));
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    (read("request"), read("response"))
}

/// The default catalog's migrations.
pub fn migrations() -> Vec<Arc<dyn Transform>> {
    let catalog = Catalog::load(&super::modules::modules(), &super::modules::sandbox());
    let catalog = catalog.unwrap_or_else(|error| panic!("{}", super::modules::chain(&error)));
    catalog.migrations().iter().map(|module| Arc::clone(module) as Arc<dyn Transform>).collect()
}

/// A database file as Diego would have left it: its tables at [`VERSION`], its rows, and nothing of ours.
pub async fn load(path: &Path, migrations: &[Arc<dyn Transform>]) {
    let database = Database::open(path).await.expect("the folder is writable");
    let line = bbs::migrate::line(migrations).expect("the default line is sound");
    let layout = line.at(VERSION).expect("the fixture's version is in the line");
    let mut tx = database.write().await.expect("nobody else writes");
    let mut execute = async |statement: String| {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *tx).await.expect("the fixture fits its layout");
    };
    execute("CREATE TABLE configurations (id VARCHAR(255) PRIMARY KEY, value VARCHAR(255))".to_owned()).await;
    for table in layout.tables.values() {
        execute(dialect::create_table(table, &table.name)).await;
        for index in &table.indexes {
            execute(dialect::create_index(&table.name, index)).await;
        }
    }
    for table in TABLES.iter().chain(&["configurations"]) {
        for row in rows(table) {
            let names: Vec<_> = row.keys().map(String::as_str).collect();
            let values: Vec<_> = row.values().map(literal).collect();
            execute(format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))).await;
        }
    }
    tx.commit().await.expect("the fixture is written");
    database.close().await;
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => i32::from(*value).to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.contains('\0') => format!("CAST(x'{}' AS TEXT)", hex(text.as_bytes())),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Array(_) | Value::Object(_) => panic!("a column holds one value"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
