//! A rotation that is killed at each of its crash points and run again completes. The killed
//! process is this test executable, which runs one test on the database of another.

use std::process::Command;

use bbs::testing::migrate::fault::ROTATION_POINTS;

use super::*;
use crate::harness::killed_passages;

/// The database for [`rotation_sets_the_label`] in a child process.
const TASK: &str = "BBS_TEST_ROTATE";
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
            own.test.to_word()
        }
    };
    let database = TestDatabase::from_word(&task).open().await;
    let fence = Fence::raise(&database).await.unwrap();
    let context = RotationContext {
        database,
        keyring: Arc::new(keys(NEW)),
        scope: SealedScope {
            data_version: 1,
            tables: SealedTable::of(&things()).into_iter().collect(),
        },
        progress: Progress::default(),
        lock_timeout: PATIENCE,
        throttle: Throttle::default(),
        clock: Arc::new(StoppedClock::at(1)),
    };
    assert_eq!(keys::rotate(&context, &fence).await.unwrap().unreadable, 0);
    assert_eq!(texts(&context.database, LABEL).await, [NEW]);
    context.database.close().await;
}

/// Runs the process. Returns whether it was killed.
fn run(database: &TestDatabase, fault: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "keys::crash::rotation_sets_the_label",
        "--nocapture",
    ]);
    command
        .env(TASK, database.to_word())
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

struct StoredLabels {
    label: Option<String>,
    labels: BTreeMap<String, usize>,
}

/// Reads the label and counts the texts by label. Asserts that every text is present and opens.
async fn read_labels(database: &TestDatabase) -> StoredLabels {
    let database = database.open().await;
    let found = texts(&database, "SELECT message FROM things").await;
    assert_eq!(found.len(), ROWS * 2);
    assert!(found.iter().all(|text| open(text) == b"same"));
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
    for point in ROTATION_POINTS {
        for passage in killed_passages(kind, point) {
            let case = format!("{kind:?} {point}:{passage}");
            let database = start.test.copy();
            assert!(
                run(&database, Some(&format!("{point}:{passage}"))),
                "{case}: no rotation reaches this point"
            );
            let halfway = read_labels(&database).await;
            // If the label is set, no text may be under another key, at every moment.
            if let Some(label) = &halfway.label {
                assert_eq!(halfway.labels.keys().collect::<Vec<_>>(), [label], "{case}");
            }
            run(&database, None);
            let end = read_labels(&database).await;
            assert_eq!(end.label.as_deref(), Some(NEW), "{case}");
            assert_eq!(end.labels, [(NEW.to_owned(), ROWS * 2)].into(), "{case}");
        }
    }
}

on_each_database!(rotation_killed_at_every_crash_point_in_turn_completes);
async fn rotation_killed_at_every_crash_point_in_turn_completes(kind: Kind) {
    let case = RotationTest::new(kind, ROWS).await;
    case.database.close().await;
    for point in ROTATION_POINTS {
        assert!(run(&case.test, Some(point)), "{kind:?} {point}");
    }
    run(&case.test, None);
    let end = read_labels(&case.test).await;
    assert_eq!((end.label.as_deref(), end.labels.len()), (Some(NEW), 1));
}
