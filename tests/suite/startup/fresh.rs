//! Databases without a version whose tables are empty: whatever life they had before, a host begins them anew, and its
//! next start finds a database like any other.

use crate::harness::database::{execute, on_each_database, tables, texts};
use crate::lock::upsert_domain;

use super::*;

const COUNTED: [&str; 4] = fixture::TABLES;

/// Empties tables and removes the version, as an operator or a test rig does.
async fn empty(installation: &Installation, is_emptied: impl Fn(&str) -> bool) {
    let opened = installation.database.open().await;
    for table in tables(&opened).await.into_iter().filter(|table| is_emptied(table)) {
        execute(&opened, &format!("DELETE FROM {table}")).await;
    }
    execute(&opened, "DELETE FROM configurations WHERE id = 'version'").await;
    opened.close().await;
}

/// It serves, takes a record, and serves again as what it is.
async fn assert_begins_anew(installation: &Installation) {
    let host = installation.serve();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(host.terminate().success());
    let found = status(installation);
    assert_eq!((&found["decision"], &found["pending"]), (&"serve".into(), &Value::Array(Vec::new())));
    assert_eq!((&found["residue"], &found["quarantined"]), (&0.into(), &0.into()));
    let ran: Vec<_> = found["history"].as_array().unwrap().iter().map(|ran| &ran["same_module"]).collect();
    assert!(ran.len() == 20 && ran.iter().all(|same| **same == true), "{found}");
    let host = installation.serve();
    assert!(host.terminate().success());
    let opened = installation.database.open().await;
    assert_eq!(texts(&opened, "SELECT domain FROM domains").await, ["after"]);
    opened.close().await;
}

on_each_database!(diegos_tables_without_rows_or_version_are_begun_anew);
async fn diegos_tables_without_rows_or_version_are_begun_anew(kind: Kind) {
    let installation = diegos(kind).await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let opened = installation.database.open().await;
    // Locket's, in the same database.
    execute(&opened, "CREATE TABLE locks (path VARCHAR(255) PRIMARY KEY, owner VARCHAR(255))").await;
    execute(&opened, "INSERT INTO locks VALUES ('bbs', 'z1')").await;
    assert_begins_anew(&installation).await;
    assert_eq!(texts(&opened, "SELECT owner FROM locks").await, ["z1"]);
    opened.close().await;
}

// The host's own tables hold what was kept of records that are gone, of a way down that lost something.
on_each_database!(a_database_that_was_migrated_both_ways_is_begun_anew_once_it_is_empty);
async fn a_database_that_was_migrated_both_ways_is_begun_anew_once_it_is_empty(kind: Kind) {
    let installation = diegos(kind).await.set("enable_db_health_check", true);
    assert!(installation.serve().terminate().success());
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert!(status(&installation)["residue"].as_u64().unwrap() > 0);
    let opened = installation.database.open().await;
    execute(&opened, "UPDATE bbs_history SET digest = 'of another module'").await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    assert_begins_anew(&installation).await;
    // The same once more, from the newest version, with the row of the health probe.
    execute(&opened, "DELETE FROM bbs_health_check").await;
    execute(&opened, "INSERT INTO bbs_health_check (id, time) VALUES (1, 7)").await;
    opened.close().await;
    empty(&installation, |table| COUNTED.contains(&table)).await;
    assert_begins_anew(&installation).await;
}

on_each_database!(a_database_of_which_every_table_was_emptied_is_begun_anew);
async fn a_database_of_which_every_table_was_emptied_is_begun_anew(kind: Kind) {
    let installation = diegos(kind).await;
    assert!(installation.serve().terminate().success());
    let opened = installation.database.open().await;
    // What a migration did not get to remove before its notes were emptied, too.
    execute(&opened, &format!("CREATE TABLE actual_lrps__{NEWEST} (process_guid VARCHAR(255) PRIMARY KEY)")).await;
    execute(&opened, &format!("CREATE TABLE desired_lrps__{OLDEST} (process_guid VARCHAR(255) PRIMARY KEY)")).await;
    for _ in 0..2 {
        empty(&installation, |_| true).await;
        assert_begins_anew(&installation).await;
    }
    let left: Vec<_> = tables(&opened).await.into_iter().filter(|table| table.contains("__")).collect();
    assert_eq!(left, Vec::<String>::new());
    opened.close().await;
}

on_each_database!(an_emptied_database_is_begun_anew_by_a_host_that_migrates_online);
async fn an_emptied_database_is_begun_anew_by_a_host_that_migrates_online(kind: Kind) {
    let installation = diegos(kind).await.set("migration_mode", "online");
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let host = installation.serve();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(host.terminate().success());
    assert_eq!(version(&installation), NEWEST);
    let opened = installation.database.open().await;
    assert_eq!(texts(&opened, "SELECT domain FROM domains").await, ["after"]);
    opened.close().await;
}

on_each_database!(a_table_of_the_catalog_with_rows_is_never_dropped);
async fn a_table_of_the_catalog_with_rows_is_never_dropped(kind: Kind) {
    let installation = Installation::new(&modules::modules_with_split(), kind);
    fixture::write_to(&installation.database).await;
    assert!(installation.serve().terminate().success());
    empty(&installation, |table| COUNTED.contains(&table)).await;
    let refused = fail(&installation, &["serve"]);
    assert!(refused.contains("table immutable_desired_lrps, but there is one with rows"), "{refused}");
    let opened = installation.database.open().await;
    assert_eq!(texts(&opened, "SELECT COUNT(*) FROM immutable_desired_lrps").await, ["300"]);
    opened.close().await;
}
