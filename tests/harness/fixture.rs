//! The database that Diego's own BBS wrote at 1722634733, and the answers its newest one gave.

use std::path::PathBuf;

use bbs::record::Keyring;
use serde_json::{Map, Value};

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
