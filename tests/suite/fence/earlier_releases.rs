//! The fence on PostgreSQL between a host of this release and one of an earlier release, which makes
//! one row, locks it in each transaction and raises every row that it sees. Statements of the
//! earlier release stand for its host.

use bbs::testing::database::{Database, Transaction, sql};
use bbs::testing::lock::fence::{Fence, FenceError};

use crate::harness::PATIENCE;
use crate::harness::database::{Kind, TestDatabase, execute, texts};

/// More connections than the fence has rows for a host with fewer.
const MANY_CONNECTIONS: u32 = 70;

/// The fence as an earlier release leaves it, with one row. Returns its token.
async fn raised_by_an_earlier_release(database: &Database) -> i64 {
    let token = Fence::raise(database).await.unwrap().token();
    execute(database, "DELETE FROM bbs_fence WHERE id > 1").await;
    token
}

/// A transaction of a master of an earlier release, which has inserted a row.
async fn begun_by_an_earlier_release(database: &Database, token: i64) -> Transaction {
    let mut tx = database.write().await.unwrap();
    let locked = sql("SELECT token FROM bbs_fence WHERE id = 1 FOR SHARE");
    assert_eq!(tx.fetch_number(locked).await.unwrap(), token);
    let insert = sql("INSERT INTO t (a) VALUES (1)");
    tx.execute(insert).await.unwrap();
    tx
}

/// Raises the fence as an earlier release does, but waits for locks for longer. Returns the token.
async fn raise_of_an_earlier_release(database: Database) -> i64 {
    let mut tx = database.write().await.unwrap();
    let raised = tx.execute(sql("UPDATE bbs_fence SET token = token + 1"));
    assert_ne!(raised.await.unwrap(), 0, "it would insert the row");
    let token = sql("SELECT token FROM bbs_fence WHERE id = 1");
    let token = tx.fetch_number(token).await.unwrap();
    tx.commit().await.unwrap();
    token
}

/// The rows of the fence, and their tokens without repetition.
async fn rows_and_tokens(database: &Database) -> (usize, Vec<String>) {
    let ids = texts(database, "SELECT id::text FROM bbs_fence").await;
    let tokens = texts(database, "SELECT DISTINCT token::text FROM bbs_fence").await;
    (ids.len(), tokens)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_of_an_earlier_release_becomes_as_many_as_the_host_has_connections() {
    let test = TestDatabase::new(Kind::Postgres);
    let few = test.open().await;
    let token = raised_by_an_earlier_release(&few).await;
    let command = Fence::of_master(&few).await.unwrap();
    assert_eq!(command.token(), token);
    let written = command.begin().await;
    written
        .expect("the row that the master has")
        .commit()
        .await
        .unwrap();

    let first = Fence::raise(&few).await.unwrap();
    assert_eq!(first.token(), token + 1);
    let tokens = vec![first.token().to_string()];
    assert_eq!(rows_and_tokens(&few).await, (64, tokens));
    assert!(matches!(
        command.begin().await.unwrap_err(),
        FenceError::Lost { .. }
    ));

    let many = test
        .open_limited(|limits| limits.max_connections = MANY_CONNECTIONS)
        .await;
    let rows = many.readers();
    assert!(rows > 64, "{rows}");
    let second = Fence::raise(&many).await.unwrap();
    let tokens = vec![second.token().to_string()];
    assert_eq!(rows_and_tokens(&few).await, (rows, tokens));

    let third = Fence::raise(&few).await.unwrap();
    let tokens = vec![third.token().to_string()];
    assert_eq!(rows_and_tokens(&few).await, (rows, tokens));
    assert!(matches!(
        second.begin().await.unwrap_err(),
        FenceError::Lost { .. }
    ));
    third.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_of_an_earlier_release_is_ended_by_a_raise_of_this_one() {
    let test = TestDatabase::new(Kind::Postgres);
    // Nothing but its successor ends its transaction.
    let one = test.open_with_idle_limit(PATIENCE).await;
    let other = test.open_with_idle_limit(PATIENCE).await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let token = raised_by_an_earlier_release(&one).await;
    let mut abandoned = begun_by_an_earlier_release(&one, token).await;
    let new = Fence::raise(&other).await.unwrap();
    assert_eq!(new.token(), token + 1);
    let late = abandoned.execute(sql("INSERT INTO t (a) VALUES (2)"));
    assert!(late.await.is_err(), "the session is ended");
    assert_eq!(texts(&other, "SELECT a FROM t").await, Vec::<String>::new());
    new.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn raise_of_an_earlier_release_waits_for_transactions_of_this_one() {
    let test = TestDatabase::new(Kind::Postgres);
    let one = test.open_with_idle_limit(PATIENCE).await;
    let other = test.open_with_idle_limit(PATIENCE).await;
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let fence = Fence::raise(&one).await.unwrap();
    let mut tx = fence.begin().await.unwrap();
    tx.execute(sql("INSERT INTO t (a) VALUES (1)"))
        .await
        .unwrap();
    let locked = "SELECT id::text FROM bbs_fence WHERE xmax::text <> '0'";
    assert_eq!(texts(&other, locked).await, ["64"], "not the earlier row");
    let raising = tokio::spawn(raise_of_an_earlier_release(other.clone()));
    test.wait_for_lock_wait().await;
    assert!(!raising.is_finished());
    tx.commit().await.unwrap();
    let token = raising.await.unwrap();
    assert_eq!(token, fence.token() + 1);
    assert_eq!(texts(&other, "SELECT a FROM t").await, ["1"]);
    let tokens = vec![token.to_string()];
    assert_eq!(rows_and_tokens(&other).await, (64, tokens));
    let lost = fence.begin().await.unwrap_err();
    assert!(
        matches!(lost, FenceError::Lost { theirs, .. } if theirs == token),
        "{lost}"
    );
}
