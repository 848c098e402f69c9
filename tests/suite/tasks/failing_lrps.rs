//! Convergence of tasks in a run whose pass over LRPs fails.

use std::pin::pin;
use std::time::Duration;

use bbs::testing::domain::convergence;
use bbs_proto::models::task::State;
use tokio::time::timeout;

use super::{desire, get};
use crate::harness::database::Kind;
use crate::harness::server::{NOW_NS, Server};

/// After it, a pending task has expired.
const EXPIRED_NS: i64 = 1_801_000_000_000;
/// Longer than it takes to fail to read a table.
const FAILED_AFTER: Duration = Duration::from_millis(300);

/// Method: the table of instances is hidden, and the change of a task waits for the database until
/// the pass over LRPs has failed.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_converged_although_instances_cannot_be_read() {
    let server = Server::empty(Kind::Sqlite).await;
    desire(&server, "task").await.unwrap();
    server.sql("ALTER TABLE actual_lrps RENAME TO hidden").await;
    server.clock.set(NOW_NS + EXPIRED_NS);
    let writing = server.database.write().await.unwrap();
    let mut converging = pin!(convergence::run(&server.service));
    let early = timeout(FAILED_AFTER, converging.as_mut()).await;
    assert!(early.is_err(), "it waits for the task: {early:?}");
    drop(writing);
    converging.await.expect_err("instances cannot be read");
    let task = get(&server, "task").await.unwrap();
    assert_eq!((task.state(), task.failed), (State::Completed, true));
}
