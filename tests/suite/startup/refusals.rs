//! Starts that end because of what they found: everything is in the database as it was, whatever the lock.

use crate::harness::database::{TestDatabase, dump, execute, on_each_database};
use crate::harness::fixture::VERSION;
use crate::harness::locket::Locket;
use crate::lock::locket::under;

use super::*;

async fn run(installation: &Installation, arguments: &[&str]) -> Output {
    let mut command = installation.command(arguments);
    tokio::task::spawn_blocking(move || command.output().expect("the executable starts")).await.unwrap()
}

/// What the executable says as it ends, having changed nothing.
async fn refused(installation: &Installation, arguments: &[&str]) -> String {
    let before = dump(&installation.database).await;
    let output = run(installation, arguments).await;
    let said = said(&output);
    assert!(!output.status.success(), "bbs {arguments:?} should have failed: {said}");
    assert_eq!(dump(&installation.database).await, before, "bbs {arguments:?} wrote: {said}");
    said
}

/// Databases that a host has to leave alone, as Diego or another host left them; what is said of each.
const FOREIGN: [(&str, &str); 4] = [
    (r#"UPDATE configurations SET value = '{"CurrentVersion":1999999999}' WHERE id = 'version'"#, "newer than the"),
    ("DELETE FROM configurations WHERE id = 'version'", "has rows in actual_lrps, desired_lrps, domains, tasks"),
    (
        r#"UPDATE configurations SET value = '{"CurrentVersion":1795000000,"TargetVersion":5}' WHERE id = 'version'"#,
        "on its way down to 5",
    ),
    (r#"UPDATE configurations SET value = '{"CurrentVersion":1700000000}' WHERE id = 'version'"#, "1700000000"),
];

on_each_database!(a_start_that_ends_leaves_no_trace_in_a_database_that_no_host_has_seen);
async fn a_start_that_ends_leaves_no_trace_in_a_database_that_no_host_has_seen(kind: Kind) {
    let installation = diegos(kind).await;
    let original = installation.database.copy();
    for (change, reason) in FOREIGN {
        let database = original.copy();
        let opened = database.open().await;
        execute(&opened, change).await;
        opened.close().await;
        let installation = Installation::on(database, &modules::modules());
        for arguments in [&["serve"][..], &["migrate", "up"]] {
            let said = refused(&installation, arguments).await;
            assert!(said.contains(reason), "{reason}: {said}");
        }
        let locket = Locket::start();
        let said = refused(&under(&locket, installation.set("uuid", "one")), &["serve"]).await;
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

on_each_database!(a_start_that_ends_leaves_no_trace_in_a_database_that_hosts_have_served);
async fn a_start_that_ends_leaves_no_trace_in_a_database_that_hosts_have_served(kind: Kind) {
    let installation = diegos(kind).await;
    assert!(installation.serve().terminate().success());
    let pinned = installation.set("pin_data_version", VERSION);
    let said = refused(&pinned, &["serve"]).await;
    let wanted = format!("above {VERSION}, which `pin_data_version` or `--to` names");
    assert!(said.contains(&wanted) && said.contains("has written nothing"), "{said}");
    let unpinned = pinned.set("pin_data_version", Value::Null);
    let said = refused(&unpinned, &["migrate", "up", "--to", &VERSION.to_string()]).await;
    assert!(said.contains(&wanted) && said.contains(&format!("`bbs migrate down --to {VERSION}`")), "{said}");
    assert!(!said.contains("this host shuts down"), "{said}");
    let said = refused(&unpinned, &["migrate", "up", "--to", &VERSION.to_string()]).await;
    assert!(said.contains("nothing was done"), "{said}");
}

on_each_database!(a_record_of_a_version_that_no_module_leads_to_is_not_migrated);
async fn a_record_of_a_version_that_no_module_leads_to_is_not_migrated(kind: Kind) {
    let installation = diegos(kind).await;
    assert!(installation.serve().terminate().success());
    let opened = installation.database.open().await;
    execute(&opened, "UPDATE tasks SET record_version = 1999999999 WHERE guid IN (SELECT guid FROM (SELECT MAX(guid) AS guid FROM tasks) AS t)").await;
    for arguments in
        [&["migrate", "down", "--to", &VERSION.to_string()][..], &["migrate", "plan", "--to", &VERSION.to_string()]]
    {
        let said = refused(&installation, arguments).await;
        assert!(said.contains("table tasks has records of version 1999999999"), "{said}");
    }
    execute(&opened, &format!("UPDATE tasks SET record_version = {VERSION}")).await;
    opened.close().await;
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(version(&installation), VERSION);
}

on_each_database!(a_version_that_is_not_in_the_catalog_is_refused_before_the_lock);
async fn a_version_that_is_not_in_the_catalog_is_refused_before_the_lock(kind: Kind) {
    let original = TestDatabase::new(kind);
    fixture::write_to(&original).await;
    for (key, value, wanted) in [
        ("pin_data_version", Value::from(7), "`pin_data_version` is 7, and the catalog has no migration to 7"),
        ("pin_data_version", 0.into(), "`pin_data_version` is 0"),
        ("rollback_on_drain_to_version", 5.into(), "`rollback_on_drain_to_version` is 5, and the catalog has no"),
        ("rollback_on_drain_to_version", 0.into(), "`rollback_on_drain_to_version` is 0"),
        ("pin_api_version", "3.0".into(), "cannot pin the API to 3.0: this host serves 0.9, 0.10, 1.1"),
        ("pin_api_version", "newest".into(), "\"newest\" is not an API version to pin to"),
    ] {
        // Another host has the lock: nothing is waited for.
        let installation = Installation::on(original.clone(), &modules::modules()).set(key, value);
        let before = dump(&original).await;
        let output = run(&installation, &["serve"]).await;
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(wanted), "{wanted}: {said}");
        assert_eq!(dump(&original).await, before, "{key} wrote");
    }
    let installation = Installation::on(original.clone(), &modules::modules());
    for arguments in [
        &["serve", "--pin-data-version", "7"][..],
        &["serve", "--rollback-on-drain-to-version", "7"],
        &["migrate", "up", "--to", "7"],
        &["migrate", "down", "--to", "7"],
        &["migrate", "plan", "--to", "7"],
    ] {
        let said = refused(&installation, arguments).await;
        assert!(said.contains("no migration to 7") && said.contains("1772581987, 1795000000"), "{said}");
    }
    let said = refused(&installation, &["serve", "--pin-api-version", "3.0"]).await;
    assert!(said.contains("this host serves 0.9, 0.10, 1.1"), "{said}");
}

/// One way only, so that a rollback across it can never succeed.
#[tokio::test]
async fn a_rollback_across_a_migration_with_no_way_back_is_refused_at_the_start() {
    let installation = diegos(Kind::Sqlite).await.set("rollback_on_drain_to_version", VERSION);
    assert!(installation.serve().terminate().success(), "every migration above it has a way back");
    let said = refused(&installation.set("rollback_on_drain_to_version", 1), &["serve"]).await;
    assert!(said.contains("no migration to 1"), "{said}");
}
