//! Tables that a migration only drops: what ends with them, and is not lost with anything else,
//! keeps no migration from running.

use super::{newest, with_fixture};
use crate::harness::database::Kind;
use crate::harness::fixture::VERSION;
use crate::harness::on_each::on_one_server;
use crate::harness::stored::Stored;

on_one_server!(
    sequence_of_a_table_that_is_dropped_is_no_reason_against_a_rollback,
    postgres
);
/// Setup: the table of the health check as Diego's BBS makes it. Below its version there is none.
async fn sequence_of_a_table_that_is_dropped_is_no_reason_against_a_rollback() {
    let stored = with_fixture(Kind::Postgres).await;
    stored.up(newest(&stored)).await.unwrap();
    for statement in [
        "DROP TABLE bbs_health_check",
        "CREATE TABLE bbs_health_check (id SERIAL PRIMARY KEY, time BIGINT NOT NULL)",
    ] {
        stored.execute(statement).await;
    }
    stored.down(VERSION).await.unwrap();
    stored.assert_layout(VERSION).await;
    let tables = stored.tables().await;
    assert!(!tables.iter().any(|table| table.contains("health_check")));
    stored.up(newest(&stored)).await.unwrap();
}

/// Migrates while a table is left that an earlier migration from version 7 has replaced.
async fn migrate_beside_leftover(stored: &Stored, made: &[&str]) {
    let newest = newest(stored);
    stored.up(newest).await.unwrap();
    for statement in made {
        stored.execute(statement).await;
    }
    let recorded = "INSERT INTO bbs_side_table (table_name) VALUES ('domains__7')";
    stored.execute(recorded).await;
    stored.down(VERSION).await.unwrap();
    stored.assert_layout(VERSION).await;
    assert!(!stored.tables().await.contains(&"domains__7".to_owned()));
}

on_one_server!(
    parts_of_a_leftover_are_no_reason_against_the_next_migration_on_postgres,
    postgres
);
async fn parts_of_a_leftover_are_no_reason_against_the_next_migration_on_postgres() {
    let stored = with_fixture(Kind::Postgres).await;
    let made = [
        "CREATE TABLE domains__7 (id SERIAL, domain TEXT PRIMARY KEY DEFERRABLE)",
        "CREATE INDEX domains_op_idx ON domains__7 (id) TABLESPACE op_space",
    ];
    migrate_beside_leftover(&stored, &made).await;
}

on_one_server!(
    histogram_of_a_leftover_is_no_reason_against_the_next_migration,
    mysql
);
async fn histogram_of_a_leftover_is_no_reason_against_the_next_migration() {
    let stored = with_fixture(Kind::Mysql).await;
    let made = [
        "CREATE TABLE domains__7 (domain VARCHAR(255) PRIMARY KEY, expire_time BIGINT)",
        "ANALYZE TABLE domains__7 UPDATE HISTOGRAM ON expire_time",
    ];
    migrate_beside_leftover(&stored, &made).await;
}
