//! A host killed at every crash point of a migration while it serves: what was acknowledged before and after is there
//! in the end, and nobody ever read anything else.

use std::sync::Arc;
use std::time::Duration;

use bbs::migrate::fault::{AFTER_BATCH, AFTER_COPY};
use tokio::sync::watch;

use super::{OLDEST, look, points, run, with_fixture};
use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::host::{Host, Installation};
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::{fixture, modules};

const SETTINGS: Settings = Settings { clients: 4, calls_per_second: 100.0, seed: 3 };
/// Slow enough for calls to meet a batch.
const UNITS_PER_SECOND: u64 = 1_000;
const CALLS_AFTER: u64 = 40;

on_each_database!(a_kill_while_serving_costs_nothing);
async fn a_kill_while_serving_costs_nothing(kind: Kind) {
    let start = with_fixture(kind).await;
    assert!(!run("down", OLDEST, &start, None));
    let before = at_rest(&start.copy()).await;
    for point in points(kind) {
        killed_at(point, ["online", "online"], &start, &before).await;
    }
    // What one left, the other finds.
    for point in [AFTER_BATCH, AFTER_COPY] {
        killed_at(point, ["online", "offline"], &start, &before).await;
        killed_at(point, ["offline", "online"], &start, &before).await;
    }
}

async fn killed_at(point: &str, modes: [&str; 2], start: &TestDatabase, before: &Model) {
    let case = format!("{point}, {modes:?}");
    let database = start.copy();
    let [first, second] = modes.map(|mode| {
        let installation = Installation::on(database.clone(), &modules::modules()).set("migration_mode", mode);
        Arc::new(installation.set("migration_units_per_second", UNITS_PER_SECOND))
    });
    let (address, at) = watch::channel("http://127.0.0.1:1".to_owned());
    let caller = Caller::new(at);
    let mut load = Load::start(&caller, before.clone(), &Aim::default(), SETTINGS);
    if let Ok(host) = serve(&first, Some(point)).await {
        address.send_replace(host.url(""));
        tokio::task::spawn_blocking(|| host.wait_for_end()).await.expect("the migration comes by the point");
    }
    let host = serve(&second, None).await.unwrap_or_else(|said| panic!("{case}: {said:#?}"));
    address.send_replace(host.url(""));
    arrival(&database).await;
    load.calls(CALLS_AFTER).await;
    let (report, model) = load.stop().await;
    assert_eq!(report.differences, 0, "{case}: {report}");
    let mut found = model.differences(&everything(&caller).await.unwrap());
    found.extend(model.differences_of_instances(&caller).await.unwrap());
    assert_eq!(found, Vec::<String>::new(), "{case}");
    assert!(host.terminate().success(), "{case}");
    let newest = fixture::migrations().last().expect("there are migrations").manifest().version;
    look(&database, newest).await;
}

/// What the API answers of these records, at whatever version they are.
async fn at_rest(database: &TestDatabase) -> Model {
    let host = Installation::on(database.clone(), &modules::modules());
    let host = serve(&Arc::new(host), None).await.expect("the host serves");
    let model = Model::of(&Caller::new(watch::channel(host.url("")).1)).await.expect("everything can be listed");
    assert!(host.terminate().success());
    model
}

async fn serve(installation: &Arc<Installation>, fault: Option<&str>) -> Result<Host, Vec<String>> {
    let mut command = installation.command(&["serve"]);
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    tokio::task::spawn_blocking(|| Host::try_start(command, "serving")).await.expect("the host is waited for")
}

/// Waits until nothing of a migration is left to do.
async fn arrival(database: &TestDatabase) {
    let opened = database.open().await;
    while texts(&opened, "SELECT id FROM bbs_migration").await != Vec::<String>::new() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    opened.close().await;
}
