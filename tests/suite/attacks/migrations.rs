//! Migrations whose results take more memory than a batch may: the units at fault go to quarantine,
//! by the name of the module, within the limit of memory. Keys that no statement can go on behind.

use crate::harness::PATIENCE;
use crate::harness::database::{Kind, execute, on_each_database, texts};
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::watch::run_within_memory;

/// The result column of each task, in bytes: carried by every row that continues it.
const RESULT_BYTES: usize = 20_000;
/// A power of two, so that halves of halves are of two tasks.
const TASKS: usize = 8;

/// Tasks whose migration misbehaves in this way.
async fn greedy(kind: Kind, way: &str) -> Installation {
    let installation = Installation::new(&modules::modules_with_greedy(), kind);
    fixture::write_small_to(&installation.database).await;
    let opened = installation.database.open().await;
    for guid in texts(&opened, "SELECT guid FROM tasks ORDER BY guid")
        .await
        .iter()
        .skip(TASKS)
    {
        execute(&opened, &format!("DELETE FROM tasks WHERE guid = '{guid}'")).await;
    }
    let result = "x".repeat(RESULT_BYTES);
    execute(
        &opened,
        &format!("UPDATE tasks SET domain = '{way}', result = '{result}'"),
    )
    .await;
    opened.close().await;
    installation
}

/// Runs a command within the limit of memory; returns its exit code and its output.
async fn run(installation: &Installation, arguments: &[&str]) -> (Option<i32>, String) {
    let running = run_within_memory(installation.command(arguments));
    let output = tokio::time::timeout(PATIENCE * 5, running)
        .await
        .expect("the command ends");
    (
        output.status.code(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

on_each_database!(rows_that_continue_one_row_many_times_are_refused);
async fn rows_that_continue_one_row_many_times_are_refused(kind: Kind) {
    let installation = greedy(kind, "repeated").await;
    let (code, checked) = run(&installation, &["migrate", "plan", "--check"]).await;
    assert_eq!(
        (code, checked.contains("bytes of memory")),
        (Some(1), true),
        "{checked}"
    );
    let (code, stopped) = run(&installation, &["migrate", "up"]).await;
    assert_eq!(
        (code, stopped.contains("up of migration 1795000070 (greedy")),
        (Some(1), true),
        "{stopped}"
    );
    let (code, migrated) = run(
        &installation,
        &["migrate", "up", "--on-unreadable", "quarantine"],
    )
    .await;
    assert_eq!(
        (
            code,
            migrated.contains("units of table tasks cannot be migrated, too many")
        ),
        (Some(1), true),
        "{migrated}"
    );
    let opened = installation.database.open().await;
    assert_eq!(
        texts(&opened, "SELECT guid FROM tasks").await.len(),
        TASKS,
        "the originals are untouched"
    );
    opened.close().await;
}

on_each_database!(large_results_for_parts_of_a_batch_are_written_in_parts);
/// Method: the module fails for a batch, and returns as much as a call may for each two of its
/// tasks.
async fn large_results_for_parts_of_a_batch_are_written_in_parts(kind: Kind) {
    let installation = greedy(kind, "halves").await;
    let (code, checked) = run(&installation, &["migrate", "plan", "--check"]).await;
    assert_eq!(code, Some(0), "{checked}");
    let (code, migrated) = run(&installation, &["migrate", "up"]).await;
    assert_eq!(code, Some(0), "{migrated}");
    let opened = installation.database.open().await;
    let written = texts(
        &opened,
        "SELECT guid FROM tasks WHERE LENGTH(label) = 15728640",
    )
    .await;
    assert_eq!(written.len(), TASKS);
    opened.close().await;
}

/// Goal: a key of another storage class, which comes after every key of its column's, is named; no
/// command reads it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn key_of_another_storage_class_is_refused_by_name() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    fixture::write_to(&installation.database).await;
    let statement = async |statement: &str| {
        let opened = installation.database.open().await;
        execute(&opened, statement).await;
        opened.close().await;
    };
    let check = &["migrate", "plan", "--check"][..];
    let up = &["migrate", "up"][..];
    let down = &["migrate", "down", "--yes", "--to", "1698182853"][..];
    // Tables that a migration does not read by their keys keep it from nothing.
    for (table, column, commands) in [
        ("desired_lrps", "process_guid", &[check, up, down][..]),
        ("actual_lrps", "process_guid", &[check, up]),
        ("tasks", "guid", &[check]),
    ] {
        let first = format!("{column} = (SELECT MIN({column}) FROM {table})");
        statement(&format!(
            "CREATE TABLE kept AS SELECT {column} FROM {table} WHERE {first} LIMIT 1"
        ))
        .await;
        // Of one row: all instances of an LRP with one key may have the same primary key.
        let one = format!("rowid = (SELECT MIN(rowid) FROM {table} WHERE {first})");
        statement(&format!(
            "UPDATE {table} SET {column} = x'fffe' WHERE {one}"
        ))
        .await;
        for arguments in commands {
            let (code, refused) = run(&installation, arguments).await;
            assert_ne!(code, Some(0), "{arguments:?}: {refused}");
            let named = format!(
                "column {column} of table {table} has a key of the storage class blob, X'FFFE'"
            );
            assert!(refused.contains(&named), "{arguments:?}: {refused}");
        }
        statement(&format!(
            "UPDATE {table} SET {column} = (SELECT {column} FROM kept) WHERE typeof({column}) = 'blob'"
        ))
        .await;
        statement("DROP TABLE kept").await;
    }
    let (code, checked) = run(&installation, &["migrate", "plan", "--check"]).await;
    assert_eq!(code, Some(0), "{checked}");
}
