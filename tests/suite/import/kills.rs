//! An import that is killed at each of its points, those of a batch at two passages, or drained,
//! and done again: nothing is lost, nothing is there twice, and etcd is marked once everything is
//! durable.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use bbs::testing::migrate::fault::{
    AFTER_CLEAN_UP, AFTER_IMPORT_BATCH, AFTER_MARK, AFTER_MARK_RECORDED, BEFORE_MARK, IMPORT_POINTS,
};
use serde_json::json;

use super::stores::{self, StoreLayout, encoded};
use super::{NEWEST, importing, is_marked, records, served};
use crate::crash::points;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::etcd::Etcd;
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::killed_passages;
use crate::harness::stored::{Rows, Stored};

/// More tasks than one transaction writes.
const TASKS: u32 = 2100;
/// More tasks than the first batch of a migration.
const FEW_TASKS: u32 = 300;
/// Points after which the import is recorded as marked, or where the mark is written.
const AT_THE_MARK: [&str; 2] = [AFTER_MARK, AFTER_MARK_RECORDED];

/// A store with this number of tasks beside its other records, and its version.
async fn store(tasks: u32) -> (Etcd, String) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    etcd.put_all((0..tasks).map(|number| {
        let guid = format!("many-{number:05}");
        (
            format!("/v1/task/{guid}"),
            encoded(&stores::task(&guid, 1, StoreLayout::Milliseconds)),
        )
    }))
    .await;
    let version = etcd.get("/version").await.expect("it was written");
    (etcd, version)
}

/// Runs an import to its end; returns whether it was killed by `fault`.
fn run(installation: &Installation, fault: Option<&str>) -> bool {
    let mut command = installation.command(&["import", "etcd", "--json"]);
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    let output = command.output().expect("the executable starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || output.status.signal() == Some(9),
        "{fault:?}: {text}"
    );
    output.status.signal() == Some(9)
}

/// All rows, without the ids of definitions, which depend on a namespace that each database draws.
async fn rows(installation: &Installation) -> Rows {
    let mut database = Stored::open(&installation.database, fixture::migrations()).await;
    database.context.keyring = Arc::new(stores::keyring());
    let mut rows = database.rows(NEWEST).await;
    for row in rows.values_mut().flatten() {
        row.retain(|column, _| !column.ends_with("definition_id"));
    }
    database.context.database.close().await;
    rows
}

on_each_database!(kill_at_each_point_loses_nothing);
async fn kill_at_each_point_loses_nothing(kind: Kind) {
    let (etcd, version) = store(TASKS).await;
    let before = records(&etcd).await;
    let undisturbed = importing(kind, &etcd);
    assert!(!run(&undisturbed, None));
    let wanted = rows(&undisturbed).await;
    assert_eq!(wanted["tasks"].len(), TASKS as usize + 2);
    for point in IMPORT_POINTS {
        for passage in killed_passages(kind, point) {
            etcd.put("/version", &version, None).await;
            let case = format!("{point}:{passage}");
            let installation = importing(kind, &etcd);
            assert!(
                run(&installation, Some(&case)),
                "{case}: the import does not reach this point"
            );
            let marked = is_marked(&etcd).await;
            assert_eq!(marked, AT_THE_MARK.contains(&point), "{case}");
            if point != AFTER_MARK_RECORDED {
                assert!(!run(&installation, None), "{case}");
            }
            assert!(
                rows(&installation).await == wanted,
                "{case}: differs from an undisturbed import"
            );
            assert!(is_marked(&etcd).await, "{case}");
            assert!(
                records(&etcd).await == before,
                "{case}: the store is changed"
            );
        }
    }
}

on_each_database!(import_killed_at_every_point_in_turn_completes);
/// The points of the migration too, which continues from its checkpoints and reads etcd no more.
async fn import_killed_at_every_point_in_turn_completes(kind: Kind) {
    let (etcd, version) = store(FEW_TASKS).await;
    let undisturbed = importing(kind, &etcd);
    assert!(!run(&undisturbed, None));
    etcd.put("/version", &version, None).await;
    let installation = importing(kind, &etcd);
    let mut killed = 0;
    let of_migration = points(kind).filter(|point| *point != AFTER_CLEAN_UP);
    let points = IMPORT_POINTS[..9]
        .iter()
        .copied()
        .chain(of_migration)
        .chain([BEFORE_MARK]);
    for point in points {
        killed += u32::from(run(&installation, Some(point)));
    }
    assert!(killed > 15, "only {killed} points were reached");
    run(&installation, Some(AFTER_MARK));
    run(&installation, None);
    assert!(rows(&installation).await == rows(&undisturbed).await);
    assert!(is_marked(&etcd).await);
}

/// Method: the import is killed while the database has half of an LRP, sealed under the active key.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_import_begins_anew_after_the_passphrase_is_corrected() {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let alone = encoded(&stores::run_info("alone", StoreLayout::Milliseconds));
    etcd.put("/v1/desired_lrp/run/alone", &alone, None).await;
    let keys = |passphrase: &str| {
        json!({
            "key1": "correct horse battery staple",
            "old-2015": "tr0ub4dor&3",
            "new": passphrase,
        })
    };
    let installation = importing(Kind::Sqlite, &etcd)
        .set("on_unreadable", "quarantine")
        .set("encryption_keys", keys("mistyped"))
        .set("active_key_label", "new");
    assert!(run(&installation, Some(AFTER_IMPORT_BATCH)));
    let installation = installation.set("encryption_keys", keys("corrected"));
    assert_eq!(served(&installation).await.desired.len(), 2);
}

on_each_database!(drain_during_the_import_has_nothing_to_take_back);
/// Method: a host is stopped after its first batch, and gets SIGTERM there.
async fn drain_during_the_import_has_nothing_to_take_back(kind: Kind) {
    let (etcd, version) = store(TASKS).await;
    let installation = importing(kind, &etcd).set("rollback_on_drain_to_version", fixture::VERSION);
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_IMPORT_BATCH}"));
    let host = Host::begin(command);
    host.until_stopped().await;
    host.signal("TERM");
    host.signal("CONT");
    let (status, log) = host.wait_for_end();
    assert!(
        status.success() && log.contains("there is nothing to take back"),
        "{log}"
    );
    assert_eq!(etcd.get("/version").await, Some(version));
    assert!(!run(&installation, None), "the next import begins anew");
    assert!(is_marked(&etcd).await);
}
