//! Keys that do not open what their label names: a host says so before it writes, and one damaged record is no such key.

use serde_json::json;

use crate::harness::database::{dump, execute, on_each_database, texts};
use crate::harness::fixture::VERSION;

use super::*;

const LABEL: &str = "key-2024";
const RIGHT: &str = "correct horse battery staple";

fn keys(installation: Installation, keys: Value, active: &str) -> Installation {
    installation.set("encryption_keys", keys).set("active_key_label", active)
}

async fn assert_refused(installation: &Installation, label: &str) {
    let before = dump(&installation.database).await;
    for arguments in
        [&["serve"][..], &["migrate", "up"], &["migrate", "down", "--to", &OLDEST.to_string()], &["keys", "rotate"]]
    {
        let said = fail(installation, arguments);
        assert!(said.contains(&format!("the key {label:?} opens none of the")), "{said}");
        assert_eq!(dump(&installation.database).await, before, "bbs {arguments:?} wrote: {said}");
    }
    for arguments in [&["keys", "status"][..], &["migrate", "status"], &["migrate", "plan"]] {
        let output = installation.run(arguments);
        let said = said(&output);
        assert!(said.contains(&format!("{label:?} opens none of the")), "bbs {arguments:?}: {said}");
        assert!(!said.contains("nothing to do"), "bbs {arguments:?}: {said}");
    }
    let verified = fail(installation, &["keys", "verify", "--label", "other"]);
    assert!(verified.contains(&format!("the key {label:?} opens none of the")), "{verified}");
    assert_eq!(dump(&installation.database).await, before);
}

on_each_database!(a_wrong_passphrase_under_a_known_label_ends_a_start_before_anything_is_written);
async fn a_wrong_passphrase_under_a_known_label_ends_a_start_before_anything_is_written(kind: Kind) {
    let installation = keys(diegos(kind).await, json!({ LABEL: "wrong", "other": "x" }), LABEL);
    assert_refused(&installation, LABEL).await;
    // Nor can it be the old one of a rotation, or one that only other records are under.
    let installation = keys(installation, json!({ LABEL: "wrong", "other": "x" }), "other");
    assert_refused(&installation, LABEL).await;
    // With one table alone, whichever it is.
    for table in ["actual_lrps", "tasks"] {
        let database = installation.database.copy();
        let opened = database.open().await;
        for other in fixture::TABLES.iter().filter(|other| **other != table) {
            execute(&opened, &format!("DELETE FROM {other}")).await;
        }
        opened.close().await;
        let one = keys(Installation::on(database, &modules::modules()), json!({ LABEL: "wrong", "other": "x" }), LABEL);
        let said = fail(&one, &["serve"]);
        assert!(said.contains(&format!("the key {LABEL:?} opens none of the")) && said.contains(table), "{said}");
    }
    let right = keys(installation, json!({ LABEL: RIGHT }), LABEL);
    assert!(right.serve().terminate().success());
}

on_each_database!(a_wrong_passphrase_for_the_old_key_of_a_rotation_ends_a_start);
async fn a_wrong_passphrase_for_the_old_key_of_a_rotation_ends_a_start(kind: Kind) {
    let installation = diegos(kind).await;
    assert!(installation.serve().terminate().success());
    // As a rotation that was cut short left it: records of the first half are under the new key.
    let opened = installation.database.open().await;
    execute(&opened, "DELETE FROM configurations WHERE id = 'encryption_key_label'").await;
    opened.close().await;
    let installation = keys(installation, json!({ LABEL: "wrong", "new": "n" }), "new");
    let said = fail(&installation, &["serve"]);
    assert!(said.contains(&format!("the key {LABEL:?} opens none of the")), "{said}");
}

// What the host itself has sealed beside the records is under keys, too.
on_each_database!(what_the_host_keeps_beside_records_is_tried_too);
async fn what_the_host_keeps_beside_records_is_tried_too(kind: Kind) {
    let installation = diegos(kind).await;
    assert!(installation.serve().terminate().success());
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let opened = installation.database.open().await;
    for table in fixture::TABLES {
        execute(&opened, &format!("DELETE FROM {table}")).await;
    }
    assert_ne!(texts(&opened, "SELECT COUNT(*) FROM bbs_residue").await, ["0"]);
    opened.close().await;
    let installation = keys(installation, json!({ LABEL: "wrong" }), LABEL);
    let said = fail(&installation, &["serve"]);
    assert!(said.contains(&format!("the key {LABEL:?} opens none of the")) && said.contains("bbs_residue"), "{said}");
}

on_each_database!(damaged_records_stop_no_start);
async fn damaged_records_stop_no_start(kind: Kind) {
    let installation = diegos(kind).await;
    let opened = installation.database.open().await;
    // The first record of every table, as the database orders them: the ones that are tried first.
    for (table, key, column) in [
        ("desired_lrps", "process_guid", "run_info"),
        ("actual_lrps", "process_guid", "net_info"),
        ("tasks", "guid", "task_definition"),
    ] {
        let first = &texts(&opened, &format!("SELECT {key} FROM {table} ORDER BY {key} LIMIT 1")).await[0];
        let damage = format!(
            "UPDATE {table} SET {column} = concat(substr({column}, 1, 40), \
             CASE substr({column}, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END, substr({column}, 42)) WHERE {key} = '{first}'"
        );
        execute(&opened, &damage).await;
    }
    opened.close().await;
    assert!(installation.serve().terminate().success());
    // A rotation leaves them under their old key, and the next start tries again.
    let rotating = keys(installation, json!({ LABEL: RIGHT, "new": "n" }), "new");
    let said = fail(&rotating, &["keys", "rotate"]);
    assert!(said.contains("do not open and are as they were"), "{said}");
    assert!(rotating.serve().terminate().success());
    assert!(version(&rotating) > VERSION);
}
