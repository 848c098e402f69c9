//! A migration killed at every crash point, resumed, and its database compared with that of an
//! uninterrupted migration. The killed process is this test executable, which runs one test on the
//! database of another; the process of the tests resumes.

mod inserted;
mod online;

use std::process::Command;
use std::sync::Arc;

use bbs::testing::database::{Dialect, schema, sql};
use bbs::testing::migrate::fault::{
    AFTER_BEGIN, AFTER_COPY, AFTER_PREPARE, AFTER_RENAMING, BEFORE_BEGIN, BEFORE_PREPARE, POINTS,
    WITHIN_CUT_OVER,
};
use bbs_lens::transform::Transform;
pub(super) use online::completion;

use crate::harness::database::{Kind, TestDatabase, execute, on_each_database};
use crate::harness::fixture::{self, OLDEST};
use crate::harness::layouts::NEWEST;
use crate::harness::on_each::on_each_mysql;
use crate::harness::stored::{Rows, Stored};
use crate::harness::{PATIENCE, has_all_rounds, killed_passages, templates, tests_all, until};

/// Direction, with or without the inserted migrations, version and database for
/// [`migration_reaches_the_wanted_version`] in a child process.
const TASK: &str = "BBS_TEST_MIGRATE";

/// The tests below run this one in child processes, which they kill, on databases of theirs.
#[tokio::test(flavor = "multi_thread")]
async fn migration_reaches_the_wanted_version() {
    let own;
    let task = match std::env::var(TASK) {
        Ok(task) => task,
        Err(_) => {
            own = with_fixture(Kind::Sqlite).await;
            task("down", OLDEST, &own)
        }
    };
    let (direction, rest) = task.split_once(' ').unwrap();
    let (version, database) = rest.split_once(' ').unwrap();
    let database = TestDatabase::from_word(database);
    complete(direction, version.parse().unwrap(), &database).await;
}

/// Runs a migration, or the rest of one that was killed, to its end in this process.
async fn complete(direction: &str, version: u64, database: &TestDatabase) {
    let catalog = if direction.ends_with("with-inserted") {
        inserted::migrations()
    } else {
        fixture::migrations()
    };
    let stored = Stored::open(database, catalog).await;
    if direction.starts_with("up") {
        stored.up(version).await.unwrap()
    } else {
        stored.down(version).await.unwrap()
    };
    assert_eq!(stored.version().await, version);
    stored.context.database.close().await;
}

fn task(direction: &str, version: u64, database: &TestDatabase) -> String {
    format!("{direction} {version} {}", database.to_word())
}

/// The command of the child process.
pub(super) fn command(direction: &str, version: u64, database: &TestDatabase) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "crash::migration_reaches_the_wanted_version",
        "--nocapture",
    ]);
    command
        .env(TASK, task(direction, version, database))
        .env_remove("BBS_FAULT");
    command
}

/// Runs the child process to its end; returns whether it was killed by `fault`.
pub(super) fn run(
    direction: &str,
    version: u64,
    database: &TestDatabase,
    fault: Option<&str>,
) -> bool {
    let mut command = command(direction, version, database);
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    let output = command.output().unwrap();
    if output.status.success() {
        return false;
    }
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    assert!(
        killed,
        "{direction} {version} {fault:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Asserts version, schema and the absence of temporary tables; returns all rows.
pub(super) async fn inspect(database: &TestDatabase, version: u64) -> Rows {
    inspect_with(fixture::migrations(), database, version).await
}

/// Inspects the database with a catalog.
async fn inspect_with(
    catalog: Vec<Arc<dyn Transform>>,
    database: &TestDatabase,
    version: u64,
) -> Rows {
    let stored = Stored::open(database, catalog).await;
    assert_eq!(stored.version().await, version);
    stored.assert_layout(version).await;
    let leftovers: Vec<_> = stored
        .tables()
        .await
        .into_iter()
        .filter(|name| name.contains("__"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let rows = stored.rows(version).await;
    stored.context.database.close().await;
    rows
}

/// One unit of the fixture in so many: enough for two batches of LRPs, since each crash point is
/// passed in a migration of its own.
pub(super) const SHARE: u32 = 4;

/// The fixture as Diego's BBS wrote it.
pub(super) async fn with_fixture(kind: Kind) -> TestDatabase {
    let database = TestDatabase::new(kind);
    fixture::write_share_to(&database, SHARE).await;
    database
}

/// The fixture at the newest version, as [`migrate_to_newest`] leaves it.
pub(super) async fn at_newest(kind: Kind) -> TestDatabase {
    if kind.dialect() == Dialect::Mysql {
        // These servers copy each table with two statements, which take as long as the migrations.
        let database = with_fixture(kind).await;
        migrate_to_newest(&database).await;
        return database;
    }
    templates::copy(kind, "fixture through the oldest version", |empty| {
        Box::pin(async move {
            fixture::write_tables_to(&empty).await;
            fixture::write_rows_to(&empty, SHARE).await;
            migrate_through_oldest(&Stored::over(empty, fixture::migrations())).await;
        })
    })
}

/// Adds a definition in the archive to each desired LRP.
pub(super) const ARCHIVED: &str = "INSERT INTO bbs_lrp_definitions (process_guid, definition_id, log_guid, memory_mb, disk_mb, max_pids, rootfs, \
     volume_placement, placement_tags, metric_tags, run_info, created_at, last_active_at) \
     SELECT process_guid, 'archived', log_guid, memory_mb, disk_mb, 1, rootfs, volume_placement, placement_tags, metric_tags, \
     run_info, 1, 2 FROM desired_lrps";
/// Adds an update that began to each desired LRP.
const UPDATED: &str = "INSERT INTO bbs_lrp_updates (process_guid, started_at, cancelled) SELECT process_guid, 3, false FROM desired_lrps";

/// Takes the fixture in a database to the newest version, with archived definitions and updates
/// under way. Through the oldest version, so that the row functions of all migrations have
/// processed each record, as on a later way back up.
pub(super) async fn migrate_to_newest(database: &TestDatabase) {
    let stored = Stored::open(database, fixture::migrations()).await;
    migrate_through_oldest(&stored).await;
    stored.context.database.close().await;
}

async fn migrate_through_oldest(stored: &Stored) {
    stored.down(OLDEST).await.unwrap();
    stored.up(NEWEST).await.unwrap();
    for statement in [ARCHIVED, UPDATED] {
        stored.execute(statement).await;
    }
}

on_each_database!(kill_at_any_point_of_a_migration_down_and_back_up_loses_nothing);
/// Goal: neither direction loses or changes a row, definitions and updates included. Method: at
/// every crash point, on servers at every other one, a migration down and then the one back up are
/// killed at a passage and resumed.
async fn kill_at_any_point_of_a_migration_down_and_back_up_loses_nothing(kind: Kind) {
    let start = at_newest(kind).await;
    let newest = inspect(&start, NEWEST).await;
    assert!(!newest["bbs_lrp_definitions"].is_empty() && !newest["bbs_lrp_updates"].is_empty());
    let undisturbed = start.copy();
    complete("down", OLDEST, &undisturbed).await;
    let oldest = inspect(&undisturbed, OLDEST).await;
    for point in points(kind).filter(|point| has_all_rounds(kind) || is_at_even_place(point)) {
        for passage in killed_passages(kind, point) {
            let database = start.copy();
            for (direction, version, wanted) in [("down", OLDEST, &oldest), ("up", NEWEST, &newest)]
            {
                let case = format!("{direction} {point}:{passage}");
                let fault = format!("{point}:{passage}");
                assert!(
                    run(direction, version, &database, Some(&fault)),
                    "{case}: the migration does not reach this point"
                );
                complete(direction, version, &database).await;
                assert!(
                    inspect(&database, version).await == *wanted,
                    "{case}: differs from an uninterrupted migration"
                );
            }
        }
    }
}

on_each_mysql!(created_table_without_its_indexes_gets_them);
/// Goal: a start that ends between two statements which each commit by themselves leaves nothing
/// out. Method: the next start finds the table that the migration creates without its index.
async fn created_table_without_its_indexes_gets_them(kind: Kind) {
    let database = with_fixture(kind).await;
    assert!(run("up", NEWEST, &database, Some(WITHIN_CUT_OVER)));
    let opened = database.open().await;
    execute(
        &opened,
        "DROP INDEX bbs_lrp_definitions_last_active_at_idx ON bbs_lrp_definitions",
    )
    .await;
    opened.close().await;
    complete("up", NEWEST, &database).await;
    inspect(&database, NEWEST).await;
}

on_each_mysql!(indexes_that_the_server_still_builds_are_not_built_again);
/// Goal: a statement that builds indexes runs to its end although its host was killed. Method: such
/// a statement waits for a session that reads the copy, and the next start for the statement.
async fn indexes_that_the_server_still_builds_are_not_built_again(kind: Kind) {
    const COPIED: &str = "actual_lrps";
    let database = at_newest(kind).await;
    assert!(run("down", OLDEST, &database, Some(AFTER_COPY)));
    let stored = Stored::open(&database, fixture::migrations()).await;
    let table = stored.layout(OLDEST).tables[COPIED].clone();
    let copy = format!("{COPIED}__{OLDEST}");
    let build = schema::index_ahead(Dialect::Mysql, &table, &copy, &table.indexes).remove(0);
    let client = database.open_with_idle_limit(PATIENCE * 2).await;
    let mut reading = client.read().await.unwrap();
    let read = sql(format!("SELECT COUNT(*) FROM {copy}"));
    reading.fetch(read).await.unwrap();
    let building = tokio::spawn(async move { execute(&client, &build).await });
    database.wait_for_lock_wait().await;

    let release = async {
        until(|| stored.context.progress.snapshot().waiting.is_some()).await;
        drop(reading);
        building.await.unwrap();
    };
    let (migrated, ()) = tokio::join!(stored.down(OLDEST), release);
    migrated.unwrap();
    inspect(&database, OLDEST).await;
}

on_each_database!(migration_killed_at_every_point_in_turn_completes);
async fn migration_killed_at_every_point_in_turn_completes(kind: Kind) {
    let database = at_newest(kind).await;
    let undisturbed = database.copy();
    complete("down", OLDEST, &undisturbed).await;
    for point in points(kind) {
        assert!(
            run("down", OLDEST, &database, Some(point)),
            "{point}: the migration does not reach this point"
        );
    }
    complete("down", OLDEST, &database).await;
    assert!(inspect(&database, OLDEST).await == inspect(&undisturbed, OLDEST).await);
}

/// The crash points of a migration on this database: only MySQL's dialect renames tables outside of
/// the version's transaction.
pub(super) fn points(kind: Kind) -> impl Iterator<Item = &'static str> {
    POINTS
        .into_iter()
        .filter(move |point| kind.dialect() == Dialect::Mysql || *point != AFTER_RENAMING)
}

/// The points at which a migration has copied nothing.
const BEFORE_COPY: [&str; 4] = [BEFORE_BEGIN, AFTER_BEGIN, BEFORE_PREPARE, AFTER_PREPARE];

/// Whether a crash point is one of every other, on each database the same ones.
fn is_at_even_place(point: &str) -> bool {
    POINTS.iter().step_by(2).any(|even| *even == point)
}

/// The crash points of a migration that differs from another one in what it copies: none before the
/// copy, on servers those of the rest that the test of the other migration leaves out there, and on
/// SQLite the others. All points in `tests/run --all`.
fn points_of_variant(kind: Kind) -> impl Iterator<Item = &'static str> {
    let is_whole = tests_all();
    let has_even_places = kind == Kind::Sqlite;
    points(kind).filter(move |point| {
        is_whole || !BEFORE_COPY.contains(point) && is_at_even_place(point) == has_even_places
    })
}
