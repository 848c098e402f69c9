//! Units that will not go: told by name, saved to be run again, and what an operator does about them.

use std::path::{Path, PathBuf};
use std::process::Output;

use bbs::layout::schema::Sealing;
use bbs::record::Keyring;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::{Kind, on_each_database, texts};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::modules;
use crate::harness::stored::{Rows, Stored};

/// The fixture beside the modules that split it, with run infos that none of them can read.
struct Damaged {
    installation: Installation,
    units: Vec<String>,
}

/// A protobuf message that ends inside a field.
const UNREADABLE: &[u8] = b"\x0a\x05";
const REASON: &str = "`run_info` cannot be read: the protobuf message ends inside a field, at byte 0";

impl Damaged {
    async fn at(kind: Kind, places: &[usize]) -> Self {
        let installation = Installation::new(&modules::modules_with_split(), kind).set("replay_dir", "replay");
        fixture::write_to(&installation.database).await;
        let stored = Stored::open(&installation.database, fixture::migrations()).await;
        let rows = stored.rows(VERSION).await;
        let mut units = Vec::new();
        for place in places {
            let guid = rows["desired_lrps"][*place]["process_guid"].clone();
            let sealed = String::from_utf8(fixture::keyring().seal(Sealing::Enveloped, UNREADABLE)).unwrap();
            stored
                .execute(&format!("UPDATE desired_lrps SET run_info = '{sealed}' WHERE process_guid = '{guid}'"))
                .await;
            units.push(guid);
        }
        stored.context.database.close().await;
        Self { installation, units }
    }

    /// Every table and every row of Diego's.
    async fn everything(&self) -> (Vec<String>, Rows) {
        let stored = Stored::open(&self.installation.database, fixture::migrations()).await;
        let everything = (stored.tables().await, stored.rows(VERSION).await);
        stored.context.database.close().await;
        everything
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.installation.run(arguments);
        assert!(!output.status.success(), "bbs {arguments:?} is refused");
        said(&output)
    }

    fn replay_file(&self) -> PathBuf {
        let files = std::fs::read_dir(self.installation.folder().join("replay")).expect("a folder of replays");
        files.map(|file| file.unwrap().path()).next().expect("a replay file")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in:\n{text}"));
}

on_each_database!(what_stopped_a_migration_can_be_run_again_without_the_database);
async fn what_stopped_a_migration_can_be_run_again_without_the_database(kind: Kind) {
    let damaged = Damaged::at(kind, &[150]).await;
    let unit = damaged.units[0].as_str();
    let stopped = damaged.refused(&["migrate", "up"]);
    let file = damaged.replay_file().display().to_string();
    says(&stopped, &[&format!("unit {unit:?} cannot be migrated"), REASON, &file]);

    let again = damaged.installation.run(&["module", "replay", &file]);
    assert!(!again.status.success());
    let shown = String::from_utf8_lossy(&again.stdout).into_owned();
    says(&shown, &[unit, "1795000200-image-credentials, up", "the one that failed", "run_info (2 bytes)"]);
    says(&said(&again), &["the module still does not take the unit", REASON]);

    let golden: serde_json::Value =
        serde_json::from_str(&damaged.installation.succeed(&["module", "replay", &file, "--golden"])).unwrap();
    let expected = serde_json::json!({
        "direction": "up",
        "unit": { "immutable_desired_lrps": [{ "run_info": { "hex": "0a05" } }], "mutable_desired_lrps": [{}] },
    });
    assert_eq!(golden, expected);

    let catalog = modules::modules_with_split();
    let named = |name: &str| catalog.join(name).display().to_string();
    let same = named("1795000200-image-credentials.wasm");
    says(&damaged.refused(&["module", "replay", &file, "--module", &same]), &[REASON]);
    let other = named("1795000100-split-desired-lrps.wasm");
    says(
        &damaged.refused(&["module", "replay", &file, "--module", &other]),
        &["is migration 1795000100, the file is of 1795000200-image-credentials"],
    );
    let translator = named("0.9-to-0.10.wasm");
    says(&damaged.refused(&["module", "replay", &file, "--module", &translator]), &["is a translator"]);
}

on_each_database!(a_file_that_is_no_replay_is_refused_and_so_is_another_key);
async fn a_file_that_is_no_replay_is_refused_and_so_is_another_key(kind: Kind) {
    let damaged = Damaged::at(kind, &[3]).await;
    damaged.refused(&["migrate", "up"]);
    let file = damaged.replay_file();
    let replay = |file: &Path| damaged.refused(&["module", "replay", &file.display().to_string()]);
    let missing = damaged.installation.folder().join("none.replay");
    says(&replay(&missing), &["cannot read", "none.replay; name a file of the host's `replay_dir`"]);
    let cases = [
        (fixture::keyring().seal(Sealing::Sealed, b"{}"), "is not a replay file of this host's kind"),
        (b"no record".to_vec(), "does not open; give the configuration of the host that wrote it"),
    ];
    for (content, expected) in cases {
        let path = damaged.installation.folder().join("other.replay");
        std::fs::write(&path, content).unwrap();
        says(&replay(&path), &[expected]);
    }
    let keys = serde_json::json!({"other": "another passphrase"});
    let elsewhere =
        Installation::new(&modules::modules(), kind).set("encryption_keys", keys).set("active_key_label", "other");
    let refused = elsewhere.run(&["module", "replay", &file.display().to_string()]);
    says(&said(&refused), &["does not open", "key with label \"key-2024\" was not found"]);
    let elsewhere = Installation::new(&modules::modules(), kind);
    let refused = elsewhere.run(&["module", "replay", &file.display().to_string()]);
    says(&said(&refused), &["has no migration 1795000200-image-credentials; name its file with --module"]);
}

on_each_database!(a_check_names_what_would_not_come_back_and_writes_nothing);
async fn a_check_names_what_would_not_come_back_and_writes_nothing(kind: Kind) {
    let damaged = Damaged::at(kind, &[3, 150]).await;
    let before = damaged.everything().await;
    let output = damaged.installation.run(&["migrate", "plan", "--check"]);
    assert!(!output.status.success());
    says(&said(&output), &["2 units would not go to 1795000200 and back"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    says(
        &shown,
        &[
            "units to 1795000200 and back, in memory; nothing was written",
            "1795000100  split-desired-lrps                  all 300 units come back",
            "1795000200  image-credentials                   2 of 300 units do not come back",
            &format!("up refuses it: {REASON}"),
            &format!("{:?}", damaged.units[0]),
        ],
    );
    assert!(damaged.everything().await == before, "nothing was written");
}

on_each_database!(the_default_modules_bring_every_unit_back);
async fn the_default_modules_bring_every_unit_back(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    for to in ["1471030898", "1795000000"] {
        let checked = installation.succeed(&["migrate", "plan", "--check", "--to", to, "--json"]);
        let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
        let migrations = checked["check"]["migrations"].as_array().unwrap();
        assert!(migrations.iter().all(|migration| migration["lost"] == 0), "{checked:#}");
        let split = migrations.iter().find(|migration| migration["name"] == "split-metric-tags");
        if let Some(split) = split {
            assert_eq!(split["units"], 300);
        }
    }
}

on_each_database!(units_that_do_not_go_are_left_out_shown_tried_again_and_given_back);
async fn units_that_do_not_go_are_left_out_shown_tried_again_and_given_back(kind: Kind) {
    let damaged = Damaged::at(kind, &[3, 150]).await;
    let before = damaged.everything().await.1;
    let host = &damaged.installation;
    let up = host.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    says(&up, &["Migrated from 1722634733 to 1795000200.", "2 units are in quarantine: `bbs migrate quarantine list`"]);
    says(&host.succeed(&["migrate", "status"]), &["Quarantine 2 units that would not go"]);
    let listed = host.succeed(&["migrate", "quarantine", "list"]);
    for unit in &damaged.units {
        says(&listed, &[&format!("{unit}  1 desired_lrps, 1795000200 up: {REASON}")]);
    }
    let unit = damaged.units[0].as_str();
    let shown = host.succeed(&["migrate", "quarantine", "show", unit]);
    says(
        &shown,
        &[
            &format!("Unit        {unit}"),
            "Rows        1 desired_lrps, as they were at 1722634733",
            "Failed at   1795000200-image-credentials, sha256",
            "Run again   bbs module replay",
            "left out of the tables",
        ],
    );
    let serving = host.serve();
    let refused = host.run(&["migrate", "quarantine", "retry", unit]);
    assert!(serving.terminate().success());
    says(&String::from_utf8_lossy(&refused.stdout), &[&format!("{unit}  stays: {REASON}")]);
    says(&said(&refused), &["1 of 1 units stay in quarantine"]);
    says(&damaged.refused(&["migrate", "quarantine", "show", "nobody"]), &["there is no unit \"nobody\""]);

    host.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    says(&host.succeed(&["migrate", "quarantine", "list"]), &["No unit is in quarantine."]);
    assert_eq!(damaged.everything().await.1, before);
}

on_each_database!(a_migration_in_parts_tells_how_far_it_is_and_when_it_is_done);
async fn a_migration_in_parts_tells_how_far_it_is_and_when_it_is_done(kind: Kind) {
    let installation = Installation::new(&modules::modules_with_split(), kind);
    fixture::write_to(&installation.database).await;
    let part = installation.run(&["migrate", "up", "--max-count", "120"]);
    assert_eq!(part.status.code(), Some(3), "{}", said(&part));
    let text = String::from_utf8_lossy(&part.stdout).into_owned();
    says(&text, &["Migrated 120 of 300 units from 1722634733 to 1795000200 so far; 180 to go.", "stays at 1722634733"]);
    says(&installation.succeed(&["migrate", "status"]), &["a migration to 1795000200 began and has not ended"]);
    let part = installation.run(&["migrate", "up", "--max-count", "120"]);
    assert_eq!(part.status.code(), Some(3), "{}", said(&part));
    let done = installation.succeed(&["migrate", "up", "--max-count", "120"]);
    says(&done, &["Finished the migration from 1722634733 to 1795000200 that had begun."]);
    says(&installation.succeed(&["migrate", "up", "--max-count", "0"]), &["Nothing to migrate"]);

    let part = installation.run(&["migrate", "down", "--to", "1795000000", "--max-count", "299"]);
    assert_eq!(part.status.code(), Some(3), "{}", said(&part));
    let done = installation.succeed(&["migrate", "down", "--to", "1795000000", "--max-count", "1"]);
    says(&done, &["Finished the migration from 1795000200 to 1795000000"]);
}

on_each_database!(a_unit_in_quarantine_comes_under_a_new_key_with_everything_else);
async fn a_unit_in_quarantine_comes_under_a_new_key_with_everything_else(kind: Kind) {
    let damaged = Damaged::at(kind, &[3]).await;
    damaged.installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    let Damaged { installation, units } = damaged;
    let keys = serde_json::json!({"key-2024": "correct horse battery staple", "key-2026": "another passphrase"});
    let installation = installation.set("encryption_keys", keys).set("active_key_label", "key-2026");
    installation.succeed(&["keys", "rotate"]);
    installation.succeed(&["keys", "verify", "--label", "key-2024"]);
    let installation = installation.set("encryption_keys", serde_json::json!({"key-2026": "another passphrase"}));
    let file = std::fs::read_dir(installation.folder().join("replay")).unwrap().next().unwrap().unwrap().path();
    says(&said(&installation.run(&["module", "replay", &file.display().to_string()])), &[REASON]);
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    says(&installation.succeed(&["migrate", "quarantine", "list"]), &["No unit is in quarantine."]);
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let query = format!("SELECT run_info FROM desired_lrps WHERE process_guid = '{}'", units[0]);
    let rows = texts(&stored.context.database, &query).await;
    let keyring = Keyring::new([("key-2026", "another passphrase")], "key-2026").unwrap();
    assert_eq!(keyring.open(Sealing::Enveloped, rows[0].as_bytes()).unwrap(), UNREADABLE);
}

/// Whether the host has a desired LRP.
async fn has(host: &Host, guid: &str) -> bool {
    let request = proto::DesiredLrpByProcessGuidRequest { process_guid: guid.as_bytes().to_vec() };
    let url = host.url("/v1/desired_lrps/get_by_process_guid.r3");
    let reply = crate::harness::http_client().post(url).body(request.encode_to_vec()).send().await.unwrap();
    let answer = proto::DesiredLrpResponse::decode(&reply.bytes().await.unwrap()[..]).unwrap();
    answer.desired_lrp.is_some()
}

on_each_database!(a_record_whose_key_comes_back_is_put_back_while_a_host_serves);
async fn a_record_whose_key_comes_back_is_put_back_while_a_host_serves(kind: Kind) {
    let installation = Installation::new(&modules::modules_with_split(), kind).set("replay_dir", "replay");
    fixture::write_to(&installation.database).await;
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let found = texts(&stored.context.database, "SELECT process_guid FROM desired_lrps ORDER BY process_guid").await;
    let guid = found[9].as_str();
    let query = format!("SELECT run_info FROM desired_lrps WHERE process_guid = '{guid}'");
    let sealed = texts(&stored.context.database, &query).await;
    let plain = fixture::keyring().open(Sealing::Enveloped, sealed[0].as_bytes()).unwrap();
    let lost = Keyring::new([("lost", "a passphrase")], "lost").unwrap().seal(Sealing::Enveloped, &plain);
    let lost = String::from_utf8(lost).unwrap();
    stored.execute(&format!("UPDATE desired_lrps SET run_info = '{lost}' WHERE process_guid = '{guid}'")).await;
    stored.context.database.close().await;

    let up = installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    says(&up, &["1 units are in quarantine"]);
    let host = installation.serve();
    assert!(has(&host, &found[8]).await && !has(&host, guid).await);
    let refused = installation.run(&["migrate", "quarantine", "retry", guid]);
    says(&String::from_utf8_lossy(&refused.stdout), &["stays: `run_info` of `desired_lrps` does not open"]);
    let keys = serde_json::json!({"key-2024": "correct horse battery staple", "lost": "a passphrase"});
    let installation = installation.set("encryption_keys", keys);
    let retried = installation.succeed(&["migrate", "quarantine", "retry", guid]);
    says(&retried, &[&format!("{guid}  is back in its tables")]);
    assert!(has(&host, guid).await, "the host knows only the active key, and that is what it was sealed with");
}
