//! Sessions on database servers: those that the server ends, and those whose statement takes too
//! long or has lost its caller.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bbs::testing::database::{Database, Dialect, Transaction, sql};
use futures_util::future::join_all;

use crate::harness::PATIENCE;
use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};
use crate::harness::proxy::Proxy;

/// Longer than a statement that is delayed on a busy machine, and far shorter than the one that is
/// ended.
const SHORT: Duration = Duration::from_secs(4);

/// A database with the rows 1 and 2.
async fn with_rows(kind: Kind) -> TestDatabase {
    let database = TestDatabase::new(kind);
    let opened = database.open().await;
    execute(&opened, "CREATE TABLE t (a INT PRIMARY KEY, b INT)").await;
    execute(&opened, "INSERT INTO t (a, b) VALUES (1, 0), (2, 0)").await;
    database
}

async fn one_connection(database: &TestDatabase) -> Database {
    database
        .open_limited(|limits| limits.max_connections = 1)
        .await
}

/// A transaction that has changed a row.
async fn holding(database: &Database, row: u32) -> Transaction {
    let mut holder = database.write().await.unwrap();
    holder
        .execute(sql(format!("UPDATE t SET b = b + 1 WHERE a = {row}")))
        .await
        .unwrap();
    holder
}

on_each_server!(write_that_runs_too_long_is_ended_and_holds_no_lock);
async fn write_that_runs_too_long_is_ended_and_holds_no_lock(kind: Kind) {
    let database = with_rows(kind).await;
    let limited = database
        .open_limited(|limits| limits.statement_timeout = SHORT)
        .await;
    let mut writer = holding(&limited, 1).await;
    let sleep = if kind.dialect() == Dialect::Mysql {
        "SLEEP(600)"
    } else {
        "(SELECT 1 FROM pg_sleep(600))"
    };
    let slow = writer
        .execute(sql(format!("UPDATE t SET b = {sleep} WHERE a = 2")))
        .await;
    slow.expect_err("the statement is ended");
    drop(writer);
    let free = database.open_with_idle_limit(PATIENCE).await;
    holding(&free, 1)
        .await
        .execute(sql("UPDATE t SET b = 7 WHERE a = 2"))
        .await
        .expect("both rows are free");
    limited
        .write()
        .await
        .expect("the limit is for one statement")
        .commit()
        .await
        .unwrap();
}

on_each_server!(write_without_a_caller_holds_no_lock);
/// Method: a transaction has changed one row and waits for another one when its caller gives up.
async fn write_without_a_caller_holds_no_lock(kind: Kind) {
    let database = with_rows(kind).await;
    let patient = database.open_with_idle_limit(PATIENCE * 2).await;
    let _holder = holding(&patient, 2).await;
    let calling = tokio::spawn({
        let patient = patient.clone();
        async move {
            holding(&patient, 1)
                .await
                .execute(sql("UPDATE t SET b = 5 WHERE a = 2"))
                .await
        }
    });
    database.wait_for_lock_wait().await;
    calling.abort();
    // It waits for shorter than the other one would.
    holding(&database.open_with_idle_limit(PATIENCE).await, 1)
        .await
        .commit()
        .await
        .expect("the row is free");
}

on_each_server!(sessions_that_the_server_ended_are_replaced);
async fn sessions_that_the_server_ended_are_replaced(kind: Kind) {
    let database = with_rows(kind).await;
    let opened = database.open().await;
    for round in 0..3 {
        let many = join_all((0..10).map(|_| opened.write())).await;
        drop(many);
        database.end_sessions();
        for begun in join_all((0..10).map(|_| opened.write())).await {
            begun
                .unwrap_or_else(|error| panic!("round {round}: {error:?}"))
                .commit()
                .await
                .unwrap();
        }
    }
    assert_eq!(
        texts(&opened, "SELECT a FROM t ORDER BY a").await,
        ["1", "2"]
    );
}

on_each_server!(server_that_stops_answering_ends_what_reads_rows);
/// Goal: a migration or a list whose server has vanished fails, and can be repeated.
async fn server_that_stops_answering_ends_what_reads_rows(kind: Kind) {
    let proxy = Proxy::to(kind.engine().address());
    let database = with_rows(kind).await;
    let limited = database
        .through(proxy.address())
        .open_limited(|limits| limits.statement_timeout = SHORT)
        .await;
    let mut reader = limited.read().await.unwrap();
    assert_eq!(
        reader
            .fetch_number(sql("SELECT COUNT(*) FROM t"))
            .await
            .unwrap(),
        2
    );
    proxy.stall();
    let mut rows = reader.stream(sql("SELECT a FROM t ORDER BY a"));
    let next = tokio::time::timeout(PATIENCE, futures_util::StreamExt::next(&mut rows)).await;
    let error = next.expect("it ends").expect("an error").unwrap_err();
    let text = crate::harness::modules::chain(&error);
    assert!(text.contains("a statement ran longer than"), "{text}");
    drop(rows);
    drop(reader);
    proxy.resume();
    limited.read().await.unwrap();
}

on_each_server!(server_that_stops_answering_ends_the_check_of_sessions);
/// Method: the two sessions that the check compares are open, and were used just now, so that no
/// ping finds the server silent before it.
async fn server_that_stops_answering_ends_the_check_of_sessions(kind: Kind) {
    let proxy = Proxy::to(kind.engine().address());
    let database = TestDatabase::new(kind);
    let limited = database
        .through(proxy.address())
        .open_limited(|limits| limits.connect_timeout = SHORT)
        .await;
    drop([limited.look().await.unwrap(), limited.look().await.unwrap()]);
    proxy.stall();
    let checked = tokio::time::timeout(PATIENCE, limited.check_sessions()).await;
    let error = checked.expect("it ends").unwrap_err();
    let text = crate::harness::modules::chain(&error);
    assert!(text.contains("the server did not answer within"), "{text}");
}

on_each_server!(session_that_is_given_back_has_nothing_of_its_transaction);
/// Method: one connection; a result that is read in part, a statement that fails, a transaction
/// that is dropped.
async fn session_that_is_given_back_has_nothing_of_its_transaction(kind: Kind) {
    let database = with_rows(kind).await;
    let one = one_connection(&database).await;
    for _ in 0..3 {
        let mut looked = one.look().await.unwrap();
        let mut rows = looked.stream(sql("SELECT a FROM t ORDER BY a"));
        futures_util::StreamExt::next(&mut rows)
            .await
            .unwrap()
            .unwrap();
        drop(rows);
        drop(looked);
        let mut failed = one.write().await.unwrap();
        failed
            .execute(sql("UPDATE t SET b = 9 WHERE a = 1"))
            .await
            .unwrap();
        failed
            .execute(sql("INSERT INTO t (a, b) VALUES (1, 1)"))
            .await
            .expect_err("the row exists");
        drop(failed);
        assert_eq!(
            texts(&one, "SELECT CAST(b AS CHAR(1)) FROM t").await,
            ["0", "0"]
        );
    }
}

on_each_server!(few_sessions_at_once_read_the_rest_of_abandoned_answers);
/// Goal: lists of large records that clients give up take little memory. Method: the server sends
/// nothing more, so that each session which reads the rest stays open.
async fn few_sessions_at_once_read_the_rest_of_abandoned_answers(kind: Kind) {
    const CALLERS: u64 = 12;
    let proxy = Proxy::to(kind.engine().address());
    let database = with_rows(kind).await;
    let opened = database.through(proxy.address()).open().await;
    let mut readers = Vec::new();
    for _ in 0..CALLERS {
        let mut reader = opened.read().await.unwrap();
        let mut rows = reader.stream(sql("SELECT a FROM t ORDER BY a"));
        let row = futures_util::StreamExt::next(&mut rows).await;
        row.expect("a row").unwrap();
        drop(rows);
        readers.push(reader);
    }
    proxy.stall();
    drop(readers);
    let open = opened.statistics().open_connections;
    assert!((1..CALLERS).contains(&open), "{open}");
    proxy.resume();
    assert_eq!(
        texts(&opened, "SELECT a FROM t ORDER BY a").await,
        ["1", "2"]
    );
}

on_each_server!(interrupted_statement_leaves_nothing_of_its_answer);
/// Goal: no caller reads the answer to a statement of another one. Method: one connection; a
/// statement that the server has not prepared yet loses its caller after each number of waits for
/// the server.
async fn interrupted_statement_leaves_nothing_of_its_answer(kind: Kind) {
    let proxy = Proxy::to(kind.engine().address());
    let database = with_rows(kind).await;
    let one = one_connection(&database.through(proxy.address())).await;
    for case in 0..12 {
        let columns = 1 + case / 3;
        let waits = 1 + case % 3;
        let mut reader = one.read().await.unwrap();
        let wide = format!(", {waits}").repeat(columns - 1);
        let statement = sql(format!("SELECT a{wide} FROM t WHERE a < ?")).bind(3);
        // Otherwise the answer may be there at once.
        if waits == 1 {
            proxy.stall();
        }
        let is_interrupted = is_interrupted(reader.fetch(statement), waits).await;
        proxy.resume();
        assert!(is_interrupted || waits > 1);
        drop(reader);
        for _ in 0..3 {
            let mut reader = one.read().await.unwrap();
            let rows = reader
                .fetch(sql("SELECT a FROM t WHERE a < ? ORDER BY a").bind(3))
                .await
                .unwrap();
            let found: Vec<_> = rows.iter().map(|row| row.integer(0).unwrap()).collect();
            assert_eq!(
                found,
                [Some(1), Some(2)],
                "{columns} columns, {waits} waits"
            );
            reader.commit().await.unwrap();
        }
    }
}

/// Polls a future until it has waited so often, and drops it; whether that was before its end.
async fn is_interrupted(future: impl Future, waits: usize) -> bool {
    let mut future = pin!(future);
    let mut waited = 0;
    poll_fn(|context| {
        if future.as_mut().poll(context).is_ready() {
            return Poll::Ready(false);
        }
        waited += 1;
        if waited == waits {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    })
    .await
}
