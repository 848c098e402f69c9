//! Units that a migration cannot transform: named in the error, replayed, quarantined, retried and
//! restored.

mod checks;
mod refused_rows;
mod repair;
mod stopped;
mod unreadable;

use std::os::unix::process::ExitStatusExt;

use bbs::testing::database::Dialect;
use bbs::testing::migrate::fault::{
    AFTER_CUT_OVER, AFTER_RENAMING, BEFORE_CLEAN_UP_COMMIT, QUARANTINE_POINTS,
};
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::Sealing;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::{Kind, execute, on_each_database, texts};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::SPLIT;
use crate::harness::modules;
use crate::harness::output::errors;
use crate::harness::stored::{Rows, Stored};

/// A database of Diego's with the modules that split it, and with run infos that are no valid
/// protobuf messages.
pub(super) struct Damaged {
    pub(super) installation: Installation,
    pub(super) units: Vec<String>,
}

/// A protobuf message that ends inside a field.
const UNREADABLE: &[u8] = b"\x0a\x05";
pub(super) const REASON: &str =
    "`run_info` cannot be read: the protobuf message ends inside a field, at byte 0";

impl Damaged {
    /// Damages the desired LRPs at these positions of a quarter of the fixture, which is one batch.
    pub(super) async fn at(kind: Kind, positions: &[usize]) -> Self {
        let installation = Installation::of_small_diego(&modules::modules_with_split(), kind).await;
        Self::on(installation, positions).await
    }

    /// Damages the desired LRPs at these positions of the fixture, whose first batch has 100.
    async fn in_batches(kind: Kind, positions: &[usize]) -> Self {
        let installation = Installation::of_diego(&modules::modules_with_split(), kind).await;
        Self::on(installation, positions).await
    }

    async fn on(installation: Installation, positions: &[usize]) -> Self {
        let stored = Stored::open(&installation.database, fixture::migrations()).await;
        let rows = stored.rows(VERSION).await;
        let mut units = Vec::new();
        for position in positions {
            let guid = rows["desired_lrps"][*position]["process_guid"].clone();
            let sealed =
                String::from_utf8(fixture::keyring().seal(Sealing::Enveloped, UNREADABLE)).unwrap();
            stored
                .execute(&format!(
                    "UPDATE desired_lrps SET run_info = '{sealed}' WHERE process_guid = '{guid}'"
                ))
                .await;
            units.push(guid);
        }
        stored.context.database.close().await;
        Self {
            installation,
            units,
        }
    }

    /// An installation on a copy of its database.
    fn copy(&self) -> Self {
        let database = self.installation.database.copy();
        Self {
            installation: Installation::on(database, &modules::modules_with_split()),
            units: self.units.clone(),
        }
    }

    /// The names of all tables, and all rows of Diego's tables.
    async fn content(&self) -> (Vec<String>, Rows) {
        let stored = Stored::open(&self.installation.database, fixture::migrations()).await;
        let content = (stored.tables().await, stored.rows(VERSION).await);
        stored.context.database.close().await;
        content
    }

    #[track_caller]
    pub(super) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.installation.run(arguments);
        assert!(!output.status.success(), "bbs {arguments:?} succeeded");
        errors(&output)
    }
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    parts
        .iter()
        .for_each(|part| assert!(text.contains(part), "{part:?} is not in:\n{text}"));
}

/// Goal: what the database would refuse is found before it is written, by unit and module. Method:
/// a migration computes texts with a NUL character and texts that are too long for their column.
async fn result_that_the_database_cannot_store_is_refused_by_name(kind: Kind) {
    let installation =
        Installation::of_small_diego(&modules::modules_with_unstorable(), kind).await;
    let opened = installation.database.open().await;
    let guids = texts(&opened, "SELECT guid FROM tasks ORDER BY guid").await;
    for (guid, domain) in guids.iter().zip(["nul", "long"]) {
        execute(
            &opened,
            &format!("UPDATE tasks SET domain = '{domain}' WHERE guid = '{guid}'"),
        )
        .await;
    }
    opened.close().await;
    let flaws = match kind.dialect() {
        Dialect::Postgres => vec![
            (&guids[0], "has a NUL character"),
            (&guids[1], "longer than the column holds"),
        ],
        Dialect::Mysql | Dialect::Sqlite => vec![(&guids[1], "longer than the column holds")],
    };
    let checked = installation.run(&["migrate", "plan", "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    let stopped = errors(&installation.run(&["migrate", "up"]));
    assert_contains(
        &stopped,
        &[
            "cannot be migrated",
            "the tables are as they were",
            "up of migration 1795000060 (unstorable",
        ],
    );
    installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    for (unit, flaw) in &flaws {
        assert_contains(&checked, &[unit, flaw]);
        assert_contains(&listed, &[unit]);
        let shown = installation.succeed(&["migrate", "quarantine", "show", unit]);
        assert_contains(&shown, &[flaw, "`label` of `tasks`", "unstorable"]);
    }
}

on_each_database!(result_that_the_database_cannot_store_is_refused_by_name);

/// Goal: the name of a unit, which a client chose, does not control the operator's terminal.
#[tokio::test]
async fn names_of_units_are_printed_without_control_characters() {
    const UNIT: &str = "forged\u{1b}[31m";
    let installation =
        Installation::of_small_diego(&modules::modules_with_unstorable(), Kind::Sqlite).await;
    let opened = installation.database.open().await;
    let first = "guid = (SELECT MIN(guid) FROM tasks)";
    execute(
        &opened,
        &format!("UPDATE tasks SET guid = '{UNIT}', domain = 'long' WHERE {first}"),
    )
    .await;
    opened.close().await;
    installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    for arguments in [&["list"][..], &["show", UNIT], &["retry"]] {
        let output = installation.run(&[&["migrate", "quarantine"], arguments].concat());
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_contains(&shown, &["forged\\u{1b}[31m"]);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}

on_each_database!(failing_units_are_quarantined_shown_retried_and_restored);
async fn failing_units_are_quarantined_shown_retried_and_restored(kind: Kind) {
    let damaged = Damaged::in_batches(kind, &[3, 150]).await;
    let before = damaged.content().await.1;
    let host = &damaged.installation;
    let up = host.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    assert_contains(
        &up,
        &[
            "Migrated from 1722634733 to 1795000200.",
            "2 units are in quarantine: `bbs migrate quarantine list`",
        ],
    );
    assert_contains(
        &host.succeed(&["migrate", "status"]),
        &["Quarantine 2 units that could not be migrated"],
    );
    let listed = host.succeed(&["migrate", "quarantine", "list"]);
    for unit in &damaged.units {
        let line = listed
            .lines()
            .find(|line| line.starts_with(unit.as_str()))
            .expect("a line for the unit");
        assert_contains(
            line,
            &[
                " actual_lrps + 1 desired_lrps, ",
                &format!("1795000200 up: {REASON}"),
            ],
        );
    }
    let unit = damaged.units[0].as_str();
    let shown = host.succeed(&["migrate", "quarantine", "show", unit]);
    assert_contains(
        &shown,
        &[
            &format!("Unit        {unit}"),
            " actual_lrps + 1 desired_lrps, as they were at 1722634733",
            "Failed at   1795000200-image-credentials, sha256",
            "Run again   bbs module replay",
            "not in the tables",
        ],
    );
    let serving = host.serve();
    let refused = host.run(&["migrate", "quarantine", "retry", unit]);
    assert!(serving.terminate().success());
    assert_contains(
        &String::from_utf8_lossy(&refused.stdout),
        &[&format!("{unit}  remains: {REASON}")],
    );
    assert_contains(&errors(&refused), &["1 of 1 units remain in quarantine"]);
    assert_contains(
        &damaged.refused(&["migrate", "quarantine", "show", "unknown"]),
        &["there is no unit \"unknown\""],
    );

    host.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_contains(
        &host.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
    assert_eq!(damaged.content().await.1, before);
}

on_each_database!(kill_between_the_version_and_the_clean_up_keeps_quarantined_units);
async fn kill_between_the_version_and_the_clean_up_keeps_quarantined_units(kind: Kind) {
    let up = ["migrate", "up", "--on-unreadable", "quarantine"];
    let mut points = vec![AFTER_CUT_OVER, BEFORE_CLEAN_UP_COMMIT];
    points.extend(QUARANTINE_POINTS);
    points.extend((kind.dialect() == Dialect::Mysql).then_some(AFTER_RENAMING));
    let start = Damaged::at(kind, &[3, 49]).await;
    let before = start.content().await.1;
    for point in points {
        let damaged = start.copy();
        let host = &damaged.installation;
        let killed = host
            .command(&up)
            .env("BBS_FAULT", point)
            .output()
            .expect("the executable starts");
        assert_eq!(
            killed.status.signal(),
            Some(9),
            "{point}: {}",
            errors(&killed)
        );
        host.succeed(&up);
        let listed = host.succeed(&["migrate", "quarantine", "list"]);
        let lines = listed.lines().filter(|line| line.contains(REASON));
        assert_eq!(lines.count(), damaged.units.len(), "{point}: {listed}");
        host.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
        assert_contains(
            &host.succeed(&["migrate", "quarantine", "list"]),
            &["No unit is in quarantine."],
        );
        assert!(
            damaged.content().await.1 == before,
            "{point}: rows are lost or changed"
        );
    }
}

on_each_database!(unit_of_several_tables_is_put_back_whole);
async fn unit_of_several_tables_is_put_back_whole(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules_with_split(), kind).await;
    installation.succeed(&["migrate", "up"]);
    let stored = Stored::open(
        &installation.database,
        fixture::migrations_in(&modules::modules_with_split()),
    )
    .await;
    let sealed =
        String::from_utf8(fixture::keyring().seal(Sealing::Enveloped, UNREADABLE)).unwrap();
    // Not all of them fail: the module restores some from what it saved on the way up.
    for row in &stored.rows(SPLIT).await["immutable_desired_lrps"][..10] {
        let damage = "UPDATE immutable_desired_lrps SET immutable_run_info";
        stored
            .execute(&format!(
                "{damage} = '{sealed}' WHERE process_guid = '{}'",
                row["process_guid"]
            ))
            .await;
    }
    let before = stored.rows(SPLIT).await;
    installation.succeed(&[
        "migrate",
        "down",
        "--on-unreadable",
        "quarantine",
        "--to",
        &VERSION.to_string(),
    ]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["1 immutable_desired_lrps", REASON],
    );
    installation.succeed(&["migrate", "up"]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
    assert_eq!(stored.rows(SPLIT).await, before);
}

on_each_database!(unit_is_put_back_beside_the_tables_that_were_not_in_quarantine);
async fn unit_is_put_back_beside_the_tables_that_were_not_in_quarantine(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let older = "1698182853";
    installation.succeed(&["migrate", "down", "--to", older]);
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let instances = "SELECT process_guid FROM actual_lrps ORDER BY process_guid";
    let guid = texts(&stored.context.database, instances)
        .await
        .swap_remove(0);
    let lost = Keyring::new([("key-lost", "another passphrase")], "key-lost").unwrap();
    let query = format!("SELECT run_info FROM desired_lrps WHERE process_guid = '{guid}'");
    let run_info = texts(&stored.context.database, &query).await.swap_remove(0);
    let run_info = fixture::keyring()
        .open(Sealing::Enveloped, run_info.as_bytes())
        .unwrap();
    let sealed = String::from_utf8(lost.seal(Sealing::Enveloped, &run_info)).unwrap();
    stored
        .execute(&format!(
            "UPDATE desired_lrps SET run_info = '{sealed}' WHERE process_guid = '{guid}'"
        ))
        .await;

    // No migration up to here joins the two tables.
    installation.succeed(&[
        "migrate",
        "up",
        "--on-unreadable",
        "quarantine",
        "--to",
        "1795000000",
    ]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["1 desired_lrps", "does not open"],
    );
    installation.succeed(&["migrate", "up"]);
    let keys = serde_json::json!({"key-2024": "correct horse battery staple", "key-lost": "another passphrase"});
    let installation = installation.set("encryption_keys", keys);
    installation.succeed(&["migrate", "quarantine", "retry"]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
    let ids = format!(
        "SELECT definition_id FROM desired_lrps WHERE process_guid = '{guid}' UNION ALL \
         SELECT desired_lrp_definition_id FROM actual_lrps WHERE process_guid = '{guid}'"
    );
    let ids = texts(&stored.context.database, &ids).await;
    assert!(
        ids.len() > 1 && ids.iter().all(|id| *id == ids[0]),
        "{ids:?}"
    );
}

on_each_database!(partial_runs_report_progress_and_completion);
async fn partial_runs_report_progress_and_completion(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules_with_split(), kind).await;
    let part = installation.run(&["migrate", "up", "--max-count", "25"]);
    assert_eq!(part.status.code(), Some(3), "{}", errors(&part));
    let text = String::from_utf8_lossy(&part.stdout).into_owned();
    assert_contains(
        &text,
        &[
            "Migrated 25 of 64 units from 1722634733 to 1795000200 so far; 39 remain.",
            "stays at 1722634733",
        ],
    );
    assert_contains(
        &installation.succeed(&["migrate", "status"]),
        &["a migration to 1795000200 was begun and is not finished"],
    );
    let part = installation.run(&["migrate", "up", "--max-count", "25"]);
    assert_eq!(part.status.code(), Some(3), "{}", errors(&part));
    let done = installation.succeed(&["migrate", "up", "--max-count", "25"]);
    assert_contains(
        &done,
        &["Finished the migration from 1722634733 to 1795000200, which an earlier run had begun."],
    );
    assert_contains(
        &installation.succeed(&["migrate", "up", "--max-count", "0"]),
        &["Nothing to migrate"],
    );

    let part = installation.run(&["migrate", "down", "--to", "1795000010", "--max-count", "63"]);
    assert_eq!(part.status.code(), Some(3), "{}", errors(&part));
    let done = installation.succeed(&["migrate", "down", "--to", "1795000010", "--max-count", "1"]);
    assert_contains(
        &done,
        &["Finished the migration from 1795000200 to 1795000010"],
    );
}

on_each_database!(key_rotation_includes_quarantined_units);
async fn key_rotation_includes_quarantined_units(kind: Kind) {
    let damaged = Damaged::at(kind, &[3]).await;
    damaged
        .installation
        .succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    let Damaged {
        installation,
        units,
    } = damaged;
    let keys = serde_json::json!({"key-2024": "correct horse battery staple", "key-2026": "another passphrase"});
    let installation = installation
        .set("encryption_keys", keys)
        .set("active_key_label", "key-2026");
    installation.succeed(&["keys", "rotate"]);
    installation.succeed(&["keys", "verify", "--label", "key-2024"]);
    let installation = installation.set(
        "encryption_keys",
        serde_json::json!({"key-2026": "another passphrase"}),
    );
    assert_contains(
        &errors(&installation.run(&["module", "replay", &units[0]])),
        &[REASON],
    );
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let query = format!(
        "SELECT run_info FROM desired_lrps WHERE process_guid = '{}'",
        units[0]
    );
    let rows = texts(&stored.context.database, &query).await;
    let keyring = Keyring::new([("key-2026", "another passphrase")], "key-2026").unwrap();
    assert_eq!(
        keyring
            .open(Sealing::Enveloped, rows[0].as_bytes())
            .unwrap(),
        UNREADABLE
    );
}

/// Whether the host has a desired LRP.
async fn has(host: &Host, guid: &str) -> bool {
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: guid.as_bytes().to_vec(),
    };
    let url = host.url("/v1/desired_lrps/get_by_process_guid.r3");
    let reply = crate::harness::http_client()
        .post(url)
        .body(request.encode_to_vec())
        .send()
        .await
        .unwrap();
    let answer = proto::DesiredLrpResponse::decode(&reply.bytes().await.unwrap()[..]).unwrap();
    answer.desired_lrp.is_some()
}

on_each_database!(retry_with_the_missing_key_restores_a_unit_while_a_host_serves);
async fn retry_with_the_missing_key_restores_a_unit_while_a_host_serves(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules_with_split(), kind).await;
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let found = texts(
        &stored.context.database,
        "SELECT process_guid FROM desired_lrps ORDER BY process_guid",
    )
    .await;
    let guid = found[9].as_str();
    let query = format!("SELECT run_info FROM desired_lrps WHERE process_guid = '{guid}'");
    let sealed = texts(&stored.context.database, &query).await;
    let plain = fixture::keyring()
        .open(Sealing::Enveloped, sealed[0].as_bytes())
        .unwrap();
    let lost = Keyring::new([("lost", "a passphrase")], "lost")
        .unwrap()
        .seal(Sealing::Enveloped, &plain);
    let lost = String::from_utf8(lost).unwrap();
    stored
        .execute(&format!(
            "UPDATE desired_lrps SET run_info = '{lost}' WHERE process_guid = '{guid}'"
        ))
        .await;
    stored.context.database.close().await;

    let up = installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    assert_contains(&up, &["1 unit is in quarantine"]);
    let host = installation.serve();
    assert!(has(&host, &found[8]).await && !has(&host, guid).await);
    let refused = installation.run(&["migrate", "quarantine", "retry", guid]);
    assert_contains(
        &String::from_utf8_lossy(&refused.stdout),
        &["remains: `run_info` of `desired_lrps` does not open"],
    );
    let keys =
        serde_json::json!({"key-2024": "correct horse battery staple", "lost": "a passphrase"});
    let installation = installation.set("encryption_keys", keys);
    let retried = installation.succeed(&["migrate", "quarantine", "retry", guid]);
    assert_contains(&retried, &[&format!("{guid}  restored to its tables")]);
    assert!(
        has(&host, guid).await,
        "the unit is restored under the active key, the only one that the host has"
    );
}
