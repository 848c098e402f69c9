//! Refused starts: the database is unchanged, with every kind of lock.

use std::process::Output;

use crate::harness::database::{TestDatabase, dump, execute, on_each_database};
use crate::harness::fixture::VERSION;
use crate::harness::locket::Locket;
use crate::harness::output::{ended, text};
use crate::lock::locket::under;

use super::*;

async fn run(installation: &Installation, arguments: &[&str]) -> Output {
    ended(installation.command(arguments)).await
}

/// Runs a command that must fail without a change of the database; returns its output.
async fn refused(installation: &Installation, arguments: &[&str]) -> String {
    each_refused(installation, &[arguments]).await.remove(0)
}

/// Runs commands that must fail, and that together change nothing in the database; returns the
/// output of each.
async fn each_refused(installation: &Installation, commands: &[&[&str]]) -> Vec<String> {
    let before = dump(&installation.database).await;
    let mut messages = Vec::new();
    for arguments in commands {
        let output = run(installation, arguments).await;
        let message = text(&output);
        assert!(
            !output.status.success(),
            "bbs {arguments:?} should have failed: {message}"
        );
        messages.push(message);
    }
    assert_eq!(
        dump(&installation.database).await,
        before,
        "one of {commands:?} wrote: {messages:#?}"
    );
    messages
}

/// States of the database that a host refuses, and a part of the message about each.
const FOREIGN: [(&str, &str); 4] = [
    (
        r#"UPDATE configurations SET value = '{"CurrentVersion":1999999999}' WHERE id = 'version'"#,
        "newer than the",
    ),
    (
        "DELETE FROM configurations WHERE id = 'version'",
        "has rows in actual_lrps, desired_lrps, domains, tasks",
    ),
    (
        r#"UPDATE configurations SET value = '{"CurrentVersion":1795000010,"TargetVersion":5}' WHERE id = 'version'"#,
        "on its way down to 5",
    ),
    (
        r#"UPDATE configurations SET value = '{"CurrentVersion":1700000000}' WHERE id = 'version'"#,
        "1700000000",
    ),
];

on_each_database!(refused_start_writes_nothing_to_a_database_new_to_the_host);
async fn refused_start_writes_nothing_to_a_database_new_to_the_host(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let original = installation.database.copy();
    for (change, reason) in FOREIGN {
        let database = original.copy();
        let opened = database.open().await;
        execute(&opened, change).await;
        opened.close().await;
        let installation = Installation::on(database, &modules::modules());
        let commands = [&["serve"][..], &["migrate", "up"]];
        for message in each_refused(&installation, &commands).await {
            assert!(message.contains(reason), "{reason}: {message}");
        }
        let locket = Locket::start();
        let message = refused(&under(&locket, installation.set("uuid", "one")), &["serve"]).await;
        assert!(message.contains(reason), "{reason}: {message}");
    }
}

on_each_database!(refused_start_writes_nothing_to_a_database_that_a_host_has_served);
async fn refused_start_writes_nothing_to_a_database_that_a_host_has_served(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    assert!(installation.serve().terminate().success());
    let pinned = installation.set("pin_data_version", VERSION);
    let message = refused(&pinned, &["serve"]).await;
    let wanted =
        format!("above {VERSION}, which `pin_data_version`, `pin_release` or `--to` names");
    assert!(
        message.contains(&wanted) && message.contains("has written nothing"),
        "{message}"
    );
    let unpinned = pinned.set("pin_data_version", Value::Null);
    let message = refused(&unpinned, &["migrate", "up", "--to", &VERSION.to_string()]).await;
    assert!(
        message.contains(&wanted)
            && message.contains(&format!("`bbs migrate down --to {VERSION}`")),
        "{message}"
    );
    assert!(!message.contains("this host shuts down"), "{message}");
    let message = refused(&unpinned, &["migrate", "up", "--to", &VERSION.to_string()]).await;
    assert!(message.contains("nothing was done"), "{message}");

    let opened = unpinned.database.open().await;
    execute(
        &opened,
        "UPDATE bbs_history SET digest = 'of another module'",
    )
    .await;
    opened.close().await;
    let commands = [&["serve"][..], &["migrate", "up"]];
    for message in each_refused(&unpinned, &commands).await {
        assert!(
            message.contains("ran on this database as sha256 of another module"),
            "{message}"
        );
    }
}

on_each_database!(record_of_a_version_unknown_to_the_catalog_is_not_migrated);
async fn record_of_a_version_unknown_to_the_catalog_is_not_migrated(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind)
        .await
        .set("pin_data_version", 1_795_000_000);
    assert!(installation.serve().terminate().success());
    let opened = installation.database.open().await;
    let version = VERSION.to_string();
    let down = ["migrate", "down", "--to", &version];
    // The catalog knows the second version, which the database does not have.
    for (record_version, reason) in [
        (1_999_999_999, ", which"),
        (1_795_000_010, ", above 1795000000, the version"),
    ] {
        let one = "guid IN (SELECT guid FROM (SELECT MAX(guid) AS guid FROM tasks) AS t)";
        execute(
            &opened,
            &format!("UPDATE tasks SET record_version = {record_version} WHERE {one}"),
        )
        .await;
        let wanted = format!("table tasks has records of version {record_version}{reason}");
        let commands = [&["serve"][..], &down, &["migrate", "plan"]];
        for message in each_refused(&installation, &commands).await {
            assert!(
                message.contains(&wanted) && !message.contains("the migration failed"),
                "{message}"
            );
        }
        let status = installation.succeed(&["migrate", "status"]);
        assert!(
            status.contains(&format!("`bbs serve` refuses: {wanted}")),
            "{status}"
        );
    }
    execute(
        &opened,
        &format!("UPDATE tasks SET record_version = {VERSION}"),
    )
    .await;
    opened.close().await;
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(installation.data_version(), VERSION);
}

on_each_database!(version_missing_in_the_catalog_is_refused_before_the_lock);
async fn version_missing_in_the_catalog_is_refused_before_the_lock(kind: Kind) {
    let original = TestDatabase::new(kind);
    fixture::write_small_to(&original).await;
    let before = dump(&original).await;
    for (key, value, wanted) in [
        (
            "pin_data_version",
            Value::from(7),
            "`pin_data_version` is 7, and the catalog has no migration to 7",
        ),
        ("pin_data_version", 0.into(), "`pin_data_version` is 0"),
        (
            "rollback_on_drain_to_version",
            5.into(),
            "`rollback_on_drain_to_version` is 5, and the catalog has no",
        ),
        (
            "rollback_on_drain_to_version",
            0.into(),
            "`rollback_on_drain_to_version` is 0",
        ),
        (
            "pin_api_version",
            "3.0".into(),
            "cannot pin the API to 3.0: this host serves 0.9, 0.10, 0.11, 0.12, 1.0, 1.1, 1.2",
        ),
        (
            "pin_api_version",
            "newest".into(),
            "\"newest\" is not an API version to pin to",
        ),
    ] {
        let installation = Installation::on(original.clone(), &modules::modules()).set(key, value);
        let output = run(&installation, &["serve"]).await;
        let message = text(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    let after = dump(&original).await;
    assert_eq!(after, before, "a start with one of these versions wrote");
    let installation = Installation::on(original.clone(), &modules::modules());
    let commands = [
        &["serve", "--pin-data-version", "7"][..],
        &["serve", "--rollback-on-drain-to-version", "7"],
        &["migrate", "up", "--to", "7"],
        &["migrate", "down", "--to", "7"],
        &["migrate", "plan", "--to", "7"],
    ];
    for message in each_refused(&installation, &commands).await {
        assert!(
            message.contains("no migration to 7: name 1643660541 of the release \"diego-2.58.1\"")
                && message.contains(", 1772581987 of the release \"diego\"")
                && message.contains("nearest is 1461790966;"),
            "{message}"
        );
    }
    let holder = crate::lock::host(&original, "holder").serve();
    let other = crate::lock::host(&original, "other").set("pin_data_version", 7);
    assert_eq!(
        run(&other, &["serve"]).await.status.code(),
        Some(2),
        "it does not wait for the lock"
    );
    assert!(holder.terminate().success());
    let message = refused(&installation, &["serve", "--pin-api-version", "3.0"]).await;
    assert!(
        message.contains("this host serves 0.9, 0.10, 0.11, 0.12, 1.0, 1.1, 1.2"),
        "{message}"
    );
}

/// With these modules the host could migrate the database, and then not serve it.
#[tokio::test]
async fn modules_without_the_version_of_the_handlers_are_refused_before_the_first_write() {
    let older = tempfile::tempdir().unwrap();
    modules::copy_folder(&modules::modules(), older.path());
    modules::remove_modules(older.path(), &[modules::NATIVE_MIGRATION]);
    let installation = Installation::of_small_diego(older.path(), Kind::Sqlite).await;
    for arguments in [
        &["serve"][..],
        &["check-config"],
        &["migrate", "plan"],
        &["migrate", "up"],
    ] {
        let message = refused(&installation, arguments).await;
        assert!(
            message.contains(&format!("the modules have no migration to {NEWEST}")),
            "{arguments:?}: {message}"
        );
    }
}

/// The setting is checked at the start, not when the host drains.
#[tokio::test]
async fn rollback_that_can_never_succeed_is_refused_at_the_start() {
    let installation = Installation::of_small_diego(&modules::modules(), Kind::Sqlite)
        .await
        .set("rollback_on_drain_to_version", VERSION);
    let database = installation.database.clone();
    assert!(
        installation.serve().terminate().success(),
        "every migration above it is reversible"
    );
    let message = refused(
        &installation.set("rollback_on_drain_to_version", 1),
        &["serve"],
    )
    .await;
    assert!(message.contains("no migration to 1"), "{message}");

    let one_way = || Installation::on(database.clone(), &modules::modules_with_one_way());
    let message = refused(
        &one_way().set("rollback_on_drain_to_version", VERSION),
        &["serve"],
    )
    .await;
    assert!(
        message.contains("1795000050-one-way is not reversible"),
        "{message}"
    );
    assert!(
        one_way().serve().terminate().success(),
        "without the setting it serves"
    );
}
