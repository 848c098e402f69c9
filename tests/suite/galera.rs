//! A host on a Galera cluster: connections are distributed over the nodes, and nodes crash and
//! rejoin. The servers are MariaDB's, and answer as Percona's where not said otherwise.

mod partitions;

use std::sync::Arc;

use bbs::testing::database::{SqlError, sql};
use bbs::testing::lock::fence::{Fence, FenceError};
use bbs::testing::migrate::online::{self, Start};
use bbs::testing::migrate::{Context, Intent, fault};
use bbs_lens::layout::schema::Sealing;
use sqlx::mysql::MySqlDatabaseError;
use tokio::sync::{OnceCell, watch};

use super::crash::{SHARE, command, inspect, migrate_to_newest, run};
use super::faults::frozen_at;
use crate::harness::PATIENCE;
use crate::harness::database::{Kind, TestDatabase, execute, texts};
use crate::harness::fixture::{self, OLDEST};
use crate::harness::galera::{Cluster, WholeCluster};
use crate::harness::host::{Installation, signal};
use crate::harness::layouts::NEWEST;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::modules;
use crate::harness::proxy::Proxy;
use crate::harness::stored::{Rows, Stored};

const SETTINGS: Settings = Settings {
    clients: 4,
    calls_per_second: 50.0,
    seed: 11,
};

/// The rows after an uninterrupted migration down on a single server. They do not depend on the ids
/// that a migration up generates.
async fn oldest_rows() -> &'static Rows {
    static ROWS: OnceCell<Rows> = OnceCell::const_new();
    ROWS.get_or_init(|| async {
        let database = TestDatabase::new(Kind::Mariadb);
        fixture::write_share_to(&database, SHARE).await;
        migrate_to_newest(&database).await;
        assert!(!run("down", OLDEST, &database, None));
        inspect(&database, OLDEST).await
    })
    .await
}

/// A share of the fixture on the cluster, at the newest version.
async fn at_newest(cluster: &Cluster) -> TestDatabase {
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    migrate_to_newest(&database).await;
    database
}

/// Asserts that a transaction lost a conflict with one of another node, and not its session.
#[track_caller]
fn assert_conflict(ended: Result<(), SqlError>) {
    const DEADLOCK: u16 = 1213;
    let error = ended.expect_err("the transaction of the other node was before");
    let number = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number);
    assert_eq!(number, Some(DEADLOCK), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_raised_through_one_node_stops_a_master_on_another() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let here = database.through(cluster.mariadb_node(0));
    let one = here.open_with_idle_limit(PATIENCE).await;
    let other = database.through(cluster.node(1)).open().await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut open = Vec::new();
    for number in 0..3 {
        let mut tx = old
            .begin()
            .await
            .expect("transactions of one master do not block each other");
        tx.execute(sql("INSERT INTO t (a) VALUES (?)").bind(number))
            .await
            .unwrap();
        open.push(tx);
    }
    open.pop().expect("one of them").commit().await.unwrap();
    let new = Fence::raise(&other).await.unwrap();
    for mut tx in open {
        let ended = async {
            tx.execute(sql("SELECT 1")).await?;
            tx.commit().await
        };
        assert_conflict(ended.await);
    }
    assert!(
        matches!(old.begin().await.unwrap_err(), FenceError::Lost { theirs, .. } if theirs == new.token())
    );
    new.begin().await.unwrap().commit().await.unwrap();
    assert_eq!(texts(&one, "SELECT a FROM t").await, ["2"]);
}

/// Goal: no statement that changes the schema takes long in a cluster, where all commits wait for
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn copies_have_their_indexes_before_they_are_filled() {
    let cluster = Cluster::shared();
    let database = at_newest(&cluster).await;
    assert!(
        run("down", OLDEST, &database, Some(fault::AFTER_PREPARE)),
        "it is killed"
    );
    let opened = database.open().await;
    let query = "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() \
         AND INSTR(table_name, '__') > 0 AND index_name <> 'PRIMARY'";
    assert!(!texts(&opened, query).await.is_empty());
    opened.close().await;
    assert!(!run("down", OLDEST, &database, None));
    assert!(inspect(&database, OLDEST).await == *oldest_rows().await);
}

/// Goal: no transaction is larger than what a cluster replicates at once. Method: an abandoned
/// migration has left three times as much.
#[tokio::test(flavor = "multi_thread")]
async fn removal_of_an_abandoned_migration_fits_into_write_sets() {
    const BEFORE: u64 = 1_529_530_809;
    const ROWS: usize = 24;
    let cluster = Cluster::shared();
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    stored.down(BEFORE).await.unwrap();
    for number in 0..ROWS {
        stored
            .execute(&format!(
                "INSERT INTO bbs_residue (unit_digest, table_name, row_digest, direction, unit, row_key, digest, \
                 sealed, version) VALUES ('{number:064}', 'tasks', '0', 'up', 'u', '', '', REPEAT('s', 1048576), 1)"
            ))
            .await;
    }
    let mut whole = stored.context.database.write().await.unwrap();
    let left = "DELETE FROM bbs_residue WHERE direction = 'up'";
    let refused = async {
        whole.execute(sql(left)).await?;
        whole.commit().await
    };
    refused.await.expect_err("it is larger than a write set");
    stored.up(fixture::VERSION).await.unwrap();
    let query = "SELECT COUNT(*) FROM bbs_residue WHERE direction = 'up'";
    assert_eq!(texts(&stored.context.database, query).await, ["0"]);
    stored.context.database.close().await;
}

/// Goal: a node that would rewrite a table to add a column refuses, since all commits of the
/// cluster would wait for it. Method: a compressed table, which no server changes at once; an
/// operator then adds the column.
#[tokio::test(flavor = "multi_thread")]
async fn column_that_is_not_added_at_once_is_left_to_the_operator() {
    const BEFORE_ZONE: u64 = 1_686_692_176;
    const WITH_ZONE: u64 = 1_698_182_853;
    let cluster = Cluster::whole();
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let down_without_residue = async || {
        stored.down(BEFORE_ZONE).await.unwrap();
        // Otherwise the table is copied, to give the values back.
        stored.execute("DELETE FROM bbs_residue").await;
    };
    down_without_residue().await;
    stored.up(WITH_ZONE).await.unwrap();
    stored.assert_layout(WITH_ZONE).await;

    down_without_residue().await;
    stored
        .execute("ALTER TABLE actual_lrps ROW_FORMAT = COMPRESSED")
        .await;
    let add =
        "ALTER TABLE `actual_lrps` ADD COLUMN `availability_zone` VARCHAR(255) NOT NULL DEFAULT ''";
    let refusal = modules::chain(&stored.up(WITH_ZONE).await.unwrap_err());
    assert!(
        refusal.contains("does not change table actual_lrps at once"),
        "{refusal}"
    );
    assert!(
        refusal.contains(&format!("{add}, ALGORITHM=INSTANT")),
        "{refusal}"
    );
    assert_eq!(stored.version().await, BEFORE_ZONE);

    stored.execute(add).await;
    stored.up(WITH_ZONE).await.unwrap();
    stored.assert_layout(WITH_ZONE).await;
    stored.context.database.close().await;
}

/// Goal: a unit that a command puts back, or removes, while a migration begins is not one that the
/// migration has missed. Method: a transaction that writes the version, as the one of a migration
/// that begins, is open on another node.
#[tokio::test(flavor = "multi_thread")]
async fn quarantine_command_and_migration_that_begins_on_another_node_do_not_both_commit() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    let opened = database.open().await;
    let units = texts(&opened, "SELECT MIN(process_guid) FROM desired_lrps").await;
    let unit = &units[0];
    let unreadable = fixture::keyring().seal(Sealing::Enveloped, b"\x0a\x05");
    let unreadable = String::from_utf8(unreadable).unwrap();
    let damage = format!("UPDATE desired_lrps SET run_info = '{unreadable}'");
    execute(&opened, &format!("{damage} WHERE process_guid = '{unit}'")).await;
    opened.close().await;
    let here = database.through(cluster.node(0));
    let installation = Installation::on(here, &modules::modules_with_split());
    installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);

    let there = database.through(cluster.node(1));
    let elsewhere = there.open_with_idle_limit(PATIENCE).await;
    let fence = Fence::of_master(&elsewhere).await.unwrap();
    // Has the row of the fence that the command changes, too.
    let first = fence.begin().await.unwrap();
    let mut begins = fence.begin().await.unwrap();
    drop(first);
    let begun = "UPDATE configurations SET value = CONCAT(value, ' ') WHERE id = 'version'";
    begins.execute(sql(begun)).await.unwrap();
    installation.succeed(&["migrate", "quarantine", "delete", unit, "--yes"]);
    assert_conflict(begins.commit().await);
    let version = "SELECT CONCAT(value, '.') FROM configurations WHERE id = 'version'";
    let version = texts(&elsewhere, version).await.remove(0);
    assert!(version.ends_with("}."), "{version}");
    elsewhere.close().await;
}

/// Goal: as above, for a migration that was given up and begins again: it writes the version as it
/// finds it. Method: a transaction that locks the version, as the one of a command, is open on
/// another node.
#[tokio::test(flavor = "multi_thread")]
async fn migration_that_begins_again_and_quarantine_command_on_another_node_do_not_both_commit() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    // The second start serves the version found, and gives the migration up.
    for wanted in [NEWEST, fixture::VERSION] {
        let started = online::start(&stored.context, &fence, Intent::Up { wanted }).await;
        started.unwrap();
    }

    let there = database.through(cluster.node(1));
    let elsewhere = there.open_with_idle_limit(PATIENCE).await;
    let version = "SELECT CONCAT(value, '.') FROM configurations WHERE id = 'version'";
    let recorded = texts(&elsewhere, version).await;
    // Without a row of the fence, over which the two might conflict, too.
    let mut command = elsewhere.write().await.unwrap();
    for value in ["CONCAT(value, ' ')", "RTRIM(value)"] {
        let lock = format!("UPDATE configurations SET value = {value} WHERE id = 'version'");
        command.execute(sql(lock)).await.unwrap();
    }
    let intent = Intent::Up { wanted: NEWEST };
    let started = online::start(&stored.context, &fence, intent).await;
    let started = started.unwrap();
    assert!(matches!(started, Start::Follow(_)), "{started:?}");
    assert_conflict(command.commit().await);
    assert_eq!(texts(&elsewhere, version).await, recorded);
    elsewhere.close().await;
    stored.context.database.close().await;
}

/// Goal: a cut-over whose connection is lost does not commit once the host has found that its
/// version has not arrived, and goes on with the original tables. Method: a transaction that writes
/// the record of the migration, as the one of a cut-over, is open on another node.
#[tokio::test(flavor = "multi_thread")]
async fn cut_over_on_another_node_does_not_commit_once_its_version_is_known_not_to_have_arrived() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    fixture::write_share_to(&database, SHARE).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let intent = Intent::Up { wanted: NEWEST };
    let Start::Follow(online) = online::start(&stored.context, &fence, intent)
        .await
        .unwrap()
    else {
        panic!("there is nothing to migrate")
    };

    let lost = database.open_with_idle_limit(PATIENCE).await;
    // Without a row of the fence, over which the two might conflict, too.
    let mut cut_over = lost.write().await.unwrap();
    let arrives = "UPDATE bbs_migration SET phase = 'renaming' WHERE id = 1";
    cut_over.execute(sql(arrives)).await.unwrap();
    let elsewhere = database.through(cluster.node(1)).open().await;
    let context = Context {
        database: elsewhere.clone(),
        ..stored.context.clone()
    };
    let fence_elsewhere = Fence::of_master(&elsewhere).await.unwrap();
    let has_arrived = online.has_arrived(&context, &fence_elsewhere).await;
    assert!(!has_arrived.unwrap());
    assert_conflict(cut_over.commit().await);
    let record = "SELECT CONCAT(phase, ' ', token) FROM bbs_migration";
    let unchanged = format!("copying {}", fence.token());
    assert_eq!(texts(&elsewhere, record).await, [unchanged]);
    elsewhere.close().await;
    lost.close().await;
    stored.context.database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_completes_after_loss_of_node_and_balancer() {
    let cluster = Arc::new(Cluster::whole());
    let database = at_newest(&cluster).await;
    let newest = inspect(&database, NEWEST).await;
    let oldest = oldest_rows().await;
    let balancer = Arc::new(cluster.balancer());
    let balanced = database.through(balancer.address());
    for (direction, version, node, wanted) in
        [("down", OLDEST, 1, oldest), ("up", NEWEST, 2, &newest)]
    {
        // A node crashes while rows are copied, and the balancer breaks all connections; then the
        // host is restarted, as a supervisor does, until the migration is complete.
        balancer.stall_after(100_000);
        let crash = crash_when_stalled(&cluster, node, &balancer);
        let mut starts = 0;
        while !command(direction, version, &balanced)
            .output()
            .unwrap()
            .status
            .success()
        {
            starts += 1;
            assert!(starts < 50, "{direction}: the migration makes no progress");
            balancer.heal();
        }
        crash.join().expect("the node crashes");
        assert!(inspect(&balanced, version).await == *wanted, "{direction}");
        cluster.restart(node);
        let through = database.through(cluster.node(node));
        assert!(
            inspect(&through, version).await == *wanted,
            "{direction}: the rejoined node lacks rows"
        );
    }
}

fn crash_when_stalled(
    cluster: &Arc<WholeCluster>,
    node: usize,
    balancer: &Arc<Proxy>,
) -> std::thread::JoinHandle<()> {
    let cluster = Arc::clone(cluster);
    let balancer = Arc::clone(balancer);
    std::thread::spawn(move || {
        assert!(balancer.wait_for_stall(), "the migration ended before");
        cluster.crash(node);
        balancer.cut();
        balancer.heal();
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_master_on_one_node_changes_nothing_after_a_takeover_on_another() {
    let cluster = Cluster::whole();
    let wanted = oldest_rows().await;
    let start = at_newest(&cluster).await;
    for point in [
        fault::AFTER_BATCH,
        fault::BEFORE_CUT_OVER_COMMIT,
        fault::AFTER_CUT_OVER,
    ] {
        let (database, frozen) = frozen_at(
            point,
            async || start.copy(),
            |database| database.through(cluster.node(2)),
        )
        .await;
        assert!(
            !run("down", OLDEST, &database.through(cluster.node(1)), None),
            "{point}"
        );
        signal("CONT", &frozen);
        let continued = frozen.wait_with_output().unwrap();
        assert!(
            !continued.status.success(),
            "{point}: the frozen master did not notice the takeover"
        );
        assert!(inspect(&database, OLDEST).await == *wanted, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_keeps_serving_while_a_node_crashes_and_rejoins() {
    let cluster = Cluster::whole();
    let database = cluster.database();
    fixture::write_to(&database).await;
    let balancer = cluster.balancer();
    let installation = Installation::on(database.through(balancer.address()), &modules::modules());
    let host = installation.set("lock_ttl", "60s").serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let model = Model::of(&caller).await.unwrap();
    let mut load = Load::start(&caller, model, &Aim::default(), SETTINGS);
    load.calls(100).await;
    tokio::task::block_in_place(|| cluster.crash(1));
    load.calls(100).await;
    tokio::task::block_in_place(|| cluster.restart(1));
    load.calls(100).await;
    let (report, after) = load.stop().await;
    assert_eq!(report.differences, 0, "{report}");
    assert!(report.writes.len() > 100, "{report}");
    let listing = everything(&caller).await.unwrap();
    assert_eq!(after.differences(&listing), Vec::<String>::new());
    assert!(host.terminate().success());
}
