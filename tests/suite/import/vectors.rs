//! The vectors of `tests/vectors/etcd.tsv` as stores of both layouts in a real etcd. What each
//! value means is tested beside the decoder, `etcd/record`.

use serde_json::json;

use super::{import, importing, served, stores};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::etcd::Etcd;

/// Path, expiration in seconds, and value of each vector but those of `/version`, which exclude
/// each other.
fn vectors() -> Vec<(String, Option<u64>, String)> {
    let lines = include_str!("../../vectors/etcd.tsv").lines().skip(1);
    let fields = lines.map(|line| line.split('\t').collect::<Vec<_>>());
    let records = fields.filter(|fields| fields[1] != "/version");
    records
        .map(|fields| {
            (
                fields[1].to_owned(),
                fields[2].parse().ok(),
                serde_json::from_str(fields[3]).expect("a text"),
            )
        })
        .collect()
}

async fn store(version: i64) -> Etcd {
    let etcd = Etcd::start().await;
    etcd.put("/version", &stores::version(version, version), None)
        .await;
    for (path, ttl_s, value) in vectors() {
        // A minute is not enough for a slow machine.
        etcd.put(&path, &value, ttl_s.map(|_| 3600)).await;
    }
    etcd
}

fn guids<'a>(guids: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<String> {
    guids
        .into_iter()
        .map(|guid| String::from_utf8_lossy(guid).into_owned())
        .collect()
}

on_each_database!(vectors_are_imported_from_the_split_layout);
async fn vectors_are_imported_from_the_split_layout(kind: Kind) {
    let etcd = store(1_451_635_200).await;
    let installation = importing(kind, &etcd).set("on_unreadable", "quarantine");
    let report = import(&installation);
    let counts = |seen, imported, quarantined, foreign| json!({ "seen": seen, "imported": imported, "expired": 0, "quarantined": quarantined, "foreign": foreign });
    let expected = json!({
        "version": counts(1, 1, 0, 0),
        "domain": counts(3, 3, 0, 0),
        "desired LRP": counts(2, 0, 0, 2),
        "scheduling info": counts(2, 2, 0, 0),
        // One is sealed under a key that is lost.
        "run info": counts(3, 2, 1, 0),
        "actual LRP": counts(3, 3, 0, 0),
        "evacuating actual LRP": counts(1, 1, 0, 0),
        "task": counts(3, 3, 0, 0),
    });
    assert_eq!(report["kinds"], expected);
    assert_eq!(report["permanent_domains"], json!(["/v1/domain/cf-tasks"]));
    let found = served(&installation).await;
    assert_eq!(
        guids(found.desired.iter().map(|lrp| &lrp.process_guid)),
        ["pg-1", "pg-2"]
    );
    assert_eq!(
        guids(found.tasks.iter().map(|task| &task.task_guid)),
        ["t-1", "t-2", "t-3"]
    );
    assert_eq!(found.actual.len(), 4);
    assert_eq!(found.domains, ["cf-apps", "cf-tasks", "forever"]);
}

on_each_database!(vectors_are_imported_from_the_whole_layout);
async fn vectors_are_imported_from_the_whole_layout(kind: Kind) {
    let etcd = store(1_441_411_196).await;
    let installation = importing(kind, &etcd);
    let report = import(&installation);
    for (kind, imported, foreign) in [
        ("desired LRP", 2, 0),
        ("scheduling info", 0, 2),
        ("run info", 0, 3),
        ("task", 3, 0),
    ] {
        let counts = &report["kinds"][kind];
        assert_eq!(
            (&counts["imported"], &counts["foreign"]),
            (&json!(imported), &json!(foreign)),
            "{kind}: {report}"
        );
    }
    let found = served(&installation).await;
    assert_eq!(
        guids(found.desired.iter().map(|lrp| &lrp.process_guid)),
        ["pg-old", "pg-old2"]
    );
}
