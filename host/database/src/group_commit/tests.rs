//! Members of a group as callers see them: committed together, rolled back alone, cancelled, lost.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::{Address, Database, Transaction, is_unique_violation, message_of_server, sql};

async fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
        .await
        .unwrap();
    let mut tx = database.write().await.unwrap();
    tx.execute(sql("CREATE TABLE t (id INTEGER PRIMARY KEY)"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    (folder, database)
}

async fn insert(tx: &mut Transaction, id: i64) -> Result<u64, SqlError> {
    tx.execute(sql("INSERT INTO t (id) VALUES (?)").bind(id))
        .await
}

async fn ids(tx: &mut Transaction) -> Vec<i64> {
    let rows = tx.fetch(sql("SELECT id FROM t ORDER BY id")).await.unwrap();
    rows.iter()
        .map(|row| row.integer(0).unwrap().unwrap())
        .collect()
}

async fn kept(database: &Database) -> Vec<i64> {
    ids(&mut database.read().await.unwrap()).await
}

/// Starts a writer that queues behind the open member.
async fn queue(database: &Database, id: i64) -> tokio::task::JoinHandle<Result<(), SqlError>> {
    let database = database.clone();
    let (queues, queued) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let begun = database.write();
        tokio::pin!(begun);
        assert!(begun.as_mut().now_or_never().is_none());
        queues.send(()).unwrap();
        let mut tx = begun.await.unwrap();
        insert(&mut tx, id).await?;
        tx.commit().await
    });
    queued.await.unwrap();
    task
}

#[tokio::test]
async fn queued_writes_are_committed_together() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let second = queue(&database, 2).await;
    let third = queue(&database, 3).await;
    tokio::task::yield_now().await;
    assert_eq!(
        kept(&database).await,
        [0_i64; 0],
        "uncommitted rows are invisible"
    );
    first.commit().await.unwrap();
    second.await.unwrap().unwrap();
    third.await.unwrap().unwrap();
    assert_eq!(kept(&database).await, [1, 2, 3]);
}

#[tokio::test]
async fn failed_or_dropped_member_is_rolled_back_alone() {
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
async fn cancelled_writer_does_not_block_the_others() {
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
        // The commit continues although its caller is gone.
    }
    third.await.unwrap().unwrap();
    let kept = kept(&database).await;
    assert!(kept.contains(&1) && kept.contains(&3), "{kept:?}");
}

#[tokio::test]
async fn dropped_member_releases_the_write_lock() {
    let (folder, database) = database().await;
    let mut dropped = database.write().await.unwrap();
    insert(&mut dropped, 1).await.unwrap();
    drop(dropped);
    // A second pool stands for another process.
    let other = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
        .await
        .unwrap();
    let mut tx = tokio::time::timeout(Duration::from_secs(60), other.write())
        .await
        .unwrap()
        .unwrap();
    insert(&mut tx, 2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(kept(&database).await, [2]);
}

#[tokio::test]
async fn rollback_by_sqlite_fails_all_members_of_the_group() {
    let (_folder, database) = database().await;
    let mut first = database.write().await.unwrap();
    insert(&mut first, 1).await.unwrap();
    let second = {
        let database = database.clone();
        tokio::spawn(async move {
            let mut tx = database.write().await.unwrap();
            // SQLite does this by itself when the disk is full.
            tx.execute(sql("ROLLBACK")).await.unwrap();
            tx.commit().await
        })
    };
    tokio::task::yield_now().await;
    let first = first.commit().await;
    let second = second.await.unwrap();
    assert!(second.is_err());
    // The first member was committed before, or its commit returned an error.
    assert_eq!(first.is_ok(), kept(&database).await == [1]);
    let mut next = database.write().await.unwrap();
    insert(&mut next, 7).await.unwrap();
    next.commit().await.unwrap();
    assert!(kept(&database).await.contains(&7));
}

#[tokio::test]
async fn fault_of_a_group_has_the_message_of_the_database() {
    let (_folder, database) = database().await;
    let mut tx = database.write().await.unwrap();
    let fault = tx.execute(sql("DELETE FROM missing")).await.unwrap_err();
    let fault = shared(Arc::new(fault));
    assert_eq!(message_of_server(&fault), Some("no such table: missing"));
}
