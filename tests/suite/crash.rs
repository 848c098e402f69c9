//! A process killed at every crash point, started again, and the database compared with one that was never
//! disturbed. The process is this very program, told by the environment to migrate.

use std::path::Path;
use std::process::Command;

use bbs::migrate::fault::{AFTER_RENAMING, POINTS};

use crate::harness::fixture::{self, VERSION};
use crate::harness::stored::{Rows, Stored};

const OLDEST: u64 = 1_471_030_898;
const TASK: &str = "BBS_TEST_MIGRATE";

/// Not a test of its own: what the killed process runs. Without the variable it has nothing to do.
#[tokio::test]
async fn process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (direction, rest) = task.split_once(' ').unwrap();
    let (version, path) = rest.split_once(' ').unwrap();
    let version = version.parse().unwrap();
    let stored = Stored::open(Path::new(path), fixture::migrations()).await;
    match direction {
        "up" => stored.up(version).await.unwrap(),
        _ => stored.down(version).await.unwrap(),
    };
    stored.context.database.close().await;
}

/// Runs the process; gives whether it was killed.
fn run(direction: &str, version: u64, path: &Path, fault: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::process", "--nocapture"]);
    command.env(TASK, format!("{direction} {version} {}", path.display())).env_remove("BBS_FAULT");
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
async fn look(path: &Path, version: u64) -> Rows {
    let stored = Stored::open(path, fixture::migrations()).await;
    assert_eq!(stored.version().await, version);
    stored.assert_layout(version).await;
    let leftovers =
        stored.fetch("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%!_!_%' ESCAPE '!'").await;
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let rows = stored.rows(version).await;
    stored.context.database.close().await;
    rows
}

struct Worlds {
    folder: tempfile::TempDir,
}

impl Worlds {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{name}.db"))
    }

    /// A second database with the content of the first, which nobody has open.
    fn copy(&self, from: &str, to: &str) -> std::path::PathBuf {
        std::fs::copy(self.path(from), self.path(to)).unwrap();
        self.path(to)
    }
}

/// Kills at every point in every one of its first passages, then starts again until it is done.
async fn killed_everywhere(worlds: &Worlds, start: &str, direction: &str, version: u64) {
    let undisturbed = worlds.copy(start, "undisturbed");
    assert!(!run(direction, version, &undisturbed, None));
    let wanted = look(&undisturbed, version).await;
    for point in points() {
        for passage in 1..=2 {
            let name = format!("{direction}-{point}-{passage}");
            let path = worlds.copy(start, &name);
            let killed = run(direction, version, &path, Some(&format!("{point}:{passage}")));
            assert!(killed || passage > 1, "{name}: no migration comes by this point");
            if killed {
                run(direction, version, &path, None);
            }
            assert!(look(&path, version).await == wanted, "{name}: not what an undisturbed run gives");
        }
    }
}

#[tokio::test]
async fn a_kill_on_the_way_down_costs_nothing() {
    let worlds = Worlds::new();
    fixture::write_to(&worlds.path("start")).await;
    killed_everywhere(&worlds, "start", "down", OLDEST).await;
}

#[tokio::test]
async fn a_kill_on_the_way_up_costs_nothing() {
    let worlds = Worlds::new();
    fixture::write_to(&worlds.path("start")).await;
    assert!(!run("down", OLDEST, &worlds.path("start"), None));
    killed_everywhere(&worlds, "start", "up", VERSION).await;
}

#[tokio::test]
async fn killed_again_and_again_it_still_arrives() {
    let worlds = Worlds::new();
    let path = worlds.path("start");
    fixture::write_to(&path).await;
    let undisturbed = worlds.copy("start", "undisturbed");
    assert!(!run("down", OLDEST, &undisturbed, None));
    for point in points() {
        run("down", OLDEST, &path, Some(point));
    }
    run("down", OLDEST, &path, None);
    assert!(look(&path, OLDEST).await == look(&undisturbed, OLDEST).await);
}

/// SQLite changes names and version at once, so that nothing comes by between them.
fn points() -> impl Iterator<Item = &'static str> {
    POINTS.into_iter().filter(|point| *point != AFTER_RENAMING)
}
