//! Databases without a version and without rows: whatever they held before, a host initialises them
//! again, and its next start finds a complete database.

use crate::harness::database::{TestDatabase, execute, on_each_database, tables, texts};
use crate::harness::on_each::on_one_server;
use crate::lock::upsert_domain;

use super::*;

/// The tables whose rows show that a database is in use.
const COUNTED: [&str; 4] = fixture::TABLES;

/// Empties tables and removes the version row.
async fn empty(installation: &Installation, is_emptied: impl Fn(&str) -> bool) {
    let opened = installation.database.open().await;
    for table in tables(&opened)
        .await
        .into_iter()
        .filter(|table| is_emptied(table))
    {
        execute(&opened, &format!("DELETE FROM {table}")).await;
    }
    execute(&opened, "DELETE FROM configurations WHERE id = 'version'").await;
    opened.close().await;
}

/// Asserts that a host initialises the database, serves a write, and serves again after a restart.
/// Returns the log of its start.
async fn assert_initialised_again(installation: &Installation) -> String {
    let mut host = installation.serve();
    upsert_domain(host.address, "after").await.unwrap();
    let log = host.output().join("\n");
    assert!(host.terminate().success());
    let found = installation.status();
    assert_eq!(
        (&found["decision"], &found["pending"]),
        (&"serve".into(), &Value::Array(Vec::new()))
    );
    assert_eq!(
        (&found["residue"], &found["quarantined"]),
        (&0.into(), &0.into())
    );
    let ran: Vec<_> = found["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ran| &ran["same_module"])
        .collect();
    assert!(
        ran.len() == 21 && ran.iter().all(|same| **same == true),
        "{found}"
    );
    let host = installation.serve();
    assert!(host.terminate().success());
    let opened = installation.database.open().await;
    assert_eq!(
        texts(&opened, "SELECT domain FROM domains").await,
        ["after"]
    );
    opened.close().await;
    log
}

on_each_database!(diego_tables_without_rows_or_version_are_initialised_again);
async fn diego_tables_without_rows_or_version_are_initialised_again(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let opened = installation.database.open().await;
    // A table of Locket in the same database, which is not the host's.
    execute(
        &opened,
        "CREATE TABLE locks (path VARCHAR(255) PRIMARY KEY, owner VARCHAR(255))",
    )
    .await;
    execute(&opened, "INSERT INTO locks VALUES ('bbs', 'z1')").await;
    let status = installation.succeed(&["migrate", "status"]);
    assert!(
        status.contains("none yet; the table locks of another program is left alone"),
        "{status}"
    );
    let log = assert_initialised_again(&installation).await;
    assert!(
        log.contains("the database has tables of another program") && log.contains("locks"),
        "{log}"
    );
    assert_eq!(texts(&opened, "SELECT owner FROM locks").await, ["z1"]);
    opened.close().await;
}

// The host's own tables hold residue of records that no longer exist.
on_each_database!(emptied_database_with_residue_and_history_is_initialised_again);
async fn emptied_database_with_residue_and_history_is_initialised_again(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind)
        .await
        .set("enable_db_health_check", true);
    assert!(installation.serve().terminate().success());
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert!(installation.status()["residue"].as_u64().unwrap() > 0);
    let opened = installation.database.open().await;
    execute(
        &opened,
        "UPDATE bbs_history SET digest = 'of another module'",
    )
    .await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    assert_initialised_again(&installation).await;
    // Again from the newest version, with the row of the health probe.
    execute(&opened, "DELETE FROM bbs_health_check").await;
    execute(
        &opened,
        "INSERT INTO bbs_health_check (id, time) VALUES (1, 7)",
    )
    .await;
    opened.close().await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    assert_initialised_again(&installation).await;
}

on_each_database!(database_with_all_tables_emptied_is_initialised_again);
async fn database_with_all_tables_emptied_is_initialised_again(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    assert!(installation.serve().terminate().success());
    let opened = installation.database.open().await;
    // Tables of an interrupted migration whose state was emptied with the others.
    execute(
        &opened,
        &format!("CREATE TABLE actual_lrps__{NEWEST} (process_guid VARCHAR(255) PRIMARY KEY)"),
    )
    .await;
    execute(
        &opened,
        &format!("CREATE TABLE desired_lrps__{OLDEST} (process_guid VARCHAR(255) PRIMARY KEY)"),
    )
    .await;
    for _ in 0..2 {
        empty(&installation, |_| true).await;
        assert_initialised_again(&installation).await;
    }
    let left: Vec<_> = tables(&opened)
        .await
        .into_iter()
        .filter(|table| table.contains("__"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    opened.close().await;
}

on_each_database!(emptied_database_is_initialised_again_in_online_mode);
async fn emptied_database_is_initialised_again_in_online_mode(kind: Kind) {
    let installation = Installation::of_small_diego(&modules::modules(), kind)
        .await
        .set("migration_mode", "online");
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let host = installation.serve();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(host.terminate().success());
    assert_eq!(installation.data_version(), NEWEST);
    let opened = installation.database.open().await;
    assert_eq!(
        texts(&opened, "SELECT domain FROM domains").await,
        ["after"]
    );
    opened.close().await;
}

on_each_database!(a_table_of_the_catalog_with_rows_is_never_dropped);
async fn a_table_of_the_catalog_with_rows_is_never_dropped(kind: Kind) {
    let installation = Installation::of_diego(&modules::modules_with_split(), kind).await;
    assert!(installation.serve().terminate().success());
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let refused = installation.fail(&["serve"]);
    assert!(
        refused.contains("table immutable_desired_lrps, but there is one with rows"),
        "{refused}"
    );
    let opened = installation.database.open().await;
    assert_eq!(
        texts(&opened, "SELECT COUNT(*) FROM immutable_desired_lrps").await,
        ["300"]
    );
    opened.close().await;
}

on_one_server!(
    parameters_of_a_connection_string_are_those_of_each_session,
    postgres
);
/// Method: a host makes its tables in the schema that its connection string names.
async fn parameters_of_a_connection_string_are_those_of_each_session() {
    let database = TestDatabase::new(Kind::Postgres);
    let opened = database.open().await;
    execute(&opened, "CREATE SCHEMA diego").await;
    let configured = database.configuration();
    let address = configured["database_connection_string"].as_str().unwrap();
    let installation = Installation::on(database.clone(), &modules::modules()).set(
        "database_connection_string",
        format!("{address}?statement_timeout=9min&options=-c%20search_path%3Ddiego"),
    );
    let host = installation.serve();
    let schemas = texts(
        &opened,
        "SELECT table_schema::text FROM information_schema.tables WHERE table_name = 'tasks'",
    );
    assert_eq!(schemas.await, ["diego"]);
    assert!(host.terminate().success());
    opened.close().await;
}
