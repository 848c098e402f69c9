//! The sections of `host/UPGRADING.md`, one per test, with two catalogs: the older release has the
//! default modules, the newer one has two more, which split `desired_lrps`.

use std::collections::BTreeMap;
use std::path::Path;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::Value;

use crate::api::lrp;
use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::{NEWEST, SPLIT};
use crate::harness::modules;
use crate::harness::output::{errors, refused};
use crate::harness::stored::{Rows, Stored};
use crate::lock::standby;
use crate::next_diego;
use crate::split::{LISTS, listed};

/// The newest version of the older release.
const OLDER: u64 = NEWEST;
/// The newest version of the newer release.
const NEWER: u64 = SPLIT;
/// Units per partial run, fewer than the databases have.
const PART: &str = "30";
/// The place of the desired LRP that is updated.
const UPDATED: usize = 2;
/// The exit code of a partial run.
const INCOMPLETE: i32 = 3;

/// Installations of two releases that share a database.
struct Releases {
    older: Installation,
    newer: Installation,
}

impl Releases {
    /// On a database that Diego's BBS wrote, with a quarter of the fixture.
    async fn on_diego_database(kind: Kind) -> Self {
        Self::with_modules(kind, &modules::modules_with_split()).await
    }

    async fn with_modules(kind: Kind, newer: &Path) -> Self {
        let database = TestDatabase::new(kind);
        fixture::write_small_to(&database).await;
        let install = |modules: &Path| Installation::on(database.clone(), modules);
        Self {
            older: install(&modules::modules()),
            newer: install(newer),
        }
    }

    /// On that database, migrated by the older release.
    async fn on_older_database(kind: Kind) -> Self {
        let releases = Self::on_diego_database(kind).await;
        releases.older.succeed(&["migrate", "up"]);
        releases
    }

    /// The newer release has Diego's next migration below those of the older one.
    async fn with_next_diego(kind: Kind) -> Self {
        let releases = Self::with_modules(kind, &modules::modules_with_next_diego()).await;
        next_diego::sort_placement_tags(&releases.older.database).await;
        releases.older.succeed(&["migrate", "up"]);
        releases
    }

    /// (`CurrentVersion`, `TargetVersion`)
    fn versions(&self) -> (u64, u64) {
        let status = self.newer.status();
        let found = &status["found"]["versioned"];
        (
            found["current"].as_u64().unwrap(),
            found["target"].as_u64().unwrap(),
        )
    }

    async fn rows(&self, version: u64) -> Rows {
        let migrations = fixture::migrations_in(&modules::modules_with_split());
        let stored = Stored::open(&self.older.database, migrations).await;
        stored.assert_layout(version).await;
        let rows = stored.rows(version).await;
        stored.context.database.close().await;
        rows
    }
}

/// Runs a partial migration, which leaves the state of a host that was killed between two batches.
#[track_caller]
fn migrate_a_part(installation: &Installation) {
    let output = installation.run(&["migrate", "up", "--max-count", PART]);
    assert_eq!(
        output.status.code(),
        Some(INCOMPLETE),
        "{}",
        errors(&output)
    );
}

type Lists = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// The lists of every API version.
async fn lists(host: &Host) -> Lists {
    let mut lists = Lists::new();
    for path in LISTS {
        lists.insert(path, listed(host, path).await);
    }
    lists
}

#[track_caller]
fn assert_same_lists(found: &Lists, expected: &Lists) {
    for (path, expected) in expected {
        assert!(
            found[path] == *expected,
            "{path}: {} elements of {}",
            found[path].len(),
            expected.len()
        );
    }
}

async fn post(host: &Host, path: &str, request: &impl Message) {
    let reply = crate::harness::http_client()
        .post(host.url(path))
        .body(request.encode_to_vec())
        .send()
        .await
        .unwrap();
    assert_eq!(reply.status(), 200, "{path}");
    let answer = proto::DesiredLrpLifecycleResponse::decode(reply.bytes().await.unwrap()).unwrap();
    assert_eq!(answer.error, None, "{path}");
}

/// Desires an LRP, and updates and removes LRPs of the fixture.
async fn write(host: &Host, process_guid: &str) {
    let desired = lrp(process_guid);
    post(
        host,
        "/v1/desired_lrp/desire.r2",
        &proto::DesireLrpRequest {
            desired_lrp: Some(desired),
        },
    )
    .await;
    let guids: Vec<_> = fixture::small_rows("desired_lrps")
        .iter()
        .map(|row| row["process_guid"].clone())
        .collect();
    let guid = |at: usize| guids[at].as_str().unwrap().as_bytes().to_vec();
    let update = proto::DesiredLrpUpdate {
        annotation: Some(process_guid.into()),
        ..Default::default()
    };
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: guid(UPDATED),
        update: Some(update),
    };
    post(host, "/v1/desired_lrp/update", &request).await;
    let last = guids.len() - 1;
    let removed = proto::RemoveDesiredLrpRequest {
        process_guid: guid(last - usize::from(process_guid == "second")),
    };
    post(host, "/v1/desired_lrp/remove", &removed).await;
}

// Section "From Diego's BBS and back".
on_each_database!(diego_database_is_examined_taken_over_and_handed_back);
async fn diego_database_is_examined_taken_over_and_handed_back(kind: Kind) {
    let releases = Releases::on_diego_database(kind).await;
    let host = &releases.older;
    let original = releases.rows(VERSION).await;

    let status = host.succeed(&["migrate", "status"]);
    assert!(status.contains(&VERSION.to_string()), "{status}");
    host.succeed(&["migrate", "plan"]);
    host.succeed(&["migrate", "plan", "--check"]);
    assert_eq!(releases.versions(), (VERSION, VERSION));
    assert_eq!(
        releases.rows(VERSION).await,
        original,
        "a read-only command changed rows"
    );

    let serving = host.serve();
    write(&serving, "first").await;
    assert!(serving.terminate().success());
    assert_eq!(releases.versions(), (OLDER, OLDER));

    host.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(releases.versions(), (VERSION, VERSION));
    let returned = releases.rows(VERSION).await;
    assert_eq!(
        (returned["tasks"].as_slice(), &returned["domains"]),
        (&*original["tasks"], &original["domains"])
    );
    let before = &original["desired_lrps"];
    let [updated, removed] = [UPDATED, before.len() - 1].map(|at| &before[at]["process_guid"]);
    let untouched = |rows: &Rows, table: &str| -> Vec<_> {
        rows[table]
            .iter()
            .filter(|row| !["first", updated, removed].contains(&row["process_guid"].as_str()))
            .cloned()
            .collect()
    };
    for table in ["desired_lrps", "actual_lrps"] {
        assert_eq!(
            untouched(&returned, table),
            untouched(&original, table),
            "{table}"
        );
    }
    let after = |guid: &str| {
        let mut rows = returned["desired_lrps"].iter();
        rows.find(|row| row["process_guid"] == guid)
    };
    assert!(
        after("first").is_some(),
        "the new LRP is migrated down, too"
    );
    assert_eq!(after(updated).unwrap()["annotation"], "first");
    assert_eq!(after(removed), None);

    let serving = host.serve();
    write(&serving, "second").await;
}

// Section "From one release to the next": the standby of the newer release follows the master of
// the older one.
on_each_database!(newer_standby_takes_over_from_the_older_master_and_goes_back_when_drained);
async fn newer_standby_takes_over_from_the_older_master_and_goes_back_when_drained(kind: Kind) {
    let Releases { older, newer } = Releases::on_older_database(kind).await;
    let newer = newer.set("rollback_on_drain_to_version", OLDER);
    let master = older.serve();
    write(&master, "first").await;
    let expected = lists(&master).await;
    let next = standby(&newer);
    assert!(master.terminate().success());
    let master = next.await.unwrap();
    assert_same_lists(&lists(&master).await, &expected);

    write(&master, "second").await;
    let expected = lists(&master).await;
    let next = standby(&older);
    assert!(
        master.terminate().success(),
        "the drain migrates the database down"
    );
    let master = next.await.unwrap();
    assert_same_lists(&lists(&master).await, &expected);
    assert!(master.terminate().success());
    assert_eq!(Releases { older, newer }.versions(), (OLDER, OLDER));
}

// Section "An unfinished migration": the older release serves, and its writes are migrated
// afterwards.
on_each_database!(older_host_serves_a_database_that_a_newer_one_has_half_migrated);
async fn older_host_serves_a_database_that_a_newer_one_has_half_migrated(kind: Kind) {
    let releases = Releases::on_older_database(kind).await;
    migrate_a_part(&releases.newer);
    assert_eq!(releases.versions(), (OLDER, NEWER));
    let host = releases.older.serve();
    write(&host, "first").await;
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    let host = releases.newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert!(host.terminate().success());
    assert_eq!(releases.versions(), (NEWER, NEWER));
}

// The same section, from Diego's version: neither release can serve before it has migrated.
on_each_database!(older_host_completes_its_own_part_of_a_migration_that_a_newer_one_began);
async fn older_host_completes_its_own_part_of_a_migration_that_a_newer_one_began(kind: Kind) {
    let releases = Releases::on_diego_database(kind).await;
    let original = releases.rows(VERSION).await;
    migrate_a_part(&releases.newer);
    assert_eq!(releases.versions(), (VERSION, NEWER));
    let host = releases.older.serve();
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    assert_eq!(releases.versions(), (OLDER, OLDER));
    let host = releases.newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert!(host.terminate().success());
    releases
        .newer
        .succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(releases.rows(VERSION).await, original);
}

on_each_database!(newer_host_completes_a_migration_that_an_older_one_has_half_done);
async fn newer_host_completes_a_migration_that_an_older_one_has_half_done(kind: Kind) {
    let releases = Releases::on_diego_database(kind).await;
    releases
        .older
        .succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    migrate_a_part(&releases.older);
    assert_eq!(releases.versions(), (OLDEST, OLDER));
    let host = releases.newer.serve();
    let found = lists(&host).await;
    assert!(host.terminate().success());
    assert_eq!(releases.versions(), (NEWER, NEWER));
    let undisturbed = Releases::on_older_database(kind).await;
    assert_same_lists(&found, &lists(&undisturbed.older.serve()).await);
}

// Section "Going back": a host that is too old names the command to run and writes nothing.
on_each_database!(older_host_refuses_a_migrated_database_until_it_is_taken_back);
async fn older_host_refuses_a_migrated_database_until_it_is_taken_back(kind: Kind) {
    let releases = Releases::on_older_database(kind).await;
    let host = releases.newer.serve();
    write(&host, "first").await;
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    let migrated = releases.rows(NEWER).await;

    let advice = format!("bbs migrate down --to {OLDER}");
    refused(releases.older.run(&["serve"]), &advice);
    assert_eq!(releases.rows(NEWER).await, migrated);

    releases
        .newer
        .succeed(&["migrate", "down", "--to", &OLDER.to_string()]);
    let host = releases.older.serve();
    assert_same_lists(&lists(&host).await, &expected);
}

// Section "Rolling hosts and pins": both releases alternate as master, and nothing is migrated
// until the pin is removed.
on_each_database!(pinned_newer_host_and_older_host_take_turns_until_the_pin_is_removed);
async fn pinned_newer_host_and_older_host_take_turns_until_the_pin_is_removed(kind: Kind) {
    let Releases { older, newer } = Releases::on_older_database(kind).await;
    let newer = newer.set("pin_data_version", OLDER);
    let host = newer.serve();
    write(&host, "first").await;
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    let host = older.serve();
    assert_same_lists(&lists(&host).await, &expected);
    write(&host, "second").await;
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    let host = newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert!(host.terminate().success());
    let releases = Releases {
        older,
        newer: newer.set("pin_data_version", Value::Null),
    };
    assert_eq!(releases.versions(), (OLDER, OLDER));
    let host = releases.newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert!(host.terminate().success());
    assert_eq!(releases.versions(), (NEWER, NEWER));
}

// Section "A migration below those that ran".
on_each_database!(hosts_share_a_database_until_inserted_migrations_are_complete);
async fn hosts_share_a_database_until_inserted_migrations_are_complete(kind: Kind) {
    let Releases { older, newer } = Releases::with_next_diego(kind).await;
    let releases = Releases {
        older,
        newer: newer.set("rollback_on_drain_to_version", next_diego::GPU),
    };
    migrate_a_part(&releases.newer);
    assert_eq!(releases.versions(), (OLDER, next_diego::NEWEST));
    let host = releases.older.serve();
    write(&host, "first").await;
    let expected = lists(&host).await;
    assert!(host.terminate().success());
    let host = releases.newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert_eq!(
        releases.versions(),
        (next_diego::NEWEST, next_diego::NEWEST)
    );
    assert!(host.terminate().success());
    assert_eq!(
        releases.versions().0,
        next_diego::GPU,
        "the drain hands the database to Diego's next release"
    );
    refused(releases.older.run(&["serve"]), &next_diego::GPU.to_string());
    // It stays there, and is served through the lens.
    let host = releases.newer.serve();
    assert_same_lists(&lists(&host).await, &expected);
    assert!(host.terminate().success());
    assert_eq!(releases.versions().0, next_diego::GPU);
    releases
        .newer
        .succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    let host = releases.older.serve();
    assert_same_lists(&lists(&host).await, &expected);
}

on_each_database!(pinned_host_names_the_inserted_migration_that_its_version_does_not_have);
async fn pinned_host_names_the_inserted_migration_that_its_version_does_not_have(kind: Kind) {
    let Releases { older, newer } = Releases::with_next_diego(kind).await;
    let releases = Releases {
        older,
        newer: newer.set("pin_data_version", OLDER),
    };
    refused(releases.newer.run(&["serve"]), "1789335377");
    let plan =
        releases
            .newer
            .succeed(&["migrate", "plan", "--to", &next_diego::NEWEST.to_string()]);
    assert!(plan.contains("Inserted   1789335377-"), "{plan}");
    assert_eq!(releases.versions(), (OLDER, OLDER));
}
