//! Messages to the operator: status, unfinished and abandoned migrations, failed units, and a
//! standby.

use crate::harness::database::{TestDatabase, dump, execute, on_each_database};
use crate::harness::fixture::{DIEGOS_NEWEST, UNSPLIT_TAGS, VERSION};
use crate::harness::host::Host;
use crate::harness::locket::Locket;
use crate::harness::output::text;
use crate::lock::locket::under;

use super::*;

on_each_database!(status_counts_copied_units);
async fn status_counts_copied_units(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let output = installation.run(&["migrate", "up", "--max-count", "40"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(
        text(&output).contains("Migrated 40 of 89 units"),
        "{}",
        text(&output)
    );
    let found = installation.status();
    let done = &found["copied"]["migrated"];
    let total = &found["copied"]["total"];
    assert_eq!(
        (done.as_u64(), total.as_u64()),
        (Some(40), Some(89)),
        "{found}"
    );
    let text = installation.succeed(&["migrate", "status"]);
    assert!(
        text.contains("in the phase copying: 40 of 89 units are copied"),
        "{text}"
    );
    // As in OpenStack Ironic's `online_data_migrations`, 0 means all units.
    installation.succeed(&["migrate", "up", "--max-count", "0"]);
    assert_eq!(installation.data_version(), NEWEST);
    assert!(installation.status()["copied"].is_null());
}

on_each_database!(abandoned_migration_is_reported_and_allows_key_rotation);
async fn abandoned_migration_is_reported_and_allows_key_rotation(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert_eq!(
        installation
            .run(&["migrate", "up", "--max-count", "40"])
            .status
            .code(),
        Some(3)
    );
    let message = installation.succeed(&["migrate", "up", "--to", &OLDEST.to_string()]);
    assert!(
        message.contains(&format!(
            "The unfinished migration to {NEWEST} was abandoned"
        )),
        "{message}"
    );
    assert_eq!(installation.data_version(), OLDEST);
    let text = installation.succeed(&["migrate", "status"]);
    assert!(
        text.contains(&format!("a migration to {NEWEST} was begun and abandoned"))
            && text.contains(&format!(
                "`bbs migrate plan` shows what going to {NEWEST} does"
            )),
        "{text}"
    );
    let keys = serde_json::json!({ "key-2024": "correct horse battery staple", "new": "n" });
    let rotating = installation
        .set("encryption_keys", keys)
        .set("active_key_label", "new");
    rotating.succeed(&["keys", "rotate"]);
    rotating.succeed(&["keys", "verify", "--label", "key-2024"]);
}

/// Damages the run info of one desired LRP.
async fn damage(installation: &Installation) {
    let opened = installation.database.open().await;
    let first = "process_guid = (SELECT guid FROM (SELECT MIN(process_guid) AS guid FROM desired_lrps) one)";
    let damage = "concat(substr(run_info, 1, 40), CASE substr(run_info, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END, substr(run_info, 42))";
    execute(
        &opened,
        &format!("UPDATE desired_lrps SET run_info = {damage} WHERE {first}"),
    )
    .await;
    opened.close().await;
}

/// The commands in backticks of the error in an output, without `bbs`.
fn commands(output: &str) -> Vec<Vec<&str>> {
    let error = output
        .lines()
        .skip_while(|line| !line.starts_with("bbs: "))
        .collect::<Vec<_>>();
    let quoted = error
        .into_iter()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter_map(|part| part.strip_prefix("bbs "))
        .map(|command| command.split(' ').collect())
        .collect()
}

on_each_database!(each_command_of_the_message_about_a_failed_unit_works_in_both_directions);
/// Goal: each command that a stopped migration, a check and a host that refuses to start name does
/// what they say. Method: a record does not open, on the way up and on the way down; each command
/// runs on a database in that state.
async fn each_command_of_the_message_about_a_failed_unit_works_in_both_directions(kind: Kind) {
    for (from, way, to) in [(UNSPLIT_TAGS, "up", NEWEST), (NEWEST, "down", UNSPLIT_TAGS)] {
        let installation = Installation::of_small_diego(&modules::modules(), kind).await;
        let up = if from > VERSION { "up" } else { "down" };
        let version = to.to_string();
        installation.succeed(&["migrate", up, "--to", &from.to_string()]);
        damage(&installation).await;
        let checked = installation.fail(&["migrate", "plan", "--check", "--to", &version]);
        let before = installation.data_version();
        let stopped = installation.fail(&["migrate", way, "--to", &version]);
        assert!(
            stopped.contains("the tables are as they were") && !stopped.contains("nothing was"),
            "{stopped}"
        );
        let quarantining = [
            "migrate",
            way,
            "--to",
            &version,
            "--on-unreadable",
            "quarantine",
        ];
        assert_eq!(commands(&checked), [quarantining], "{checked}");
        let named = commands(&stopped);
        let showing = ["migrate", "quarantine", "show", named[0][3]];
        assert_eq!(
            named,
            [&showing[..], &quarantining, &["migrate", "abort"]],
            "{stopped}"
        );
        let unit = showing[3].trim_matches('"');
        let shown = installation.succeed(&["migrate", "quarantine", "show", unit]);
        assert!(shown.contains("the migration stopped at it"), "{shown}");

        if way == "down" {
            let refused = installation.fail(&["serve"]);
            assert_eq!(
                commands(&refused),
                [&quarantining[..4], &["migrate", "abort"]],
                "{refused}"
            );
        }
        let given_up = installation.succeed(&["migrate", "abort"]);
        assert!(
            given_up.contains(&format!("the database stays at {from}")),
            "{given_up}"
        );
        assert_eq!(
            (
                installation.data_version(),
                installation.status()["underway"].is_null()
            ),
            (before, true)
        );
        assert_eq!(
            installation.succeed(&["migrate", "abort"]),
            "Nothing to give up: no migration is in progress.\n"
        );
        if way == "down" {
            assert!(
                installation.serve().terminate().success(),
                "it serves again"
            );
        }
        installation.fail(&["migrate", way, "--to", &version]);
        installation.succeed(&quarantining);
        assert_eq!(installation.data_version(), to);
    }
}

#[tokio::test]
async fn verify_of_an_unknown_label_is_an_error() {
    let installation = Installation::of_small_diego(&modules::modules(), Kind::Sqlite).await;
    let before = dump(&installation.database).await;
    let message = installation.fail(&["keys", "verify", "--label", "nope"]);
    assert!(
        message.contains("`encryption_keys` has no key \"nope\"") && message.contains("key-2024"),
        "{message}"
    );
    assert!(!message.contains("may be removed"), "{message}");
    assert_eq!(dump(&installation.database).await, before);
}

#[tokio::test]
async fn status_uses_the_pinned_version() {
    let installation = Installation::of_small_diego(&modules::modules(), Kind::Sqlite)
        .await
        .set("pin_data_version", VERSION);
    assert_eq!(installation.status()["decision"], "serve");
    let text = installation.succeed(&["migrate", "status"]);
    assert!(text.contains("`bbs serve` serves at once"), "{text}");
}

on_each_database!(pin_above_the_version_found_is_a_warning);
/// Goal: an operator who pins a release to hold migrations back learns that this one is above the
/// database.
async fn pin_above_the_version_found_is_a_warning(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind)
        .await
        .set("pin_release", "diego");
    let text = installation.succeed(&["migrate", "status"]);
    let pin =
        format!("Pin        {DIEGOS_NEWEST}, the release \"diego\"; a start migrates up to it");
    assert!(text.contains(&pin), "{text}");
    let warnings = |log: String| {
        log.matches("the pin is above the version of the database")
            .count()
    };
    let log = |installation: &Installation| {
        let host = installation.serve();
        host.signal("TERM");
        let (ended, log) = host.wait_for_end();
        assert!(ended.success(), "{log}");
        assert_eq!(installation.data_version(), DIEGOS_NEWEST);
        log
    };
    assert_eq!(warnings(log(&installation)), 1);
    assert_eq!(
        warnings(log(&installation)),
        0,
        "the database is at the pin"
    );
    let text = installation.succeed(&["migrate", "status"]);
    assert!(
        text.contains(&format!(
            "Pin        {DIEGOS_NEWEST}, the release \"diego\"\n"
        )),
        "{text}"
    );
    let fresh = Installation::new(&modules::modules(), kind).set("pin_release", "diego");
    assert_eq!(
        warnings(log(&fresh)),
        0,
        "an empty database has no version to stay at"
    );
}

#[tokio::test]
async fn check_names_the_columns_that_it_did_not_open() {
    let installation = Installation::of_small_diego(&modules::modules(), Kind::Sqlite).await;
    let text = installation.succeed(&["migrate", "plan", "--check"]);
    let line = text.lines().last().unwrap();
    assert!(
        line.starts_with("Not opened ") && line.contains("routes"),
        "{text}"
    );
    assert!(
        line.contains(" of desired_lrps; ") && line.contains("`bbs keys status`"),
        "{text}"
    );
}

fn host(database: &TestDatabase, name: &str) -> Installation {
    crate::lock::host(database, name).set("lock_ttl", "60s")
}

async fn assert_names_holder(master: Installation, standby: Installation, holder: &str) {
    let master = tokio::task::spawn_blocking(move || master.serve())
        .await
        .unwrap();
    let standby = standby.set("metrics_address", "127.0.0.1:0");
    let pid = master.pid();
    let command = standby.command(&["serve"]);
    let holder = holder.to_owned();
    let waited = tokio::task::spawn_blocking(move || {
        let mut waiting = Host::start(command, "metrics=");
        let message = waiting.wait_for_line(|line| line.contains("waiting for the lock"));
        assert!(
            message.contains(&holder.replace("PID", &pid.to_string())),
            "{holder}: {message}"
        );
        waiting.wait_for_line(|line| line.contains("still waiting for the lock"));
        assert!(master.terminate().success());
        waiting.wait_for_line(|line| line.contains("took the lock"));
    });
    waited.await.unwrap();
}

on_each_database!(standby_names_the_lock_holder);
async fn standby_names_the_lock_holder(kind: Kind) {
    let database = TestDatabase::new(kind);
    assert_names_holder(
        host(&database, "z1"),
        host(&database, "z2"),
        "z1 (pid PID on this machine)",
    )
    .await;
    let locket = Locket::start();
    let one = under(&locket, host(&database, "z1"));
    let other = under(&locket, host(&database, "z2"));
    assert_names_holder(one, other, "z1").await;
}
