//! `bbs migrate plan --check`: the round trip of every unit in memory.

use super::*;
use crate::harness::output::refused;

on_each_database!(plan_check_names_units_that_fail_the_round_trip_and_writes_nothing);
async fn plan_check_names_units_that_fail_the_round_trip_and_writes_nothing(kind: Kind) {
    let damaged = Damaged::in_batches(kind, &[3, 150]).await;
    let before = damaged.content().await;
    let output = damaged.installation.run(&["migrate", "plan", "--check"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    refused(
        output,
        "2 units do not survive a migration to 1795000200 and back",
    );
    assert_contains(
        &shown,
        &[
            "units to 1795000200 and back, in memory; nothing was written",
            "1795000100  split-desired-lrps                  all 300 units round-trip",
            "1795000200  image-credentials                   2 of 300 units do not round-trip",
            &format!("up refuses it: {REASON}"),
            &format!("{:?}", damaged.units[0]),
        ],
    );
    assert!(
        damaged.content().await == before,
        "the check wrote to the database"
    );
}

on_each_database!(record_of_a_version_without_a_module_ends_the_check);
async fn record_of_a_version_without_a_module_ends_the_check(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules_with_split(), kind).await;
    Installation::on(installation.database.clone(), &modules::modules())
        .succeed(&["migrate", "up"]);
    let unknown = "UPDATE tasks SET record_version = 42 WHERE guid IN (SELECT guid FROM (SELECT MIN(guid) AS guid FROM tasks) one)";
    let database = installation.database.open().await;
    execute(&database, unknown).await;
    database.close().await;
    for arguments in [&["migrate", "plan", "--check"][..], &["migrate", "up"]] {
        let message = refused(
            installation.run(arguments),
            "table tasks has records of version 42",
        );
        assert_contains(&message, &["Nothing was written"]);
    }
}

on_each_database!(default_modules_pass_the_round_trip_of_every_unit);
async fn default_modules_pass_the_round_trip_of_every_unit(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind).await;
    for to in ["1471030898", "1795000010"] {
        let checked = installation.succeed(&["migrate", "plan", "--check", "--to", to, "--json"]);
        let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
        let migrations = checked["check"]["migrations"].as_array().unwrap();
        assert!(
            !migrations.is_empty() && migrations.iter().all(|migration| migration["lost"] == 0),
            "{checked:#}"
        );
        let split = migrations
            .iter()
            .find(|migration| migration["name"] == "split-metric-tags");
        assert_eq!(split.is_some(), to == "1471030898", "{checked:#}");
        if let Some(split) = split {
            assert_eq!(split["units"], 300);
        }
    }
}

on_each_database!(check_of_the_way_down_passes_where_the_way_back_restores_everything);
/// Goal: the check before a rollback lists no unit that the real way down and up restores.
async fn check_of_the_way_down_passes_where_the_way_back_restores_everything(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    installation.succeed(&["migrate", "up"]);
    let stored = async || {
        let stored = Stored::open(&installation.database, fixture::migrations()).await;
        let rows = stored.rows(1_795_000_010).await;
        stored.context.database.close().await;
        rows
    };
    let before = stored().await;
    assert!(
        before["desired_lrps"]
            .iter()
            .all(|row| !row["record_version"].is_empty()),
        "the records are stamped"
    );
    let version = VERSION.to_string();
    let checked = installation.succeed(&["migrate", "plan", "--check", "--to", &version, "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    let migrations = checked["check"]["migrations"].as_array().unwrap();
    assert!(
        !migrations.is_empty() && migrations.iter().all(|migration| migration["lost"] == 0),
        "{checked:#}"
    );
    installation.succeed(&["migrate", "down", "--to", &version]);
    installation.succeed(&["migrate", "up"]);
    assert!(stored().await == before);
}
