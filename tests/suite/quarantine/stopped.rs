//! The unit at which a migration stopped: shown, and replayed with its module or a corrected one,
//! until the migration is run again or given up.

use super::{Damaged, REASON, assert_contains, errors};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::stored::Stored;

on_each_database!(unit_at_which_a_migration_stopped_is_shown_and_replayed_until_the_next_run);
/// Goal: quarantine has a copy of the unit that counts nowhere as left out, and a module can be
/// tried on it.
async fn unit_at_which_a_migration_stopped_is_shown_and_replayed_until_the_next_run(kind: Kind) {
    let damaged = Damaged::in_batches(kind, &[150]).await;
    let before = damaged.content().await.1;
    let (host, unit) = (&damaged.installation, damaged.units[0].as_str());
    let stopped = damaged.refused(&["migrate", "up"]);
    assert_contains(
        &stopped,
        &[
            &format!("unit {unit:?} cannot be migrated"),
            &format!("`bbs migrate quarantine show {unit:?}` describes it"),
            REASON,
        ],
    );
    let listed = host.succeed(&["migrate", "quarantine", "list"]);
    assert_eq!(
        listed,
        format!("{unit}  stopped 1795000200 up: {REASON} (it is in its tables)\n")
    );
    assert_contains(
        &host.succeed(&["migrate", "quarantine", "show", unit]),
        &[
            "Failed at   1795000200-image-credentials, sha256",
            &format!("Run again   bbs module replay {unit}"),
            "the migration stopped at it; the unit is in its tables",
        ],
    );
    let status = host.succeed(&["migrate", "status"]);
    assert!(!status.contains("that could not be migrated"), "{status}");
    assert_contains(
        &damaged.refused(&["migrate", "quarantine", "retry", unit]),
        &["is in the phase copying"],
    );

    let again = host.run(&["module", "replay", unit]);
    assert!(!again.status.success());
    let shown = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_contains(
        &shown,
        &[
            unit,
            "1795000200-image-credentials, up",
            "the one that failed",
            "run_info (2 bytes)",
        ],
    );
    assert_contains(
        &errors(&again),
        &["the unit still cannot be transformed", REASON],
    );
    let golden = host.succeed(&["module", "replay", unit, "--golden"]);
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    let expected = serde_json::json!({
        "direction": "up",
        "unit": { "immutable_desired_lrps": [{ "run_info": { "hex": "0a05" } }], "mutable_desired_lrps": [{}] },
    });
    assert_eq!(golden, expected);

    let catalog = modules::modules_with_split();
    let replay_with = |name: &str| {
        let file = catalog.join(name).display().to_string();
        damaged.refused(&["module", "replay", unit, "--module", &file])
    };
    assert_contains(&replay_with("1795000200-image-credentials.wasm"), &[REASON]);
    assert_contains(
        &replay_with("1795000100-split-desired-lrps.wasm"),
        &["is migration 1795000100, and the unit failed at 1795000200-image-credentials"],
    );
    assert_contains(&replay_with("0.9-to-0.10.wasm"), &["is a translator"]);

    let again = damaged.refused(&["migrate", "up"]);
    assert_contains(&again, &[REASON]);
    assert_eq!(host.succeed(&["migrate", "quarantine", "list"]), listed);
    host.succeed(&["migrate", "abort"]);
    assert_contains(
        &host.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
    assert_eq!(damaged.content().await.1, before);
}

on_each_database!(unit_at_which_a_migration_stopped_is_no_longer_listed_once_it_is_migrated);
async fn unit_at_which_a_migration_stopped_is_no_longer_listed_once_it_is_migrated(kind: Kind) {
    let damaged = Damaged::in_batches(kind, &[150]).await;
    let host = &damaged.installation;
    damaged.refused(&["migrate", "up"]);
    let stored = Stored::open(&host.database, fixture::migrations()).await;
    let repair = format!(
        "UPDATE desired_lrps SET run_info = (SELECT run_info FROM (SELECT MIN(run_info) AS run_info FROM desired_lrps WHERE \
         process_guid <> '{0}') other) WHERE process_guid = '{0}'",
        damaged.units[0]
    );
    stored.execute(&repair).await;
    stored.context.database.close().await;
    host.succeed(&["migrate", "up"]);
    assert_contains(
        &host.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
}

on_each_database!(replay_without_the_unit_its_key_or_its_module_is_refused);
async fn replay_without_the_unit_its_key_or_its_module_is_refused(kind: Kind) {
    let damaged = Damaged::at(kind, &[3]).await;
    damaged.refused(&["migrate", "up"]);
    let unit = damaged.units[0].as_str();
    assert_contains(
        &damaged.refused(&["module", "replay", "unknown"]),
        &["there is no unit \"unknown\" in quarantine"],
    );
    let database = damaged.installation.database.clone();
    let elsewhere = Installation::on(database, &modules::modules());
    let refused = elsewhere.run(&["module", "replay", unit]);
    assert_contains(
        &errors(&refused),
        &["the catalog has no version 1795000200"],
    );
    let keys = serde_json::json!({"other": "another passphrase"});
    let elsewhere = damaged
        .installation
        .set("encryption_keys", keys)
        .set("active_key_label", "other");
    let refused = elsewhere.run(&["module", "replay", unit]);
    assert_contains(
        &errors(&refused),
        &["key with label \"key-2024\" was not found"],
    );
}
