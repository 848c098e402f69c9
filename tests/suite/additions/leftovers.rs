//! A table that a migration has replaced, and that another session keeps from being dropped: it
//! delays nothing.

use std::time::Duration;

use bbs::testing::database::sql;
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Start};
use bbs::testing::migrate::{Intent, clean_up};

use super::{newest, with_fixture};
use crate::harness::PATIENCE;
use crate::harness::database::{Kind, on_each_server, texts};
use crate::harness::fixture::VERSION;
use crate::harness::log_lines::LogLines;
use crate::harness::stored::Stored;

/// Waits for locks in the log.
const WAIT: &str = "another client holds a lock; trying again";

/// Leaves a table that a migration from version 7 has replaced, and the record of a migration.
async fn leave_replaced_table(stored: &mut Stored, [from, to]: [u64; 2], phase: &str) {
    for statement in [
        "CREATE TABLE domains__7 (domain VARCHAR(255) PRIMARY KEY)".to_owned(),
        "INSERT INTO bbs_side_table (table_name) VALUES ('domains__7')".to_owned(),
        format!(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, {from}, {to}, FALSE, '', 1, '{phase}')"
        ),
    ] {
        stored.execute(&statement).await;
    }
    // A migration that waits for the table ends with an error after this time.
    stored.context.tuning.lock_timeout = Duration::from_secs(1);
}

on_each_server!(replaced_table_that_another_session_reads_does_not_delay_the_next_migration);
/// Setup: what a migration leaves while a backup reads a table that it has replaced.
async fn replaced_table_that_another_session_reads_does_not_delay_the_next_migration(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    leave_replaced_table(&mut stored, [7, newest], "cleaning-up").await;
    let client = stored.test_database().open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    let read = sql("SELECT COUNT(*) FROM domains__7");
    reading.fetch(read).await.unwrap();
    let log = LogLines::default();
    let capturing = log.capture();
    stored.up(newest).await.unwrap();
    drop(capturing);
    assert_eq!(log.text().matches(WAIT).count(), 1, "{}", log.text());
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.version().await, VERSION);
    let remains = async || stored.tables().await.contains(&"domains__7".to_owned());
    assert!(remains().await);
    drop(reading);
    client.close().await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    clean_up(&stored.context, &fence).await.unwrap();
    assert!(!remains().await);
    let recorded = "SELECT table_name FROM bbs_side_table";
    assert_eq!(texts(&stored.context.database, recorded).await, [""; 0]);
}

on_each_server!(replaced_table_that_another_session_reads_does_not_keep_a_migration_from_ending);
/// Setup: a migration is abandoned while a backup reads a table that the one before it has replaced.
async fn replaced_table_that_another_session_reads_does_not_keep_a_migration_from_ending(
    kind: Kind,
) {
    let mut stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    leave_replaced_table(&mut stored, [newest, newest + 1], "begun").await;
    let client = stored.test_database().open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    let read = sql("SELECT COUNT(*) FROM domains__7");
    reading.fetch(read).await.unwrap();
    stored.up(newest).await.unwrap();
    let begun = "SELECT phase FROM bbs_migration";
    assert_eq!(texts(&stored.context.database, begun).await, [""; 0]);
    assert!(stored.tables().await.contains(&"domains__7".to_owned()));
}

on_each_server!(copy_of_an_earlier_migration_delays_the_beginning_of_an_online_one_once);
/// Setup: another session reads a table of the name of a copy, which the migration has to drop.
async fn copy_of_an_earlier_migration_delays_the_beginning_of_an_online_one_once(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    stored.down(VERSION).await.unwrap();
    let copy = format!("tasks__{newest}");
    for statement in [
        format!("CREATE TABLE {copy} (guid VARCHAR(255) PRIMARY KEY)"),
        format!("INSERT INTO bbs_side_table (table_name) VALUES ('{copy}')"),
    ] {
        stored.execute(&statement).await;
    }
    stored.context.tuning.lock_timeout = Duration::from_secs(1);
    let client = stored.test_database().open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    let read = sql(format!("SELECT COUNT(*) FROM {copy}"));
    reading.fetch(read).await.unwrap();
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let intent = Intent::Up { wanted: newest };
    let log = LogLines::default();
    let capturing = log.capture();
    let started = online::start(&stored.context, &fence, intent).await;
    drop(capturing);
    let Ok(Start::Follow(online)) = started else {
        panic!("{started:?}");
    };
    assert_eq!(log.text().matches(WAIT).count(), 1, "{}", log.text());
    drop(reading);
    client.close().await;
    online.copy(&stored.context, &fence).await.unwrap();
}
