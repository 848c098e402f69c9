//! Two masters and one fence, on real servers.

use std::time::Duration;

use bbs::database::{Address, Database, sql};
use bbs::lock::fence::{Fence, FenceError};

use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};

/// The smallest that every server knows.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

/// A host whose open transactions do not outlive its silence for long.
async fn impatient(test: &TestDatabase) -> Database {
    let Address::Server(mut server) = test.address() else { panic!("not a server") };
    server.limits.idle_in_transaction_timeout = IDLE_LIMIT;
    Database::open(&Address::Server(server)).await.unwrap()
}

on_each_server!(the_fence_is_raised_before_or_after_a_transaction_and_never_during_one);
async fn the_fence_is_raised_before_or_after_a_transaction_and_never_during_one(kind: Kind) {
    let test = TestDatabase::new(kind);
    let (one, other) = (test.open().await, test.open().await);
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut tx = old.begin().await.unwrap();
    tx.execute(sql("INSERT INTO t (a) VALUES (1)")).await.unwrap();
    let mut also = old.begin().await.expect("transactions of one master share the fence");
    also.execute(sql("INSERT INTO t (a) VALUES (2)")).await.unwrap();
    also.commit().await.unwrap();
    let raising = tokio::spawn(async move { Fence::raise(&other).await.unwrap() });
    // Raised, it would let the old master begin no more.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!raising.is_finished());
    tx.commit().await.unwrap();
    let new = raising.await.unwrap();
    assert_eq!(new.token(), old.token() + 1);
    let lost = old.begin().await.unwrap_err();
    assert!(
        matches!(lost, FenceError::Lost { ours, theirs } if ours == old.token() && theirs == new.token()),
        "{lost}"
    );
    new.begin().await.unwrap().commit().await.unwrap();
    assert_eq!(texts(&one, "SELECT a FROM t ORDER BY a").await, ["1", "2"]);
}

on_each_server!(a_master_that_fell_silent_within_a_transaction_blocks_nobody);
async fn a_master_that_fell_silent_within_a_transaction_blocks_nobody(kind: Kind) {
    let test = TestDatabase::new(kind);
    let (one, other) = (impatient(&test).await, test.open().await);
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    let mut silent = old.begin().await.unwrap();
    silent.execute(sql("INSERT INTO t (a) VALUES (1)")).await.unwrap();
    Fence::raise(&other).await.expect("the server ends the silent transaction");
    let written = silent.execute(sql("INSERT INTO t (a) VALUES (2)")).await;
    assert!(written.is_err() || silent.commit().await.is_err());
    assert_eq!(texts(&other, "SELECT a FROM t").await, Vec::<String>::new());
    assert!(matches!(old.begin().await.unwrap_err(), FenceError::Lost { .. }));
}

on_each_server!(the_schema_is_changed_by_the_master_alone_however_long_it_takes);
async fn the_schema_is_changed_by_the_master_alone_however_long_it_takes(kind: Kind) {
    let test = TestDatabase::new(kind);
    let (one, other) = (impatient(&test).await, test.open().await);
    execute(&one, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    let old = Fence::raise(&one).await.unwrap();
    // Somebody reads the table, and the change waits longer than a silent transaction may last.
    let mut reader = other.read().await.unwrap();
    reader.fetch(sql("SELECT a FROM t")).await.unwrap();
    let changing = tokio::spawn({
        let old = old.clone();
        async move { old.change_schema(&["ALTER TABLE t ADD COLUMN b INT".to_owned()]).await }
    });
    tokio::time::sleep(IDLE_LIMIT * 2).await;
    drop(reader);
    changing.await.unwrap().expect("the fence is kept while the change waits");
    let new = Fence::raise(&other).await.unwrap();
    let refused = old.change_schema(&["ALTER TABLE t ADD COLUMN c INT".to_owned()]).await.unwrap_err();
    assert!(matches!(refused, FenceError::Lost { .. }), "{refused}");
    new.change_schema(&["ALTER TABLE t ADD COLUMN c INT".to_owned()]).await.expect("nobody did it before");
}

on_each_server!(a_fence_that_was_removed_or_rewritten_lets_nobody_through);
async fn a_fence_that_was_removed_or_rewritten_lets_nobody_through(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    for damage in ["DELETE FROM bbs_fence", "UPDATE bbs_fence SET token = -token", "DROP TABLE bbs_fence"] {
        let fence = Fence::raise(&database).await.unwrap();
        execute(&database, damage).await;
        assert!(fence.begin().await.is_err(), "{damage}");
        let next = Fence::raise(&database).await.unwrap();
        assert_ne!(next.token(), fence.token(), "{damage}");
        assert!(fence.begin().await.is_err(), "{damage}");
    }
}
