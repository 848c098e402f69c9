//! The load generator, tested against a host without a migration: it reports no false differences
//! and misses no real one.

use tokio::sync::watch;

use crate::harness::database::Kind;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::{everything, slowly};
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::server::Server;

const SETTINGS: Settings = Settings {
    clients: 4,
    calls_per_second: 400.0,
    seed: 7,
};

fn caller(server: &Server) -> Caller {
    Caller::new(watch::channel(server.url("")).1)
}

async fn all_differences(model: &Model, caller: &Caller) -> Vec<String> {
    let mut found = model.differences(&everything(caller).await.unwrap());
    found.extend(model.differences_of_instances(caller).await.unwrap());
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn host_without_a_migration_answers_as_the_model_expects() {
    let server = Server::with_fixture(Kind::Sqlite).await;
    let caller = caller(&server);
    let before = Model::of(&caller).await.unwrap();
    assert_eq!(before.keys.len(), 300);
    let (finish, finished) = watch::channel(false);
    let slow = tokio::spawn({
        let caller = caller.clone();
        async move { slowly(&caller, finished).await }
    });
    let mut load = Load::start_catching_up(&caller, before.clone(), &Aim::default(), SETTINGS);
    load.calls(400).await;
    finish.send_replace(true);
    let (report, after) = load.stop().await;
    assert_eq!((report.failures, report.differences), (0, 0), "{report}");
    assert!(
        report.reads.len() > 50 && report.writes.len() > 50,
        "{report}"
    );
    assert_eq!(
        after.differences_of_untouched(&slow.await.unwrap().unwrap()),
        Vec::<String>::new()
    );
    assert_eq!(all_differences(&after, &caller).await, Vec::<String>::new());
    assert_ne!(
        before.differences(&everything(&caller).await.unwrap()),
        Vec::<String>::new(),
        "nothing was written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_changed_and_added_records_are_reported_as_differences() {
    let server = Server::empty(Kind::Sqlite).await;
    let caller = caller(&server);
    let mut load = Load::start_catching_up(
        &caller,
        Model::of(&caller).await.unwrap(),
        &Aim::default(),
        SETTINGS,
    );
    load.calls(300).await;
    let (report, model) = load.stop().await;
    assert_eq!((report.failures, report.differences), (0, 0), "{report}");
    assert_eq!(all_differences(&model, &caller).await, Vec::<String>::new());

    for damage in [
        "UPDATE desired_lrps SET annotation = 'x' WHERE process_guid = (SELECT min(process_guid) FROM desired_lrps)",
        "DELETE FROM actual_lrps WHERE process_guid = (SELECT max(process_guid) FROM actual_lrps)",
        "UPDATE desired_lrps SET process_guid = 'x' WHERE process_guid = (SELECT max(process_guid) FROM desired_lrps)",
    ] {
        let before = all_differences(&model, &caller).await.len();
        server.sql(damage).await;
        assert!(
            all_differences(&model, &caller).await.len() > before,
            "{damage}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_fail_are_counted_and_leave_both_outcomes_possible() {
    let server = Server::with_fixture(Kind::Sqlite).await;
    let (address, at) = watch::channel(server.url(""));
    let caller = Caller::new(at);
    let mut load = Load::start_catching_up(
        &caller,
        Model::of(&caller).await.unwrap(),
        &Aim::default(),
        SETTINGS,
    );
    load.calls(100).await;
    address.send_replace("http://127.0.0.1:1".to_owned());
    load.calls(100).await;
    address.send_replace(server.url(""));
    load.calls(100).await;
    let (report, model) = load.stop().await;
    assert!(report.failures > 0);
    assert_eq!(report.differences, 0, "{report}");
    assert_eq!(all_differences(&model, &caller).await, Vec::<String>::new());
}
