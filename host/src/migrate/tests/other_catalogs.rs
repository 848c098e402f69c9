//! Commands that change the quarantine, with a catalog that lacks a module which ran on the
//! database, or has another in its place.

use std::sync::Arc;

use super::migrations::{NativeMigration, all, none};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::{
    Context, MigrateError, OnUnreadable, SealedValues, Tuning, WriteMode, delete_quarantined,
    export_quarantined, import_quarantined, quarantined, retry,
};

const UNIT: &str = "app-00003";

/// A database at version 5, with a unit in quarantine whose instances and residue are there.
async fn with_residue_of_a_unit() -> TestEngine {
    let world = TestEngine::with_rows(6).await.tuned(Tuning {
        on_unreadable: OnUnreadable::Quarantine,
        ..Tuning::default()
    });
    world.up(5).await.unwrap();
    let update = format!("UPDATE desired_lrps SET strategy = 7 WHERE guid = '{UNIT}'");
    world.execute(&update).await;
    world.down(3).await.unwrap();
    world.set_run_info(UNIT, "no such thing").await;
    world.up(5).await.unwrap();
    world
}

/// The errors of all commands, none of which changes anything.
async fn refusals(world: &TestEngine, other: &Context) -> [MigrateError; 3] {
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let mode = WriteMode::Real;
    let units = [UNIT.to_owned()];
    let documents = export_quarantined(&world.context, UNIT, SealedValues::Kept).await;
    let entries = quarantined(&world.context).await.unwrap();
    let residue = world.count("bbs_residue").await;
    assert!(residue > 0);
    let deleted = delete_quarantined(other, &fence, &units, mode).await;
    let imported = import_quarantined(other, &fence, &documents.unwrap(), mode).await;
    let retried = retry(other, &fence, &units, None, mode).await;
    assert_eq!(quarantined(&world.context).await.unwrap(), entries);
    assert_eq!(world.count("bbs_residue").await, residue);
    [
        deleted.unwrap_err(),
        imported.unwrap_err(),
        retried.unwrap_err(),
    ]
}

#[tokio::test]
async fn quarantine_is_not_changed_with_a_catalog_without_the_version_of_the_database() {
    let world = with_residue_of_a_unit().await;
    let mut older = world.context.clone();
    older.migrations.truncate(4);
    for error in refusals(&world, &older).await {
        assert!(
            matches!(error, MigrateError::UnknownVersion { version: 5 }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn quarantine_is_not_changed_with_another_module_than_the_one_that_ran() {
    let world = with_residue_of_a_unit().await;
    let mut other = world.context.clone();
    other.migrations[4] = Arc::new(NativeMigration {
        manifest: all()[4].manifest().clone(),
        digest: "other".to_owned(),
        function: none,
    });
    for error in refusals(&world, &other).await {
        assert!(
            matches!(error, MigrateError::DigestChanged { version: 5, .. }),
            "{error}"
        );
    }
}
