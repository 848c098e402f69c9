//! A host that serves while it migrates: under a load that is aimed at what is being copied, no call fails, nobody
//! reads anything but what was written, and nothing that was acknowledged is lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bbs::database::{Transaction, sql};
use bbs_proto::models as proto;
use tokio::sync::watch;

use crate::api::lrp;
use crate::harness::database::{Kind, TestDatabase, on_each_database, on_each_server, texts};
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::load::Settings;
use crate::harness::load::across::migration;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::modules;
use crate::harness::stored::Stored;

/// From before every desired LRP is decoded, split and sealed again.
const FROM: u64 = 1_698_182_853;
/// Slow enough that most calls come while rows are copied.
const UNITS_PER_SECOND: u64 = 100;
/// For a copy at that rate, and more.
const PATIENCE: Duration = Duration::from_secs(120);

/// A database at the version before, and what the API answers of it.
async fn taken_down(database: TestDatabase) -> (Installation, Model, u64) {
    let installation = Installation::on(database, &modules::modules());
    fixture::write_to(&installation.database).await;
    let host = installation.serve();
    let before = Model::of(&Caller::new(watch::channel(host.url("")).1)).await.unwrap();
    assert!(host.terminate().success());
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let newest = stored.context.migrations.last().unwrap().manifest().version;
    stored.down(FROM).await.unwrap();
    stored.context.database.close().await;
    let installation = installation.set("migration_mode", "online").set("migration_units_per_second", UNITS_PER_SECOND);
    (installation, before, newest)
}

on_each_database!(clients_do_not_notice_a_migration);
async fn clients_do_not_notice_a_migration(kind: Kind) {
    let (installation, before, newest) = taken_down(TestDatabase::new(kind)).await;
    let mut host = installation.serve();
    let settings = Settings { clients: 8, calls_per_second: 100.0, seed: 7 };
    let outcome = migration(&installation, &mut host, before, newest, settings).await;
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}: {:#?}", host.said()));
    let report = &outcome.report;
    assert_eq!((report.failures, report.differences), (0, 0), "{report}\n{:#?}", host.said());
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.began_at.is_some(), "the calls came too late to meet the copy");
    assert!(host.terminate().success());
}

on_each_database!(row_that_a_copy_refuses_ends_the_migration_and_not_the_call);
/// The copies get a constraint that the originals do not have, and a client writes what it forbids.
async fn row_that_a_copy_refuses_ends_the_migration_and_not_the_call(kind: Kind) {
    let (installation, before, newest) = taken_down(TestDatabase::new(kind)).await;
    let database = installation.database.open().await;
    let execute = async |statement: String| {
        let mut tx = database.write().await.unwrap();
        tx.execute(sql(statement.clone())).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
        tx.commit().await.unwrap();
    };
    // Each has its own, so that the copier meets no conflict.
    execute("UPDATE desired_lrps SET log_guid = process_guid".to_owned()).await;
    let installation = installation.set("migration_units_per_second", 20);
    let mut host = installation.serve();
    execute(format!("CREATE UNIQUE INDEX log_guids ON desired_lrps__{newest} (log_guid)")).await;
    let caller = Caller::new(watch::channel(host.url("")).1);
    for guid in ["one", "another"] {
        let lrp = proto::DesiredLrp { log_guid: b"the same".to_vec(), ..lrp(guid) };
        caller.desire(&lrp).await.unwrap_or_else(|fault| panic!("{guid}: {fault}\n{:#?}", host.said()));
    }
    host.wait_for_line(|line| line.contains("the migration ends here"));
    for guid in ["one", "another"] {
        assert_eq!(caller.get(guid.as_bytes()).await.unwrap().unwrap().log_guid, b"the same", "{guid}");
    }
    assert!(host.terminate().success());
    // Without the constraint, everything arrives at the next start.
    let installation = installation.set("migration_units_per_second", 10_000);
    let mut host = installation.serve();
    host.wait_for_line(|line| line.contains("cut over"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    let keys: BTreeSet<_> = everything(&caller).await.unwrap().records.into_keys().collect();
    let expected = before.keys.into_keys().chain(["one", "another"].map(|guid| guid.as_bytes().to_vec()));
    assert!(keys == expected.collect(), "what is there is not what was there and what was desired");
    database.close().await;
    assert!(host.terminate().success());
}

/// Without statistics PostgreSQL takes a list of keys for most of the table, and a table for as small as it was when a
/// statement was prepared.
#[tokio::test(flavor = "multi_thread")]
async fn large_table_without_statistics_is_not_read_whole_for_each_write() {
    let (installation, before, newest) = taken_down(TestDatabase::new(Kind::Postgres)).await;
    let database = installation.database.open().await;
    let mut tx = database.write().await.unwrap();
    // As another migration of many more rows left it, before anything analysed it.
    for statement in [
        "ALTER TABLE bbs_residue SET (autovacuum_enabled = off)",
        "INSERT INTO bbs_residue (unit_digest, table_name, row_digest, version, direction, unit, row_key, digest, sealed) \
         SELECT md5(i::text), 'nowhere', md5(i::text), 1, 'down', i::text, '', '', repeat('x', 100) \
         FROM generate_series(1, 20000) AS i",
    ] {
        tx.execute(sql(statement)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut host = installation.serve();
    let settings = Settings { clients: 8, calls_per_second: 100.0, seed: 7 };
    let outcome = migration(&installation, &mut host, before, newest, settings).await.unwrap();
    assert!(outcome.report.writes.len() > 100, "{}", outcome.report);
    // Counts of a session are there at the latest when it has ended.
    assert!(host.terminate().success());
    let scans = "SELECT seq_scan::text FROM pg_stat_user_tables WHERE relname = 'bbs_residue'";
    let scans: u64 = texts(&database, scans).await[0].parse().unwrap();
    assert!(scans < 20, "bbs_residue was read {scans} times from its beginning to its end");
    database.close().await;
}

on_each_server!(whoever_holds_what_is_cleaned_up_delays_that_and_nothing_else);
/// Two transactions that want the same rows are for the database to settle, and either may be told to come back.
async fn whoever_holds_what_is_cleaned_up_delays_that_and_nothing_else(kind: Kind) {
    let server = match kind {
        Kind::Mysql => kind.own_engine_with(&["--innodb-lock-wait-timeout=1"]),
        _ => kind.own_engine_with(&["-c", "lock_timeout=1s"]),
    };
    let (installation, before, _) = taken_down(TestDatabase::on(kind, server.address())).await;
    let mut host = installation.serve();
    let other = installation.database.open().await;
    let mut holding = other.write().await.unwrap();
    hold_residue(kind, &mut holding).await;
    let began = Instant::now();
    while !host.said().iter().any(|line| line.contains("the clean-up waits")) {
        assert!(began.elapsed() < PATIENCE, "it does not wait: {:#?}", host.said());
        // The server ends transactions in which nothing happens.
        holding.fetch(sql("SELECT 1")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let caller = Caller::new(watch::channel(host.url("")).1);
    assert_eq!(before.differences(&everything(&caller).await.unwrap()), Vec::<String>::new());
    drop(holding);
    while !texts(&other, "SELECT phase FROM bbs_migration").await.is_empty() {
        assert!(began.elapsed() < PATIENCE, "it does not end: {:#?}", host.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept = texts(&other, "SELECT unit FROM bbs_residue WHERE direction = 'down'").await;
    assert_eq!(kept, Vec::<String>::new());
    other.close().await;
    assert!(host.terminate().success());
}

/// What is in the way of removing what the way down kept, but of nothing before.
async fn hold_residue(kind: Kind, tx: &mut Transaction) {
    if kind == Kind::Postgres {
        let rows = tx.fetch(sql("SELECT unit FROM bbs_residue WHERE direction = 'down' FOR UPDATE")).await.unwrap();
        assert!(!rows.is_empty(), "nothing is there to be held");
        return;
    }
    // Rows that are there are also looked at by those who write others of their unit.
    let columns = "table_name, row_digest, version, direction, unit, row_key, digest, sealed";
    let another = format!(
        "INSERT INTO bbs_residue (unit_digest, {columns}) SELECT '0', {columns} FROM bbs_residue \
         WHERE direction = 'down' LIMIT 1"
    );
    assert_eq!(tx.execute(sql(another)).await.unwrap(), 1);
}
