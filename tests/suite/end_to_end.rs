//! End-to-end tests through the executable: a database that Diego's BBS wrote is migrated up,
//! answers as Diego's BBS did, is migrated down to Diego's version and further down than Diego's
//! own migrations can, and up again.

use bbs::testing::database::{Dialect, sql};

use super::api::answers::answers_as_diego_did;
use crate::harness::PATIENCE;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::modules;
use crate::harness::output::refused;
use crate::harness::stored::{Rows, Stored};

async fn rows(installation: &Installation, version: u64) -> Rows {
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let rows = stored.rows(version).await;
    stored.context.database.close().await;
    rows
}

on_each_database!(diego_database_is_migrated_served_taken_back_and_migrated_again);
async fn diego_database_is_migrated_served_taken_back_and_migrated_again(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind).await;
    let original = rows(&installation, VERSION).await;

    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    host.stop();

    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    assert_eq!(rows(&installation, VERSION).await, original);

    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let oldest = rows(&installation, OLDEST).await;
    assert!(
        oldest["desired_lrps"][0]["routes"].starts_with('{'),
        "routes are plain"
    );
    assert!(!oldest["actual_lrps"][0].contains_key("presence"));

    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    host.stop();
}

on_each_database!(lists_are_those_of_diego_during_an_online_migration_and_after_its_cut_over);
async fn lists_are_those_of_diego_during_an_online_migration_and_after_its_cut_over(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules_with_split(), kind)
        .await
        // The modules that are not of the default catalog migrate by copies.
        .set("pin_data_version", NEWEST)
        .set("migration_mode", "online")
        // Slow enough not to end before its rate is raised.
        .set("migration_units_per_second", 1);
    installation.serve().stop();
    let installation = installation.set("pin_data_version", serde_json::Value::Null);
    let mut host = installation.serve();
    answers_as_diego_did(host.address).await;
    assert!(
        !host.output().iter().any(|line| line.contains("cut over")),
        "the migration ended before the calls"
    );
    installation.succeed(&["migrate", "rate", "none"]);
    host.wait_for_line(|line| line.contains("cut over"));
    answers_as_diego_did(host.address).await;
    host.stop();
}

on_each_database!(status_and_plan_describe_database_and_pending_migrations);
async fn status_and_plan_describe_database_and_pending_migrations(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind).await;
    let status = installation.succeed(&["migrate", "status"]);
    for part in [
        "Version    1722634733",
        "Key        key-2024",
        "665 actual_lrps",
        "1772581987",
        "`bbs migrate plan` shows what going to",
    ] {
        assert!(status.contains(part), "{part:?} is not in:\n{status}");
    }
    let plan = installation.succeed(&["migrate", "plan"]);
    for part in [
        "From 1722634733 up to",
        "desired_lrps",
        "in place",
        "Reversible yes",
    ] {
        assert!(plan.contains(part), "{part:?} is not in:\n{plan}");
    }
    let down = installation.succeed(&["migrate", "plan", "--to", &OLDEST.to_string()]);
    assert!(down.contains("copied (300 rows"), "{down}");
    assert_eq!(
        installation.status()["found"]["versioned"]["current"],
        VERSION
    );
}

on_each_database!(database_pinned_below_the_native_version_is_served_unmigrated);
async fn database_pinned_below_the_native_version_is_served_unmigrated(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind)
        .await
        .set("pin_data_version", VERSION);
    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    host.stop();
    let status = installation.succeed(&["migrate", "status"]);
    assert!(
        status.contains(&format!("Version    {VERSION}")),
        "{status}"
    );
}

#[test]
fn missing_database_is_an_error_and_is_not_created() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    for arguments in [
        &["migrate", "status"][..],
        &["migrate", "plan"],
        &["migrate", "down", "--to", "1722634733"],
    ] {
        refused(installation.run(arguments), "there is no database at");
    }
    assert!(!installation.database.path().exists());
}

on_each_database!(command_fails_while_a_host_holds_the_lock);
async fn command_fails_while_a_host_holds_the_lock(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind).await;
    let host = installation.serve();
    let message = refused(
        installation.run(&["migrate", "down", "--to", &VERSION.to_string()]),
        "another host holds the lock of this database: ",
    );
    assert!(
        message.contains(&format!("(pid {} on this machine)", host.pid())),
        "{message}"
    );
    answers_as_diego_did(host.address).await;
}

on_each_database!(host_takes_over_from_a_killed_master);
async fn host_takes_over_from_a_killed_master(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    let master = installation.serve();
    let mut next = Host::begin(installation.command(&["serve"]));
    next.wait_for_line(|line| line.contains("waiting for the lock"));
    master.ping().await;
    master.kill();
    next.wait_for_line(|line| line.contains("serving address="));
}

on_each_database!(host_with_the_lock_reports_progress_until_it_serves);
async fn host_with_the_lock_reports_progress_until_it_serves(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules(), kind).await;
    // A call waits for the takeover for 5 s, and this host for locks for longer.
    let installation = installation.set("lock_ttl", "60s");
    // Another session holds a write lock: the host has to wait before it can migrate.
    let other = match kind {
        Kind::Sqlite => installation.database.open().await,
        _ => installation.database.open_with_idle_limit(PATIENCE).await,
    };
    let mut writing = other.write().await.unwrap();
    match kind.dialect() {
        Dialect::Sqlite => {}
        Dialect::Postgres => drop(
            writing
                .execute(sql("LOCK TABLE configurations"))
                .await
                .unwrap(),
        ),
        Dialect::Mysql => drop(
            writing
                .execute(sql("LOCK TABLES configurations WRITE"))
                .await
                .unwrap(),
        ),
    }

    let mut host = Host::start(installation.command(&["serve"]), "listening");
    let reply = crate::harness::http_client()
        .post(host.url("/v1/desired_lrps/list.r3"))
        .send()
        .await
        .unwrap();
    assert_eq!(reply.status(), 503);
    assert!(reply.headers().contains_key("retry-after"));
    let progress: serde_json::Value =
        serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
    assert!(progress["phase"].is_string(), "{progress}");

    drop(writing);
    other.close().await;
    host.wait_for_line(|line| line.contains("serving"));
    answers_as_diego_did(host.address).await;
}
