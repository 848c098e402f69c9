//! The fence between a master and its successor, on real database servers.

mod earlier_releases;

use std::time::Duration;

use bbs::testing::database::sql;
use bbs::testing::lock::fence::{Fence, FenceError};

use crate::harness::PATIENCE;
use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};
use crate::harness::on_each::on_each_mysql;

/// Longer than a statement that is delayed on a busy machine.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
const STATEMENT_LIMIT: Duration = Duration::from_secs(4);

on_each_server!(raising_the_fence_waits_for_open_transactions);
async fn raising_the_fence_waits_for_open_transactions(kind: Kind) {
    let test = TestDatabase::new(kind);
    let one = test.open().await;
    let other = test.open().await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut tx = old.begin().await.unwrap();
    tx.execute(sql("INSERT INTO t (a) VALUES (1)"))
        .await
        .unwrap();
    let mut also = old
        .begin()
        .await
        .expect("transactions of one master share the fence");
    also.execute(sql("INSERT INTO t (a) VALUES (2)"))
        .await
        .unwrap();
    also.commit().await.unwrap();
    let mut raising = tokio::spawn(async move { Fence::raise(&other).await.unwrap() });
    // PostgreSQL ends the open transaction after 1 s, in which a busy machine may not have looked.
    let ends_it = kind == Kind::Postgres;
    let raised = tokio::select! {
        () = test.wait_for_lock_wait() => None,
        raised = &mut raising, if ends_it => Some(raised.unwrap()),
    };
    assert!(
        ends_it || !raising.is_finished(),
        "once raised, the fence rejects transactions of the old master"
    );
    let is_committed = tx.commit().await.is_ok();
    assert!(
        raised.is_none() || !is_committed,
        "the old master commits after the raise"
    );
    let new = match raised {
        Some(new) => new,
        None => raising.await.unwrap(),
    };
    assert_eq!(new.token(), old.token() + 1);
    let lost = old.begin().await.unwrap_err();
    assert!(
        matches!(lost, FenceError::Lost { ours, theirs } if ours == old.token() && theirs == new.token()),
        "{lost}"
    );
    new.begin().await.unwrap().commit().await.unwrap();
    let expected = if is_committed {
        &["1", "2"][..]
    } else {
        &["2"]
    };
    assert_eq!(texts(&one, "SELECT a FROM t ORDER BY a").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_the_previous_master_are_ended_and_no_others() {
    let test = TestDatabase::new(Kind::Postgres);
    // Nothing but its successor ends its transaction.
    let one = test.open_with_idle_limit(PATIENCE).await;
    let other = test.open_with_idle_limit(PATIENCE).await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut reader = one.read().await.unwrap();
    reader
        .fetch(sql("SELECT token FROM bbs_fence"))
        .await
        .unwrap();
    let mut abandoned = old.begin().await.unwrap();
    abandoned
        .execute(sql("INSERT INTO t (a) VALUES (1)"))
        .await
        .unwrap();
    let new = Fence::raise(&other).await.unwrap();
    assert_eq!(new.token(), old.token() + 1);
    assert!(
        abandoned
            .execute(sql("INSERT INTO t (a) VALUES (2)"))
            .await
            .is_err(),
        "the session is ended"
    );
    reader
        .fetch(sql("SELECT token FROM bbs_fence"))
        .await
        .expect("a session that only reads goes on");
    assert_eq!(texts(&other, "SELECT a FROM t").await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_beside_each_other_lock_rows_of_their_own_on_postgresql() {
    let test = TestDatabase::new(Kind::Postgres);
    let database = test.open().await;
    let fence = Fence::raise(&database).await.unwrap();
    let one = fence.begin().await.unwrap();
    let other = fence.begin().await.unwrap();
    assert_eq!(
        texts(
            &database,
            "SELECT count(*)::text FROM bbs_fence WHERE xmax::text <> '0'"
        )
        .await,
        ["2"],
        "a row that both have locked needs a multixact"
    );
    one.commit().await.unwrap();
    other.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_different_tokens_are_made_equal_by_the_next_raise() {
    let test = TestDatabase::new(Kind::Postgres);
    let database = test.open().await;
    for damage in [
        "DELETE FROM bbs_fence WHERE id = 1",
        "UPDATE bbs_fence SET token = token + 5 WHERE id = 2",
    ] {
        Fence::raise(&database).await.unwrap();
        execute(&database, damage).await;
        let fence = Fence::raise(&database).await.unwrap();
        let tokens = "SELECT DISTINCT token::text FROM bbs_fence";
        assert_eq!(texts(&database, tokens).await, [fence.token().to_string()]);
        fence.begin().await.unwrap().commit().await.unwrap();
    }
}

/// Goal: maintenance of the server does not stop writes.
#[tokio::test(flavor = "multi_thread")]
async fn analysis_of_the_fence_delays_no_transaction_on_postgresql() {
    let test = TestDatabase::new(Kind::Postgres);
    let database = test.open().await;
    let fence = Fence::raise(&database).await.unwrap();
    let mut maintenance = database.write().await.unwrap();
    maintenance.execute(sql("ANALYZE bbs_fence")).await.unwrap();
    fence.begin().await.unwrap().commit().await.unwrap();
    let next = Fence::raise(&database).await.unwrap();
    next.begin().await.unwrap().commit().await.unwrap();
    maintenance.commit().await.unwrap();
}

on_each_server!(idle_transaction_of_a_master_is_aborted_and_does_not_block_the_next);
async fn idle_transaction_of_a_master_is_aborted_and_does_not_block_the_next(kind: Kind) {
    let test = TestDatabase::new(kind);
    let one = test.open_with_idle_limit(IDLE_LIMIT).await;
    let other = test.open().await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut idle = old.begin().await.unwrap();
    idle.execute(sql("INSERT INTO t (a) VALUES (1)"))
        .await
        .unwrap();
    Fence::raise(&other)
        .await
        .expect("the server aborts the idle transaction");
    let written = idle.execute(sql("INSERT INTO t (a) VALUES (2)")).await;
    assert!(written.is_err() || idle.commit().await.is_err());
    assert_eq!(texts(&other, "SELECT a FROM t").await, Vec::<String>::new());
    assert!(matches!(
        old.begin().await.unwrap_err(),
        FenceError::Lost { .. }
    ));
}

on_each_server!(schema_change_waits_shortly_for_a_lock_and_rejects_stale_masters);
async fn schema_change_waits_shortly_for_a_lock_and_rejects_stale_masters(kind: Kind) {
    let test = TestDatabase::new(kind);
    let one = test.open_with_idle_limit(PATIENCE).await;
    let other = test.open_with_idle_limit(PATIENCE).await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut reader = other.read().await.unwrap();
    reader.fetch(sql("SELECT a FROM t")).await.unwrap();
    let change = ["ALTER TABLE t ADD COLUMN b INT".to_owned()];
    let given_up = loop {
        let mut changing = tokio::spawn({
            let old = old.clone();
            let change = change.clone();
            async move { old.change_schema(&change).await }
        });
        tokio::select! {
            () = test.wait_for_lock_wait() => {
                // Behind the change.
                let mut reader = other.look().await.unwrap();
                let behind = reader.fetch(sql("SELECT a FROM t")).await;
                behind.expect("the change makes way");
                break changing.await.unwrap().unwrap_err();
            }
            // It waits for 1 s, in which a busy machine may not have looked.
            ended = &mut changing => assert!(ended.unwrap().unwrap_err().is_transient()),
        }
    };
    assert!(given_up.is_transient(), "{given_up}");
    drop(reader);
    old.change_schema(&change).await.expect("the table is free");
    let new = Fence::raise(&other).await.unwrap();
    let refused = old
        .change_schema(&["ALTER TABLE t ADD COLUMN c INT".to_owned()])
        .await
        .unwrap_err();
    assert!(matches!(refused, FenceError::Lost { .. }), "{refused}");
    new.change_schema(&["ALTER TABLE t ADD COLUMN c INT".to_owned()])
        .await
        .expect("the stale master did not add the column");
}

on_each_mysql!(statement_that_builds_several_indexes_runs_longer_than_another);
/// Method: statements that sleep stand for those that build indexes. On MySQL the host ends one
/// that runs too long, 1 s after its limit.
async fn statement_that_builds_several_indexes_runs_longer_than_another(kind: Kind) {
    let test = TestDatabase::new(kind);
    let limited = test
        .open_limited(|limits| limits.statement_timeout = STATEMENT_LIMIT)
        .await;
    execute(&limited, "CREATE TABLE t (a INT PRIMARY KEY, b INT)").await;
    execute(&limited, "INSERT INTO t (a, b) VALUES (1, 0), (2, 0)").await;
    let fence = Fence::raise(&limited).await.unwrap();
    let time_s = (STATEMENT_LIMIT * 2).as_secs();
    let slow = |row: u32| vec![format!("UPDATE t SET b = SLEEP({time_s}) WHERE a = {row}")];
    fence
        .build_indexes(&slow(1), 100)
        .await
        .expect("it may take as long as 100 statements");
    let ended = fence.change_schema(&slow(2)).await;
    let ended = ended.expect_err("the limit of other statements has not changed");
    // A migration would begin it again.
    assert!(!ended.is_transient() && !ended.is_outage(), "{ended}");
}

on_each_server!(removed_or_rewritten_fence_rejects_transactions);
async fn removed_or_rewritten_fence_rejects_transactions(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    for damage in [
        "DELETE FROM bbs_fence",
        "UPDATE bbs_fence SET token = -token",
        "DROP TABLE bbs_fence",
    ] {
        let fence = Fence::raise(&database).await.unwrap();
        execute(&database, damage).await;
        assert!(fence.begin().await.is_err(), "{damage}");
        let next = Fence::raise(&database).await.unwrap();
        assert_ne!(next.token(), fence.token(), "{damage}");
        assert!(fence.begin().await.is_err(), "{damage}");
    }
}
