//! The modules that split `desired_lrps` into a mutable and an immutable table, which no host is
//! built with: migration up and down preserves every record, and an unchanged host serves the split
//! tables.

use std::collections::BTreeMap;

use bbs::testing::migrate::Decision;
use bbs_proto::prost::encoding::decode_varint;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::SPLIT;
use crate::harness::modules;
use crate::harness::stored::Stored;

const IMMUTABLE: &str = "immutable_desired_lrps";
const MUTABLE: &str = "mutable_desired_lrps";
/// The tables that the split does not change.
const OTHERS: [&str; 3] = ["actual_lrps", "domains", "tasks"];

type TextRow = BTreeMap<String, String>;

async fn with_fixture(kind: Kind) -> Stored {
    let migrations = fixture::migrations_in(&modules::modules_with_split());
    Stored::with_fixture(kind, migrations).await
}

/// The column values of both rows of a desired LRP.
fn merged(immutable: &TextRow, mutable: &TextRow) -> TextRow {
    assert_eq!(immutable["process_guid"], mutable["process_guid"]);
    immutable
        .iter()
        .chain(mutable)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

on_each_database!(split_and_merge_preserve_every_row);
async fn split_and_merge_preserve_every_row(kind: Kind) {
    let stored = with_fixture(kind).await;
    let original = stored.rows(VERSION).await;
    assert_eq!(
        stored.up(SPLIT).await.unwrap(),
        Decision::Begin {
            from: VERSION,
            to: SPLIT
        }
    );
    stored.assert_layout(SPLIT).await;
    let split = stored.rows(SPLIT).await;
    assert!(!split.contains_key("desired_lrps"));
    assert_eq!((split[IMMUTABLE].len(), split[MUTABLE].len()), (300, 300));
    for (then, (immutable, mutable)) in original["desired_lrps"]
        .iter()
        .zip(split[IMMUTABLE].iter().zip(&split[MUTABLE]))
    {
        let now = merged(immutable, mutable);
        let whole = then.iter().filter(|(name, _)| *name != "run_info");
        whole.for_each(|(name, value)| {
            assert_eq!(now[name], *value, "{name} of {}", now["process_guid"])
        });
        assert_eq!(
            now["record_version"],
            SPLIT.to_string(),
            "a row that a module rewrote has its version"
        );
        match now["image_credentials"].as_str() {
            "NULL" => assert_eq!(now["immutable_run_info"], then["run_info"]),
            _ => assert!(now["immutable_run_info"].len() < then["run_info"].len()),
        }
    }
    assert!(
        split[MUTABLE]
            .iter()
            .any(|row| row["image_credentials"] != "NULL"),
        "the fixture has credentials"
    );
    for table in OTHERS {
        for (now, then) in split[table].iter().zip(&original[table]) {
            assert!(
                then.iter().all(|(name, value)| now[name] == *value),
                "{table}: {now:?} was {then:?}"
            );
        }
    }
    stored.down(VERSION).await.unwrap();
    stored.assert_layout(VERSION).await;
    assert_eq!(stored.rows(VERSION).await, original);
}

on_each_database!(updates_of_split_tables_survive_the_merge);
async fn updates_of_split_tables_survive_the_merge(kind: Kind) {
    let stored = with_fixture(kind).await;
    stored.up(SPLIT).await.unwrap();
    let before = stored.rows(SPLIT).await;
    let guid = before[MUTABLE][7]["process_guid"].clone();
    stored
        .execute(&format!(
            "UPDATE {MUTABLE} SET annotation = 'edited', instances = 41, modification_tag_index = 9 \
             WHERE process_guid = '{guid}'"
        ))
        .await;
    stored.down(VERSION).await.unwrap();
    let back = stored.rows(VERSION).await;
    let row = back["desired_lrps"]
        .iter()
        .find(|row| row["process_guid"] == guid)
        .unwrap();
    let changed =
        ["annotation", "instances", "modification_tag_index"].map(|name| row[name].as_str());
    assert_eq!(changed, ["edited", "41", "9"]);
    stored.up(SPLIT).await.unwrap();
    let again = stored.rows(SPLIT).await;
    let row = again[MUTABLE]
        .iter()
        .find(|row| row["process_guid"] == guid)
        .unwrap();
    assert_eq!(row["annotation"], "edited");
    assert_eq!(again[IMMUTABLE], before[IMMUTABLE]);
}

// Through the executable: two modules are installed, migrated to, rolled back and removed.
on_each_database!(operator_installs_migrates_rolls_back_and_removes_the_split);
async fn operator_installs_migrates_rolls_back_and_removes_the_split(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules_with_split(), kind).await;
    let plan = installation.succeed(&["migrate", "plan"]);
    for part in [
        "1795000100  split-desired-lrps",
        "1795000200  image-credentials",
        "rewritten: image_credentials",
        "rewritten: immutable_run_info, definition_id, previous_definition_id; decrypted: run_info",
        "Reversible yes",
    ] {
        assert!(plan.contains(part), "{part:?} is not in:\n{plan}");
    }
    installation.succeed(&["migrate", "up"]);
    let status = installation.succeed(&["migrate", "status"]);
    assert!(status.contains(&format!("Version    {SPLIT}")), "{status}");
    installation.succeed(&["migrate", "down", "--to", "1795000010"]);
    let installation = installation.set("modules_dir", modules::modules().display().to_string());
    installation.serve().stop();
}

/// The lists of every API version.
pub(super) const LISTS: [&str; 9] = [
    "/v1/desired_lrps/list.r3",
    "/v1/desired_lrp_scheduling_infos/list",
    "/v1/desired_lrp_routing_infos/list",
    "/v1/actual_lrps/list",
    "/v1/tasks/list.r3",
    "/v1/domains/list",
    "/v0.9/desired_lrps/list",
    "/v0.10/mutable_desired_lrps/list",
    "/v0.10/immutable_desired_lrps/list",
];

/// An encoded message without the fields that name definitions, whose ids are generated in each
/// database. A group holds such messages.
fn without_definitions(message: &[u8], is_group: bool) -> Vec<u8> {
    let mut rest = message;
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let whole = rest;
        let tag = decode_varint(&mut rest).unwrap();
        let head = whole.len() - rest.len();
        let content = match tag & 7 {
            0 => decode_varint(&mut rest).map(|_| None).unwrap(),
            1 => (rest = &rest[8..], None).1,
            5 => (rest = &rest[4..], None).1,
            _ => {
                let length = usize::try_from(decode_varint(&mut rest).unwrap()).unwrap();
                let content = &rest[..length];
                rest = &rest[length..];
                Some(content)
            }
        };
        match content {
            _ if tag >> 3 >= 1000 => {}
            Some(content) if is_group => {
                kept.extend_from_slice(&whole[..head]);
                kept.extend(without_definitions(content, false));
            }
            _ => kept.extend_from_slice(&whole[..whole.len() - rest.len()]),
        }
    }
    kept
}

/// The elements of a list as encoded messages without what differs in each database, sorted.
pub(super) async fn listed(host: &Host, path: &str) -> Vec<Vec<u8>> {
    let reply = crate::harness::http_client()
        .post(host.url(path))
        .send()
        .await
        .unwrap();
    assert_eq!(reply.status(), 200, "{path}");
    let answer = reply.bytes().await.unwrap();
    let mut rest = &answer[..];
    let mut elements = Vec::new();
    while !rest.is_empty() {
        assert_eq!(
            rest[0] & 7,
            2,
            "every field of a list is length-delimited: {path}"
        );
        assert_ne!(rest[0] >> 3, 1, "{path} failed: {}", answer.escape_ascii());
        rest = &rest[1..];
        let length = usize::try_from(decode_varint(&mut rest).unwrap()).unwrap();
        elements.push(match path {
            _ if path.contains("lrp") => {
                without_definitions(&rest[..length], path.contains("groups"))
            }
            _ => rest[..length].to_vec(),
        });
        rest = &rest[length..];
    }
    elements.sort();
    elements
}

async fn assert_both_list_the_same(one: &Host, other: &Host) {
    for path in LISTS {
        let expected = listed(one, path).await;
        let found = listed(other, path).await;
        assert!(!expected.is_empty(), "{path}");
        let differing = found
            .iter()
            .zip(&expected)
            .find(|(found, expected)| found != expected);
        let differing = differing.map(|(found, expected)| {
            format!("{}\n{}", found.escape_ascii(), expected.escape_ascii())
        });
        assert!(
            found == expected,
            "{path}: {} elements of {}\n{differing:?}",
            found.len(),
            expected.len()
        );
    }
}

// The same executable serves the original tables and the split ones.
on_each_database!(an_unchanged_host_serves_every_version_of_the_api_from_split_tables);
async fn an_unchanged_host_serves_every_version_of_the_api_from_split_tables(kind: Kind) {
    let whole = Installation::of_diego(&modules::modules(), kind).await;
    let split = Installation::of_diego(&modules::modules_with_split(), kind).await;
    let one = whole.serve();
    let other = split.serve();
    assert_both_list_the_same(&one, &other).await;
    other.stop();
    let status = split.succeed(&["migrate", "status"]);
    assert!(status.contains(&format!("Version    {SPLIT}")), "{status}");
    split.succeed(&["migrate", "down", "--to", "1795000010"]);
    let split = split.set("modules_dir", modules::modules().display().to_string());
    assert_both_list_the_same(&one, &split.serve()).await;
}
