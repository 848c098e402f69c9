//! Convergence of tasks that no call changes.

use bbs::testing::domain::convergence;
use bbs_proto::models::task::State;
use futures_util::FutureExt;

use super::{by_guid, complete, desire, get, not_found, start};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{NOW_NS, Server};
use crate::harness::{PATIENCE, pause};

const SECOND_NS: i64 = 1_000_000_000;

on_layouts_of_sqlite!(convergence_fails_expired_pending_tasks_and_prunes_completed_ones);
async fn convergence_fails_expired_pending_tasks_and_prunes_completed_ones(kind: Kind) {
    let server = Server::empty(kind).await;
    for guid in ["waits", "ended", "resolving"] {
        desire(&server, guid).await.unwrap();
    }
    for guid in ["ended", "resolving"] {
        start(&server, guid, "cell").await.unwrap();
        complete(&server, guid, "cell").await.unwrap();
    }
    by_guid(&server, "resolving", "resolving").await.unwrap();

    server.clock.set(NOW_NS + 31 * SECOND_NS);
    let counts = convergence::run(&server.service).await.unwrap().tasks;
    assert_eq!(
        (
            counts.pending,
            counts.completed,
            counts.resolving,
            counts.pruned
        ),
        (1, 2, 0, 0),
        "as the run leaves them"
    );
    assert_eq!(counts.kicked, 3, "the pending one is auctioned again");
    assert_eq!(get(&server, "waits").await.unwrap().state(), State::Pending);
    assert_eq!(
        get(&server, "resolving").await.unwrap().state(),
        State::Completed,
        "its callback is started again"
    );

    server.clock.set(NOW_NS + 121 * SECOND_NS);
    assert_eq!(
        convergence::run(&server.service)
            .await
            .unwrap()
            .tasks
            .pruned,
        2
    );
    assert_eq!(get(&server, "ended").await, not_found());
    assert_eq!(get(&server, "resolving").await, not_found());

    server.clock.set(NOW_NS + 1801 * SECOND_NS);
    assert_eq!(
        convergence::run(&server.service)
            .await
            .unwrap()
            .tasks
            .kicked,
        1
    );
    let task = get(&server, "waits").await.unwrap();
    assert_eq!((task.state(), task.failed), (State::Completed, true));
    assert_eq!(task.failure_reason, b"not started within time limit");
}

/// Goal: no task is written while others are read; a switch of the store waits for readers, and
/// writers wait for the switch. Method: the first task's write waits for the database while a
/// switch begins.
#[tokio::test(flavor = "multi_thread")]
async fn switch_of_the_store_between_due_tasks_ends() {
    let server = Server::empty(Kind::Sqlite).await;
    for guid in ["one", "another", "third"] {
        desire(&server, guid).await.unwrap();
    }
    server.clock.set(NOW_NS + 1801 * SECOND_NS);
    let writing = server.database.write().await.unwrap();
    let switch = async {
        while server.store.switch().now_or_never().is_some() {
            pause().await;
        }
        let store = server.store.clone();
        let switching = tokio::spawn(async move { drop(store.switch().await) });
        pause().await;
        drop(writing);
        switching.await.unwrap();
    };
    let both = async { tokio::join!(convergence::run(&server.service), switch) };
    let (converged, ()) = tokio::time::timeout(PATIENCE, both)
        .await
        .expect("neither waits for the other");
    assert_eq!(converged.unwrap().tasks.kicked, 3);
}

on_layouts_of_sqlite!(running_task_is_kept_when_the_cells_are_unknown);
async fn running_task_is_kept_when_the_cells_are_unknown(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "task").await.unwrap();
    start(&server, "task", "cell").await.unwrap();
    server.clock.set(NOW_NS + 3600 * SECOND_NS);
    convergence::run(&server.service).await.unwrap();
    assert_eq!(get(&server, "task").await.unwrap().state(), State::Running);
}

on_each_database!(convergence_leaves_an_unreadable_task_unchanged);
/// Goal: a task that needs an auction, or fails, is noted, so that the next run can move it into
/// quarantine. The definition of a task that a cell runs is not read.
async fn convergence_leaves_an_unreadable_task_unchanged(kind: Kind) {
    let server = Server::empty(kind).await;
    for guid in ["damaged", "running", "sound"] {
        desire(&server, guid).await.unwrap();
    }
    start(&server, "running", "cell").await.unwrap();
    server
        .sql("UPDATE tasks SET task_definition = '02damaged' WHERE guid <> 'sound'")
        .await;
    for age_s in [0, 1801] {
        server.clock.set(NOW_NS + age_s * SECOND_NS);
        convergence::run(&server.service).await.unwrap();
        let noted = server.store.take_unreadable().into_iter();
        let guids: Vec<_> = noted.map(|(_, guid)| guid).collect();
        assert_eq!(guids, [b"damaged".to_vec()]);
    }
    assert_eq!(
        get(&server, "sound").await.unwrap().state(),
        State::Completed
    );
    let found = server
        .texts("SELECT task_definition FROM tasks WHERE guid <> 'sound'")
        .await;
    assert_eq!(found, ["02damaged", "02damaged"]);
    assert!(server.store.left_out() > 0);
}
