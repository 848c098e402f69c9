//! Turns as whoever wants to write sees them: together, alone, given up, lost.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::database::{Address, Database, Transaction, is_unique_violation, sql};

async fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
    let mut tx = database.write().await.unwrap();
    tx.execute(sql("CREATE TABLE t (id INTEGER PRIMARY KEY)")).await.unwrap();
    tx.commit().await.unwrap();
    (folder, database)
}

async fn insert(tx: &mut Transaction, id: i64) -> Result<u64, SqlError> {
    tx.execute(sql("INSERT INTO t (id) VALUES (?)").bind(id)).await
}

async fn ids(tx: &mut Transaction) -> Vec<i64> {
    let rows = tx.fetch(sql("SELECT id FROM t ORDER BY id")).await.unwrap();
    rows.iter().map(|row| row.integer(0).unwrap().unwrap()).collect()
}

async fn kept(database: &Database) -> Vec<i64> {
    ids(&mut database.read().await.unwrap()).await
}

/// Those who want to write, in this order, while somebody has the turn.
async fn queue(database: &Database, id: i64) -> tokio::task::JoinHandle<Result<(), SqlError>> {
    let database = database.clone();
    let (asks, asked) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let begun = database.write();
        tokio::pin!(begun);
        assert!(begun.as_mut().now_or_never().is_none());
        asks.send(()).unwrap();
        let mut tx = begun.await.unwrap();
        insert(&mut tx, id).await?;
        tx.commit().await
    });
    asked.await.unwrap();
    task
}

#[tokio::test]
async fn turns_that_follow_one_another_are_committed_together() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let second = queue(&database, 2).await;
    let third = queue(&database, 3).await;
    tokio::task::yield_now().await;
    assert_eq!(kept(&database).await, [0_i64; 0], "nobody sees what is not committed");
    first.commit().await.unwrap();
    second.await.unwrap().unwrap();
    third.await.unwrap().unwrap();
    assert_eq!(kept(&database).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_turn_that_fails_or_is_dropped_is_undone_alone() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let same = queue(&database, 1).await;
    let other = queue(&database, 2).await;
    first.commit().await.unwrap();
    assert!(is_unique_violation(&same.await.unwrap().unwrap_err()));
    other.await.unwrap().unwrap();
    assert_eq!(kept(&database).await, [1, 2]);
    let mut dropped = database.write().await.unwrap();
    insert(&mut dropped, 3).await.unwrap();
    drop(dropped);
    let mut next = database.write().await.unwrap();
    assert_eq!(ids(&mut next).await, [1, 2]);
    insert(&mut next, 4).await.unwrap();
    next.commit().await.unwrap();
    assert_eq!(kept(&database).await, [1, 2, 4]);
}

#[tokio::test]
async fn whoever_gives_up_waiting_holds_up_nobody() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let second = queue(&database, 2).await;
    second.abort();
    let third = queue(&database, 3).await;
    {
        let commit = first.commit();
        tokio::pin!(commit);
        assert!(commit.as_mut().now_or_never().is_none());
        // It goes on although nobody waits for it any more.
    }
    third.await.unwrap().unwrap();
    let kept = kept(&database).await;
    assert!(kept.contains(&1) && kept.contains(&3), "{kept:?}");
}

#[tokio::test]
async fn a_turn_that_is_dropped_gives_the_file_back() {
    let (folder, database) = database().await;
    let mut dropped = database.write().await.unwrap();
    insert(&mut dropped, 1).await.unwrap();
    drop(dropped);
    // As another process would have it.
    let other = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
    let mut tx = tokio::time::timeout(Duration::from_secs(60), other.write()).await.unwrap().unwrap();
    insert(&mut tx, 2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(kept(&database).await, [2]);
}

#[tokio::test]
async fn a_transaction_that_sqlite_undid_is_lost_for_all_of_its_turns() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let second = {
        let database = database.clone();
        tokio::spawn(async move {
            let mut tx = database.write().await.unwrap();
            // As it does by itself where the disk is full.
            tx.execute(sql("ROLLBACK")).await.unwrap();
            tx.commit().await
        })
    };
    tokio::task::yield_now().await;
    let first = first.commit().await;
    let second = second.await.unwrap();
    assert!(second.is_err());
    // It was committed before, or is lost and says so.
    assert_eq!(first.is_ok(), kept(&database).await == [1]);
    let mut next = database.write().await.unwrap();
    insert(&mut next, 7).await.unwrap();
    next.commit().await.unwrap();
    assert!(kept(&database).await.contains(&7));
}
