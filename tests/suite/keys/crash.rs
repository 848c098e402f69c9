//! A rotation that is killed at each of its crash points and run again completes. The killed
//! process is this test executable, which runs one test on the database of another.

use std::path::Path;
use std::process::Command;

use bbs::testing::migrate::fault::ROTATION_POINTS;

use super::*;
use crate::harness::killed_passages;

/// Database and folder of replay files for [`rotation_sets_the_label`] in a child process.
const TASK: &str = "BBS_TEST_ROTATE";
const FILES: usize = 2;
/// Enough rows for several batches.
const ROWS: usize = 400;

/// The tests below run this one in child processes, which they kill, on databases of theirs.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_sets_the_label() {
    let own;
    let task = match std::env::var(TASK) {
        Ok(task) => task,
        Err(_) => {
            own = RotationTest::new(Kind::Sqlite, ROWS).await;
            own.database.close().await;
            write_replays(&own.replays);
            task(&own.test, &own.replays)
        }
    };
    let (database, replays) = task.split_once(' ').unwrap();
    let database = TestDatabase::from_word(database).open().await;
    let fence = Fence::raise(&database).await.unwrap();
    let context = RotationContext {
        database,
        keyring: Arc::new(keys(NEW)),
        scope: SealedScope {
            data_version: 1,
            tables: SealedTable::of(&things()).into_iter().collect(),
            replays: Some(replays.into()),
        },
        progress: Progress::default(),
        throttle: Throttle::default(),
        clock: Arc::new(StoppedClock::at(1)),
    };
    assert_eq!(keys::rotate(&context, &fence).await.unwrap().unreadable, 0);
    assert_eq!(texts(&context.database, LABEL).await, [NEW]);
    context.database.close().await;
}

fn task(database: &TestDatabase, replays: &Path) -> String {
    format!("{} {}", database.to_word(), replays.display())
}

/// Runs the process. Returns whether it was killed.
fn run(database: &TestDatabase, replays: &Path, fault: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "keys::crash::rotation_sets_the_label",
        "--nocapture",
    ]);
    command
        .env(TASK, task(database, replays))
        .env_remove("BBS_FAULT");
    if let Some(fault) = fault {
        command.env("BBS_FAULT", fault);
    }
    let output = command.output().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        killed || output.status.success(),
        "{fault:?}: {}{stderr}",
        String::from_utf8_lossy(&output.stdout)
    );
    killed
}

fn write_replays(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for file in 0..FILES {
        std::fs::write(
            folder.join(format!("1-up-{file}.replay")),
            seal(OLD, b"unit"),
        )
        .unwrap();
    }
}

struct StoredLabels {
    label: Option<String>,
    labels: BTreeMap<String, usize>,
}

/// Reads the label and counts the texts by label. Asserts that every text is present and opens.
async fn read_labels(database: &TestDatabase, replays: &Path) -> StoredLabels {
    let database = database.open().await;
    let mut found = texts(&database, "SELECT message FROM things").await;
    assert_eq!(found.len(), ROWS * 2);
    assert!(found.iter().all(|text| open(text) == b"same"));
    for entry in std::fs::read_dir(replays).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "replay")
        {
            found.push(std::fs::read_to_string(path).unwrap());
            assert_eq!(open(&found[found.len() - 1]), b"unit");
        }
    }
    assert_eq!(found.len(), ROWS * 2 + FILES);
    let mut labels = BTreeMap::new();
    for text in &found {
        *labels
            .entry(header::label_of(text.as_bytes()).unwrap())
            .or_default() += 1;
    }
    let label = texts(&database, LABEL).await.pop();
    database.close().await;
    StoredLabels { label, labels }
}

on_each_database!(rotation_killed_at_any_crash_point_is_completed_by_the_next_run);
async fn rotation_killed_at_any_crash_point_is_completed_by_the_next_run(kind: Kind) {
    let start = RotationTest::new(kind, ROWS).await;
    start.database.close().await;
    let folder = tempfile::tempdir().unwrap();
    for point in ROTATION_POINTS {
        for passage in killed_passages(kind) {
            let case = format!("{kind:?} {point}:{passage}");
            let database = start.test.copy();
            let replays = folder.path().join(format!("{point}-{passage}"));
            write_replays(&replays);
            let killed = run(&database, &replays, Some(&format!("{point}:{passage}")));
            assert!(
                killed || passage > 1,
                "{case}: no rotation reaches this point"
            );
            let halfway = read_labels(&database, &replays).await;
            // If the label is set, no text may be under another key, at every moment.
            if let Some(label) = &halfway.label {
                assert_eq!(halfway.labels.keys().collect::<Vec<_>>(), [label], "{case}");
            }
            if killed {
                run(&database, &replays, None);
            }
            let end = read_labels(&database, &replays).await;
            assert_eq!(end.label.as_deref(), Some(NEW), "{case}");
            assert_eq!(
                end.labels,
                [(NEW.to_owned(), ROWS * 2 + FILES)].into(),
                "{case}"
            );
            assert_eq!(
                std::fs::read_dir(&replays).unwrap().count(),
                FILES,
                "{case}: no temporary file is left"
            );
        }
    }
}

on_each_database!(rotation_killed_at_every_crash_point_in_turn_completes);
async fn rotation_killed_at_every_crash_point_in_turn_completes(kind: Kind) {
    let case = RotationTest::new(kind, ROWS).await;
    case.database.close().await;
    write_replays(&case.replays);
    for point in ROTATION_POINTS {
        run(&case.test, &case.replays, Some(point));
    }
    run(&case.test, &case.replays, None);
    let end = read_labels(&case.test, &case.replays).await;
    assert_eq!((end.label.as_deref(), end.labels.len()), (Some(NEW), 1));
}
