//! Messages to the operator: status, unfinished and abandoned migrations, failed units, and a standby.

use crate::harness::database::{TestDatabase, dump, execute, on_each_database};
use crate::harness::fixture::VERSION;
use crate::harness::host::Host;
use crate::harness::locket::Locket;
use crate::lock::locket::under;

use super::*;

/// The version before `split_metric_tags`, which decrypts every desired LRP.
const UNSPLIT: u64 = 1_698_182_853;

on_each_database!(status_counts_copied_units);
async fn status_counts_copied_units(kind: Kind) {
    let installation = diegos(kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let output = installation.run(&["migrate", "up", "--max-count", "120"]);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    assert!(output_text(&output).contains("Migrated 120 of 360 units"), "{}", output_text(&output));
    let found = status(&installation);
    let (done, total) = (&found["copied"]["migrated"], &found["copied"]["total"]);
    assert_eq!((done.as_u64(), total.as_u64()), (Some(120), Some(360)), "{found}");
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains("in the phase copying: 120 of 360 units are copied"), "{text}");
    // As in OpenStack Ironic's `online_data_migrations`, 0 means all units.
    installation.succeed(&["migrate", "up", "--max-count", "0"]);
    assert_eq!(installation.data_version(), NEWEST);
    assert!(status(&installation)["copied"].is_null());
}

on_each_database!(abandoned_migration_is_reported_and_allows_key_rotation);
async fn abandoned_migration_is_reported_and_allows_key_rotation(kind: Kind) {
    let installation = diegos(kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert_eq!(installation.run(&["migrate", "up", "--max-count", "120"]).status.code(), Some(3));
    let message = installation.succeed(&["migrate", "up", "--to", &OLDEST.to_string()]);
    assert!(message.contains(&format!("The unfinished migration to {NEWEST} was abandoned")), "{message}");
    assert_eq!(installation.data_version(), OLDEST);
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains(&format!("a migration to {NEWEST} was begun and abandoned")), "{text}");
    let keys = serde_json::json!({ "key-2024": "correct horse battery staple", "new": "n" });
    let rotating = installation.set("encryption_keys", keys).set("active_key_label", "new");
    rotating.succeed(&["keys", "rotate"]);
    rotating.succeed(&["keys", "verify", "--label", "key-2024"]);
}

#[tokio::test]
async fn message_about_a_failed_unit_suggests_quarantine() {
    let installation = diegos(Kind::Sqlite).await;
    installation.succeed(&["migrate", "down", "--to", &UNSPLIT.to_string()]);
    let opened = installation.database.open().await;
    let damage = "UPDATE desired_lrps SET run_info = concat(substr(run_info, 1, 40), \
                  CASE substr(run_info, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END, substr(run_info, 42)) \
                  WHERE process_guid = (SELECT MIN(process_guid) FROM desired_lrps)";
    execute(&opened, damage).await;
    opened.close().await;
    let stopped = fail(&installation, &["migrate", "up"]);
    assert!(stopped.contains("`bbs migrate up --on-unreadable quarantine`"), "{stopped}");
    let checked = fail(&installation, &["migrate", "plan", "--check"]);
    assert!(checked.contains("`bbs migrate up --on-unreadable quarantine`"), "{checked}");
    installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
}

#[tokio::test]
async fn verify_of_an_unknown_label_is_an_error() {
    let installation = diegos(Kind::Sqlite).await;
    let before = dump(&installation.database).await;
    let message = fail(&installation, &["keys", "verify", "--label", "nope"]);
    assert!(message.contains("`encryption_keys` has no key \"nope\"") && message.contains("key-2024"), "{message}");
    assert!(!message.contains("may be removed"), "{message}");
    assert_eq!(dump(&installation.database).await, before);
}

#[tokio::test]
async fn status_uses_the_pinned_version() {
    let installation = diegos(Kind::Sqlite).await.set("pin_data_version", VERSION);
    assert_eq!(status(&installation)["decision"], "serve");
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains("`bbs serve` serves at once"), "{text}");
}

fn host(database: &TestDatabase, name: &str) -> Installation {
    crate::lock::host(database, name).set("lock_ttl", "60s")
}

async fn assert_names_holder(master: Installation, standby: Installation, holder: &str) {
    let master = tokio::task::spawn_blocking(move || master.serve()).await.unwrap();
    let standby = standby.set("metrics_address", "127.0.0.1:0");
    let (pid, command, holder) = (master.pid(), standby.command(&["serve"]), holder.to_owned());
    let waited = tokio::task::spawn_blocking(move || {
        let mut waiting = Host::start(command, "metrics=");
        let message = waiting.wait_for_line(|line| line.contains("waiting for the lock"));
        assert!(message.contains(&holder.replace("PID", &pid.to_string())), "{holder}: {message}");
        waiting.wait_for_line(|line| line.contains("still waiting for the lock"));
        assert!(master.terminate().success());
        waiting.wait_for_line(|line| line.contains("took the lock"));
    });
    waited.await.unwrap();
}

on_each_database!(standby_names_the_lock_holder);
async fn standby_names_the_lock_holder(kind: Kind) {
    let database = TestDatabase::new(kind);
    assert_names_holder(host(&database, "z1"), host(&database, "z2"), "z1 (pid PID on this machine)").await;
    let locket = Locket::start();
    let (one, other) = (under(&locket, host(&database, "z1")), under(&locket, host(&database, "z2")));
    assert_names_holder(one, other, "z1").await;
}
