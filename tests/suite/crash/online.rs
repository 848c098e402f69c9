//! A host killed at every crash point of an online migration: all acknowledged writes are in the
//! final state, and no read contradicts them.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use bbs::testing::migrate::fault::{
    AFTER_BATCH, AFTER_COPY, AFTER_CUT_OVER, BEFORE_CUT_OVER_COMMIT, ONLINE_POINTS,
};
use tokio::sync::watch;

use super::{ARCHIVED, OLDEST, complete, inspect, points_of_variant, with_fixture};
use crate::harness::database::{Kind, TestDatabase, execute, on_each_database, texts};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::{fixture, has_all_rounds, modules, until_async};

const SETTINGS: Settings = Settings {
    clients: 4,
    calls_per_second: 50.0,
    seed: 3,
};
/// Slow enough for calls to run during a batch.
const UNITS_PER_SECOND: u64 = 125;
const CALLS_AFTER: u64 = 40;

on_each_database!(kill_at_any_point_of_an_online_migration_loses_nothing);
/// The change of modes does not depend on the database: servers have it in `tests/run --all` alone.
async fn kill_at_any_point_of_an_online_migration_loses_nothing(kind: Kind) {
    let start = with_fixture(kind).await;
    // Generates the ids of definitions, which differ for each database otherwise.
    complete("up", NEWEST, &start).await;
    let opened = start.open().await;
    execute(&opened, ARCHIVED).await;
    opened.close().await;
    complete("down", OLDEST, &start).await;
    let before = at_rest(&start.copy()).await;
    for point in points_of_variant(kind).chain(ONLINE_POINTS) {
        interrupted(point, ["online", "online"], &start, &before).await;
    }
    if !has_all_rounds(kind) {
        return;
    }
    // Each mode resumes a migration of the other one.
    for point in [AFTER_BATCH, AFTER_COPY] {
        interrupted(point, ["online", "offline"], &start, &before).await;
        interrupted(point, ["offline", "online"], &start, &before).await;
    }
}

on_each_database!(signal_during_the_cut_over_loses_no_write);
/// The host is stopped while calls wait for its cut-over, gets a signal to end, and is continued:
/// the tables that these calls would read and write may be replaced.
async fn signal_during_the_cut_over_loses_no_write(kind: Kind) {
    let start = with_fixture(kind).await;
    let before = at_rest(&start.copy()).await;
    for point in [BEFORE_CUT_OVER_COMMIT, AFTER_CUT_OVER] {
        let stop = format!("stop:{point}");
        interrupted(&stop, ["online", "online"], &start, &before).await;
    }
}

async fn interrupted(fault: &str, modes: [&str; 2], start: &TestDatabase, before: &Model) {
    let case = format!("{fault}, {modes:?}");
    let database = start.copy();
    let [first, second] = modes.map(|mode| {
        let installation =
            Installation::on(database.clone(), &modules::modules()).set("migration_mode", mode);
        Arc::new(installation.set("migration_units_per_second", UNITS_PER_SECOND))
    });
    let (address, at) = watch::channel("http://127.0.0.1:1".to_owned());
    let caller = Caller::new(at);
    let mut load = Load::start(&caller, before.clone(), &Aim::default(), SETTINGS);
    if let Ok(host) = serve(&first, Some(fault)).await {
        address.send_replace(host.url(""));
        if fault.starts_with("stop:") {
            host.until_stopped().await;
            host.signal("TERM");
            host.signal("CONT");
        }
        let ended = tokio::task::spawn_blocking(|| host.wait_for_end()).await;
        let (status, output) = ended.expect("the migration reaches the point");
        assert!(
            fault.starts_with("stop:") || status.signal() == Some(9),
            "{case}: the host ended by itself, {status}: {output}"
        );
    }
    let host = serve(&second, None)
        .await
        .unwrap_or_else(|output| panic!("{case}: {output:#?}"));
    address.send_replace(host.url(""));
    completion(&database).await;
    load.calls(CALLS_AFTER).await;
    let (report, model) = load.stop().await;
    assert_eq!(report.differences, 0, "{case}: {report}");
    let mut found = model.differences(&everything(&caller).await.unwrap());
    found.extend(model.differences_of_instances(&caller).await.unwrap());
    assert_eq!(found, Vec::<String>::new(), "{case}");
    assert!(host.terminate().success(), "{case}");
    let newest = fixture::migrations()
        .last()
        .expect("there are migrations")
        .manifest()
        .version;
    inspect(&database, newest).await;
}

/// The records as the API returns them, after an offline migration.
async fn at_rest(database: &TestDatabase) -> Model {
    let host = Installation::on(database.clone(), &modules::modules());
    let host = serve(&Arc::new(host), None).await.expect("the host serves");
    let model = Model::of(&Caller::new(watch::channel(host.url("")).1))
        .await
        .expect("the list succeeds");
    assert!(host.terminate().success());
    model
}

async fn serve(installation: &Arc<Installation>, fault: Option<&str>) -> Result<Host, Vec<String>> {
    let mut command = installation.command(&["serve"]);
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    tokio::task::spawn_blocking(|| Host::try_start(command, "serving"))
        .await
        .expect("no panic")
}

/// Waits until the migration is complete, including the clean-up.
pub(crate) async fn completion(database: &TestDatabase) {
    let opened = database.open().await;
    until_async(async || {
        let migrations = texts(&opened, "SELECT id FROM bbs_migration").await;
        migrations.is_empty()
    })
    .await;
    opened.close().await;
}
