//! Migrations with versions below those of this project: Diego's next one, which adds GPUs, and
//! another author's, which sorts placement tags. With both in its catalog, a host takes over a
//! database of Diego's and hands it back, and serves records with columns that it does not know.

use std::collections::BTreeMap;

use bbs::testing::migrate::{self, MigrateError, OnUnreadable};
use bbs_proto::models as proto;

use crate::api::{desire, get, lrp};
use crate::crash::ARCHIVED;
use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::fixture::{self, DIEGOS_NEWEST, VERSION};
use crate::harness::server::{Options, Server};
use crate::harness::stored::{Rows, Stored};
use crate::harness::{layouts, modules};

/// Diego's next version.
pub(crate) const GPU: u64 = 1_789_335_377;
pub(crate) const NEWEST: u64 = 1_795_000_020;
/// The newest version of the default catalog.
const OURS: u64 = layouts::NEWEST;
const TABLE: &str = "desired_lrps";

async fn with_fixture(kind: Kind) -> Stored {
    let migrations = fixture::migrations_in(&modules::modules_with_next_diego());
    Stored::with_small_fixture(kind, migrations).await
}

/// Asserts that every column value is there, but for those of a column.
#[track_caller]
fn assert_kept(now: &Rows, then: &Rows, but: Option<&str>) {
    for (table, rows) in then {
        assert_eq!(now[table].len(), rows.len(), "{table}");
        for (now, then) in now[table].iter().zip(rows) {
            let kept = then.iter().filter(|(name, _)| Some(name.as_str()) != but);
            kept.for_each(|(name, value)| {
                assert_eq!(now[name], *value, "{table}.{name} of {now:?}")
            });
        }
    }
}

/// How many desired LRPs have each text of placement tags.
fn placement_tags(rows: &Rows) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    rows[TABLE]
        .iter()
        .for_each(|row| *counts.entry(row["placement_tags"].as_str()).or_default() += 1);
    counts
}

async fn set_gpus(stored: &Stored, process_guid: &str) {
    let set = format!(
        "UPDATE {TABLE} SET gpu_limit = 2, gpu_type = 'made' WHERE process_guid = '{process_guid}'"
    );
    stored.execute(&set).await;
}

#[track_caller]
fn assert_gpus(rows: &Rows, process_guid: &str) {
    for row in &rows[TABLE] {
        let expected = if row["process_guid"] == process_guid {
            ["2", "made"]
        } else {
            ["0", ""]
        };
        assert_eq!([&row["gpu_limit"], &row["gpu_type"]], expected, "{row:?}");
    }
}

on_each_database!(database_of_diego_is_taken_over_through_them_and_handed_back);
async fn database_of_diego_is_taken_over_through_them_and_handed_back(kind: Kind) {
    let stored = with_fixture(kind).await;
    let original = stored.rows(VERSION).await;
    let guid = original[TABLE][7]["process_guid"].clone();
    stored.up(NEWEST).await.unwrap();
    stored.assert_layout(NEWEST).await;
    let migrated = stored.rows(NEWEST).await;
    assert_kept(&migrated, &original, Some("placement_tags"));
    assert_eq!(
        placement_tags(&original)["null"],
        placement_tags(&migrated)["[]"]
    );
    assert!(!placement_tags(&migrated).contains_key("null"));
    assert_gpus(&migrated, "");

    set_gpus(&stored, &guid).await;
    // To the next release of Diego's BBS, which has GPUs, and to today's.
    stored.down(GPU).await.unwrap();
    stored.assert_layout(GPU).await;
    let handed_back = stored.rows(GPU).await;
    assert_kept(&handed_back, &original, None);
    assert_gpus(&handed_back, &guid);
    stored.down(VERSION).await.unwrap();
    stored.assert_layout(VERSION).await;
    assert_eq!(stored.rows(VERSION).await, original);

    stored.up(NEWEST).await.unwrap();
    assert_gpus(&stored.rows(NEWEST).await, &guid);
}

on_each_database!(columns_that_the_host_does_not_know_keep_their_values_or_get_their_defaults);
async fn columns_that_the_host_does_not_know_keep_their_values_or_get_their_defaults(kind: Kind) {
    let stored = with_fixture(kind).await;
    stored.up(NEWEST).await.unwrap();
    let guid = stored.rows(NEWEST).await[TABLE][7]["process_guid"].clone();
    set_gpus(&stored, &guid).await;
    // Directly, and through a lens.
    for version in [NEWEST, GPU] {
        if version < NEWEST {
            stored.down(version).await.unwrap();
        }
        let migrations = &stored.context.migrations;
        let server = Server::at(
            stored.test_database().clone(),
            migrations,
            version,
            Options::on(kind),
        )
        .await;
        desire(&server, lrp(&format!("new-{version}"))).await;
        let update = proto::DesiredLrpUpdate {
            annotation: Some("updated".into()),
            ..Default::default()
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: guid.clone().into(),
            update: Some(update),
        };
        let reply = server.call("/v1/desired_lrp/update", &request).await;
        assert_eq!(
            reply.message::<proto::DesiredLrpLifecycleResponse>().error,
            None
        );
        assert_eq!(get(&server, &guid).await.annotation, b"updated");
        let rows = stored.rows(version).await;
        assert!(
            rows[TABLE]
                .iter()
                .any(|row| row["process_guid"] == format!("new-{version}"))
        );
        assert_gpus(&rows, &guid);
    }
}

/// Gives all desired LRPs placement tags that the other author's migration leaves as they are.
pub(crate) async fn sort_placement_tags(database: &TestDatabase) {
    let stored = Stored::open(database, fixture::migrations()).await;
    stored
        .execute(&format!(
            "UPDATE {TABLE} SET placement_tags = '[\"a\",\"b\"]'"
        ))
        .await;
    stored.context.database.close().await;
}

/// Migrates as Diego's next release does at its start.
async fn run_diegos_migration(stored: &Stored) {
    for column in [
        "gpu_limit INT NOT NULL DEFAULT 0",
        "gpu_type VARCHAR(255) NOT NULL DEFAULT ''",
    ] {
        stored
            .execute(&format!("ALTER TABLE {TABLE} ADD COLUMN {column}"))
            .await;
    }
    let version = format!("{{\"CurrentVersion\":{GPU},\"TargetVersion\":{GPU}}}");
    stored
        .execute(&format!(
            "UPDATE configurations SET value = '{version}' WHERE id = 'version'"
        ))
        .await;
}

on_each_database!(migrations_are_inserted_below_those_that_ran_and_each_diego_gets_its_rows_back);
async fn migrations_are_inserted_below_those_that_ran_and_each_diego_gets_its_rows_back(
    kind: Kind,
) {
    let stored = with_fixture(kind).await;
    let original = stored.rows(VERSION).await;
    let guid = original[TABLE][7]["process_guid"].clone();
    let ours = Stored::open(stored.test_database(), fixture::migrations()).await;
    ours.up(OURS).await.unwrap();
    ours.execute(ARCHIVED).await;
    ours.execute("INSERT INTO bbs_lrp_updates (process_guid, started_at, cancelled) SELECT process_guid, 3, false FROM desired_lrps").await;
    let before = ours.rows(OURS).await;

    let refused = stored.up(OURS).await.unwrap_err();
    assert!(
        matches!(
            refused,
            MigrateError::Inserted {
                version: GPU,
                current: OURS,
                ..
            }
        ),
        "{refused}"
    );
    let plan = migrate::plan(&stored.context, NEWEST).await.unwrap();
    assert_eq!(
        (plan.inserted, plan.refused),
        (vec![GPU, 1_790_000_000], None)
    );
    stored.up(NEWEST).await.unwrap();
    stored.assert_layout(NEWEST).await;
    let migrated = stored.rows(NEWEST).await;
    assert_kept(&migrated, &before, Some("placement_tags"));
    assert!(!placement_tags(&migrated).contains_key("null"));
    assert_gpus(&migrated, "");
    set_gpus(&stored, &guid).await;

    // To Diego's next release, and to today's, which its next one replaces.
    stored.down(GPU).await.unwrap();
    let handed_back = stored.rows(GPU).await;
    assert_kept(&handed_back, &original, None);
    assert_gpus(&handed_back, &guid);
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.rows(VERSION).await, original);
    stored.up(DIEGOS_NEWEST).await.unwrap();
    run_diegos_migration(&stored).await;
    stored.up(NEWEST).await.unwrap();
    stored.assert_layout(NEWEST).await;
    assert_kept(&stored.rows(NEWEST).await, &before, Some("placement_tags"));

    // To Diego's next release, without a migration to the newest version first.
    stored.down(VERSION).await.unwrap();
    ours.up(OURS).await.unwrap();
    assert_eq!(ours.rows(OURS).await, before);
    stored.down(GPU).await.unwrap();
    stored.assert_layout(GPU).await;
    assert_kept(&stored.rows(GPU).await, &original, None);
    stored.up(NEWEST).await.unwrap();
    assert_kept(&stored.rows(NEWEST).await, &before, Some("placement_tags"));
}

on_each_database!(record_that_an_inserted_migration_refuses_is_handed_back_as_it_was);
async fn record_that_an_inserted_migration_refuses_is_handed_back_as_it_was(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    let guid = stored.rows(VERSION).await[TABLE][7]["process_guid"].clone();
    stored
        .execute(&format!(
            "UPDATE {TABLE} SET placement_tags = '{{not a list' WHERE process_guid = '{guid}'"
        ))
        .await;
    let original = stored.rows(VERSION).await;
    let ours = Stored::open(stored.test_database(), fixture::migrations()).await;
    ours.up(OURS).await.unwrap();
    stored.context.tuning.on_unreadable = OnUnreadable::Quarantine;
    stored.up(NEWEST).await.unwrap();
    let migrated = stored.rows(NEWEST).await;
    assert_eq!(migrated[TABLE].len() + 1, original[TABLE].len());
    assert!(
        migrated[TABLE]
            .iter()
            .all(|row| row["process_guid"] != guid)
    );
    stored.down(GPU).await.unwrap();
    assert_kept(&stored.rows(GPU).await, &original, None);
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.rows(VERSION).await, original);
}
