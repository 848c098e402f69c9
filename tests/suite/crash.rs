//! A process killed at every crash point, started again, and the database compared with one that was never
//! disturbed. The process is this very program, told by the environment to migrate.

mod online;

use std::process::Command;

use bbs::migrate::fault::{AFTER_RENAMING, POINTS};

use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::fixture::{self, VERSION};
use crate::harness::stored::{Rows, Stored};

pub(super) const OLDEST: u64 = 1_471_030_898;
const TASK: &str = "BBS_TEST_MIGRATE";

/// Not a test of its own: what the killed process runs. Without the variable it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (direction, rest) = task.split_once(' ').unwrap();
    let (version, database) = rest.split_once(' ').unwrap();
    let version = version.parse().unwrap();
    let stored = Stored::open(&TestDatabase::from_word(database), fixture::migrations()).await;
    match direction {
        "up" => stored.up(version).await.unwrap(),
        _ => stored.down(version).await.unwrap(),
    };
    stored.context.database.close().await;
}

/// The process that migrates, not started yet.
pub(super) fn command(direction: &str, version: u64, database: &TestDatabase) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::process", "--nocapture"]);
    command.env(TASK, format!("{direction} {version} {}", database.to_word())).env_remove("BBS_FAULT");
    command
}

/// Runs the process; gives whether it was killed.
pub(super) fn run(direction: &str, version: u64, database: &TestDatabase, fault: Option<&str>) -> bool {
    let mut command = command(direction, version, database);
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    let output = command.output().unwrap();
    if output.status.success() {
        return false;
    }
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    assert!(killed, "{direction} {version} {fault:?}: {}", String::from_utf8_lossy(&output.stderr));
    true
}

/// The rows and the schema after the process ran undisturbed.
pub(super) async fn look(database: &TestDatabase, version: u64) -> Rows {
    let stored = Stored::open(database, fixture::migrations()).await;
    assert_eq!(stored.version().await, version);
    stored.assert_layout(version).await;
    let leftovers: Vec<_> = stored.tables().await.into_iter().filter(|name| name.contains("__")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let rows = stored.rows(version).await;
    stored.context.database.close().await;
    rows
}

/// Kills at every point in every one of its first passages, then starts again until it is done.
async fn killed_everywhere(start: &TestDatabase, direction: &str, version: u64) {
    let undisturbed = start.copy();
    assert!(!run(direction, version, &undisturbed, None));
    let wanted = look(&undisturbed, version).await;
    for point in points(start.kind) {
        for passage in 1..=2 {
            let case = format!("{:?} {direction} {point}:{passage}", start.kind);
            let database = start.copy();
            let killed = run(direction, version, &database, Some(&format!("{point}:{passage}")));
            assert!(killed || passage > 1, "{case}: no migration comes by this point");
            if killed {
                run(direction, version, &database, None);
            }
            assert!(look(&database, version).await == wanted, "{case}: not what an undisturbed run gives");
        }
    }
}

pub(super) async fn with_fixture(kind: Kind) -> TestDatabase {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    database
}

on_each_database!(a_kill_on_the_way_down_costs_nothing);
async fn a_kill_on_the_way_down_costs_nothing(kind: Kind) {
    killed_everywhere(&with_fixture(kind).await, "down", OLDEST).await;
}

on_each_database!(a_kill_on_the_way_up_costs_nothing);
async fn a_kill_on_the_way_up_costs_nothing(kind: Kind) {
    let start = with_fixture(kind).await;
    assert!(!run("down", OLDEST, &start, None));
    killed_everywhere(&start, "up", VERSION).await;
}

on_each_database!(killed_again_and_again_it_still_arrives);
async fn killed_again_and_again_it_still_arrives(kind: Kind) {
    let database = with_fixture(kind).await;
    let undisturbed = database.copy();
    assert!(!run("down", OLDEST, &undisturbed, None));
    for point in points(kind) {
        run("down", OLDEST, &database, Some(point));
    }
    run("down", OLDEST, &database, None);
    assert!(look(&database, OLDEST).await == look(&undisturbed, OLDEST).await);
}

/// The points that a migration on this database comes by: only MySQL changes names apart from the version.
pub(super) fn points(kind: Kind) -> impl Iterator<Item = &'static str> {
    POINTS.into_iter().filter(move |point| kind == Kind::Mysql || *point != AFTER_RENAMING)
}
