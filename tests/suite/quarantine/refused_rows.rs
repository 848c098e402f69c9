//! Rows of a migration that only the database can refuse: their unit is found, named with the
//! module, and left out.

use std::path::Path;

use bbs::testing::database::Dialect;
use bbs_proto::models as proto;

use super::assert_contains;
use crate::harness::database::{Kind, execute, on_each_database, texts};
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::on_each::on_one_server;
use crate::harness::output::errors;
use crate::tasks::definition;

const MODULE: &str = "up of migration 1795000060 (unstorable";
const UNSTORABLE: &str = "1795000060";

/// A quarter of the fixture, with the modules whose results a database cannot store, and the guids
/// of its tasks in order.
async fn with_tasks(kind: Kind) -> (Installation, Vec<String>) {
    with_tasks_and(kind, &modules::modules_with_unstorable()).await
}

async fn with_tasks_and(kind: Kind, modules: &Path) -> (Installation, Vec<String>) {
    let installation = Installation::of_small_diego(modules, kind)
        .await
        // So that the first and the last task are of different batches.
        .set("migration_units_per_second", 80);
    let guids = query(&installation, "SELECT guid FROM tasks ORDER BY guid").await;
    (installation, guids)
}

async fn query(installation: &Installation, query: &str) -> Vec<String> {
    let opened = installation.database.open().await;
    let found = texts(&opened, query).await;
    opened.close().await;
    found
}

/// Gives a task the domain that names the flaw of its row.
async fn flaw(installation: &Installation, guid: &str, domain: &str) {
    statement(
        installation,
        &format!("UPDATE tasks SET domain = '{domain}' WHERE guid = '{guid}'"),
    )
    .await;
}

async fn statement(installation: &Installation, statement: &str) {
    let opened = installation.database.open().await;
    execute(&opened, statement).await;
    opened.close().await;
}

/// Random characters of four bytes, which no compression makes shorter.
fn wide(characters: usize) -> String {
    let mut random = fastrand::Rng::with_seed(characters as u64);
    (0..characters)
        .map(|_| random.char('\u{20000}'..='\u{29fff}'))
        .collect()
}

fn stopped(installation: &Installation, arguments: &[&str]) -> String {
    let output = installation.run(arguments);
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    errors
}

on_each_database!(rows_that_the_database_refuses_leave_their_units_out);
/// Method: the first and the last task have the same key in another table; on a server, others have
/// keys that a collation compares as the same, an entry that is too large for an index of the key
/// or for another index, or residue that is too large for a statement.
async fn rows_that_the_database_refuses_leave_their_units_out(kind: Kind) {
    let (installation, guids) = with_tasks(kind).await;
    let last = guids.len() - 1;
    flaw(&installation, &guids[0], "shared").await;
    let mut cases = vec![(last, "shared", "the same key")];
    match (kind, kind.dialect()) {
        (_, Dialect::Postgres) => {
            cases.extend([
                (1, "wide-mark", "index row size"),
                (last / 2, "wide-note", "index row size"),
            ]);
        }
        (Kind::Mariadb, _) => cases.extend([
            (1, "cases", "the same key"),
            (last / 2, "residue", "max_allowed_packet"),
        ]),
        (_, Dialect::Mysql) => cases.push((1, "cases", "the same key")),
        (_, Dialect::Sqlite) => {}
    }
    for (at, domain, _) in &cases {
        flaw(&installation, &guids[*at], domain).await;
    }
    let refused = stopped(&installation, &["migrate", "up"]);
    assert_contains(
        &refused,
        &["cannot be migrated", "the tables are as they were", MODULE],
    );
    assert!(
        cases.iter().any(|(at, ..)| refused.contains(&guids[*at])),
        "{refused}"
    );

    installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    for (at, guid) in guids.iter().enumerate() {
        let case = cases.iter().find(|(place, ..)| *place == at);
        assert_eq!(
            listed.contains(guid.as_str()),
            case.is_some(),
            "{guid}: {listed}"
        );
        if let Some((_, domain, flaw)) = case {
            let shown = installation.succeed(&["migrate", "quarantine", "show", guid]);
            let place = if *domain == "residue" {
                "its residue"
            } else {
                "`task_marks`"
            };
            assert_contains(&shown, &["unstorable", place, flaw]);
        }
    }
    let rest = guids.len() - cases.len();
    assert_eq!(
        query(&installation, "SELECT guid FROM tasks").await.len(),
        rest
    );
    assert_eq!(
        query(&installation, "SELECT mark FROM task_marks")
            .await
            .len(),
        rest
    );
    // The way back has no such rows, and brings the units back.
    installation.succeed(&[
        "migrate",
        "down",
        "--yes",
        "--to",
        &fixture::VERSION.to_string(),
    ]);
    assert_eq!(
        query(&installation, "SELECT guid FROM tasks ORDER BY guid").await,
        guids
    );
}

on_one_server!(
    unit_that_an_index_does_not_hold_is_named_and_can_be_removed,
    postgres
);
/// Goal: a flaw that is found when the copies are complete does not stay in them.
async fn unit_that_an_index_does_not_hold_is_named_and_can_be_removed() {
    let (installation, guids) = with_tasks(Kind::Postgres).await;
    let guid = &guids[7];
    flaw(&installation, guid, "wide-note").await;
    for _ in 0..2 {
        assert_contains(
            &stopped(&installation, &["migrate", "up"]),
            &[guid, MODULE, "index row size"],
        );
    }
    statement(
        &installation,
        &format!("DELETE FROM tasks WHERE guid = '{guid}'"),
    )
    .await;
    installation.succeed(&["migrate", "up"]);
    assert_eq!(
        query(&installation, "SELECT guid FROM tasks").await.len(),
        guids.len() - 1
    );
}

on_each_database!(write_that_a_copy_refuses_leaves_its_unit_out);
/// Method: while rows are copied, clients create two tasks whose rows have the same key in another
/// table.
async fn write_that_a_copy_refuses_leaves_its_unit_out(kind: Kind) {
    let (installation, guids) = with_tasks(kind).await;
    let installation = installation
        .set("migration_mode", "online")
        .set("migration_units_per_second", 5)
        .set("on_unreadable", "quarantine");
    let mut host = installation.serve();
    for guid in ["first", "second"] {
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition()),
            task_guid: guid.into(),
            domain: b"shared".to_vec(),
        };
        let answer: proto::TaskLifecycleResponse = host.call("/v1/tasks/desire.r2", &request).await;
        assert_eq!(answer.error, None, "{guid}");
    }
    installation.succeed(&["migrate", "rate", "none"]);
    host.wait_for_line(|line| line.contains("cut over"));
    assert!(host.terminate().success());
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    assert_contains(&listed, &["second"]);
    let shown = installation.succeed(&["migrate", "quarantine", "show", "second"]);
    assert_contains(&shown, &["unstorable", "`task_marks`", "the same"]);
    let kept = query(
        &installation,
        "SELECT guid FROM tasks WHERE domain = 'shared'",
    )
    .await;
    assert_eq!(kept, ["first"]);
    assert_eq!(
        query(&installation, "SELECT mark FROM task_marks")
            .await
            .len(),
        guids.len() + 1
    );
}

on_each_database!(rows_that_the_layout_before_refuses_leave_their_units_out_on_the_way_down);
/// Method: the migration lets tasks share marks. Going down, the first and the last task have the
/// same key; on a server, others have a text that is too long for its column, or an entry that is
/// too large for an index.
async fn rows_that_the_layout_before_refuses_leave_their_units_out_on_the_way_down(kind: Kind) {
    let (installation, guids) = with_tasks_and(kind, &modules::modules_with_loosened()).await;
    installation.succeed(&["migrate", "up"]);
    let last = guids.len() - 1;
    let mut cases = vec![(last, "mark", "shared".to_owned(), "the same key")];
    let too_long = |flaw| (1, "note", "n".repeat(900), flaw);
    match (kind, kind.dialect()) {
        (_, Dialect::Postgres) => {
            let row_size = "index row size";
            cases.extend([
                (2, "mark", wide(700), row_size),
                (last / 2, "note", wide(700), row_size),
            ]);
            cases.push(too_long("value too long"));
        }
        (Kind::Mariadb, _) => cases.push(too_long("Data too long for column 'note'")),
        (_, Dialect::Mysql) => cases.push(too_long("Data truncated for column 'note'")),
        (_, Dialect::Sqlite) => {}
    }
    let set = async |guid: &str, column: &str, text: &str| {
        statement(
            &installation,
            &format!("UPDATE task_marks SET {column} = '{text}' WHERE guid = '{guid}'"),
        )
        .await;
    };
    set(&guids[0], "mark", "shared").await;
    for (at, column, text, _) in &cases {
        set(&guids[*at], column, text).await;
    }
    let marks = "SELECT mark FROM task_marks ORDER BY guid";
    let before = query(&installation, marks).await;
    let down = ["migrate", "down", "--yes", "--to", UNSTORABLE];
    let refused = stopped(&installation, &down);
    let module = "down of migration 1795000061 (loosened";
    assert_contains(
        &refused,
        &["cannot be migrated", "the tables are as they were", module],
    );
    assert!(
        cases.iter().any(|(at, ..)| refused.contains(&guids[*at])),
        "{refused}"
    );
    assert_eq!(query(&installation, marks).await, before);

    installation.succeed(&[&down[..], &["--on-unreadable", "quarantine"]].concat());
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    for (at, guid) in guids.iter().enumerate() {
        let case = cases.iter().find(|(place, ..)| *place == at);
        assert_eq!(
            listed.contains(guid.as_str()),
            case.is_some(),
            "{guid}: {listed}"
        );
        if let Some((_, _, _, flaw)) = case {
            let shown = installation.succeed(&["migrate", "quarantine", "show", guid]);
            assert_contains(&shown, &[module, "`task_marks`", flaw]);
        }
    }
    assert_eq!(
        query(&installation, marks).await.len(),
        guids.len() - cases.len()
    );
    assert_eq!(
        query(&installation, "SELECT guid FROM tasks ORDER BY guid").await,
        guids
    );
    // The way up has no such rows, and brings the units back.
    installation.succeed(&["migrate", "up"]);
    assert_eq!(query(&installation, marks).await, before);
}

on_each_database!(rows_that_an_index_of_an_existing_table_does_not_hold_leave_their_units_out);
/// Method: the migration changes nothing of the table but adds an index, whose entry for a task is
/// too large for PostgreSQL alone.
async fn rows_that_an_index_of_an_existing_table_does_not_hold_leave_their_units_out(kind: Kind) {
    let (installation, guids) = with_tasks_and(kind, &modules::modules_with_loosened()).await;
    installation.succeed(&["migrate", "up", "--to", UNSTORABLE]);
    let unit = wide(250);
    let set = format!(
        "guid = '{unit}', domain = '{}', cell_id = '{}'",
        wide(251),
        wide(252)
    );
    statement(
        &installation,
        &format!("UPDATE tasks SET {set} WHERE guid = '{}'", guids[7]),
    )
    .await;
    let tasks = "SELECT guid FROM tasks ORDER BY guid";
    let before = query(&installation, tasks).await;
    if kind.dialect() == Dialect::Postgres {
        let module = "up of migration 1795000061 (loosened";
        for _ in 0..2 {
            let refused = stopped(&installation, &["migrate", "up"]);
            assert_contains(
                &refused,
                &[
                    &unit,
                    "the tables are as they were",
                    module,
                    "`tasks`",
                    "index row size",
                ],
            );
            assert_eq!(query(&installation, tasks).await, before);
        }
        installation.succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
        assert_contains(
            &installation.succeed(&["migrate", "quarantine", "list"]),
            &[&unit],
        );
        let shown = installation.succeed(&["migrate", "quarantine", "show", &unit]);
        assert_contains(&shown, &[module, "`tasks`", "index row size"]);
        assert_eq!(query(&installation, tasks).await.len(), guids.len() - 1);
    } else {
        installation.succeed(&["migrate", "up"]);
        assert_eq!(query(&installation, tasks).await, before);
    }
    installation.succeed(&["migrate", "down", "--yes", "--to", UNSTORABLE]);
    assert_eq!(query(&installation, tasks).await, before);
}
