//! Online migrations: under a load aimed at the units being copied, no call fails, no read
//! contradicts an acknowledged write, and no acknowledged write is lost.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bbs::testing::database::{Database, Dialect, Transaction, schema, sql};
use bbs::testing::migrate::fault::AFTER_INDEXES;
use bbs_proto::models as proto;
use tokio::sync::watch;

use crate::api::lrp;
use crate::harness::database::{
    Kind, TestDatabase, execute, on_each_database, on_each_server, texts,
};
use crate::harness::fixture::{self, UNSPLIT_TAGS};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::{NEWEST, SPLIT};
use crate::harness::load::Settings;
use crate::harness::load::across::migration;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::packages::Packages;
use crate::harness::stored::Stored;
use crate::harness::{modules, pause, until_async};
use crate::next_diego;

/// Slow enough for most calls to run during the copy.
const UNITS_PER_SECOND: u64 = 50;
/// Far above the time of a copy at that rate.
const PATIENCE: Duration = Duration::from_secs(120);

/// An installation with the fixture.
pub(crate) async fn with_fixture(database: TestDatabase) -> Installation {
    let installation = Installation::on(database, &modules::modules());
    fixture::write_to(&installation.database).await;
    installation
}

/// Migrates a database down to [`UNSPLIT_TAGS`]. Returns its installation as an online one.
pub(crate) async fn taken_down(installation: Installation) -> Installation {
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    stored.down(UNSPLIT_TAGS).await.unwrap();
    stored.context.database.close().await;
    installation
        .set("migration_mode", "online")
        .set("migration_units_per_second", UNITS_PER_SECOND)
}

/// Migrates the fixture up and then down to [`UNSPLIT_TAGS`]. Returns an online installation, and
/// the records as the API returned them at the newest version.
async fn migrated_down(database: TestDatabase) -> (Installation, Model) {
    let installation = with_fixture(database).await;
    let host = installation.serve();
    let before = Model::of(&Caller::new(watch::channel(host.url("")).1))
        .await
        .unwrap();
    assert!(host.terminate().success());
    (taken_down(installation).await, before)
}

on_each_database!(no_call_fails_during_an_online_migration);
async fn no_call_fails_during_an_online_migration(kind: Kind) {
    let (installation, before) = migrated_down(TestDatabase::new(kind)).await;
    let mut host = installation.serve();
    let settings = Settings {
        clients: 8,
        calls_per_second: 100.0,
        seed: 7,
    };
    let outcome = migration(&installation, &mut host, before, NEWEST, settings).await;
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}: {:#?}", host.output()));
    let report = &outcome.report;
    assert_eq!(
        (report.failures, report.differences),
        (0, 0),
        "{report}\n{:#?}",
        host.output()
    );
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(
        outcome.began_at.is_some(),
        "the copy ended before the calls began"
    );
    assert!(host.terminate().success());
}

on_each_database!(row_that_a_copy_rejects_ends_the_migration_but_not_the_call);
/// The copies get a constraint that the originals do not have, and a client writes a row that
/// violates it.
async fn row_that_a_copy_rejects_ends_the_migration_but_not_the_call(kind: Kind) {
    let (installation, before) = migrated_down(TestDatabase::new(kind)).await;
    let database = installation.database.open().await;
    let execute = async |statement: String| {
        let mut tx = database.write().await.unwrap();
        tx.execute(sql(statement.clone()))
            .await
            .unwrap_or_else(|fault| panic!("{statement}: {fault}"));
        tx.commit().await.unwrap();
    };
    // Distinct values, so that the copy itself does not violate the constraint.
    execute("UPDATE desired_lrps SET log_guid = process_guid".to_owned()).await;
    let installation = installation.set("migration_units_per_second", 5);
    let mut host = installation.serve();
    execute(format!(
        "CREATE UNIQUE INDEX log_guids ON desired_lrps__{NEWEST} (log_guid)"
    ))
    .await;
    let caller = Caller::new(watch::channel(host.url("")).1);
    for guid in ["one", "another"] {
        let lrp = proto::DesiredLrp {
            log_guid: b"the same".to_vec(),
            ..lrp(guid)
        };
        caller
            .desire(&lrp)
            .await
            .unwrap_or_else(|fault| panic!("{guid}: {fault}\n{:#?}", host.output()));
    }
    installation.succeed(&["migrate", "rate", "none"]);
    host.wait_for_line(|line| line.contains("the migration failed; the API continues"));
    for guid in ["one", "another"] {
        assert_eq!(
            caller.get(guid.as_bytes()).await.unwrap().unwrap().log_guid,
            b"the same",
            "{guid}"
        );
    }
    assert!(host.terminate().success());
    // The next start recreates the copies without the constraint and completes.
    let installation = installation.set("migration_units_per_second", 10_000);
    let mut host = installation.serve();
    host.wait_for_line(|line| line.contains("cut over"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    let keys: BTreeSet<_> = everything(&caller)
        .await
        .unwrap()
        .records
        .into_keys()
        .collect();
    let expected = before
        .keys
        .into_keys()
        .chain(["one", "another"].map(|guid| guid.as_bytes().to_vec()));
    assert!(
        keys == expected.collect(),
        "the records are not the previous ones and the two desired ones"
    );
    database.close().await;
    assert!(host.terminate().success());
}

on_each_server!(locked_copy_of_a_failed_migration_delays_no_call);
/// Method: a copy loses its rows, so that it does not pass the verification, and another client has
/// read it, so that it cannot be dropped, neither by this host, nor by the next starts, of which one
/// begins the migration anew, and one is of the older release.
async fn locked_copy_of_a_failed_migration_delays_no_call(kind: Kind) {
    let database = TestDatabase::new(kind);
    let older = Installation::on(database.clone(), &modules::modules());
    let older = older.set("migration_lock_timeout", "1s");
    let host = older.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("one")).await.unwrap();
    assert!(host.terminate().success());

    let newer = Installation::on(database, &modules::modules_with_split())
        .set("migration_mode", "online")
        .set("migration_lock_timeout", "10s");
    let mut command = newer.command(&["serve"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_INDEXES}"));
    let mut host = Host::start(command, "serving");
    host.until_stopped().await;
    let client = newer.database.open_with_idle_limit(PATIENCE).await;
    let copy = format!("immutable_desired_lrps__{SPLIT}");
    execute(&client, &format!("DELETE FROM {copy}")).await;
    let mut reading = client.read().await.unwrap();
    let count = sql(format!("SELECT COUNT(*) FROM {copy}"));
    reading.fetch(count).await.unwrap();
    host.signal("CONT");
    host.wait_for_line(|line| line.contains("the migration failed; the API continues"));
    host.wait_for_line(|line| line.contains("another client holds a lock; trying again"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("another")).await.unwrap();
    let gave_up = |line: &str| line.contains("the copies of the failed migration are not removed");
    let has_waited = host.output().iter().any(|line| gave_up(line));
    assert!(!has_waited, "the call has waited for the copies");
    host.wait_for_line(gave_up);
    let found = caller.get(b"one").await.unwrap().unwrap();
    assert_eq!(found.process_guid, b"one");
    assert!(host.terminate().success());

    let serves_another = async |host: &Host| {
        let caller = Caller::new(watch::channel(host.url("")).1);
        let found = caller.get(b"another").await.unwrap().unwrap();
        found.process_guid == b"another"
    };
    let newer = newer.set("migration_lock_timeout", "1s");
    let host = newer.serve();
    assert!(serves_another(&host).await && has_table(&client, &copy).await);
    assert!(host.terminate().success());
    let host = older.serve();
    assert!(serves_another(&host).await && has_table(&client, &copy).await);
    drop(reading);
    until_async(async || !has_table(&client, &copy).await).await;
    client.close().await;
    assert!(host.terminate().success());

    let mut host = newer.serve();
    host.wait_for_line(|line| line.contains("cut over"));
    assert!(serves_another(&host).await);
    assert!(host.terminate().success());
}

async fn has_table(database: &Database, name: &str) -> bool {
    let mut reader = database.read().await.unwrap();
    schema::exists(&mut reader, name).await.unwrap()
}

on_each_server!(call_loses_no_conflict_with_a_change_of_a_copy);
/// Goal: a copy gets its indexes while clients write, and a call that has read rows of it can go on
/// to change them. Method: an index is made and removed again and again while calls write units of
/// the copy.
async fn call_loses_no_conflict_with_a_change_of_a_copy(kind: Kind) {
    const CHANGES: usize = 30;
    const CLIENTS: usize = 6;
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let installation = taken_down(installation).await;
    let database = installation.database.open().await;
    let installation = installation.set("migration_units_per_second", 1);
    let host = installation.serve();
    let copy = format!("desired_lrps__{NEWEST}");
    let dropped = match database.dialect() {
        Dialect::Mysql => format!("DROP INDEX tried ON {copy}"),
        Dialect::Sqlite | Dialect::Postgres => "DROP INDEX tried".to_owned(),
    };
    let changing = tokio::spawn(async move {
        // The host serves before the copies are made.
        while !has_table(&database, &copy).await {
            pause().await;
        }
        for _ in 0..CHANGES {
            execute(&database, &format!("CREATE INDEX tried ON {copy} (domain)")).await;
            execute(&database, &dropped).await;
        }
        database.close().await;
    });
    let is_changing = Arc::new(AtomicBool::new(true));
    let url = watch::channel(host.url("")).1;
    let clients = (0..CLIENTS).map(|client| {
        let caller = Caller::new(url.clone());
        let is_changing = Arc::clone(&is_changing);
        tokio::spawn(async move {
            let mut written = 0;
            while is_changing.load(Ordering::Relaxed) {
                let guid = format!("changing-{client}");
                caller.desire(&lrp(&guid)).await.unwrap();
                caller.remove(guid.as_bytes()).await.unwrap();
                written += 2;
            }
            written
        })
    });
    let clients: Vec<_> = clients.collect();
    changing.await.unwrap();
    is_changing.store(false, Ordering::Relaxed);
    let mut written = 0;
    for client in clients {
        written += client.await.unwrap();
    }
    assert!(written > 0, "no call was made");
    host.signal("TERM");
    let (status, output) = host.wait_for_end();
    let lost: Vec<_> = output
        .lines()
        .filter(|line| line.contains("lost a conflict"))
        .collect();
    assert!(
        status.success() && lost.is_empty(),
        "{status}, {} of {written} calls: {lost:#?}",
        lost.len()
    );
}

/// Without statistics PostgreSQL estimates that a list of keys selects most of the table, and that
/// a table has the size that it had when a statement was prepared; both lead to sequential scans.
#[tokio::test(flavor = "multi_thread")]
async fn large_table_without_statistics_is_not_read_whole_for_each_write() {
    let (installation, before) = migrated_down(TestDatabase::new(Kind::Postgres)).await;
    let database = installation.database.open().await;
    let mut tx = database.write().await.unwrap();
    // The residue of another migration of many rows, without statistics.
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
    let settings = Settings {
        clients: 8,
        calls_per_second: 100.0,
        seed: 7,
    };
    let outcome = migration(&installation, &mut host, before, NEWEST, settings)
        .await
        .unwrap();
    assert!(outcome.report.writes.len() > 100, "{}", outcome.report);
    // A session reports its statistics at the latest when it ends.
    assert!(host.terminate().success());
    let scans = "SELECT seq_scan::text FROM pg_stat_user_tables WHERE relname = 'bbs_residue'";
    let scans: u64 = texts(&database, scans).await[0].parse().unwrap();
    assert!(
        scans < 20,
        "bbs_residue was scanned sequentially {scans} times"
    );
    database.close().await;
}

on_each_database!(no_call_fails_while_migrations_are_inserted_online);
async fn no_call_fails_while_migrations_are_inserted_online(kind: Kind) {
    let database = TestDatabase::new(kind);
    let older = Installation::on(database.clone(), &modules::modules());
    fixture::write_to(&older.database).await;
    next_diego::sort_placement_tags(&older.database).await;
    let host = older.serve();
    let before = Model::of(&Caller::new(watch::channel(host.url("")).1))
        .await
        .unwrap();
    assert!(host.terminate().success());
    let newer = Installation::on(database, &modules::modules_with_next_diego());
    let newer = newer
        .set("migration_mode", "online")
        .set("migration_units_per_second", UNITS_PER_SECOND);
    let mut host = newer.serve();
    let settings = Settings {
        clients: 8,
        calls_per_second: 50.0,
        seed: 9,
    };
    let outcome = migration(&newer, &mut host, before, next_diego::NEWEST, settings).await;
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}: {:#?}", host.output()));
    assert!(
        outcome.began_at.is_some(),
        "the copy ended before the calls began"
    );
    let report = &outcome.report;
    assert_eq!(
        (report.failures, report.differences),
        (0, 0),
        "{report}\n{:#?}",
        host.output()
    );
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(host.terminate().success());
}

on_each_database!(layout_of_an_inserted_migration_is_served_from_the_cut_over_on);
/// Method: what ran last changes nothing. The split of `desired_lrps` is inserted below it, and
/// another migration, which needs the split, comes above.
async fn layout_of_an_inserted_migration_is_served_from_the_cut_over_on(kind: Kind) {
    let packages = Packages::new();
    packages.install("between-splits", &modules::between_splits_add_on());
    let database = TestDatabase::new(kind);
    let older = packages.beside(Installation::on(database.clone(), &modules::modules()));
    let host = older.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("before")).await.unwrap();
    assert!(host.terminate().success());

    let newer = packages.beside(Installation::on(database, &modules::modules_with_split()));
    let newer = newer.set("migration_mode", "online");
    let mut host = newer.serve();
    let end = host
        .wait_for_line(|line| line.contains("cut over") || line.contains("the migration failed"));
    assert!(end.contains("cut over"), "{end}");
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("after")).await.unwrap();
    for guid in ["before", "after"] {
        let found = caller.get(guid.as_bytes()).await.unwrap().unwrap();
        assert_eq!(found.process_guid, guid.as_bytes());
    }
    assert!(host.terminate().success());
    assert_eq!(newer.data_version(), SPLIT);
}

/// An online installation whose copies are complete, and a transaction of another client that has
/// read a table, as a backup does.
async fn with_reader(kind: Kind, lock_timeout: &str) -> (Installation, Database, Transaction) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let installation = taken_down(installation).await;
    let client = installation.database.open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    reading
        .fetch(sql("SELECT COUNT(*) FROM desired_lrps"))
        .await
        .unwrap();
    let installation = installation
        .set("migration_units_per_second", 10_000)
        .set("migration_lock_timeout", lock_timeout);
    (installation, client, reading)
}

on_each_server!(open_reader_of_a_table_delays_the_cut_over_and_no_call);
async fn open_reader_of_a_table_delays_the_cut_over_and_no_call(kind: Kind) {
    let (installation, client, reading) = with_reader(kind, "10m").await;
    let mut host = installation.serve();
    let mut watch = installation
        .command(&["migrate", "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tried = host.wait_for_line(|line| line.contains("another client holds a lock on a table"));
    assert!(
        kind.dialect() == Dialect::Mysql || tried.contains("session "),
        "{tried}"
    );
    let caller = Caller::new(watch::channel(host.url("")).1);
    for guid in ["one", "another"] {
        caller.desire(&lrp(guid)).await.unwrap();
        assert_eq!(
            caller
                .get(guid.as_bytes())
                .await
                .unwrap()
                .unwrap()
                .process_guid,
            guid.as_bytes()
        );
        host.wait_for_new_line(|line| line.contains("another client holds a lock on a table"));
    }
    let mut reports = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(reports.any(|line| line.contains("waits for a lock of") && line.contains(r#""reason":"lock""#)));
    drop(reading);
    client.close().await;
    host.wait_for_line(|line| line.contains("cut over"));
    assert_eq!(
        caller.get(b"another").await.unwrap().unwrap().process_guid,
        b"another"
    );
    drop(reports);
    watch.kill().and_then(|()| watch.wait()).unwrap();
    assert!(host.terminate().success());
}

on_each_server!(cut_over_that_gets_no_lock_is_given_up_with_its_copies);
/// The database is checked all the time: while MySQL has the new version and not the table, a check
/// does not rely on either.
async fn cut_over_that_gets_no_lock_is_given_up_with_its_copies(kind: Kind) {
    let (installation, client, reading) = with_reader(kind, "1s").await;
    let installation = installation
        .set("enable_db_health_check", true)
        .set("health_check_interval", "10ms");
    let mut host = installation.serve();
    host.wait_for_line(|line| line.contains("with the copies"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("beside")).await.unwrap();
    assert!(host.terminate().success());
    drop(reading);
    client.close().await;
    let mut host = installation.serve();
    host.wait_for_line(|line| line.contains("cut over"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    assert_eq!(
        caller.get(b"beside").await.unwrap().unwrap().process_guid,
        b"beside"
    );
    assert!(host.terminate().success());
}

on_each_server!(restart_of_the_server_ends_no_work_in_the_background);
/// Method: the server is restarted during the copy, and during the rotation of keys that follows.
async fn restart_of_the_server_ends_no_work_in_the_background(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_small_to(&database).await;
    let installation = taken_down(Installation::on(database, &modules::modules())).await;
    let keys = serde_json::json!({ "key-2024": "correct horse battery staple", "new": "another passphrase" });
    let installation = installation
        .set("encryption_keys", keys)
        .set("active_key_label", "new")
        .set("migration_units_per_second", 25)
        .set("lock_ttl", "60s");
    let mut host = installation.serve();
    engine.restart();
    host.wait_for_line(|line| line.contains("cut over"));
    host.wait_for_line(|line| line.contains("re-sealing everything"));
    engine.restart();
    host.wait_for_line(|line| line.contains("everything is sealed under the active key"));
    let caller = Caller::new(watch::channel(host.url("")).1);
    caller.desire(&lrp("after")).await.unwrap();
    assert!(host.terminate().success());
}

on_each_server!(lock_on_residue_delays_only_the_clean_up);
/// The clean-up retries after a lock timeout; calls do not wait for it.
async fn lock_on_residue_delays_only_the_clean_up(kind: Kind) {
    let server = match kind.dialect() {
        Dialect::Mysql => kind.own_engine(),
        _ => kind.own_engine_with(&["-c", "lock_timeout=1s"]),
    };
    let (installation, before) = migrated_down(TestDatabase::on(kind, server.address())).await;
    let installation = installation.set("migration_units_per_second", 1);
    let mut host = installation.serve();
    let other = installation.database.open_with_idle_limit(PATIENCE).await;
    let mut holding = other.write().await.unwrap();
    hold_residue(kind, &mut holding).await;
    installation.succeed(&["migrate", "rate", "none"]);
    let began = Instant::now();
    while !host
        .output()
        .iter()
        .any(|line| line.contains("tables that no migration needs any more are not removed yet"))
    {
        assert!(
            began.elapsed() < PATIENCE,
            "the clean-up does not wait: {:#?}",
            host.output()
        );
        // The server ends idle transactions.
        holding.fetch(sql("SELECT 1")).await.unwrap();
        pause().await;
    }
    let caller = Caller::new(watch::channel(host.url("")).1);
    assert_eq!(
        before.differences(&everything(&caller).await.unwrap()),
        Vec::<String>::new()
    );
    drop(holding);
    while !texts(&other, "SELECT phase FROM bbs_migration")
        .await
        .is_empty()
    {
        assert!(
            began.elapsed() < PATIENCE,
            "the migration does not end: {:#?}",
            host.output()
        );
        pause().await;
    }
    let residue = texts(
        &other,
        "SELECT unit FROM bbs_residue WHERE direction = 'down'",
    )
    .await;
    assert_eq!(residue, Vec::<String>::new());
    other.close().await;
    assert!(host.terminate().success());
}

/// Takes a lock that blocks the removal of the residue of the migration down, but no earlier step.
async fn hold_residue(kind: Kind, tx: &mut Transaction) {
    if kind == Kind::Postgres {
        let rows = tx
            .fetch(sql(
                "SELECT unit FROM bbs_residue WHERE direction = 'down' FOR UPDATE",
            ))
            .await
            .unwrap();
        assert!(!rows.is_empty(), "there is no residue to lock");
        return;
    }
    // Existing rows are also locked by writers of other rows of their unit, so an uncommitted new
    // row is used instead.
    let columns = "table_name, row_digest, version, direction, unit, row_key, digest, sealed";
    let another = format!(
        "INSERT INTO bbs_residue (unit_digest, {columns}) SELECT '0', {columns} FROM bbs_residue \
         WHERE direction = 'down' LIMIT 1"
    );
    assert_eq!(tx.execute(sql(another)).await.unwrap(), 1);
}
