//! Keys with a wrong passphrase: a host refuses them before it writes. A single damaged record does
//! not count as one.

use serde_json::json;

use crate::harness::database::{dump, execute, on_each_database, texts};
use crate::harness::fixture::VERSION;
use crate::harness::output::text;

use super::*;

const LABEL: &str = "key-2024";
const RIGHT: &str = "correct horse battery staple";

fn keys(installation: Installation, keys: Value, active: &str) -> Installation {
    installation
        .set("encryption_keys", keys)
        .set("active_key_label", active)
}

async fn assert_refused(installation: &Installation, label: &str) {
    let before = dump(&installation.database).await;
    let mut messages = Vec::new();
    for arguments in [
        &["serve"][..],
        &["migrate", "up"],
        &["migrate", "down", "--to", &OLDEST.to_string()],
        &["keys", "rotate"],
    ] {
        let message = installation.fail(arguments);
        assert!(
            message.contains(&format!("the key {label:?} opens none of the")),
            "bbs {arguments:?}: {message}"
        );
        messages.push(message);
    }
    for (arguments, code) in [
        (&["keys", "status"][..], 0),
        (&["migrate", "status"], 0),
        (&["migrate", "plan"], 1),
        (&["migrate", "plan", "--check"], 1),
    ] {
        let output = installation.run(arguments);
        let message = text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(
            message.contains(&format!("{label:?} opens none of the")),
            "bbs {arguments:?}: {message}"
        );
        assert!(
            !message.contains("nothing to do"),
            "bbs {arguments:?}: {message}"
        );
        messages.push(message);
    }
    let verified = installation.fail(&["keys", "verify", "--label", "other"]);
    assert!(
        verified.contains(&format!("the key {label:?} opens none of the")),
        "{verified}"
    );
    let after = dump(&installation.database).await;
    assert_eq!(after, before, "one of the commands wrote: {messages:#?}");
}

on_each_database!(wrong_passphrase_under_a_known_label_is_refused_before_any_write);
async fn wrong_passphrase_under_a_known_label_is_refused_before_any_write(kind: Kind) {
    let installation = keys(
        Installation::of_small_diego(&modules::modules(), kind).await,
        json!({ LABEL: "wrong", "other": "x" }),
        LABEL,
    );
    assert_refused(&installation, LABEL).await;
    // The same for the old key of a rotation.
    let installation = keys(
        installation,
        json!({ LABEL: "wrong", "other": "x" }),
        "other",
    );
    assert_refused(&installation, LABEL).await;
    // A single table with records is enough.
    for table in ["actual_lrps", "tasks"] {
        let database = installation.database.copy();
        let opened = database.open().await;
        for other in fixture::TABLES.iter().filter(|other| **other != table) {
            execute(&opened, &format!("DELETE FROM {other}")).await;
        }
        opened.close().await;
        let one = keys(
            Installation::on(database, &modules::modules()),
            json!({ LABEL: "wrong", "other": "x" }),
            LABEL,
        );
        let message = one.fail(&["serve"]);
        assert!(
            message.contains(&format!("the key {LABEL:?} opens none of the"))
                && message.contains(table),
            "{message}"
        );
    }
    let right = keys(installation, json!({ LABEL: RIGHT }), LABEL);
    assert!(right.serve().terminate().success());
}

on_each_database!(key_that_is_not_configured_is_refused_by_a_start_and_named_before_it);
async fn key_that_is_not_configured_is_refused_by_a_start_and_named_before_it(kind: Kind) {
    let installation = keys(
        Installation::of_small_diego(&modules::modules(), kind).await,
        json!({ "other": "x" }),
        "other",
    );
    let before = dump(&installation.database).await;
    let reason = format!("existing encryption key version ({LABEL}) is not among the known keys");
    for (arguments, code) in [
        (&["serve"][..], 2),
        (&["migrate", "up"], 1),
        (&["migrate", "plan"], 1),
        (&["migrate", "plan", "--check"], 1),
        (&["migrate", "up", "--dry-run"], 1),
        (&["migrate", "status"], 0),
    ] {
        let output = installation.run(arguments);
        let message = text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(&reason), "{arguments:?}: {message}");
    }
    let refused = &installation.status()["keys_refused"];
    assert!(refused.as_str().unwrap().contains(&reason), "{refused}");
    let plan = installation.run(&["migrate", "plan", "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(&plan["keys_refused"], refused);
    assert_eq!(dump(&installation.database).await, before);
}

on_each_database!(wrong_passphrase_of_a_rotations_old_key_is_refused_at_the_start);
async fn wrong_passphrase_of_a_rotations_old_key_is_refused_at_the_start(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    assert!(installation.serve().terminate().success());
    // As an interrupted rotation leaves it: no key label is recorded.
    let opened = installation.database.open().await;
    execute(
        &opened,
        "DELETE FROM configurations WHERE id = 'encryption_key_label'",
    )
    .await;
    opened.close().await;
    let installation = keys(installation, json!({ LABEL: "wrong", "new": "n" }), "new");
    let message = installation.fail(&["serve"]);
    assert!(
        message.contains(&format!("the key {LABEL:?} opens none of the")),
        "{message}"
    );
}

// Residue is encrypted, too.
on_each_database!(wrong_passphrase_is_detected_in_residue_too);
async fn wrong_passphrase_is_detected_in_residue_too(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    assert!(installation.serve().terminate().success());
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let opened = installation.database.open().await;
    for table in fixture::TABLES {
        execute(&opened, &format!("DELETE FROM {table}")).await;
    }
    assert_ne!(
        texts(&opened, "SELECT COUNT(*) FROM bbs_residue").await,
        ["0"]
    );
    opened.close().await;
    let installation = keys(installation, json!({ LABEL: "wrong" }), LABEL);
    let message = installation.fail(&["serve"]);
    assert!(
        message.contains(&format!("the key {LABEL:?} opens none of the"))
            && message.contains("bbs_residue"),
        "{message}"
    );
}

on_each_database!(damaged_records_do_not_prevent_a_start);
async fn damaged_records_do_not_prevent_a_start(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let opened = installation.database.open().await;
    // The first record of every table in key order, which the check tries first.
    for (table, key, column) in [
        ("desired_lrps", "process_guid", "run_info"),
        ("actual_lrps", "process_guid", "net_info"),
        ("tasks", "guid", "task_definition"),
    ] {
        let first = &texts(
            &opened,
            &format!("SELECT {key} FROM {table} ORDER BY {key} LIMIT 1"),
        )
        .await[0];
        let damage = format!(
            "UPDATE {table} SET {column} = concat(substr({column}, 1, 40), \
             CASE substr({column}, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END, substr({column}, 42)) WHERE {key} = '{first}'"
        );
        execute(&opened, &damage).await;
    }
    opened.close().await;
    assert!(installation.serve().terminate().success());
    // A rotation leaves damaged records under their old key, and the next start tries them again.
    let rotating = keys(installation, json!({ LABEL: RIGHT, "new": "n" }), "new");
    let message = rotating.fail(&["keys", "rotate"]);
    assert!(
        message.contains("do not open and are unchanged")
            && !message.contains("texts that do not open"),
        "{message}"
    );
    assert!(rotating.serve().terminate().success());
    assert!(rotating.data_version() > VERSION);
}
