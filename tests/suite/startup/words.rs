//! What an operator reads of a start, of a migration that has not ended, and of a host that waits.

use crate::harness::database::{TestDatabase, dump, execute, on_each_database};
use crate::harness::fixture::VERSION;
use crate::harness::host::Host;
use crate::harness::locket::Locket;
use crate::lock::locket::under;

use super::*;

/// Before `split_metric_tags`, which looks into every desired LRP.
const UNSPLIT: u64 = 1_698_182_853;

on_each_database!(status_counts_what_a_copy_has_written);
async fn status_counts_what_a_copy_has_written(kind: Kind) {
    let installation = diegos(kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let output = installation.run(&["migrate", "up", "--max-count", "120"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("Migrated 120 of 600 units"), "{}", said(&output));
    let found = status(&installation);
    let (done, total) = (&found["copied"]["migrated"], &found["copied"]["total"]);
    assert_eq!((done.as_u64(), total.as_u64()), (Some(120), Some(600)), "{found}");
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains("in the phase copying: 120 of 600 units are copied"), "{text}");
    // None of it is bounded: Ironic's word for all.
    installation.succeed(&["migrate", "up", "--max-count", "0"]);
    assert_eq!(version(&installation), NEWEST);
    assert!(status(&installation)["copied"].is_null());
}

on_each_database!(a_migration_that_is_given_up_is_said_to_be_and_keys_rotate_then);
async fn a_migration_that_is_given_up_is_said_to_be_and_keys_rotate_then(kind: Kind) {
    let installation = diegos(kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert_eq!(installation.run(&["migrate", "up", "--max-count", "120"]).status.code(), Some(3));
    let said = installation.succeed(&["migrate", "up", "--to", &OLDEST.to_string()]);
    assert!(said.contains(&format!("The migration to {NEWEST} that had begun was given up")), "{said}");
    assert_eq!(version(&installation), OLDEST);
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains(&format!("a migration to {NEWEST} began and was given up")), "{text}");
    let keys = serde_json::json!({ "key-2024": "correct horse battery staple", "new": "n" });
    let rotating = installation.set("encryption_keys", keys).set("active_key_label", "new");
    rotating.succeed(&["keys", "rotate"]);
    rotating.succeed(&["keys", "verify", "--label", "key-2024"]);
}

#[tokio::test]
async fn a_unit_that_will_not_go_is_offered_the_quarantine() {
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
async fn a_label_that_nothing_knows_is_not_one_to_remove() {
    let installation = diegos(Kind::Sqlite).await;
    let before = dump(&installation.database).await;
    let said = fail(&installation, &["keys", "verify", "--label", "nope"]);
    assert!(said.contains("`encryption_keys` has no key \"nope\"") && said.contains("key-2024"), "{said}");
    assert!(!said.contains("may be removed"), "{said}");
    assert_eq!(dump(&installation.database).await, before);
}

#[tokio::test]
async fn status_looks_at_the_version_that_is_pinned() {
    let installation = diegos(Kind::Sqlite).await.set("pin_data_version", VERSION);
    assert_eq!(status(&installation)["decision"], "serve");
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains("`bbs serve` serves at once"), "{text}");
}

fn host(database: &TestDatabase, name: &str) -> Installation {
    crate::lock::host(database, name).set("lock_ttl", "60s")
}

async fn assert_says_what_it_waits_for(master: Installation, standby: Installation, holder: &str) {
    let master = tokio::task::spawn_blocking(move || master.serve()).await.unwrap();
    let standby = standby.set("metrics_address", "127.0.0.1:0");
    let (pid, command, holder) = (master.pid(), standby.command(&["serve"]), holder.to_owned());
    let waited = tokio::task::spawn_blocking(move || {
        let mut waiting = Host::start(command, "metrics=");
        let said = waiting.wait_for_line(|line| line.contains("waiting for the lock"));
        assert!(said.contains(&holder.replace("PID", &pid.to_string())), "{holder}: {said}");
        waiting.wait_for_line(|line| line.contains("still waiting for the lock"));
        assert!(master.terminate().success());
        waiting.wait_for_line(|line| line.contains("took the lock"));
    });
    waited.await.unwrap();
}

on_each_database!(a_standby_names_the_host_that_it_waits_for);
async fn a_standby_names_the_host_that_it_waits_for(kind: Kind) {
    let database = TestDatabase::new(kind);
    assert_says_what_it_waits_for(host(&database, "z1"), host(&database, "z2"), "z1 (pid PID on this machine)").await;
    let locket = Locket::start();
    let (one, other) = (under(&locket, host(&database, "z1")), under(&locket, host(&database, "z2")));
    assert_says_what_it_waits_for(one, other, "z1").await;
}
