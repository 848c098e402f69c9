//! A rotation killed at each of its crash points, started again, and everything under the new key in the end. The
//! process is this very program, told by the environment to rotate.

use std::path::Path;
use std::process::Command;

use bbs::migrate::fault::ROTATION_POINTS;

use super::*;

const TASK: &str = "BBS_TEST_ROTATE";
const FILES: usize = 2;
/// Several batches.
const ROWS: usize = 400;

/// Not a test of its own: what the killed process runs. Without the variable it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (database, replays) = task.split_once(' ').unwrap();
    let database = TestDatabase::from_word(database).open().await;
    let fence = Fence::raise(&database).await.unwrap();
    let context = Context {
        database,
        keyring: Arc::new(keys(NEW)),
        scope: Scope {
            data_version: 1,
            tables: SealedTable::of(&things()).into_iter().collect(),
            replays: Some(replays.into()),
        },
        progress: Progress::default(),
        pace: Pace::default(),
        clock: Arc::new(StoppedClock::at(1)),
    };
    assert_eq!(keys::rotate(&context, &fence).await.unwrap().unreadable, 0);
    context.database.close().await;
}

/// Runs the process; gives whether it was killed.
fn run(database: &TestDatabase, replays: &Path, fault: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "keys::crash::process", "--nocapture"]);
    command.env(TASK, format!("{} {}", database.to_word(), replays.display())).env_remove("BBS_FAULT");
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    let output = command.output().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(killed || output.status.success(), "{fault:?}: {}{said}", String::from_utf8_lossy(&output.stdout));
    killed
}

fn write_replays(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for file in 0..FILES {
        std::fs::write(folder.join(format!("1-up-{file}.replay")), seal(OLD, b"unit")).unwrap();
    }
}

struct Look {
    label: Option<String>,
    labels: BTreeMap<String, usize>,
}

/// What is there, each text opened: none may be lost or half written.
async fn look(database: &TestDatabase, replays: &Path) -> Look {
    let database = database.open().await;
    let mut found = texts(&database, "SELECT message FROM things").await;
    assert_eq!(found.len(), ROWS * 2);
    assert!(found.iter().all(|text| open(text) == b"same"));
    for entry in std::fs::read_dir(replays).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "replay") {
            found.push(std::fs::read_to_string(path).unwrap());
            assert_eq!(open(&found[found.len() - 1]), b"unit");
        }
    }
    assert_eq!(found.len(), ROWS * 2 + FILES);
    let mut labels = BTreeMap::new();
    for text in &found {
        *labels.entry(header::label_of(text.as_bytes()).unwrap()).or_default() += 1;
    }
    let label = texts(&database, "SELECT value FROM configurations WHERE id = 'encryption_key_label'").await.pop();
    database.close().await;
    Look { label, labels }
}

on_each_database!(a_kill_at_any_point_costs_nothing);
async fn a_kill_at_any_point_costs_nothing(kind: Kind) {
    let start = Case::new(kind, ROWS).await;
    start.database.close().await;
    let folder = tempfile::tempdir().unwrap();
    for point in ROTATION_POINTS {
        for passage in 1..=2 {
            let case = format!("{kind:?} {point}:{passage}");
            let (database, replays) = (start.test.copy(), folder.path().join(format!("{point}-{passage}")));
            write_replays(&replays);
            let killed = run(&database, &replays, Some(&format!("{point}:{passage}")));
            assert!(killed || passage > 1, "{case}: no rotation comes by this point");
            let halfway = look(&database, &replays).await;
            // Whatever the database promises is true at every moment.
            if let Some(label) = &halfway.label {
                assert_eq!(halfway.labels.keys().collect::<Vec<_>>(), [label], "{case}");
            }
            if killed {
                run(&database, &replays, None);
            }
            let end = look(&database, &replays).await;
            assert_eq!(end.label.as_deref(), Some(NEW), "{case}");
            assert_eq!(end.labels, [(NEW.to_owned(), ROWS * 2 + FILES)].into(), "{case}");
            assert_eq!(std::fs::read_dir(&replays).unwrap().count(), FILES, "{case}: nothing is left over");
        }
    }
}

on_each_database!(killed_again_and_again_it_still_arrives);
async fn killed_again_and_again_it_still_arrives(kind: Kind) {
    let case = Case::new(kind, ROWS).await;
    case.database.close().await;
    write_replays(&case.replays);
    for point in ROTATION_POINTS {
        run(&case.test, &case.replays, Some(point));
    }
    run(&case.test, &case.replays, None);
    let end = look(&case.test, &case.replays).await;
    assert_eq!((end.label.as_deref(), end.labels.len()), (Some(NEW), 1));
}
